"""Bits of integers."""

import torch


def reference(a, b):
    return a ^ b


def get_inputs():
    return [
        torch.randint(0, 1 << 30, (200,), dtype=torch.int32),
        torch.randint(0, 1 << 30, (200,), dtype=torch.int32),
    ]
