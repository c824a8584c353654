"""Tapes of aten calls alone, which a CPU can play, and what the judge makes of a player."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tapes import AT, CASE, CLONE, CPU, SHORT_X, X, Y, launch, op_of, plain_op, tape_of

from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.inputs import Case, places
from evaluator.isolate import Died, Done, run_here
from evaluator.play import cuda, job, wire
from evaluator.play.calls import prepare, resolve
from evaluator.play.check import Players, check, on_host, whole_sums
from evaluator.play.judge import replay
from evaluator.play.memory import GUARD, POISONS, Arena, make
from evaluator.play.player import in_turn
from evaluator.play.wire import Reply, Request, Take
from evaluator.turns import Turns
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import OpSpec
from kernel_library.tape import Buffer, Call, Pointer, Recording, Scalar, Tape, View

NO_TURNS = Turns(Path("/turns"))
CEILINGS = Ceilings(4000.0, {"float32": 50.0}, 60.0, 1.0)
H200 = Device("NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS)


def played(recording: Recording, op: OpSpec | None = None, case: Case = CASE):
    op = op or plain_op()
    take = Take(AT, case, recording)
    return check(take, Players(op, CPU).of(take))


@pytest.mark.parametrize(
    "op", ["aten.mm.default", "aten.from_file.default", "prims.add.default", "aten.clone", "os.x.y"]
)
def test_calls_that_are_not_listed_are_refused(op):
    with pytest.raises(CandidateError, match="does not allow"):
        resolve(op)


@pytest.mark.parametrize("spelt", ["mm", "aten.mm", "aten.mm.default"])
def test_a_problem_may_allow_a_library_call(spelt):
    assert resolve("aten.mm.default", (spelt,)) is torch.ops.aten.mm.default


@pytest.mark.parametrize(
    ("call", "allows", "wanted"),
    [
        (Call("aten.clone.default", ({"view": 0},), {}, (), ()), (), [[1.0, 2.0], [3.0, 4.0]]),
        (
            Call("aten._to_copy.default", ({"view": 0},), {"dtype": {"dtype": "float64"}}, (), ()),
            (),
            [[1.0, 2.0], [3.0, 4.0]],
        ),
        (Call("aten.zeros.default", ([2, 2],), {}, (), ()), (), [[0.0, 0.0], [0.0, 0.0]]),
        (Call("aten.full.default", ([2, 2], 7.5), {}, (), ()), (), [[7.5, 7.5], [7.5, 7.5]]),
        (
            Call("aten.mm.default", ({"view": 0}, {"view": 0}), {}, (), ()),
            ("mm",),
            [[7.0, 10.0], [15.0, 22.0]],
        ),
        (
            Call("aten.sum.dim_IntList", ({"view": 0}, [0], True), {}, (), ()),
            ("sum",),
            [[4.0, 6.0], [4.0, 6.0]],
        ),
    ],
    ids=lambda value: value.op if isinstance(value, Call) else "",
)
def test_a_call_writes_its_result_where_the_tape_says(call, allows, wanted):
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.full((2, 2), math.nan)
    result = y[:1] if "sum" in call.op else y
    prepare(call, [x], [result], allows)()
    assert result.tolist() == wanted[: len(result)]


def test_a_kernels_parameters_are_asked_for_until_the_driver_knows_no_more(monkeypatch):
    refused = SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE")
    known = [(0, 0, 8), (0, 8, 4), (0, 64, 128), (refused, 0, 0)]
    stand_in = SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=0), cuFuncGetParamInfo=lambda handle, i: known[i]
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", stand_in)
    assert list(cuda._parameters(object())) == [8, 4, 128]
    refused.name = "CUDA_ERROR_UNKNOWN"
    with pytest.raises(cuda.CudaError):
        list(cuda._parameters(object()))


@pytest.mark.parametrize("poison", [0, 1])
def test_a_write_beside_a_buffer_shows_in_its_guards(poison):
    arena = Arena([10, 0, 700], CPU, poison)
    arena.poison(0)
    assert arena.is_intact() and bool((arena.bytes(2) == 0xFF).all())
    assert arena.memory[0] == POISONS[poison]
    for at in (0, arena.starts[0] - 1, arena.starts[0] + 10, len(arena.memory) - 1):
        arena.memory[at] = 0
        assert not arena.is_intact()
        arena.memory[at] = POISONS[poison]
    assert arena.is_intact() and arena.starts[0] == GUARD


def test_a_large_arena_is_as_large_as_the_block_that_it_lies_in():
    arena = Arena([10 << 20, 40], CPU)
    assert len(arena.memory) == 12 << 20
    arena.memory[-1] = 0
    assert not arena.is_intact()
    assert len(Arena([40], CPU).memory) == 2 * GUARD + 512


@pytest.mark.parametrize(("asked", "whose"), [(700, CandidateError), (300, LabError)])
def test_who_asks_for_most_of_the_device_is_at_fault_if_it_is_not_there(monkeypatch, asked, whose):
    def full(sizes, device, poison):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (0, 1000))
    with pytest.raises(whose):
        make([asked], CPU, full)


def test_a_view_lies_at_its_offset_and_strides():
    arena = Arena([64], CPU)
    arena.bytes(0).copy_(torch.arange(64, dtype=torch.uint8))
    view = arena.view(0, View(0, 8, (2, 3), (4, 1), "int16"))
    assert view[1].tolist() == [(2 * i + 1) * 256 + 2 * i for i in (8, 9, 10)]


def test_a_tapes_first_launch_waits_for_all_that_is_ahead_of_it():
    early, none = launch(dependent=True), launch(dependent=True, grid=(0, 1, 1))
    steps = list(in_turn([CLONE, none, early, early]))
    assert steps == [CLONE, none, replace(early, dependent=False), early]


def test_a_right_tape_of_calls_passes_and_a_repeat_agrees():
    errors = played(tape_of(CLONE), case=replace(CASE, repeat=True))
    assert errors is not None and errors.error == 0.0


@pytest.mark.parametrize("layout", ["transposed", "step2", "expanded", "unaligned"])
def test_inputs_keep_their_layout(layout):
    case = replace(CASE, layout=layout)
    (place,) = places(plain_op(), AT, case)["x"]
    x = View(0, 4 * place.offset, place.shape, place.stride, "float32")
    buffers = (Buffer("input", 4 * place.room, "x"), Buffer("made", 480))
    taped = Recording(Tape(buffers, (replace(CLONE, views=(x,)),), (Y,)), {})
    errors = played(taped, case=case)
    assert errors is not None and errors.error == 0.0


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ((Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ()),), "off by"),
        ((), "never written"),
        ((replace(CLONE, views=(SHORT_X,), results=(replace(SHORT_X, buffer=1),)),),
         "never written"),
        ((CLONE, Call("aten.zero_.default", ({"view": 0},), {}, (X,), ())), "its input 'x'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("poison", [0, 1])
def test_a_wrong_tape_is_rejected(steps, told, poison):
    with pytest.raises(CandidateError, match=told) as caught:
        played(tape_of(*steps), case=replace(CASE, poison=poison))
    assert caught.value.stage == "correct"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (({"view": 9},), {}),
        (({"view": 0},), {"dtype": {"dtype": "no dtype"}}),
        (({"view": 0},), {"dtype": {"float": "no number"}}),
        ((), {}),
    ],
)
def test_a_call_that_no_torch_can_make_is_the_candidates_fault(args, kwargs):
    with pytest.raises(CandidateError, match="cannot run as recorded"):
        played(tape_of(Call("aten._to_copy.default", args, kwargs, (X,), (Y,))))


def test_unwritten_memory_that_is_read_shows_in_a_repeat():
    add = Call(
        "aten.copy_.default", ({"view": 0}, {"view": 1}), {},
        (replace(Y, shape=(1,), stride=(1,)), replace(Y, offset=160, shape=(1,), stride=(1,))), (),
    )  # fmt: skip
    with pytest.raises(CandidateError, match="other bits"):
        played(tape_of(add), case=replace(CASE, repeat=True))


def test_a_declared_mutation_is_an_output_and_no_fault():
    def double(x):
        x.mul_(2)
        return x.clone()

    op = op_of(double, mutates=("x",))
    twice = Call("aten.mul_.Tensor", ({"view": 0}, 2.0), {}, (X,), ())
    errors = played(tape_of(twice, CLONE), replace(op, allows=("mul_",)))
    assert errors is not None and errors.error == 0.0
    with pytest.raises(CandidateError):
        played(tape_of(CLONE), replace(op, allows=("mul_",)))


@pytest.mark.parametrize("beside", [False, True])
def test_what_lies_between_the_elements_of_a_mutated_input_is_not_its_own(beside):
    def double(x):
        x.mul_(2)

    op = replace(op_of(double, mutates=("x",), outputs=()), allows=("mul_", "zero_"))
    case = replace(CASE, layout="step2")
    (spot,) = places(op, AT, case)["x"]
    x = View(0, 0, spot.shape, spot.stride, "float32")
    twice = Call("aten.mul_.Tensor", ({"view": 0}, 2.0), {}, (x,), ())
    between = Call("aten.zero_.default", ({"view": 0},), {}, (replace(x, offset=4),), ())
    tape = Tape((Buffer("input", 4 * spot.room, "x"),), (twice, between)[: 1 + beside], ())
    if not beside:
        assert played(Recording(tape, {}), op, case) is not None
        return
    with pytest.raises(CandidateError, match="between the elements of its input 'x'"):
        played(Recording(tape, {}), op, case)


def test_requests_and_replies_survive_the_wire():
    taken = Take(AT, CASE, tape_of(launch(arguments=(Scalar("fp32", math.inf), Pointer(1)))))
    sent, binaries = wire.pack([taken, taken])
    request = Request(plain_op(), sent, binaries, "/turns")
    again = wire.load_request(wire.dump_request(request))
    assert again == request and again.takes() == (taken, taken)
    reply = Reply(whose="candidate", stage="smoke", reason="hangs", take=3)
    assert wire.load_reply(wire.dump_reply(reply)) == reply


def test_takes_are_timed_once_those_before_them_are_right(monkeypatch, tmp_path):
    raced = []

    def race(asked, takes, players, at, turns):
        at(0)
        raced.append(len(takes))
        raise CandidateError("light", "faster than light")

    def replayed(*recordings):
        sent, binaries = wire.pack([Take(AT, CASE, each) for each in recordings])
        request = Request(plain_op(), sent, binaries, str(tmp_path), wire.Race(1, H200))
        return wire.load_reply(job.main(wire.dump_request(request)))

    monkeypatch.setattr(job, "gpu", lambda: CPU)
    monkeypatch.setattr(job, "race", race)
    right, wrong = tape_of(CLONE), tape_of()
    told = replayed(right, wrong, right)
    assert (told.stage, told.take, raced) == ("correct", 1, [])
    told = replayed(right, right, wrong)
    assert (told.stage, told.take, raced) == ("light", 2, [1])
    monkeypatch.setattr(job, "race", lambda *_: Reply(notes=("raced",)))
    told = replayed(right, right, wrong)
    assert told.checked[0].cases == 2 and told.notes == ("raced",)
    assert told.seconds.keys() == {"start", "speed", "wait"} and told.seconds["speed"] > 0


def answering(reply: Reply):
    return lambda job, request, seconds: Done(wire.dump_reply(reply))


def test_a_fault_at_a_hidden_size_names_its_class_alone():
    hidden = replace(AT, dims={"M": 3, "N": 41})
    takes = [Take(AT, CASE, tape_of()), Take(hidden, replace(CASE, values="large"), tape_of())]
    reply = Reply(whose="candidate", reason="output 'y' is off", take=1)
    graphs = {str(at): op_of(at=at).reference.graphs[str(at)] for at in (AT, hidden)}
    op = replace(plain_op(), reference=replace(plain_op().reference, graphs=graphs))
    with pytest.raises(CandidateError) as caught:
        replay(op, takes, answering(reply), NO_TURNS)
    assert caught.value.reason == "output 'y' is off at a hidden size in float32 with large values"
    assert caught.value.at is None
    with pytest.raises(CandidateError) as caught:
        replay(op, takes, answering(replace(reply, take=0)), NO_TURNS)
    assert (caught.value.at, caught.value.stage) == (AT, "smoke")


def test_only_what_is_checked_first_is_a_smoke_test():
    takes = [Take(AT, CASE, tape_of())] * 2
    wrong = Reply(whose="candidate", reason="output 'y' is off", take=0)

    def stage(reply, race=None):
        with pytest.raises(CandidateError) as caught:
            replay(plain_op(), takes, answering(reply), NO_TURNS, race)
        return caught.value.stage

    assert stage(wrong) == stage(wrong, wire.Race(1, H200)) == "smoke"
    assert stage(replace(wrong, take=1)) == stage(wrong, wire.Race(2, H200)) == "correct"
    assert stage(replace(wrong, stage="light")) == "light"


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Died("timeout", ""), LabError),
        (Died("killed", "signal 9"), LabError),
        (Died("raised", "boom", "KeyError"), LabError),
        (Done(b"{}"), LabError),
        (Done(wire.dump_reply(Reply(whose="lab", reason="no GPU"))), LabError),
        (Done(wire.dump_reply(Reply(whose="problem", reason="mm cannot run"))), ProblemError),
    ],
)
def test_our_own_failure_is_not_the_candidates(outcome, error):
    with pytest.raises(error):
        replay(plain_op(), [Take(AT, CASE, tape_of())], lambda *_: outcome, NO_TURNS)


@pytest.mark.parametrize(
    ("function", "steps", "told"),
    [
        (lambda x: x.clone(), (CLONE, launch()), True),
        (lambda x: x.t().contiguous().t(), (launch(), CLONE), True),
        (lambda x: torch.cat([x[:1], x[1:]]), (CLONE,), True),
        (lambda x: 1 * x, (CLONE, launch()), False),
        (lambda x: x.clone(), (launch(),), False),
        (lambda x: x.clone(), (Call("aten.zero_.default", ({"view": 0},), {}, (Y,), ()),), False),
        (lambda x: x.clone(), (replace(CLONE, results=(replace(Y, buffer=2),)), launch()), False),
    ],
)
def test_what_only_moves_is_moved_by_a_kernel(function, steps, told):
    op, recording = op_of(function), tape_of(*steps)
    buffers = (*recording.tape.buffers, Buffer("made", 480))
    take = Take(AT, CASE, replace(recording, tape=replace(recording.tape, buffers=buffers)))
    error, match = (CandidateError, "copies are all") if told else (LabError, "player")
    with pytest.raises(error, match=match):
        replay(op, [take], lambda *_: Died("killed", "signal 9"), NO_TURNS)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_the_player_says_so(tmp_path: Path):
    with pytest.raises(LabError, match="no CUDA GPU"):
        replay(plain_op(), [Take(AT, CASE, tape_of(CLONE))], run_here, Turns(tmp_path))
    with pytest.raises(LabError, match="CUDA driver"):
        cuda.call("cuInit", 0)


def test_only_while_answers_are_checked_are_products_summed_whole():
    def are_cut():
        matmul = torch.backends.cuda.matmul
        return [
            matmul.allow_fp16_reduced_precision_reduction,
            matmul.allow_bf16_reduced_precision_reduction,
        ]

    before = are_cut()
    with pytest.raises(LabError), whole_sums():
        assert are_cut() == [False, False]
        raise LabError("")
    assert are_cut() == before


def test_small_tensors_are_compared_on_the_host_but_for_one_that_is_spread_wide():
    assert on_host(plain_op(), AT, CASE)
    assert not on_host(plain_op(), AT, replace(CASE, layout="wide"))
