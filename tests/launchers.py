"""Launchers as a candidate would write them, as text: what the recorder must be able to tape."""

HEAD = """
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""

PLAIN = (
    HEAD
    + """
def entry(x, *, BLOCK=128):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y
"""
)

TWICE = (
    HEAD
    + """
def entry(x):
    half = torch.zeros(x.shape, dtype=x.dtype, device="cuda")
    y = x.new_empty(x.shape)
    half.copy_(x)
    double[(triton.cdiv(x.numel(), 128),)](half, y, x.numel(), BLOCK=128)
    double[(triton.cdiv(x.numel(), 128),)](y, half, x.numel(), BLOCK=128)
    return half
"""
)

HOST_DESCRIPTOR = (
    HEAD
    + """
@triton.jit
def double_tiles(x, y_ptr, M, N, BLOCK: tl.constexpr):
    i, j = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    tile = 2 * x.load([i, j])
    row, col = i + tl.arange(0, BLOCK)[:, None], j + tl.arange(0, BLOCK)
    tl.store(y_ptr + row * N + col, tile, mask=(row < M) & (col < N))

def entry(x):
    M, N = x.shape
    y = torch.empty_like(x)
    described = TensorDescriptor.from_tensor(x, [32, 32])
    double_tiles[(triton.cdiv(M, 32), triton.cdiv(N, 32))](described, y, M, N, BLOCK=32)
    return y
"""
)

DEVICE_DESCRIPTOR = (
    HEAD
    + """
@triton.jit
def double_tiles(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK, BLOCK])
    i, j = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    y.store([i, j], 2 * x.load([i, j]))

def entry(x):
    M, N = x.shape
    y = torch.empty_like(x)
    triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda").byte())
    double_tiles[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, y, M, N, BLOCK=32)
    return y
"""
)

CLUSTER = (
    HEAD
    + """
def entry(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128, num_ctas=2)
    return y
"""
)

COOPERATIVE = (
    HEAD
    + """
def entry(x):
    y = torch.empty_like(x)
    sms = torch.cuda.get_device_properties(x.device).multi_processor_count
    assert x.is_cuda and sms == 132
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128, launch_cooperative_grid=True)
    return y
"""
)

AUTOTUNED = """
import torch
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": b}) for b in (64, 128)], key=["n"])
@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < n), mask=at < n)

def entry(x):
    y = torch.empty_like(x)
    double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""


def body(*lines: str) -> str:
    """A launcher with these lines before the launch of `PLAIN`."""
    indented = "".join(f"    {line}\n" for line in lines)
    return PLAIN.replace(
        "    y = torch.empty_like(x)\n", indented + "    y = torch.empty_like(x)\n"
    )
