"""Kernels for `2 * x + 1` as people, models and cheats write them."""

PROBLEM = """import torch

def reference(x):
    return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(64, 1000)]
"""
RIGHT = """import torch
import triton
import triton.language as tl


@triton.jit
def _affine(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    x = tl.load(x_ptr + at, mask=inside)
    tl.store(y_ptr + at, (x * 2.0 + 1.0).to(y_ptr.dtype.element_ty), mask=inside)


def entry(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    _affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
HEAD, LAUNCHER = RIGHT.split("def entry(x):\n")


def launcher(body: str) -> str:
    """The right kernel behind another launcher."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return f"{HEAD}def entry(x):\n{lines}"


def launched(before: str) -> str:
    """The right launcher, and something else before it."""
    lines = "".join(f"    {line}\n" for line in before.strip("\n").splitlines())
    return f"{HEAD}def entry(x):\n{lines}{LAUNCHER}"


#: The last element is never written.
MASK_BUG = RIGHT.replace("inside = at < N\n", "inside = at < N - 1\n")
#: Right at the first of its settings, which the second is not: it skips every other element.
TUNED = RIGHT.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({'STEP': s}) for s in (1, 2)], key=['N'])\n@triton.jit",
)
TUNED = TUNED.replace("N, BLOCK: tl", "N, STEP: tl.constexpr, BLOCK: tl")
TUNED = TUNED.replace("inside = at < N\n", "inside = (at < N) & (at % STEP == 0)\n")
#: Right once for each shape, and stale ever after.
CACHED = (
    RIGHT.replace("def entry(x):", "def _made(x):")
    + """

_SEEN = {}


def entry(x):
    key = (x.shape, x.dtype)
    if key not in _SEEN:
        _SEEN[key] = _made(x)
    return _SEEN[key]
"""
)
PATCHES_EVENTS = launched("torch.cuda.Event = print")
#: `vars` is not among the names that the screen knows.
PATCHES_EVENTS_UNSEEN = launched("vars(torch.cuda).update(Event=None)")
READS_FRAMES = f"import sys\n{launched('sys._getframe(1)')}"
#: `dataclasses` has `sys` for an attribute. All tensors of all frames are looked through.
LOOKS_FOR_ANSWERS = (
    """import dataclasses
"""
    + HEAD
    + """
def entry(x):
    frame, depth, found = dataclasses.sys._getframe(1), 0, []
    while frame is not None:
        depth += 1
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            held = value if isinstance(value, (list, tuple)) else [value]
            found += [t for t in held if isinstance(t, torch.Tensor) and t.shape == x.shape]
        frame = frame.f_back
    TELL
    best = next((t for t in found if t is not x), x)
    y = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 1024),)](best.contiguous(), y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def _copy(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < N), mask=at < N)
"""
)
HOST_LOOP = launched("while True:\n    pass")
DEVICE_LOOP = RIGHT.replace(
    "    inside = at < N\n",
    "    inside = at < N\n    turns = 0\n    while turns < N:\n        turns = turns * 1\n",
)

#: Another problem's kernel, plain.
SOFTMAX = """import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x_ptr, y_ptr, N, stride, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + col, mask=col < N, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * N + col, y, mask=col < N)


def entry(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    N = x.shape[1]
    _softmax[(x.shape[0],)](x, y, N, N, BLOCK=triton.next_power_of_2(N))
    return y
"""
