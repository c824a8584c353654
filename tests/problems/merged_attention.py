"""Parts of attention merged by their log-sum-exps."""

import torch


def reference(o, l):
    m = l.amax(0)
    w = (l - m).exp()
    return (o * w[..., None]).sum(0) / w.sum(0)[..., None], m + w.sum(0).log()


def get_inputs():
    return [torch.randn(3, 20, 4, 16), torch.randn(3, 20, 4)]
