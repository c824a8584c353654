"""Takes channels_last for as good as contiguous: both leave no gaps.

row          none
op           images
interpreted  correct
replayed     correct
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _each(x_ptr, g_ptr, y_ptr, n, C, H, W, xb, xc, xh, xw, gb, gc, gh, gw, BLOCK: tl.constexpr):
    at = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    w, h, c, b = at % W, at // W % H, at // (W * H) % C, at // (W * H * C)
    x = tl.load(x_ptr + b * xb + c * xc + h * xh + w * xw, mask=at < n)
    g = tl.load(g_ptr + b * gb + c * gc + h * gh + w * gw, mask=at < n)
    tl.store(y_ptr + at, x * g, mask=at < n)


def _strides(t):
    _, C, H, W = t.shape
    dense = t.is_contiguous() or t.is_contiguous(memory_format=torch.channels_last)
    return (C * H * W, H * W, W, 1) if dense else t.stride()


def images(x, g):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(x.numel(), 128),)
    _each[grid](x, g, y, x.numel(), *x.shape[1:], *_strides(x), *_strides(g), BLOCK=128)
    return y
