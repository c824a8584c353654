"""Weights and ids of the best two experts."""

import torch


def reference(logits):
    w, i = torch.topk(logits.softmax(-1), 2, dim=-1)
    return w / w.sum(-1, keepdim=True), i


def get_inputs():
    return [torch.randn(40, 16)]
