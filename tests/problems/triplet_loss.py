"""Triplet margin loss."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.TripletMarginLoss(margin=1.0)

    def forward(self, a, p, n):
        return self.l(a, p, n)


def get_inputs():
    return [torch.rand(16, 30), torch.rand(16, 30), torch.rand(16, 30)]
