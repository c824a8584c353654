"""Replay on a real GPU: tapes filled in by hand, played and judged by the product's own parts."""

# ruff: noqa: N806
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import torch
import triton
from taped import (
    apply_sums,
    double_in_place,
    launch_of,
    recording,
    rows_op,
    rows_recording,
    run_alone,
    scale_rows,
    scale_rows_after,
    scale_rows_and_input,
    scale_rows_but_the_tail,
    scale_rows_for_ever,
    scale_rows_kept,
    scale_rows_once,
    scale_rows_together,
    scale_rows_too_far,
    scale_rows_wildly,
    scale_tiles_device,
    scale_tiles_host,
    square_sums,
    workload,
)
from triton.tools.tensor_descriptor import TensorDescriptor

from evaluator import calibrate
from evaluator.datasheet import datasheet
from evaluator.errors import CandidateError
from evaluator.graphs import trace
from evaluator.inputs import Case, draw
from evaluator.isolate import Done, run_here
from evaluator.play.judge import replay
from evaluator.play.player import Player, finish
from evaluator.play.statistics import Plan
from evaluator.play.timing import Clock, capture
from evaluator.play.wire import Pace, Race, Take
from evaluator.record import record
from evaluator.turns import Turns
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import OpSpec, Reference, Tensor
from kernel_library.tape import Call, View
from seeds import rms_norm, softmax

pytestmark = pytest.mark.gpu
AT = workload(96, 1000)
LARGE = workload(8192, 4096)
CASE = Case(seed=7)
TURNS = Turns(Path(tempfile.gettempdir()) / f"kernelwright-tests-{os.getuid()}")


def judged(recorded, at=AT, case=CASE, isolate=run_here):
    return replay(rows_op(at), [Take(at, case, recorded)], isolate, TURNS).checked


def timed(op, takes, arms=(), device=None, isolate=run_here):
    asked = Race(len(takes), device or h200(), Pace(arms))
    reply = replay(op, takes, isolate, TURNS, asked)
    return reply.measured, reply.notes


def judged_in_a_graph_too(recorded, at=AT):
    """Right when played, and the same bits when captured and replayed, as timing does."""
    judged(recorded, at)
    op = rows_op(at)
    player = Player(op, recorded, "cuda")
    bound = player.bind(draw(op, at, CASE, "cuda"))
    bound.play()
    finish(["kernel"], player.device)
    (played,) = (tensor.clone() for tensor in bound.outputs())
    arm = capture("kernel", [bound.play], Plan(1, 1))
    bound.freshen()
    arm.graphs[0].replay()
    torch.cuda.synchronize()
    assert torch.equal(bound.outputs()[0], played)


def h200(**faster) -> Device:
    measured = Ceilings(4280, {"bfloat16": 735}, 60, 1.0)
    limits, _ = datasheet("NVIDIA H200", measured)
    facts = torch.cuda.get_device_properties(0)
    return Device(
        facts.name, Target("cuda", 90), facts.multi_processor_count, facts.L2_cache_size, measured,
        replace(limits, **faster),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_replayed_row_kernel_is_right(dtype):
    at = workload(96, 1000, dtype)
    (checked,) = judged(rows_recording(scale_rows, at), at, replace(CASE, repeat=True))
    assert checked.at == at and checked.cases == 1
    assert 0 < checked.error <= 2 * checked.torch_error + 1e-6


def test_a_write_past_the_end_is_caught_by_the_guards():
    with pytest.raises(CandidateError, match="outside its buffers"):
        judged(rows_recording(scale_rows_too_far, AT))


@pytest.mark.parametrize("poison", [0, 1])
def test_an_unwritten_tail_is_caught(poison):
    with pytest.raises(CandidateError, match="never written"):
        judged(rows_recording(scale_rows_but_the_tail, AT), case=replace(CASE, poison=poison))


def test_a_write_to_an_input_is_caught():
    with pytest.raises(CandidateError, match="writes to its input 'x'"):
        judged(rows_recording(scale_rows_and_input, AT))


def test_an_illegal_address_is_the_candidates_fault():
    with pytest.raises(CandidateError, match="outside its buffers") as caught:
        judged(rows_recording(scale_rows_wildly, AT, live=False), isolate=run_alone)
    assert caught.value.stage == "smoke"


def test_device_code_that_hangs_is_the_candidates_fault():
    code = (
        "import sys; from evaluator.play import player, job; from evaluator.isolate import resolve;"
        "import os; out = job.main(sys.stdin.buffer.read()); sys.stdout.buffer.write(out);"
        "sys.stdout.flush(); os._exit(0)"
    )

    def leaving_at_once(job, request, seconds):
        ran = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        ran.stdin.write(request)
        ran.stdin.close()
        body = ran.stdout.read()
        ran.kill()
        ran.wait(30)
        ran.stdout.close()
        return Done(body)

    with pytest.raises(CandidateError, match="does not finish"):
        judged(rows_recording(scale_rows_for_ever, AT, live=False), isolate=leaving_at_once)


def test_two_launches_with_a_buffer_between_replay_right():
    M, N = AT.dims["M"], AT.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    y, s = torch.empty_like(x), torch.zeros(M, device="cuda")
    tensors = [x, y, s]
    first, one = launch_of(square_sums, (M,), tensors, x, s, M, N, BLOCK=1024)
    second, two = launch_of(apply_sums, (M,), tensors, x, s, y, M, N, BLOCK=1024)
    zero = Call("aten.zero_.default", ({"view": 0},), {}, (View(2, 0, (M,), (1,), "float32"),), ())
    judged(recording(tensors, [zero, first, second], [one, two]))
    # without the call that zeroes the sums, they start from poison
    with pytest.raises(CandidateError):
        judged(recording(tensors, [first, second], [one, two]))


def test_copies_and_clones_between_launches_replay_right():
    M, N = AT.dims["M"], AT.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    y, z = torch.empty_like(x), torch.empty_like(x)
    tensors = [x, y, z]
    launch, image = launch_of(scale_rows, (M,), tensors, z, y, M, N, BLOCK=1024)
    view = View(0, 0, (M, N), (N, 1), "bfloat16")
    clone = Call(
        "aten.clone.default", ({"view": 0},), {"memory_format": {"torch": "contiguous_format"}},
        (view,), (replace(view, buffer=2),),
    )  # fmt: skip
    judged_in_a_graph_too(recording(tensors, [clone, launch], [image]))


def test_a_cluster_of_two_replays_right():
    M, N = AT.dims["M"], AT.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    y, s = torch.empty_like(x), torch.zeros(M, device="cuda")
    tensors = [x, y, s]
    first, one = launch_of(square_sums, (M,), tensors, x, s, M, N, BLOCK=1024)
    second, two = launch_of(apply_sums, (M,), tensors, x, s, y, M, N, BLOCK=1024, num_ctas=2)
    assert second.num_ctas == 2
    zero = Call("aten.zero_.default", ({"view": 0},), {}, (View(2, 0, (M,), (1,), "float32"),), ())
    judged_in_a_graph_too(recording(tensors, [zero, first, second], [one, two]))


def test_a_cooperative_launch_replays_right():
    at = workload(128, 1000)
    x = torch.randn(128, 1000, device="cuda").bfloat16()
    y, flag = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device="cuda")
    tensors = [x, y, flag]
    launch, image = launch_of(
        scale_rows_together, (128,), tensors, x, y, flag, 128, 1000, BLOCK=1024,
        launch_cooperative_grid=True,
    )  # fmt: skip
    assert launch.cooperative
    zero = Call("aten.zero_.default", ({"view": 0},), {}, (View(2, 0, (1,), (1,), "int32"),), ())
    judged_in_a_graph_too(recording(tensors, [zero, launch], [image]), at)


def test_a_dependent_launch_replays_right():
    M, N = AT.dims["M"], AT.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    y, z = torch.empty_like(x), torch.empty_like(x)
    tensors = [x, y, z]
    first, one = launch_of(scale_rows, (M,), tensors, x, z, M, N, BLOCK=1024)
    second, two = launch_of(
        scale_rows_after, (M,), tensors, z, y, M, N, BLOCK=1024, launch_pdl=True
    )
    assert second.dependent
    # normalising twice is normalising once, within rounding
    judged_in_a_graph_too(recording(tensors, [first, second], [one, two]))


@pytest.mark.parametrize("made", ["device", "host"])
def test_tensor_maps_replay_right(made):
    M, N, ROWS = 96, 256, 32
    at = workload(M, N)
    x = torch.randn(M, N, device="cuda").bfloat16()
    y = torch.empty_like(x)
    if made == "device":
        triton.set_allocator(
            lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda")
        )
        args = (scale_tiles_device, (M // ROWS,), [x, y], x, y, M, N)
    else:
        maps = [TensorDescriptor(t, [M, N], [N, 1], [ROWS, N]) for t in (x, y)]
        args = (scale_tiles_host, (M // ROWS,), [x, y], *maps, N)
    launch, image = launch_of(*args, ROWS=ROWS, BLOCK=N)
    assert (made == "device") == (launch.scratch_bytes > 0)
    judged_in_a_graph_too(recording([x, y], [launch], [image]), at)


def test_a_race_gives_sane_times_and_checks_what_was_timed():
    op, taped = rows_op(LARGE), rows_recording(scale_rows, LARGE, num_warps=8)
    (one,), notes = timed(op, [Take(LARGE, CASE, taped)], ("eager", "cudnn"))
    print(one, notes)  # noqa: T201 (shown with -s: the figures of this machine)
    assert one.low_us <= one.time_us <= one.high_us
    assert 0.5 < one.of_roofline < 1.1 and one.bound == "memory"
    assert one.speedup("eager") > 1.5 and one.versus["eager"].outcome == "win"
    assert one.versus["eager"].low <= one.speedup("eager") <= one.versus["eager"].high
    # others may follow: of a clock that was held down, or that nobody could watch
    assert notes[0] == "cudnn: the op is no scaled dot-product attention"


def test_a_kernel_that_skips_what_it_finds_done_gains_nothing():
    honest, lazy = (
        timed(rows_op(LARGE), [Take(LARGE, CASE, rows_recording(kernel, LARGE, num_warps=8))])[0][0]
        for kernel in (scale_rows, scale_rows_once)
    )
    print(honest.time_us, lazy.time_us)  # noqa: T201
    assert lazy.time_us > 0.95 * honest.time_us


def test_a_kernel_that_asks_for_lines_to_stay_in_l2_gains_nothing():
    M = LARGE.dims["M"]
    us = {
        kept: timed(
            rows_op(LARGE),
            [Take(LARGE, CASE, rows_recording(scale_rows_kept, LARGE, num_warps=8, KEPT=kept))],
        )[0][0].time_us
        for kept in (0, M // 8, M // 4, M // 2, M)
    }
    print(us)  # noqa: T201
    assert min(us.values()) > 0.97 * us[0]


def test_an_op_in_place_starts_again_before_its_timed_outputs_are_checked():
    M, N = LARGE.dims["M"], LARGE.dims["N"]
    x = torch.randn(M, N, device="cuda").bfloat16()
    launch, image = launch_of(double_in_place, (M * N // 4096,), [x], x, M * N, BLOCK=4096)
    taped = recording([x, x], [launch], [image])
    taped = replace(taped, tape=replace(taped.tape, buffers=taped.tape.buffers[:1], outputs=()))

    def double(x):
        x.mul_(2)

    op = OpSpec(
        "double", {"x": Tensor("M N")}, {}, (LARGE,), mutates=("x",),
        reference=Reference("", graphs={str(LARGE): trace(double, [x.cpu()], {})}),
    )  # fmt: skip
    (one,), _ = timed(op, [Take(LARGE, CASE, taped)], ("eager",))
    assert 0.5 < one.of_roofline < 1.15


@pytest.mark.slow
@pytest.mark.parametrize("unit", [rms_norm.UNIT, softmax.UNIT], ids=lambda unit: unit.op.name)
def test_a_seed_recorded_without_a_gpu_is_right_and_fast_on_one(unit):
    checks = [at for at in unit.op.workloads if at.role == "check"][:8]
    large = next(at for at in unit.op.workloads if at.role == "measure")
    graphs = {str(at): graph_of(unit, at) for at in (*checks, large)}
    op = replace(unit.spec, reference=Reference("", graphs=graphs))
    layouts = ("contiguous", "transposed", "step2", "expanded", "unaligned")
    points = [(at, replace(CASE, layout=each)) for at in checks for each in layouts]
    points.append((large, CASE))
    tapes = record(op, unit.candidate(), points, run_alone)
    takes = [Take(*point, tape) for point, tape in zip(points, tapes, strict=True)]
    checked = replay(op, takes, run_alone, TURNS).checked
    assert sum(c.cases for c in checked) == len(takes)
    arms = ("eager", "compile", "max-autotune", "liger")
    (one,), notes = timed(op, takes[-1:], arms, isolate=run_alone)
    print(one, notes)  # noqa: T201
    assert one.of_roofline > 0.6 and {"eager", "compile", "max-autotune"} <= set(one.baselines)


def graph_of(unit, at):
    inputs = draw(unit.op, at, CASE, "cpu")
    return trace(unit.reference, list(inputs.values()), unit.op.option_values(at))


def test_a_wrong_kernel_is_not_timed():
    taped = rows_recording(scale_rows_but_the_tail, LARGE, num_warps=8)
    with pytest.raises(CandidateError, match="never written"):
        timed(rows_op(LARGE), [Take(LARGE, CASE, taped)])


def test_a_time_that_no_hardware_allows_is_a_fault():
    taped = rows_recording(scale_rows, LARGE, num_warps=8)
    slow = h200(bandwidth_gbs=100.0)
    with pytest.raises(CandidateError, match="leaves out a part") as caught:
        timed(rows_op(LARGE), [Take(LARGE, CASE, taped)], device=slow)
    assert caught.value.stage == "light"


@pytest.mark.parametrize("rows", [2048, 8192, 65536])
def test_a_kernel_is_as_fast_as_itself(rows):
    at = workload(rows, 4096)
    player = Player(rows_op(), rows_recording(scale_rows, at, num_warps=8), "cuda")
    bound = player.bind({"x": torch.randn(rows, 4096, device="cuda").bfloat16()})
    bound.play()
    finish(["scale_rows"], player.device)
    arm = capture("one", [bound.play], Plan(1, 1))
    clock = Clock(player.device, torch.cuda.get_device_properties(0).L2_cache_size)
    a, b = (median(s) for s in clock.race([arm, arm], 0.5).samples)
    print(f"{rows}: {a:.2f} us, {b:.2f} us, {abs(a / b - 1):.3%}")  # noqa: T201
    assert abs(a / b - 1) < 0.02


def test_calibration_finds_this_device():
    device = calibrate.calibrate()
    print(device)  # noqa: T201
    measured, limits = device.measured, device.datasheet
    assert 0.5 * limits.bandwidth_gbs < measured.bandwidth_gbs < limits.bandwidth_gbs
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "tf32"):
        assert 0.4 * limits.matmul_tflops[dtype] < measured.matmul_tflops[dtype]
        assert measured.matmul_tflops[dtype] < limits.matmul_tflops[dtype]
    assert 0.5 * limits.vector_tflops < measured.vector_tflops < 1.05 * limits.vector_tflops
    assert 0.3 < measured.launch_us < 10
    assert all(share < 0.03 for share in device.noise.values())
