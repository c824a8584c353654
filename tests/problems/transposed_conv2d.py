"""A transposed convolution with output padding: a side is 2 * H + L - 3."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return self.c(x)


def get_inputs():
    return [torch.randn(2, 6, 9, 10)]
