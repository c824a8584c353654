"""A linear layer whose batch is as large as its output."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, groups):
        super().__init__()
        self.g = nn.Linear(in_features, out_features)
        self.n = nn.GroupNorm(groups, out_features)

    def forward(self, x):
        return self.n(self.g(x))


batch_size = 16
in_features = 32
out_features = 16
groups = 4


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, groups]
