"""A layer of an LSTM."""

import torch
from torch import nn

B, S, I, H = 4, 6, 20, 30


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.LSTM(I, H, batch_first=True)

    def forward(self, x):
        return self.l(x)[0]


def get_inputs():
    return [torch.randn(B, S, I)]
