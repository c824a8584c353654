"""Keys written to distinct rows of a cache, in place."""

import torch


def reference(cache, k, pos):
    cache.index_copy_(1, pos, k)


def get_inputs():
    return [torch.randn(4, 64, 8), torch.randn(4, 6, 8), torch.randperm(64)[:6]]
