"""Each token through its two experts."""

import torch


def reference(x, ids, w1, weights):
    g = torch.einsum("td,tkdh->tkh", x, w1[ids])
    return (g * weights[..., None]).sum(1)


def get_inputs():
    ids = torch.stack([torch.randperm(8)[:2] for _ in range(30)])
    return [torch.randn(30, 16), ids, torch.randn(8, 16, 12), torch.rand(30, 2).softmax(-1)]
