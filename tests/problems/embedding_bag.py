"""Sums of embeddings; offsets say where each bag starts."""

import torch
import torch.nn.functional as F


def reference(ids, weight, offsets):
    return F.embedding_bag(ids, weight, offsets, mode="sum")


def get_inputs():
    offsets = torch.cat(
        [torch.zeros(1, dtype=torch.int64), torch.randint(0, 200, (15,)).sort().values]
    )
    return [torch.randint(0, 1000, (200,)), torch.randn(1000, 64), offsets]
