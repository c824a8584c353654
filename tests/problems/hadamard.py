"""A Hadamard transform by halving."""

import torch


def reference(x):
    n = x.shape[-1]
    h = 1
    while h < n:
        x = x.view(-1, n // (2 * h), 2, h)
        x = torch.stack((x[:, :, 0] + x[:, :, 1], x[:, :, 0] - x[:, :, 1]), 2)
        h *= 2
    return x.reshape(-1, n)


def get_inputs():
    return [torch.randn(8, 64)]
