"""Matrix product with a bias and an activation.

    c[m, n] = act(bias[n] + sum_k a[m, k] * b[k, n]),  act none, relu, silu or gelu (by erf)

a, b, bias, c  (M, K), (K, N), (N,), (M, N), any strides; either order of axes is read in place
dtype          float16, bfloat16, float32 (in full precision, never tf32); sums in float32
moves          reads a, b and bias once, writes c once; re-reads of a and b are for L2 to serve
plan           PROGRAMS on each SM walk over tiles of c, in groups of GROUP tile rows so that
               neighbours share b in L2; tiles come and go by TMA where the strides are multiples of
               16 bytes, else through pointers; with PAD, what of a and b TMA cannot read is first
               copied to where it can, which moves it twice more: little beside a long product;
               where few rows have fewer tiles than SMs, SPLIT programs share the K of a tile, each
               stores float32 sums, and a second kernel adds them in order
"""

import torch
import triton
import triton.language as tl

from kernel_library.space import Space
from kernel_library.spec import OpSpec, Option, Tensor, Workload, grid
from kernel_library.unit import Unit

OP = OpSpec(
    name="gemm",
    inputs={"a": Tensor("M K"), "b": Tensor("K N"), "bias": Tensor("N")},
    outputs={"c": Tensor("M N")},
    options={"act": Option("none", ("none", "relu", "silu", "gelu"))},
    flops="2 * M * N",
    matmul_flops="2 * M * N * K",
    constraints=("M >= 0", "N >= 1"),
    workloads=(
        *grid(
            "M N K",
            {"check": [(1, 1, 1), (33, 65, 17), (128, 96, 160)]},
            dtypes=("float16", "bfloat16", "float32"),
        ),
        Workload({"M": 64, "N": 40, "K": 72}, {"T": "float16"}, options={"act": "relu"}),
        Workload({"M": 70, "N": 48, "K": 32}, {"T": "float16"}, options={"act": "silu"}),
        Workload({"M": 31, "N": 129, "K": 40}, {"T": "float16"}, options={"act": "gelu"}),
        *grid(
            "M N K",
            {"measure": [(4096,) * 3, (16, 14336, 4096), (16, 4096, 14336), (1000, 3001, 777)]},
            dtypes=("bfloat16",),
        ),
    ),
)


def reference(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, act: str) -> torch.Tensor:
    """The product as PyTorch has it."""
    c = torch.addmm(bias, a, b)
    if act == "relu":
        return torch.nn.functional.relu(c)
    if act == "silu":
        return torch.nn.functional.silu(c)
    return torch.nn.functional.gelu(c) if act == "gelu" else c


def rows_add_up(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, c: torch.Tensor, *, act: str
) -> bool:
    """A row of c adds up to a's row times b's row sums; an activation keeps c above its floor."""
    if act != "none":
        return bool((c >= {"relu": 0.0, "silu": -0.28, "gelu": -0.171}[act]).all())
    want = a.double() @ b.double().sum(1) + bias.double().sum()
    size = a.double().abs() @ b.double().abs().sum(1) + bias.double().abs().sum()
    return bool(((c.double().sum(1) - want).abs() <= 1e-2 * size).all())


@triton.jit
def _tile(index, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = index // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = index % (GROUP * tiles_n)
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def _finish(c, bias_ptr, n, N, ACT: tl.constexpr):
    c += tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACT == "relu":
        # a comparison, not a maximum: NaN stays NaN
        c = tl.where(c < 0.0, 0.0, c)
    elif ACT == "silu":
        c = c * tl.sigmoid(c)
    elif ACT == "gelu":
        c = 0.5 * c * (1.0 + tl.erf(c * 0.7071067811865476))
    return c


@triton.jit
def _store(c, c_ptr, m, n, M, N):
    rows = c_ptr + m.to(tl.int64)[:, None] * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(rows + n[None, :], c.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gemm_tma(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, a_stride, b_stride,
    A_TURNED: tl.constexpr, B_TURNED: tl.constexpr, C_TILED: tl.constexpr,
    ACT: tl.constexpr, PRECISION: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    if A_TURNED:
        a_tiles = tl.make_tensor_descriptor(a_ptr, [K, M], [a_stride, 1], [BLOCK_K, BLOCK_M])
    else:
        a_tiles = tl.make_tensor_descriptor(a_ptr, [M, K], [a_stride, 1], [BLOCK_M, BLOCK_K])
    if B_TURNED:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [N, K], [b_stride, 1], [BLOCK_N, BLOCK_K])
    else:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [K, N], [b_stride, 1], [BLOCK_K, BLOCK_N])
    if C_TILED:
        c_tiles = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BLOCK_M, BLOCK_N])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    # as many for each piece of K: past its end, TMA gives zeros
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    # no warp_specialize: on an H200 (Triton 3.6.0) it was 1 % slower, and NaN at 5 stages
    for index in tl.range(tl.program_id(0), tiles * SPLIT, tl.num_programs(0), flatten=True):
        piece = index // tiles if SPLIT > 1 else 0
        m, n = _tile(index - piece * tiles, M, N, BLOCK_M, BLOCK_N, GROUP)
        c = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            k = (piece * steps + step) * BLOCK_K
            a = a_tiles.load([k, m]).T if A_TURNED else a_tiles.load([m, k])
            b = b_tiles.load([n, k]).T if B_TURNED else b_tiles.load([k, n])
            c = tl.dot(a, b, c, input_precision=PRECISION)
        row, col = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        if SPLIT > 1:
            _store(c, c_ptr + tl.cast(piece, tl.int64) * M * N, row, col, M, N)
        else:
            c = _finish(c, bias_ptr, col, N, ACT).to(c_ptr.dtype.element_ty)
            if C_TILED:
                c_tiles.store([m, n], c)
            else:
                # by halves: the addresses of a whole tile spill
                left, right = tl.split(c.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1))
                col = n + tl.arange(0, BLOCK_N // 2)
                _store(left, c_ptr, row, col, M, N)
                _store(right, c_ptr, row, col + BLOCK_N // 2, M, N)


@triton.jit
def _gemm_pointers(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, a_stride_m, a_stride_k, b_stride_k, b_stride_n,
    ACT: tl.constexpr, PRECISION: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    for index in tl.range(tl.program_id(0), tiles * SPLIT, tl.num_programs(0)):
        piece = index // tiles if SPLIT > 1 else 0
        first_m, first_n = _tile(index - piece * tiles, M, N, BLOCK_M, BLOCK_N, GROUP)
        m = (first_m + tl.arange(0, BLOCK_M)).to(tl.int64)
        n = (first_n + tl.arange(0, BLOCK_N)).to(tl.int64)
        c = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            k = ((piece * steps + step) * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
            a = tl.load(
                a_ptr + m[:, None] * a_stride_m + k[None, :] * a_stride_k,
                mask=(m[:, None] < M) & (k[None, :] < K), other=0.0,
            )  # fmt: skip
            b = tl.load(
                b_ptr + k[:, None] * b_stride_k + n[None, :] * b_stride_n,
                mask=(k[:, None] < K) & (n[None, :] < N), other=0.0,
            )  # fmt: skip
            c = tl.dot(a, b, c, input_precision=PRECISION)
        if SPLIT > 1:
            _store(c, c_ptr + tl.cast(piece, tl.int64) * M * N, m, n, M, N)
        else:
            _store(_finish(c, bias_ptr, n, N, ACT), c_ptr, m, n, M, N)


@triton.jit
def _join(parts_ptr, bias_ptr, c_ptr, M, N, SPLIT: tl.constexpr, ACT: tl.constexpr):
    row, col = tl.program_id(1).to(tl.int64), tl.program_id(0) * 512 + tl.arange(0, 512)
    c = tl.zeros((1, 512), dtype=tl.float32)
    for piece in tl.static_range(SPLIT):
        c += tl.load(parts_ptr + (piece * M + row) * N + col, mask=col < N, other=0.0)[None, :]
    c = _finish(c, bias_ptr, col, N, ACT).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + row * N + col[None, :], c, mask=col[None, :] < N)


def _suits_tma(t: torch.Tensor) -> bool:
    """One axis without gaps, the other at multiples of 16 bytes, from an aligned address."""
    turned = t.stride(1) != 1
    if turned and t.stride(0) != 1:
        return False
    step = t.stride(int(turned)) * t.element_size()
    return step > 0 and step % 16 == 0 and t.data_ptr() % 16 == 0


def _padded(t: torch.Tensor) -> torch.Tensor:
    """The matrix itself where TMA can read it; else a copy, rows at multiples of 128 bytes."""
    if _suits_tma(t):
        return t
    if t.stride(0) == 1 < t.stride(1):
        return _padded(t.t()).t()
    return t.new_empty((t.shape[0], triton.cdiv(t.shape[1], 64) * 64))[:, : t.shape[1]].copy_(t)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Where Triton builds the descriptors: device memory, aligned to 512 bytes as torch has it."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _sms(device: torch.device) -> int:
    """Multiprocessors; on a CPU, where Triton interprets, any number of programs will do."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def gemm(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, act: str = "none",
    BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, GROUP: int, PROGRAMS: int, SPLIT: int, PAD: int,
    num_warps: int, num_stages: int,
) -> torch.Tensor:  # fmt: skip
    """Multiply by TMA where the layouts of a and b allow it, through pointers elsewhere."""
    (M, K), N = a.shape, b.shape[1]
    bias, c = bias.contiguous(), a.new_empty((M, N))
    if M == 0:
        return c
    # of many rows, partial sums would take too much memory
    SPLIT = max(1, min(SPLIT, triton.cdiv(K, BLOCK_K))) if M <= 64 else 1
    out = c if SPLIT == 1 else a.new_empty((SPLIT, M, N), dtype=torch.float32)
    tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N) * SPLIT
    programs = min(tiles, PROGRAMS * _sms(a.device))
    blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP": GROUP}
    how = {"num_warps": num_warps, "num_stages": num_stages, "ACT": act, "SPLIT": SPLIT}
    how["PRECISION"] = "ieee" if a.dtype == torch.float32 else "tf32"
    if PAD and K > 0:
        a, b = _padded(a), _padded(b)
    if K > 0 and _suits_tma(a) and _suits_tma(b):
        triton.set_allocator(_scratch)
        a_turned, b_turned = a.stride(1) != 1, b.stride(1) != 1
        _gemm_tma[(programs,)](
            a, b, bias, out, M, N, K, a.stride(int(a_turned)), b.stride(int(b_turned)),
            A_TURNED=a_turned, B_TURNED=b_turned, C_TILED=_suits_tma(c), **blocks, **how,
        )  # fmt: skip
    else:
        strides = *a.stride(), *b.stride()
        _gemm_pointers[(programs,)](a, b, bias, out, M, N, K, *strides, **blocks, **how)
    if SPLIT > 1:
        _join[(triton.cdiv(N, 512), M)](out, bias, c, M, N, SPLIT=SPLIT, ACT=act)
    return c


UNIT = Unit(
    op=OP, reference=reference, laws=(rows_add_up,), kernel=gemm, space=Space(
        {
            "BLOCK_M": (128, 64, 256, 16),
            "BLOCK_N": (256, 128, 64, 512),
            "BLOCK_K": (64, 128, 32),
            "GROUP": (4, 8),
            "PROGRAMS": (1, 2),
            "SPLIT": (1, 2, 4, 8),
            "PAD": (0, 1),
            "num_warps": (8, 4),
            "num_stages": (3, 4, 5),
        },
        rule={
            "BLOCK_M": "16 if M <= 16 else 128 if M > 64 and itemsize < 4 else 64",
            # through pointers, wider tiles spill on sm_80 and sm_100
            "BLOCK_N": "128 if M <= 16"
            " else 64 if itemsize == 4 or (M <= 64 or K <= 128) and (K % 8 > 0 or N % 8 > 0)"
            " else 256 if M > 64 and M * N >= 4194304 and N % 8 == 0 else 128",
            "BLOCK_K": "32 if itemsize == 4 or (M <= 64 or K <= 128) and (K % 8 > 0 or N % 8 > 0)"
            " else 128 if M <= 16 else 64",
            "PROGRAMS": "1 if M > 64 or K < 1024 else 2",
            # until some 128 SMs have a piece: 4 at 16x4096x14336, the best of 205 settings (H200)
            "SPLIT": "1 if M > 64 or K < 1024 or N > 8192 else 4 if N > 2048 else 8",
            "PAD": "1 if M > 64 and K > 128 and itemsize < 4 else 0",
            "num_warps": "8 if M > 64 and itemsize < 4 else 4",
            "num_stages": "4 if M <= 16 and N > 8192 else 3",
        },
        constraints=(
            # staged tiles and the tile on its way out fit in 227 KiB, an SM of Hopper's; 16 rows,
            # too few for wgmma, are multiplied at once, and take a stage less
            "(num_stages - (BLOCK_M == 16)) * (BLOCK_M + BLOCK_N) * BLOCK_K * itemsize"
            " + BLOCK_M * BLOCK_N * (4 if SPLIT > 1 else itemsize) <= 232448 // PROGRAMS",
            # 64 to 128 float32 sums a thread: fewer starve the tensor cores, more spill; for few
            # rows, whose tensor cores wait for memory, 32
            "BLOCK_M * BLOCK_N <= 128 * 32 * num_warps",
            "BLOCK_M * BLOCK_N >= (32 if M > 16 else 16) * 32 * num_warps",
            "BLOCK_M > 16 if M > 64 else BLOCK_M == (16 if M <= 16 else 64)",
            "GROUP == 4 or M > 64 and BLOCK_M * BLOCK_N > 16384",
            "(PROGRAMS == 1 or BLOCK_M * BLOCK_N <= 16384) and (BLOCK_N < 512 or BLOCK_M == 16)",
            "M <= 64 or BLOCK_K < 128 or BLOCK_M * BLOCK_N <= 16384",
            "M <= 64 or itemsize == 4 or BLOCK_M * BLOCK_N >= 8192",
            "itemsize < 4 or BLOCK_M * BLOCK_N <= 8192",
            "SPLIT == 1 or M <= 64 and K >= 128 * SPLIT",
            # one choice where contiguous inputs suit TMA, and for few rows, cheaper than b's copy
            "PAD == (M > 64 and K > 128 and itemsize < 4)"
            " or M > 64 and (K * itemsize % 16 > 0 or N * itemsize % 16 > 0)",
        ),
    ),
)  # fmt: skip
