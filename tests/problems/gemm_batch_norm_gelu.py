"""A linear layer, batch norm over its rows, and activations."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.g = nn.Linear(40, 24)
        self.bn = nn.BatchNorm1d(24)

    def forward(self, x):
        return torch.relu(F.gelu(self.bn(self.g(x))))


def get_inputs():
    return [torch.randn(16, 40)]
