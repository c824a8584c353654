"""What compiles for a GPU runs in the corrected interpreter, too, and means the same there."""

import pytest
import torch
from isolates import run_in_fork

from evaluator.errors import CandidateError
from evaluator.graphs import trace
from evaluator.inputs import Case, draw
from evaluator.interpret.judge import check_interpreted
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec, Reference, Tensor, Workload

CLOSE = 1e-5


def error(source: str, reference, dtype: str = "float32") -> float:
    """How far off a kernel of `x` is, which gives a value for each row or for each element."""
    at = Workload({"M": 4, "N": 50}, {"T": dtype})
    inputs = {"x": Tensor("M N")}
    like = reference(torch.ones(4, 50))
    op = OpSpec("f", inputs, {"y": Tensor("M N" if like.ndim == 2 else "M")}, (at,))
    graph = trace(reference, list(draw(op, at, Case(0), "cpu").values()), {})
    op = OpSpec(
        op.name, inputs, op.outputs, (at,), reference=Reference("", graphs={str(at): graph})
    )
    (found,) = check_interpreted(op, Candidate("f", source, "f"), [(at, Case(1))], run_in_fork)
    return found.error


LOOP = """
import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0)):
        at = row.to(tl.int64) * N
        for start in range(0, N, BLOCK):
            x = tl.load(x_ptr + at + start + col, mask=start + col < N)
            for i in tl.static_range(2):
                parts = (x, 2.0 * x)
                x += parts[i] * ((start - 3) // 2 < 0)
            tl.store(y_ptr + at + start + col, x, mask=start + col < N)


def f(x):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _rows[(2,)](x.contiguous(), y, *x.shape, BLOCK=16)
    return y
"""


def grown(x):
    """Sixfold where a chunk starts below 3: (0 - 3) // 2 is -1 in a kernel, and -2 in Python."""
    return torch.cat([6 * x[:, :16], x[:, 16:]], 1)


def test_a_loops_variable_is_a_tensor_and_an_unrolled_one_a_number():
    assert error(LOOP, grown) < CLOSE
    assert error(LOOP.replace("// 2 < 0", "// 2 == -1"), grown) < CLOSE


def test_names_factories_docstrings_and_lists_are_as_when_compiled():
    source = '''
import torch
from triton import jit
from triton.language import arange, constexpr, load, program_id, store, sum, where


def made(gain):
    by: constexpr = constexpr(gain)

    @jit
    def rows(x_ptr, y_ptr, N, BLOCK: constexpr):
        """Sum of a row.

        def is the first word of this line
        """
        at = arange(0, BLOCK)
        x = load(x_ptr + program_id(0) * N + at, mask=at < N, other=0.0)
        store(y_ptr + program_id(0), sum(where(x > 0, x, 0.0), 0) * by)

    return rows


def f(x):
    M, N = x.shape
    y = torch.empty((M,), device=x.device, dtype=x.dtype)
    for gain in (5.0, 3.0):
        made(gain)[[M]](x.contiguous(), y, N, BLOCK=64)
    return y
'''
    assert error(source, lambda x: 3.0 * torch.where(x > 0, x, 0.0).sum(-1)) < CLOSE


REDUCE = """
import torch
import triton
import triton.language as tl


@triton.jit
def _combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def _rows(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.arange(0, 4)
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * N + col, mask=col < N, other=0.0)
    n = tl.zeros_like(x) + tl.where(col < N, 1.0, 0.0)
    mean, m2, n = tl.reduce((x, tl.zeros_like(x), n), AXIS, _combine)
    STORE


def f(x):
    y = torch.empty((x.shape[0],), device=x.device, dtype=x.dtype)
    _rows[(1,)](x.contiguous(), y, *x.shape, BLOCK=64)
    return y
"""
EACH = REDUCE.replace("AXIS", "1").replace("STORE", "tl.store(y_ptr + row, m2 / n)")
ALL = REDUCE.replace("AXIS", "None").replace("STORE", "tl.store(y_ptr + row, row * 0 + m2 / n)")


def variance(x):
    return x.var(-1, correction=0)


def test_a_kernels_own_combine_reduces_an_axis_or_all():
    assert error(EACH, variance) < CLOSE
    assert error(ALL, lambda x: x.var(correction=0) + 0.0 * x[:, 0]) < CLOSE
    with pytest.raises(CandidateError, match="off by"):
        error(EACH.replace("delta * n_a", "delta * n_b"), variance)


def test_a_reduction_to_one_bfloat16_is_no_block():
    source = """
import torch
import triton
import triton.language as tl


@triton.jit
def _rows(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * N + col, mask=col < N, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(tl.where(col == tl.argmax(x, 0), x, 0.0), 0))


def f(x):
    y = torch.empty((x.shape[0],), device=x.device, dtype=x.dtype)
    _rows[x.shape[:1]](x.contiguous(), y, x.shape[1], BLOCK=64)
    return y
"""
    assert error(source, lambda x: x.amax(-1), "bfloat16") < CLOSE


EXTERN = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import pow


@triton.jit
def _rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = VALUE
    tl.store(y_ptr + at, y, mask=at < n)


def f(x):
    y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    _rows[(1,)](x.contiguous(), y, x.numel(), BLOCK=256)
    return y
"""


def test_libdevice_gives_what_torch_gives():
    value = "libdevice.tanh(x) + pow(x * x, 1.5) + tl.extra.cuda.libdevice.round(x * 0.5)"
    value += " + libdevice.llrint(x).to(tl.float32)"

    def reference(x):
        half = 0.5 * x
        away = torch.where(half < 0, torch.ceil(half - 0.5), torch.floor(half + 0.5))
        return torch.tanh(x) + torch.pow(x * x, 1.5) + away + torch.round(x)

    assert error(EXTERN.replace("VALUE", value), reference) < CLOSE


@pytest.mark.parametrize(
    "value",
    [
        "libdevice.j0(x)",
        'tl.inline_asm_elementwise("rcp.rn.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)',
    ],
)
def test_what_only_a_gpu_can_do_is_called_so(value):
    with pytest.raises(CandidateError, match=r"NotImplementedError: .* without a GPU"):
        error(EXTERN.replace("VALUE", value), torch.tanh)
