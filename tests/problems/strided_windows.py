"""Windows by strides, which fit rows of twenty or more."""

import torch


def reference(x):
    return x.as_strided((x.shape[0], 5, 4), (x.shape[1], 4, 1)).sum(1)


def get_inputs():
    return [torch.randn(8, 20)]
