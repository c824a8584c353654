"""Attention with a mask of bools."""

import torch
import torch.nn.functional as F


def reference(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def get_inputs():
    q, k, v = torch.randn(3, 2, 4, 20, 16)
    return [q, k, v, torch.rand(2, 1, 20, 20) > 0.3]
