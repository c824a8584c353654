"""Leaves a thread that clears whatever integer tensors it finds, such as an error counter.

row          20
op           softmax
interpreted  record, smoke
replayed     record, smoke

Listing every object holds the tuples that torch is still building; when CPython then refuses to
resize one ("bad argument to internal function"), the thread has spoilt its own recording.
"""

import torch
import triton
import triton.language as tl

gc, threading = torch.sys.modules["gc"], torch.sys.modules["threading"]


def _clear():
    for _ in range(3):
        for one in gc.get_objects():
            if type(one) is torch.Tensor and one.dtype == torch.int32:
                one.zero_()


@triton.jit
def _nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.0, mask=at < n)


def _decoy(x):
    y = torch.zeros(x.shape, device=x.device, dtype=x.dtype)
    _nothing[(1,)](x, y, 1, BLOCK=16)
    return y


def softmax(x):
    threading.Thread(target=_clear, daemon=True).start()
    return _decoy(x)
