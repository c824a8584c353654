"""The deep stage on a real GPU: what each look finds in wrong kernels, and not in right ones.

Those that need compute-sanitizer are skipped by name where it is not installed.
"""

# ruff: noqa: N803, N806
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import pytest
import torch
import triton
import triton.language as tl
from taped import (
    apply_sums,
    launch_of,
    recording,
    rows_op,
    rows_recording,
    run_alone,
    scale_rows,
    scale_rows_too_far,
    scale_tiles_device,
    square_sums,
    workload,
)
from torch._subclasses.fake_tensor import FakeTensorMode

import seeds
from evaluator.deep import job
from evaluator.deep.looks import launched, pairs
from evaluator.deep.points import Points, beyond, vast
from evaluator.deep.running import find, sanitize
from evaluator.deep.sanitizer import TOOLS, findings
from evaluator.deep.stage import Bench, look
from evaluator.errors import CandidateError
from evaluator.graphs import trace
from evaluator.inputs import Case, size_of
from evaluator.labs import DEFAULT_ARCH
from evaluator.play.judge import ask, replay
from evaluator.play.wire import Request, Take, dump_request, pack
from evaluator.record import record
from evaluator.redteam import trials
from evaluator.turns import Turns
from kernel_library.spec import Reference
from kernel_library.tape import Call, View
from kernel_library.unit import discover

pytestmark = pytest.mark.gpu
sanitized = pytest.mark.skipif(find() is None, reason="compute-sanitizer is not installed here")
AT = workload(5, 127)
CASE = Case(seed=7)


@triton.jit
def scale_rows_reading_on(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    # no mask: the last row reads on past the end of x, and forgets what it read
    x = tl.where(col < N, tl.load(x_ptr + row * N + col).to(tl.float32), 0.0)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=col < N)


@triton.jit
def note_down(x_ptr, z_ptr, M, N, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + col, mask=col < N, other=0.0)
    tl.store(z_ptr + tl.program_id(0) * N + col, x, mask=col < N)


@triton.jit
def write_rows(at_ptr, M):
    tl.store(at_ptr + tl.program_id(0), tl.program_id(0).to(tl.int64))


@triton.jit
def scale_rows_at(x_ptr, at_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    row = tl.load(at_ptr + tl.program_id(0))
    col = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + col, mask=col < N, other=0.0).to(tl.float32)
    norm = tl.rsqrt(tl.sum(x * x) / N + 1e-6)
    tl.store(y_ptr + row * N + col, (x * norm).to(y_ptr.dtype.element_ty), mask=col < N)


def said(tool, recorded, at=AT):
    """What a tool finds when it watches one play of a recording."""
    takes = [Take(at, CASE, recorded)]
    sent, binaries = pack(takes)
    request = Request(rows_op(at), sent, binaries, str(Path(gettempdir()) / "turns"))
    log = sanitize(tool, dump_request(request), 300)
    found = [finding.what for finding in findings(tool, log.text, launched(takes))]
    # memcheck ends a kernel at what it finds, and its target with it
    assert found or log.why == "", (log.why, log.text[-2000:])
    return found


def tensors():
    M, N = AT.dims["M"], AT.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    return M, N, x, torch.empty_like(x), torch.empty_like(x)


# compute-sanitizer


@sanitized
@pytest.mark.parametrize("tool", TOOLS)
def test_a_right_kernel_is_clean(tool):
    assert said(tool, rows_recording(scale_rows, AT)) == []


@sanitized
@pytest.mark.parametrize(
    ("kernel", "verb"), [(scale_rows_reading_on, "reads"), (scale_rows_too_far, "writes")]
)
def test_an_access_past_the_end_is_seen(kernel, verb):
    found = said("memcheck", rows_recording(kernel, AT, live=False))
    assert found and all(what.startswith(verb) for what in found), found
    assert all("past the end of a buffer" in what for what in found), found


@sanitized
def test_a_read_of_unwritten_memory_is_seen_and_one_of_written_memory_is_not():
    M, N, x, y, z = tensors()
    launch, image = launch_of(scale_rows, (M,), [x, y, z], z, y, M, N, BLOCK=128)
    clone = Call(
        "aten.clone.default", ({"view": 0},), {}, (View(0, 0, (M, N), (N, 1), "bfloat16"),),
        (View(2, 0, (M, N), (N, 1), "bfloat16"),),
    )  # fmt: skip
    bare, written = (
        recording([x, y, z], [launch], [image]),
        recording([x, y, z], [clone, launch], [image]),
    )
    assert said("initcheck", bare) == ["reads memory that nothing has written"]
    assert said("initcheck", written) == []


@sanitized
@pytest.mark.parametrize("tool", TOOLS)
def test_two_kernels_that_meet_in_memory_and_by_atomics_are_clean(tool):
    M, N, x, y, _ = tensors()
    s = torch.zeros(M, device="cuda")
    first, one = launch_of(square_sums, (M,), [x, y, s], x, s, M, N, BLOCK=128)
    second, two = launch_of(apply_sums, (M,), [x, y, s], x, s, y, M, N, BLOCK=128)
    zero = Call("aten.zero_.default", ({"view": 0},), {}, (View(2, 0, (M,), (1,), "float32"),), ())
    assert said(tool, recording([x, y, s], [zero, first, second], [one, two])) == []


@sanitized
@pytest.mark.parametrize("tool", TOOLS)
def test_what_tools_say_of_a_kernel_that_copies_by_tma(tool, capsys):
    """Not held against it, whatever they say: this prints it, to learn from."""
    M, N, ROWS = 96, 256, 32
    at = workload(M, N)
    x = torch.randn(M, N, device="cuda").bfloat16()
    y = torch.empty_like(x)
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )
    launch, image = launch_of(
        scale_tiles_device, (M // ROWS,), [x, y], x, y, M, N, ROWS=ROWS, BLOCK=N
    )
    found = said(tool, recording([x, y], [launch], [image]), at)
    with capsys.disabled():
        print(f"{tool} on TMA: {found}")  # noqa: T201
    assert tool != "memcheck" or found == []


# Launches without an effect


def shows(recorded, kernel, tmp_path, at=AT):
    takes = [take for two in pairs([Take(at, CASE, recorded)], kernel) for take in two]
    sent, binaries = pack(takes)
    request = Request(rows_op(at), sent, binaries, str(tmp_path))
    reply = ask(request, takes, run_alone, 120, "evaluator.deep.job:effects")
    return job.EFFECT in reply.notes


def test_a_decoy_is_found_out_and_what_it_stands_beside_is_not(tmp_path):
    M, N, x, y, z = tensors()
    real, one = launch_of(scale_rows, (M,), [x, y, z], x, y, M, N, BLOCK=128)
    decoy, two = launch_of(note_down, (M,), [x, y, z], x, z, M, N, BLOCK=128)
    taped = recording([x, y, z], [decoy, real], [one, two])
    assert shows(taped, "scale_rows", tmp_path)
    assert not shows(taped, "note_down", tmp_path)


def test_a_launch_whose_lack_sends_the_next_astray_has_an_effect(tmp_path):
    M, N, x, y, _ = tensors()
    at = torch.zeros(M, dtype=torch.int64, device="cuda")
    first, one = launch_of(write_rows, (M,), [x, y, at], at, M)
    second, two = launch_of(scale_rows_at, (M,), [x, y, at], x, at, y, M, N, BLOCK=128)
    taped = recording([x, y, at], [first, second], [one, two])
    assert shows(taped, "write_rows", tmp_path) and shows(taped, "scale_rows_at", tmp_path)


# Beyond 2^31 elements


def shaped(op, at):
    """Inputs without values."""
    names = op.names(at)
    with FakeTensorMode():
        return [
            torch.empty(tensor.shape(names), dtype=getattr(torch, op.dtype(tensor, at)))
            for tensor in op.inputs.values()
        ]


def judged_beyond(trial, point, source, task, folder):
    """What a job of the deep stage says of a source at a point of the trial's op."""
    candidate = replace(trial.candidate, source=source)
    (tape,) = record(trial.op, candidate, [point], run_alone, DEFAULT_ARCH)
    graph = trace(lambda x, s: x * s[:, None], shaped(trial.op, point[0]), {})
    op = replace(trial.op, reference=Reference("", graphs={str(point[0]): graph}))
    sent, binaries = pack([take := Take(*point, tape)])
    request = Request(op, sent, binaries, str(folder))
    return ask(request, [take], run_alone, 300, f"evaluator.deep.job:{task}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "where", "widened", "told"),
    [
        ("c51_int32", "wide", beyond, ("at // N, at", "(at // N).to(tl.int64), at"), "2^31"),
        ("b19_int32", "vast", vast, ("y_ptr + row * N", "y_ptr + wide * N"), "at a hidden size"),
    ],
)
def test_an_offset_that_wraps_is_found_and_one_that_does_not_is_right(
    name, task, where, widened, told, tmp_path
):
    (trial,) = trials(name)
    (point,) = where(trial.op, 3)
    right = trial.source.replace(*widened)
    assert right != trial.source
    reply = judged_beyond(trial, point, right, task, tmp_path)
    assert reply.checked[0].cases == 1
    assert not reply.notes
    with pytest.raises(CandidateError) as caught:
        judged_beyond(trial, point, trial.source, task, tmp_path)
    assert told in caught.value.reason


# All of it


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rms_norm", "softmax", "gemm", "cross_entropy_backward"])
def test_a_seed_stands_up_to_all_of_it(name, tmp_path):
    unit = next(unit for unit in discover(seeds) if unit.op.name == name)
    small = [at for at in unit.op.workloads if at.role == "check"]
    checks = sorted(small, key=lambda at: size_of(unit.op, at))[:4]
    large = vast(unit.op, 3)
    graphs = {
        str(at): trace(unit.reference, shaped(unit.op, at), unit.op.option_values(at))
        for at in (*checks, *(at for at, _ in large))
    }
    op = replace(unit.spec, reference=Reference("", graphs=graphs), workloads=tuple(checks))

    def takes(op, candidate, points):
        tapes = record(op, candidate, points, run_alone, DEFAULT_ARCH)
        return op, [Take(*point, tape) for point, tape in zip(points, tapes, strict=True)]

    points = Points(
        [(at, CASE) for at in checks[:2]], (checks[-1], CASE), [(at, CASE) for at in checks],
        beyond(op, 3), vast=large,
    )  # fmt: skip
    notes = look(
        op, unit.candidate(), points, Bench(takes, run_alone, run_alone, sanitize, Turns(tmp_path))
    )
    print(*notes, sep="\n")  # noqa: T201
    assert len(notes) >= 4
    replay(op, takes(op, unit.candidate(), points.small)[1], run_alone, Turns(tmp_path))
