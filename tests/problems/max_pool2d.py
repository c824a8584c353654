"""Padded max pooling."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.p = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return self.p(x)


def get_inputs():
    return [torch.randn(2, 4, 20, 22)]
