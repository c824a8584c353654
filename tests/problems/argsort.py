"""Where each of a row's values belongs."""

import torch


def reference(x):
    return x.argsort(-1)


def get_inputs():
    return [torch.randn(8, 50)]
