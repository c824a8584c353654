"""A block of a vision transformer."""

import torch
from torch import nn

B, S, C, H = 2, 10, 32, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1 = nn.LayerNorm(C)
        self.a = nn.MultiheadAttention(C, H, batch_first=True)
        self.n2 = nn.LayerNorm(C)
        self.m = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))

    def forward(self, x):
        y = self.n1(x)
        x = x + self.a(y, y, y, need_weights=False)[0]
        return x + self.m(self.n2(x))


def get_inputs():
    return [torch.randn(B, S, C)]
