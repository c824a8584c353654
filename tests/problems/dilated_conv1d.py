"""A dilated convolution."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(3, 8, 3, stride=1, dilation=2, bias=True)

    def forward(self, x):
        return self.c(x)


def get_inputs():
    return [torch.randn(4, 3, 40)]
