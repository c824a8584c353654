"""Experts chosen from the best groups, as DeepSeek's gate has it."""

import torch


def reference(s, bias):
    c = s.sigmoid() + bias
    g = c.view(c.shape[0], 4, -1).topk(2, -1)[0].sum(-1)
    keep = g.topk(2, -1)[1]
    m = torch.zeros_like(g).scatter(1, keep, 1.0).bool()
    c = c.masked_fill(~m.repeat_interleave(c.shape[1] // 4, 1), 0.0)
    return c.topk(3, -1)[1]


def get_inputs():
    return [torch.randn(10, 32), torch.randn(32) * 0.1]
