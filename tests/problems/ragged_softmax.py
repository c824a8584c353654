"""A softmax over each of several sequences in a row."""

import torch


def reference(x, cu):
    rows = torch.searchsorted(cu, torch.arange(x.shape[0]), right=True) - 1
    m = torch.full((cu.shape[0] - 1,), float("-inf"), dtype=x.dtype).scatter_reduce(
        0, rows, x, "amax"
    )
    e = (x - m[rows]).exp()
    s = torch.zeros(cu.shape[0] - 1, dtype=x.dtype).index_add(0, rows, e)
    return e / s[rows]


def get_inputs():
    return [torch.randn(120), torch.tensor([0, 10, 50, 90, 120])]
