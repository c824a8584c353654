"""A softmax over the edges into each node."""

import torch
import torch.nn.functional as F


def reference(h, src, dst, a):
    e = F.leaky_relu(a[0][src] + a[1][dst], 0.2)
    m = torch.full((h.shape[0],), -1e9, dtype=h.dtype).scatter_reduce(0, dst, e, "amax")
    p = (e - m[dst]).exp()
    z = torch.zeros(h.shape[0], dtype=h.dtype).index_add(0, dst, p)
    return torch.zeros_like(h).index_add(0, dst, (p / z[dst])[:, None] * h[src])


def get_inputs():
    n, e = 20, 60
    return [
        torch.randn(n, 8),
        torch.randint(0, n, (e,)),
        torch.randint(0, n, (e,)),
        torch.randn(2, n),
    ]
