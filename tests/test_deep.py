"""The deep stage without a GPU: its arithmetic, its words, and tapes that a CPU can play."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from tapes import AT, CASE, CLONE, CPU, NAME, X, Y, launch, op_of, plain_op, tape_of
from test_sanitizer import NONE, ONE, RACE, READ, UNREAD, request_of

import seeds
from evaluator.deep import job
from evaluator.deep.looks import has_effect, launched, pairs, repeat, without
from evaluator.deep.points import (
    Points,
    bent,
    beyond,
    everywhere,
    laid,
    long,
    near,
    ragged,
    real,
    vast,
)
from evaluator.deep.running import Log
from evaluator.deep.sanitizer import TOOLS
from evaluator.deep.stage import DOUBTFUL, Bench, look
from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.hidden import INTERPRETED
from evaluator.inputs import ALL, Case, places, size_of
from evaluator.isolate import Died, Done
from evaluator.labs import DEFAULT_ARCH, NOT_DEEP
from evaluator.layouts import LAYOUTS, WIDE, place
from evaluator.matrix import describe, matrix, smoke
from evaluator.play import check, wire
from evaluator.play.check import Players, wanted_at
from evaluator.play.wire import Reply, Take
from evaluator.record import record
from evaluator.record.facts import binaries_json, shown_json
from evaluator.redteam import trials
from evaluator.turns import Turns
from evaluator.values import ALIKE, VALUES
from kernel_library.recipe import Offsets
from kernel_library.spec import OpSpec, Tensor, Workload
from kernel_library.tape import Call, Scalar
from kernel_library.unit import discover
from kernel_library.verdict import Checked, KernelFacts
from seeds import gemm

ROOT = Path(__file__).parent.parent

# Repeats, and launches without an effect

STALE = Call(
    "aten.copy_.default", ({"view": 0}, {"view": 1}), {},
    (replace(Y, shape=(1,), stride=(1,)), replace(Y, offset=160, shape=(1,), stride=(1,))), (),
)  # fmt: skip
AGAIN = Call("aten.copy_.default", ({"view": 0}, {"view": 1}), {}, (Y, X), ())


def test_what_depends_on_unwritten_memory_does_not_repeat():
    players = Players(plain_op(), CPU)
    repeat(Take(AT, CASE, tape_of(CLONE)), players, 5)
    with pytest.raises(CandidateError, match="other bits in one of 5 runs") as caught:
        repeat(Take(AT, CASE, tape_of(STALE)), players, 5)
    assert caught.value.stage == "deep"


@pytest.mark.parametrize(
    ("steps", "left_out", "shows"),
    [
        ((CLONE,), 0, True),
        ((CLONE, AGAIN), 0, False),
        ((CLONE, AGAIN), 1, False),
        ((Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ()), CLONE), 0, False),
        ((Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ()), CLONE), 1, True),
    ],
)
def test_a_step_has_an_effect_if_the_outputs_miss_it(steps, left_out, shows):
    whole = Take(AT, CASE, tape_of(*steps))
    cut = replace(whole, recording=without(whole.recording, left_out))
    assert has_effect(whole, cut, Players(plain_op(), CPU)) is shows


@pytest.mark.parametrize("value", [7.0, float("nan")])
def test_a_fill_that_a_poison_hides_has_an_effect(value):
    """Whatever one poison happens to hold, the other does not."""
    op = op_of(lambda x: torch.full_like(x, value))
    fill = Call("aten.full.default", ([3, 40], value), {}, (), (Y,))
    whole = Take(AT, CASE, tape_of(fill))
    assert has_effect(whole, replace(whole, recording=tape_of()), Players(op, CPU))


def test_a_step_whose_lack_makes_the_rest_fail_has_an_effect():
    over = Call("aten.zero_.default", ({"view": 0},), {}, (X,), ())
    whole, cut = Take(AT, CASE, tape_of(CLONE)), Take(AT, CASE, tape_of(CLONE, over))
    assert has_effect(whole, cut, Players(plain_op(), CPU))


def test_the_jobs_say_what_came_of_their_takes(tmp_path):
    zero = Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ())
    whole, both = Take(AT, CASE, tape_of(CLONE)), Take(AT, CASE, tape_of(zero, CLONE))
    unlike = Take(AT, CASE, tape_of(zero))
    reached, means = [], (Players(plain_op(), CPU), Turns(tmp_path))
    assert job.find_effect([both, whole], *means, reached.append) == Reply()
    found = job.find_effect([both, whole, both, unlike], *means, reached.append)
    assert found.notes == (job.EFFECT,) and reached == [0, 0, 2]
    assert job.play_again([whole, both], *means, reached.append) == Reply()
    with pytest.raises(CandidateError, match="other bits"):
        job.play_again([whole, Take(AT, CASE, tape_of(STALE))], *means, reached.append)
    assert reached[-1] == 1


def test_a_check_beyond_needs_room_for_all_that_it_holds_at_a_time():
    taken = Take(AT, CASE, tape_of(made=8 << 30))
    assert 4 * (8 << 30) < job.needed_bytes([taken]) < 6 * (8 << 30)


def test_each_launch_of_a_kernel_is_left_out_alone_and_empty_grids_are_none():
    first, second = launch(), launch(grid=(2, 1, 1))
    other, empty = launch(function="tail"), launch(function="never", grid=(0, 1, 1))
    take = Take(AT, CASE, tape_of(first, other, CLONE, second, empty))
    assert launched([take, take]) == ("kernel", "tail")
    cuts = [cut.recording.tape.steps for _, cut in pairs([take], "kernel")]
    assert cuts == [(other, CLONE, second, empty), (first, other, CLONE, empty)]
    assert list(pairs([take], "never")) == []


# Where to look


def test_a_wide_tensor_spans_more_than_int32_holds_by_a_stride_that_fits():
    for shape in [(3, 40), (5, 127), (1000, 8), (1, 4, 8, 16), (2, 3, 5)]:
        spot = place(shape, "wide")
        axis = spot.stride.index(max(spot.stride))
        assert WIDE <= (shape[axis] - 1) * spot.stride[axis] < 2 * WIDE
        assert spot.stride[axis] < WIDE and spot.stride[axis] % 16 == 0
        last = sum((n - 1) * s for n, s in zip(shape, spot.stride, strict=True))
        assert spot.offset == 0 and spot.room == last + 1
        others = [s for i, s in enumerate(spot.stride) if i != axis]
        assert others == sorted(others, reverse=True) and max(others) < spot.stride[axis]
    assert place((2, 40), "wide") == place((2, 40), "contiguous")
    assert place((40,), "wide") == place((40,), "contiguous")
    assert "wide" not in LAYOUTS


def test_points_are_small_and_odd_real_and_beyond():
    op = next(t.op for t in trials("c51_int32"))
    points = matrix(op, "BLOCK = 64", 7, INTERPRETED)
    ((at, case),) = ragged(op, points)
    assert at not in op.workloads and case.layout == "contiguous"
    assert sum(n % 2 and n > 1 for n in at.dims.values()) == max(
        sum(n % 2 and n > 1 for n in w.dims.values())
        for w, c in points if w not in op.workloads and c.values == "recipe"
    )  # fmt: skip
    assert real(op, 7)[0].role == "measure"
    ((at, case),) = beyond(op, 7)
    assert places(op, at, case)["x"][0].room > WIDE > places(op, at, case)["s"][0].room


def test_each_input_is_spread_alone_in_the_smallest_dtype():
    at = [Workload({"M": 4, "N": 8}, {"T": t}) for t in ("float32", "bfloat16")]
    inputs = {
        "w": Tensor("N"), "mask": Tensor("M N", "bool"), "x": Tensor("M N M"), "y": Tensor("M N"),
        "o": Tensor("M N M N", "int64", Offsets("M")), "xs": Tensor("M N M", count="M"),
    }  # fmt: skip
    op = OpSpec("op", inputs, {"z": Tensor("M N")}, tuple(at), mutates=("w", "y"))
    points = beyond(op, 1)
    spread = [
        [name for name, spots in places(op, point, case).items() if spots[0].room > WIDE]
        for point, case in points
    ]
    assert spread == [["mask"], ["x"]] and points[1][0].dtypes["T"] == "bfloat16"
    assert beyond(replace(op, inputs={"w": Tensor("N")}), 1) == []


@pytest.mark.parametrize("unit", list(discover(seeds)), ids=lambda unit: unit.op.name)
def test_what_is_written_is_vast_as_well_and_of_a_shape_that_is_met(unit):
    op, points = unit.spec, vast(unit.spec, 7)
    names = [name for name, t in op.written().items() if "V" in t.axes or len(t.axes.split()) > 1]
    # of these two, float32 state has no room, and a loss is one number a row
    assert bool(points) is (op.name not in ("adamw", "cross_entropy"))
    for name in names:
        shapes = [op.written()[name].shapes(op.names(at)) for at, _ in points]
        assert any(prod(shape) > WIDE for some in shapes for shape in some)
    for at, case in points:
        assert op.is_legal(at) and case == Case(case.seed)
        # one axis is longer than at a workload that is listed, and no grid is
        assert any(
            sum(n != base.dims[axis] for axis, n in at.dims.items()) == 1 for base in op.workloads
        )
        assert len(at.dims) == 1 or max(_longest(n) for n in at.dims.values()) < WIDE
    assert points != vast(op, 8) or not points


def test_the_int32_cheats_meet_a_product_that_wraps(zygote):
    """Of numbers that come in 32 bits: of a stride and the last row's, of rows and columns."""
    (trial,) = trials("c51_int32")
    (point,) = beyond(trial.op, 3)
    (tape,) = record(trial.op, trial.candidate, [point], zygote, DEFAULT_ARCH)
    numbers = [a.value for a in tape.tape.launches[0].arguments
               if isinstance(a, Scalar) and a.type == "i32"]  # fmt: skip
    assert any((point[0].dims["M"] - 1) * n >= WIDE for n in numbers)
    assert max(b.bytes for b in tape.tape.buffers) > 4 * WIDE
    (trial,) = trials("b19_int32")
    (point,) = vast(trial.op, 3)
    (tape,) = record(trial.op, trial.candidate, [point], zygote, DEFAULT_ARCH)
    (launch,) = tape.tape.launches
    assert (launch.grid[0] - 1) * point[0].dims["N"] >= WIDE > launch.grid[0]


def interpreted_beyond(folder, *names):
    """Interpret kernels beyond 2^31 elements; how each came out, or None for a fault."""
    ran = subprocess.run(
        [sys.executable, ROOT / "tests/run_wide.py", *names], cwd=folder, capture_output=True,
        text=True, timeout=240, env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    if ran.returncode < 0:
        return None
    assert ran.returncode == 0, ran.stderr
    return {each["kernel"]: each["error"] for each in map(json.loads, ran.stdout.splitlines())}


def test_a_product_that_wraps_is_wrong_beyond_and_one_that_does_not_is_right(tmp_path):
    (trial,) = trials("c51_int32")
    wide = trial.source.replace("row, col = at // N,", "row, col = (at // N).to(tl.int64),")
    assert wide != trial.source
    for name, source in (("wraps", trial.source), ("wide", wide)):
        (tmp_path / f"{name}.py").write_text(source)
    wrong = interpreted_beyond(tmp_path, "wraps.py", "scale")
    assert wrong is None or not wrong["scale"] < 1e-3
    assert interpreted_beyond(tmp_path, "wide.py", "scale") == {"scale": 0.0}


@pytest.mark.slow
def test_every_seed_is_right_beyond(tmp_path):
    names = [unit.op.name for unit in discover(seeds) if beyond(unit.spec, 1)]
    found = interpreted_beyond(tmp_path, *names)
    assert found is not None and set(found) == set(names) and len(names) > 12
    assert all(error < 2e-2 for error in found.values()), found


def test_the_reading_cheat_reads_past_the_end_where_the_sanitizer_looks(zygote):
    """Its block is wider than a row, and its last row ends where the buffer does."""
    (trial,) = trials("c49_read")
    tiny = matrix(trial.op, trial.source, 3, INTERPRETED)
    points = [smoke(trial.op, 3), *ragged(trial.op, tiny)]
    assert all(at.dims["N"] & (at.dims["N"] - 1) for at, _ in points)
    tapes = record(trial.op, trial.candidate, points, zygote, DEFAULT_ARCH)
    for (at, _), tape in zip(points, tapes, strict=True):
        assert tape.tape.buffers[0].bytes == 4 * at.dims["M"] * at.dims["N"]
        assert [kernel.async_instructions for kernel in tape.tape.kernels] == [0]


def test_a_kernel_that_copies_asynchronously_is_told_apart(zygote):
    op, candidate = gemm.UNIT.spec, gemm.UNIT.candidate()
    at = next(at for at in op.workloads if at.dims["M"] == 64)
    (tape,) = record(op, candidate, [(at, CASE)], zygote, DEFAULT_ARCH)
    assert all(kernel.async_instructions > 0 for kernel in tape.tape.kernels)


# The stage


PLAIN = KernelFacts("kernel", "sm_90", 32, 0, 0, 4)
SHOWN = Done(shown_json.dump_json({NAME: (32, 0, False)}))


def told_of(take: Take, kernel: KernelFacts = PLAIN) -> Take:
    """The take, whose recording tells the facts of its one kernel."""
    tape = replace(take.recording.tape, kernels=(kernel,))
    return replace(take, recording=replace(take.recording, tape=tape))


def bench(tmp_path, replies=(), logs=(), take=None, asked=None, shown=SHOWN) -> Bench:
    """Players that answer by their job's name, and a sanitizer that answers by its tool's."""
    taken = told_of(take or Take(AT, CASE, tape_of(launch(), CLONE)))

    def player(name, request, seconds):
        what = name.partition(":")[2]
        asked.append(what) if asked is not None else None
        came = dict(replies).get(what, Reply(notes=(job.EFFECT,)))
        return came if isinstance(came, Died) else Done(wire.dump_reply(came))

    def tool(name, request, seconds):
        asked.append(name) if asked is not None else None
        return dict(logs).get(name, Log(NONE))

    def recorder(name, request, seconds):
        return shown if binaries_json.validate_json(request) else Done(b"{}")

    def takes(op, candidate, points):
        return op, [taken for _ in points]

    return Bench(takes, recorder, player, tool, Turns(tmp_path))


BENT = replace(CASE, values="large")
ZERO = Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ())


def test_bent_values_are_held_against_the_truth(tmp_path):
    def asked(*steps):
        takes = [Take(AT, BENT, tape_of(*steps))]
        return job.check_bent(takes, Players(plain_op(), CPU), Turns(tmp_path), lambda n: None)

    assert asked(CLONE).checked[0].cases == 1
    with pytest.raises(CandidateError, match="off by"):
        asked(ZERO)


@pytest.mark.parametrize("cause", [torch.OutOfMemoryError("full"), ValueError("other")])
def test_what_float64_has_no_room_for_is_told_and_nothing_else_is(monkeypatch, tmp_path, cause):
    def failing(take, player):
        raise ProblemError("cannot be run") from cause

    monkeypatch.setattr(job, "check", failing)
    takes, players = [Take(AT, BENT, tape_of(CLONE))] * 2, Players(plain_op(), CPU)
    if isinstance(cause, ValueError):
        with pytest.raises(ProblemError):
            job.check_bent(takes, players, Turns(tmp_path), lambda n: None)
    else:
        reply = job.check_bent(takes, players, Turns(tmp_path), lambda n: None)
        assert reply == Reply(notes=(job.NO_ROOM,))


@pytest.mark.parametrize(
    ("free", "said", "notes"),
    [
        (40 << 30, True, ()),
        (40 << 30, False, (job.ROUNDED,)),
        (16 << 30, True, (job.NO_ROOM,)),
        (40 << 30, torch.OutOfMemoryError("full"), (job.NO_ROOM,)),
        (40 << 30, RuntimeError("32-bit indices"), (job.UNTOLD,)),
        (40 << 30, "wrong", (job.UNTOLD,)),
    ],
)
def test_what_is_vast_is_held_against_what_there_is_room_for(
    monkeypatch, tmp_path, free, said, notes
):
    def wanted(op, at, case, device):
        if isinstance(said, Exception):
            raise ProblemError("cannot be run") from said
        found = wanted_at(op, at, case, device, widen=bool(said))
        if said == "wrong":
            found = replace(found, own=[torch.zeros_like(own) for own in found.own])
        return found, bool(said)

    def asked(*steps):
        takes = [Take(AT, CASE, tape_of(*steps))]
        return job.check_vast(takes, Players(plain_op(), CPU), Turns(tmp_path), lambda n: None)

    monkeypatch.setattr(job, "free_bytes", lambda device: free)
    monkeypatch.setattr(job, "wanted_in_room", wanted)
    reply = asked(CLONE)
    assert reply.notes == notes
    assert [checked.cases for checked in reply.checked] == [1] * (notes in ((), (job.ROUNDED,)))
    if reply.checked:
        with pytest.raises(CandidateError, match="off by"):
            asked(ZERO)


def test_torchs_own_answer_stands_in_where_float64_has_no_room(monkeypatch):
    def full(op, at, case, device, widen=True):
        if widen:
            raise ProblemError("cannot be run") from torch.OutOfMemoryError("full")
        return "torch's own"

    monkeypatch.setattr(check, "wanted_at", full)
    assert check.wanted_in_room(plain_op(), AT, CASE, CPU) == ("torch's own", False)
    monkeypatch.undo()
    wanted, whole = check.wanted_in_room(plain_op(), AT, CASE, CPU)
    assert whole and wanted.truth[0].dtype == torch.float64


def test_each_class_of_values_meets_each_measured_size_that_is_not_very_large():
    classes = [values for values in VALUES[1:] if values != "crowded"]
    units = {unit.op.name: unit.op for unit in discover(seeds)}
    for name, inputs in (("softmax", 1), ("add_rms_norm", 3)):
        op = units[name]
        points = bent(op, 7)
        for at in (at for at in op.workloads if at.role == "measure"):
            met = [case for there, case in points if there == at]
            if size_of(op, at) <= 1 << 26:
                assert list(dict.fromkeys(case.values for case in met)) == classes
            # all inputs at once as well, where there are some
            both = {case.values for case in met if case.on == ALL}
            assert both == (ALIKE & {case.values for case in met} if inputs > 1 else set())
        assert {case.values for _, case in points} == set(classes) and points != bent(op, 8)
    # another input of each class under another secret
    turns = {case.on % 3 for secret in range(9) for _, case in bent(op, secret) if case.on != ALL}
    assert turns == {0, 1, 2}
    assert "crowded" in {case.values for _, case in bent(units["cross_entropy"], 7)}
    assert bent(plain_op(), 7) == []


@pytest.mark.parametrize("unit", list(discover(seeds)), ids=lambda unit: unit.op.name)
def test_measured_sizes_are_met_in_another_layout_and_large_and_long_ones_nowhere_listed(unit):
    op = unit.op
    measured = [at for at in op.workloads if at.role == "measure"]
    turned = laid(op, 7)
    assert [at for at, _ in turned] == measured
    assert all(places(op, at, case) != places(op, at, CASE) for at, case in turned)
    nearby, far = near(op, 7), list(long(op, 7))
    assert len(nearby) == 2 and far and nearby != near(op, 8)
    sizes = [size_of(op, at) for at in measured]
    for at, case in [*nearby, *far]:
        assert at not in op.workloads and op.is_legal(at) and case.layout == "contiguous"
        assert "at a hidden size" in describe(op, at, case)
    for at, _ in nearby:
        assert min(sizes) / 3 <= size_of(op, at) <= 1.5 * max(sizes)
    assert all(max(_longest(n) for n in at.dims.values()) > 1 << 14 for at, _ in far)
    assert everywhere(op, 7, [POINT], [POINT]).bent == [*bent(op, 7), *turned, *nearby]


def test_an_axis_that_is_no_row_is_longer_than_a_grids_second_axis():
    (op,) = [unit.op for unit in discover(seeds) if unit.op.name == "softmax"]
    (rows, _), (row, _) = long(op, 7)
    assert rows.dims["M"] > 65535 > row.dims["N"] > 1 << 14


def _longest(size):
    return max(size) if isinstance(size, tuple) else size


POINT = (AT, CASE)
LONG = [(replace(AT, dims={"M": 3, "N": 20001}), CASE)]
VAST = [(replace(AT, dims={"M": 1 << 30, "N": 3}), CASE)]
POINTS = Points([POINT], POINT, [POINT], [POINT], [POINT], [POINT], [POINT])


def test_all_that_was_looked_into_is_told(tmp_path):
    asked = []
    some = {"vast": Reply((Checked(AT, 0.0, 0.0, 1),), notes=(job.ROUNDED,))}
    notes = look(plain_op(), None, POINTS, bench(tmp_path, some.items(), asked=asked))
    assert asked[:6] == ["repeats", "effects", "wide", "vast", "bent", "bent"]
    assert sorted(asked[6:]) == sorted(TOOLS)
    assert notes == (
        "registers, spills and matrix instructions of 1 binaries read off them again",
        f"30 runs in a fresh process at {AT} equal to the bit",
        "each of 1 kernels left out in turn: the outputs show it",
        "an input that spans more than 2^31 elements by its strides: 1 in turn",
        "outputs of more than 2^31 elements: 1, compared with torch's own",
        "1 cases of bent values and other layouts at measured sizes, and hidden sizes near them",
        "1 cases of hidden sizes with an axis longer than 2^14",
        "compute-sanitizer memcheck, racecheck, initcheck, synccheck on 1 small sizes",
    )


def test_what_could_not_be_looked_into_is_told_with_its_reason(tmp_path):
    gone = {tool: Log(why="compute-sanitizer is not installed here") for tool in TOOLS}
    logs = gone | {"memcheck": Log(NONE), "synccheck": Log(why="synccheck took too long")}
    points = replace(POINTS, beyond=[], bent=[], long=[], vast=[])
    told = look(plain_op(), None, points, bench(tmp_path, logs=logs.items()))[3:]
    assert "no input has an axis to spread" in told[0]
    assert "no such size is legal" in told[1] and "no such size is legal" in told[3]
    assert "no size is measured" in told[2]
    assert told[4:] == (
        "compute-sanitizer memcheck on 1 small sizes",
        "compute-sanitizer is not installed here: not looked into:"
        " races on shared memory, reads of unwritten memory",
        "synccheck took too long: not looked into: misused barriers",
    )
    full = bench(tmp_path, replies={"wide": Reply(notes=(job.NO_ROOM,))}.items())
    assert "no room for it now" in look(plain_op(), None, POINTS, full)[3]
    full = bench(tmp_path, replies={"bent": Reply(notes=(job.NO_ROOM,))}.items())
    assert "not all tried" in look(plain_op(), None, POINTS, full)[5]
    full = bench(tmp_path, replies={"vast": Reply(notes=(job.NO_ROOM, job.UNTOLD))}.items())
    told = look(plain_op(), None, POINTS, full)[4]
    assert told.endswith("no room for it now and torch itself fails there")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"shown": Done(shown_json.dump_json({NAME: (255, 0, False)}))},
         "its binaries show other registers, spills and matrix instructions than it told of"),
        ({"shown": Died("raised", "", "CalledProcessError")},
         "its binaries cannot be disassembled"),
        ({"replies": {"effects": Reply()}}, "kernel does nothing that the outputs show"),
        ({"replies": {"repeats": Reply(whose="candidate", stage="deep", reason="gives other bits",
                                       take=0)}}, "gives other bits"),
        ({"replies": {"wide": Reply(whose="candidate", stage="smoke", reason="reads outside",
                                    take=0)},
          "take": Take(AT, replace(CASE, layout="wide"), tape_of(launch()))},
         "reads outside with an input that spans more than 2^31 elements by its strides"),
        ({"logs": {"memcheck": Log(READ.replace("_rows", "kernel") + ONE)}},
         "kernel reads 4 bytes past the end of a buffer (memcheck)"),
        ({"logs": {"initcheck": Log(UNREAD.format(kernel="kernel"), "initcheck took too long")}},
         "kernel reads memory that nothing has written (initcheck)"),
    ],
    ids=["facts", "no facts", "idle", "repeats", "wide", "memcheck", "initcheck"],
)  # fmt: skip
def test_what_is_wrong_is_rejected_at_deep(tmp_path, changes, reason):
    made = {k: v.items() if isinstance(v, dict) else v for k, v in changes.items()}
    with pytest.raises(CandidateError) as caught:
        look(plain_op(), None, POINTS, bench(tmp_path, **made))
    assert (caught.value.stage, caught.value.reason) == ("deep", reason)


def test_a_doubtful_finding_is_told_and_not_held_against_it(tmp_path):
    race = {"racecheck": Log(RACE.replace("_rows", "kernel"))}
    busy = told_of(Take(AT, CASE, tape_of(launch())), replace(PLAIN, async_instructions=8))
    made = replace(bench(tmp_path, logs=race.items()), takes=lambda op, c, points: (op, [busy]))
    notes = look(plain_op(), None, POINTS, made)
    (told,) = [note for note in notes if DOUBTFUL in note]
    assert told.startswith("racecheck says that kernel races on shared memory")


@pytest.mark.parametrize("name", ["gemm", "softmax"])
def test_binaries_show_what_the_compiler_told_of_them(zygote, name):
    """Read in a process without a candidate, they say what its own process said of them."""
    unit = next(unit for unit in discover(seeds) if unit.op.name == name)
    (recording,) = record(unit.spec, unit.candidate(), [smoke(unit.spec)], zygote)
    request = binaries_json.dump_json(recording.binaries)
    done = zygote("evaluator.record.facts:main", request, 60.0)
    (kernel,), (seen,) = recording.tape.kernels, shown_json.validate_json(done.body).values()
    assert seen == (kernel.registers, kernel.spills, name == "gemm")
    assert (kernel.matmul_instructions > 0) is (name == "gemm")


def test_a_lost_player_is_our_own_failure(tmp_path):
    lost = bench(tmp_path, replies={"effects": Died("killed", "signal 9")}.items())
    with pytest.raises(LabError):
        look(plain_op(), None, POINTS, lost)


def test_a_launcher_may_refuse_what_is_so_wide_or_long(tmp_path):
    def takes(op, candidate, points):
        if (points[0][1].layout, points[0][1].on) == ("wide", 0) or points in (LONG, VAST):
            raise CandidateError("record", "line 3: ValueError: rows must be close")
        return op, [told_of(Take(AT, CASE, tape_of(launch())))]

    wide = [(AT, Case(1, "wide", on=on)) for on in (0, 1)]
    refusing = replace(bench(tmp_path), takes=takes)
    for some, told in ((wide[:1], "not tried"), (wide, "1 in turn, 1 not")):
        points = replace(POINTS, beyond=some, long=LONG, vast=VAST)
        notes = look(plain_op(), None, points, refusing)
        assert f"strides: {told}, for the launcher refuses it (line 3" in notes[3]
        assert "not tried, for the launcher refuses one (line 3" in notes[4]
        assert "not tried, for the launcher refuses one (line 3" in notes[6]


def test_a_judge_without_a_gpu_says_what_it_leaves_out(judge):
    assert judge.full.deep(plain_op(), None) == (NOT_DEEP,)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
@pytest.mark.parametrize("asked", [job.repeats, job.effects, job.wide, job.vast, job.bent])
def test_without_a_gpu_the_jobs_say_so(asked, tmp_path):
    request = replace(request_of(), turns=str(tmp_path))
    reply = wire.load_reply(asked(wire.dump_request(request)))
    assert (reply.whose, "no CUDA GPU" in reply.reason) == ("lab", True)
