"""Small kernels and their tapes, filled in by hand from Triton's own compiled kernels."""

# ruff: noqa: N803, N806
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from evaluator.graphs import trace
from evaluator.isolate import Died, Done
from kernel_library.spec import OpSpec, Reference, Tensor, Workload
from kernel_library.tape import (
    Buffer,
    Descriptor,
    Launch,
    Pointer,
    Recording,
    Scalar,
    Step,
    Tape,
    View,
)


@triton.jit
def scale_rows(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_kept(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr, KEPT: tl.constexpr):
    # the first rows are to stay in L2 for the next call, whatever comes between
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    if row < KEPT:
        x = tl.load(x_ptr + row * N + col, inside, 0.0, eviction_policy="evict_last")
    else:
        x = tl.load(x_ptr + row * N + col, inside, 0.0)
    x = x.to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_after(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    # starts before the launch ahead of it has ended, and waits for it here
    tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_too_far(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    # the last row writes past the end of y
    inside = (col < N) | (row == M - 1)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_but_the_tail(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=col < N - 3)


@triton.jit
def scale_rows_and_input(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(x_ptr + row * N + col, (x * norm).to(x_ptr.dtype.element_ty), mask=inside)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_once(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    # poison is NaN: what is a number has been computed before
    been_here = tl.load(y_ptr + row * N).to(tl.float32) == tl.load(y_ptr + row * N).to(tl.float32)
    inside = (col < N) & (not been_here)
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def scale_rows_wildly(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    # 2^42 bytes beyond y: an address that nothing has
    tl.store(y_ptr + tl.full((), 1 << 41, tl.int64) + tl.program_id(0), 1.0)


@triton.jit
def scale_rows_for_ever(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    going = tl.load(x_ptr).to(tl.float32)
    while going == going:
        going = tl.load(x_ptr, volatile=True).to(tl.float32)
    tl.store(y_ptr, going)


@triton.jit
def square_sums(x_ptr, s_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    tl.atomic_add(s_ptr + row, tl.sum(x * x))


@triton.jit
def apply_sums(x_ptr, s_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.load(s_ptr + row) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=col < N)


@triton.jit
def scale_tiles_device(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    x_map = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [ROWS, BLOCK])
    y_map = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [ROWS, BLOCK])
    row = tl.program_id(0) * ROWS
    x = x_map.load([row, 0]).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x, axis=1) / N + 1e-6)
    y_map.store([row, 0], (x * norm[:, None]).to(y_ptr.dtype.element_ty))


@triton.jit
def scale_tiles_host(x_map, y_map, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS
    x = x_map.load([row, 0]).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x, axis=1) / N + 1e-6)
    y_map.store([row, 0], (x * norm[:, None]).to(tl.bfloat16))


@triton.jit
def scale_rows_together(x_ptr, y_ptr, flag_ptr, M, N, BLOCK: tl.constexpr):
    # every program waits for all others: right only if all are resident
    row = tl.program_id(0)
    tl.atomic_add(flag_ptr, 1)
    while tl.atomic_add(flag_ptr, 0) < M:
        pass
    col = tl.arange(0, BLOCK)
    inside = col < N
    x = tl.load(x_ptr + row * N + col, mask=inside, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def double_in_place(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)


def reference(x):
    wide = x.float()
    return (wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)


def rows_op(*at: Workload) -> OpSpec:
    """RMS norm without a weight, with graphs at these workloads."""
    graphs = {
        str(w): trace(
            reference,
            [torch.zeros(w.dims["M"], w.dims["N"], dtype=getattr(torch, w.dtypes["T"]))],
            {},
        )
        for w in at
    }
    return OpSpec(
        name="rows",
        inputs={"x": Tensor("M N")},
        outputs={"y": Tensor("M N")},
        workloads=at,
        flops="4 * M * N",
        reference=Reference("", graphs=graphs),
    )


def workload(M: int, N: int, dtype: str = "bfloat16", role: str = "measure") -> Workload:
    return Workload({"M": M, "N": N}, {"T": dtype}, role)


def launch_of(kernel, grid, tensors, *args, **settings) -> tuple[Launch, bytes]:
    """Run a kernel once on real tensors, and say how; `tensors` are the tape's buffers in order."""
    compiled = kernel[grid](*args, **settings)
    torch.cuda.synchronize()
    values = dict(zip(kernel.arg_names, args, strict=False)) | settings
    maps = list(compiled.metadata.tensordesc_meta or ())
    arguments = []
    for name, kind in compiled.src.signature.items():
        if kind == "constexpr":
            continue
        value = values[name]
        if isinstance(value, TensorDescriptor):
            meta, rank = maps.pop(0), len(value.shape)
            arguments.append(
                Descriptor(
                    where(value.base, tensors), tuple(value.shape), tuple(value.strides),
                    tuple(meta["block_size"]), meta["elem_size"], host_type(meta["elem_type"]),
                    meta["swizzle"],
                )
            )  # fmt: skip
            arguments += [Scalar("i32", value.shape[i]) for i in range(rank)]
            arguments += [Scalar("i64", value.strides[i]) for i in range(rank)]
        elif isinstance(value, torch.Tensor):
            arguments.append(where(value, tensors))
        else:
            arguments.append(Scalar(kind, value))
    facts, image = compiled.metadata, compiled.asm["cubin"]
    launch = Launch(
        sha256(image).hexdigest(), facts.name, (*grid, 1, 1)[:3], facts.num_warps, facts.num_ctas,
        facts.shared, tuple(arguments), facts.global_scratch_size, facts.global_scratch_align,
        facts.profile_scratch_size, facts.launch_cooperative_grid, facts.launch_pdl,
    )  # fmt: skip
    return launch, image


def host_type(kind: int) -> int:
    return {8: 10, 9: 8, 10: 9}.get(kind, kind)


def where(tensor, tensors) -> Pointer:
    found = next(i for i, t in enumerate(tensors) if t.data_ptr() == tensor.data_ptr())
    return Pointer(found)


def recording(tensors, steps: list[Step], binaries: list[bytes]) -> Recording:
    """A tape whose first tensor is the input x, and whose second is the output."""
    buffers = [Buffer("made", t.untyped_storage().nbytes()) for t in tensors]
    buffers[0] = Buffer("input", tensors[0].untyped_storage().nbytes(), "x")
    y = tensors[1]
    out = View(1, 0, tuple(y.shape), y.stride(), str(y.dtype).removeprefix("torch."))
    tape = Tape(tuple(buffers), tuple(steps), (out,), triton=triton.__version__)
    return Recording(tape, {sha256(b).hexdigest(): b for b in binaries})


def rows_recording(kernel, at: Workload, live: bool = True, **settings) -> Recording:
    """A recording of one of the row kernels at a workload."""
    M, N = at.dims["M"], at.dims["N"]
    dtype = getattr(torch, at.dtypes["T"])
    x = torch.randn(M, N, device="cuda").to(dtype)
    # a broken kernel compiles here on buffers with room for its mistakes
    y = torch.zeros(2 * M + 2, N, device="cuda", dtype=dtype)[:M]
    block = triton.next_power_of_2(N)
    if not live:
        compiled = kernel.warmup(x, y, M, N, BLOCK=block, grid=(M,), **settings)
        launch, image = _unrun(compiled, (M,), [Pointer(0), Pointer(1)], {"M": M, "N": N})
    else:
        launch, image = launch_of(kernel, (M,), [x, y], x, y, M, N, BLOCK=block, **settings)
    return recording([x, torch.empty_like(x)], [launch], [image])


def _unrun(compiled, grid, pointers, numbers) -> tuple[Launch, bytes]:
    facts, image = compiled.metadata, compiled.asm["cubin"]
    kinds = {n: k for n, k in compiled.src.signature.items() if k != "constexpr"}
    left = iter(pointers)
    arguments = [
        next(left) if kind.startswith("*") else Scalar(kind, numbers[name])
        for name, kind in kinds.items()
    ]
    launch = Launch(
        sha256(image).hexdigest(), facts.name, (*grid, 1, 1)[:3], facts.num_warps, facts.num_ctas,
        facts.shared, tuple(arguments),
    )  # fmt: skip
    return launch, image


def run_alone(job: str, request: bytes, seconds: float) -> Done | Died:
    """An `Isolate`: a process and a folder of its own, for what takes its context down with it."""
    code = (
        "import sys; from evaluator.isolate import resolve;"
        "reply = resolve(sys.argv[1])(sys.stdin.buffer.read()); sys.stdout.buffer.write(reply)"
    )
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])
    with TemporaryDirectory() as folder:
        try:
            ran = subprocess.run(
                [sys.executable, "-c", code, job], input=request, capture_output=True, cwd=folder,
                timeout=seconds, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Died("timeout", "")
    if ran.returncode:
        return Died("raised", ran.stderr.decode()[-2000:])
    return Done(ran.stdout)
