"""Attention with a feature map in place of a softmax."""

import torch
import torch.nn.functional as F


def reference(q, k, v):
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.einsum("bhsd,bhse->bhde", k, v)
    z = 1 / (torch.einsum("bhsd,bhd->bhs", q, k.sum(2)) + 1e-6)
    return torch.einsum("bhsd,bhde,bhs->bhse", q, kv, z)


def get_inputs():
    q, k, v = torch.randn(3, 2, 4, 20, 16)
    return [q, k, v]
