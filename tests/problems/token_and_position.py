"""Token embeddings plus the first rows of a table of positions."""

import torch


def reference(ids, w, pos):
    return w[ids] + pos[: ids.shape[1]]


def get_inputs():
    return [torch.randint(0, 50, (4, 20)), torch.randn(50, 16), torch.randn(64, 16)]
