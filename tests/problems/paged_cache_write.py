"""Keys written to distinct slots of a paged cache."""

import torch

T, P, BS, H, D = 40, 24, 16, 4, 64


def reference(key, cache, slot_mapping):
    flat = cache.reshape(-1, cache.shape[2], cache.shape[3])
    out = flat.clone()
    out[slot_mapping] = key
    return out.reshape(cache.shape)


def get_inputs():
    slots = torch.randperm(P * BS)[:T]
    return [torch.randn(T, H, D), torch.randn(P, BS, H, D), slots]
