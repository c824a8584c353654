"""The player's pure parts, and tapes of aten calls alone, which a CPU can play."""

import math
import struct
from dataclasses import replace
from functools import cache
from hashlib import sha256

import pytest
import torch

from evaluator.datasheet import MARGIN, datasheet
from evaluator.errors import CandidateError, LabError, ProblemError
from evaluator.graphs import run, trace
from evaluator.inputs import Case
from evaluator.isolate import Died, Done, run_here
from evaluator.play import baselines, cuda, wire
from evaluator.play.calls import prepare, resolve
from evaluator.play.check import Players, check
from evaluator.play.closing import close, faults
from evaluator.play.judge import check_replayed
from evaluator.play.memory import GUARD, PATTERN, Arena
from evaluator.play.packing import number, pack
from evaluator.play.statistics import Plan, noise, order, plan, possible, rounds, summary
from evaluator.play.wire import Reply, Request, Take
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import Cost, OpSpec, Reference, Tensor, Workload
from kernel_library.tape import (
    Buffer,
    Call,
    Descriptor,
    Launch,
    Pointer,
    Recording,
    Scalar,
    Tape,
    View,
)

CPU = torch.device("cpu")
IMAGE = b"\x7fELF\x00\xff kernel"
NAME = sha256(IMAGE).hexdigest()
AT = Workload({"M": 3, "N": 40}, {"T": "float32"})
CASE = Case(seed=5)
X = View(0, 0, (3, 40), (40, 1), "float32")
Y = replace(X, buffer=1)
SHORT_X = replace(X, shape=(3, 39))
CLONE = Call("aten.clone.default", ({"view": 0},), {}, (X,), (Y,))


def op_of(function=lambda x: x.clone(), *, at=AT, mutates=(), outputs=("y",)) -> OpSpec:
    zeros = torch.zeros(at.dims["M"], at.dims["N"], dtype=getattr(torch, at.dtypes["T"]))
    return OpSpec(
        "copy",
        {"x": Tensor("M N")},
        {name: Tensor("M N") for name in outputs},
        (at,),
        mutates=mutates,
        reference=Reference("", graphs={str(at): trace(function, [zeros], {})}),
    )


@cache
def plain_op() -> OpSpec:
    return op_of()


def tape_of(*steps, outputs=(Y,), made=480) -> Recording:
    buffers = (Buffer("input", 480, "x"), Buffer("made", made))
    return Recording(Tape(buffers, steps, outputs), {NAME: IMAGE})


def launch(**changes) -> Launch:
    plain = Launch(NAME, "kernel", (4, 1, 1), 4, 1, 0, (Pointer(0), Pointer(1), Scalar("i32", 40)))
    return replace(plain, **changes)


def played(recording: Recording, op: OpSpec | None = None, case: Case = CASE):
    op = op or plain_op()
    return list(check([Take(AT, case, recording)], Players(op, CPU)))


@pytest.mark.parametrize(
    ("scalar", "raw"),
    [
        (Scalar("i1", 1), b"\x01"),
        (Scalar("i32", -2), struct.pack("<i", -2)),
        (Scalar("u64", 2**64 - 1), b"\xff" * 8),
        (Scalar("fp32", 0.1), struct.pack("<f", 0.1)),
        (Scalar("fp32", -math.inf), struct.pack("<f", -math.inf)),
        (Scalar("fp64", 1), struct.pack("<d", 1.0)),
        (Scalar("fp16", 1.5), struct.pack("<e", 1.5)),
        # 1.999 is 0x3FFFDF3B in float32; Triton keeps the upper half, and so rounds down
        (Scalar("bf16", 1.999), b"\xff\x3f"),
    ],
)
def test_numbers_are_packed_as_tritons_launcher_packs_them(scalar, raw):
    assert number(scalar) == raw


@pytest.mark.parametrize(
    "scalar", [Scalar("i8", 300), Scalar("u32", -1), Scalar("fp16", 1e9), Scalar("tensor", 1)]
)
def test_a_number_that_its_type_cannot_hold_is_refused(scalar):
    with pytest.raises(ValueError):
        number(scalar)


def test_pointers_and_descriptors_are_packed_for_the_players_own_memory():
    base = {0: 4096, -1: 0}
    described = Descriptor(Pointer(0, 64), (8, 8), (8, 1), (4, 4), 4, 7, 0)

    def address(pointer):
        return base[pointer.buffer] + pointer.offset

    assert pack(Pointer(0, 16), address, bytes) == (4112).to_bytes(8, "little")
    assert pack(Pointer(-1), address, bytes) == bytes(8)
    assert pack(described, address, lambda d, at: at.to_bytes(128, "little"))[:2] == b"\x40\x10"


def test_a_closed_tape_has_no_fault():
    described = Descriptor(Pointer(1), (3, 40), (40, 1), (2, 8), 4, 7, 0)
    good = launch(arguments=(Pointer(0, 480), Pointer(-1), described, Scalar("fp32", 1.0)))
    assert list(faults(tape_of(good, CLONE), {"x": 480})) == []


@pytest.mark.parametrize(
    ("recording", "told"),
    [
        (tape_of(launch(binary="0" * 64)), "lacks the binary"),
        (Recording(tape_of(launch()).tape, {NAME: IMAGE + b"!"}), "lacks the binary"),
        (tape_of(launch(grid=(-1, 1, 1))), "over the grid"),
        (tape_of(launch(grid=(1, 65536, 1))), "over the grid"),
        (tape_of(launch(grid=(2**30, 1, 1), num_ctas=2)), "too many clusters"),
        (tape_of(launch(num_warps=64)), "64 warps"),
        (tape_of(launch(shared_bytes=1 << 20)), "shared memory"),
        (tape_of(launch(scratch_bytes=1 << 40)), "scratch"),
        (tape_of(launch(scratch_bytes=-1)), "scratch"),
        (tape_of(launch(arguments=(Pointer(2),))), "buffer that it does not have"),
        (tape_of(launch(arguments=(Pointer(1, 481),))), "outside a buffer"),
        (tape_of(launch(arguments=(Pointer(1, -4),))), "outside a buffer"),
        (
            tape_of(launch(arguments=(Descriptor(Pointer(1), (4, 40), (40, 1), (2, 8), 4, 7, 0),))),
            "larger than its buffer",
        ),
        (
            tape_of(launch(arguments=(Descriptor(Pointer(-1), (4,), (1,), (2,), 4, 7, 0),))),
            "descriptor of nothing",
        ),
        (tape_of(outputs=(replace(Y, shape=(4, 40)),)), "outside its buffer"),
        (tape_of(outputs=(replace(Y, offset=2),)), "misaligned"),
        (tape_of(outputs=(replace(Y, stride=(-40, 1)),)), "no shape"),
        (tape_of(outputs=(replace(Y, dtype="complex64"),)), "dtype"),
        (tape_of(replace(CLONE, results=(replace(Y, buffer=7),))), "in no buffer"),
        (tape_of(CLONE, made=-1), "negative size"),
    ],
)
def test_a_tape_that_reaches_outside_itself_is_refused(recording, told):
    with pytest.raises(CandidateError, match=told) as caught:
        close(recording, {"x": 480})
    assert caught.value.stage == "record"


def test_a_tape_for_inputs_of_another_layout_is_refused():
    with pytest.raises(CandidateError, match="another input 'x'"):
        close(tape_of(CLONE), {"x": 960})


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


def test_a_write_beside_a_buffer_shows_in_its_guards():
    arena = Arena([10, 0, 700], CPU)
    arena.poison(0)
    assert arena.is_intact() and bool((arena.bytes(2) == 0xFF).all())
    for at in (0, arena.starts[0] - 1, arena.starts[0] + 10, len(arena.memory) - 1):
        arena.memory[at] = 0
        assert not arena.is_intact()
        arena.memory[at] = PATTERN
    assert arena.is_intact() and arena.starts[0] == GUARD


def test_a_view_lies_at_its_offset_and_strides():
    arena = Arena([64], CPU)
    arena.bytes(0).copy_(torch.arange(64, dtype=torch.uint8))
    view = arena.view(0, View(0, 8, (2, 3), (4, 1), "int16"))
    assert view[1].tolist() == [(2 * i + 1) * 256 + 2 * i for i in (8, 9, 10)]


def test_a_right_tape_of_calls_passes_and_a_repeat_agrees():
    (errors,) = played(tape_of(CLONE), case=replace(CASE, repeat=True))
    assert errors is not None and errors.error == 0.0


@pytest.mark.parametrize("layout", ["transposed", "step2", "expanded", "unaligned"])
def test_inputs_keep_their_layout(layout):
    from evaluator.inputs import places

    case = replace(CASE, layout=layout)
    (place,) = places(plain_op(), AT, case)["x"]
    x = View(0, 4 * place.offset, place.shape, place.stride, "float32")
    buffers = (Buffer("input", 4 * place.room, "x"), Buffer("made", 480))
    taped = Recording(Tape(buffers, (replace(CLONE, views=(x,)),), (Y,)), {})
    (errors,) = played(taped, case=case)
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
    (errors,) = played(tape_of(twice, CLONE), replace(op, allows=("mul_",)))
    assert errors is not None and errors.error == 0.0
    with pytest.raises(CandidateError):
        played(tape_of(CLONE), replace(op, allows=("mul_",)))


def test_requests_and_replies_survive_the_wire():
    taken = Take(AT, CASE, tape_of(launch(arguments=(Scalar("fp32", math.inf), Pointer(1)))))
    sent, binaries = wire.pack([taken, taken])
    request = Request("check", plain_op(), sent, binaries)
    again = wire.load_request(wire.dump_request(request))
    assert again == request and again.takes() == (taken, taken)
    reply = Reply(whose="candidate", stage="smoke", reason="hangs", take=3)
    assert wire.load_reply(wire.dump_reply(reply)) == reply


def answering(reply: Reply):
    return lambda job, request, seconds: Done(wire.dump_reply(reply))


def test_a_fault_at_a_hidden_size_names_its_class_alone():
    hidden = replace(AT, dims={"M": 3, "N": 41})
    takes = [Take(AT, CASE, tape_of()), Take(hidden, replace(CASE, values="large"), tape_of())]
    reply = Reply(whose="candidate", reason="output 'y' is off", take=1)
    with pytest.raises(CandidateError) as caught:
        check_replayed(plain_op(), takes, answering(reply))
    assert caught.value.reason == "output 'y' is off at a hidden size with large values"
    assert caught.value.at is None
    with pytest.raises(CandidateError) as caught:
        check_replayed(plain_op(), takes, answering(replace(reply, take=0)))
    assert caught.value.at == AT


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
        check_replayed(plain_op(), [Take(AT, CASE, tape_of())], lambda *_: outcome)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_the_player_says_so():
    with pytest.raises(LabError, match="no CUDA GPU"):
        check_replayed(plain_op(), [Take(AT, CASE, tape_of(CLONE))], run_here)
    with pytest.raises(LabError, match="CUDA driver"):
        cuda.call("cuInit", 0)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        # 128 MB a set, 38 us: five times the L2 and one more, three calls a sample
        ((128 << 20, 60 << 20, 100 << 30, 38.0), Plan(6, 3)),
        # tiny: as many as are ever made, and a long sample of each
        ((1 << 16, 60 << 20, 100 << 30, 2.0), Plan(50, 50)),
        ((1 << 30, 60 << 20, 100 << 30, 500.0), Plan(2, 1)),
        # memory for one set alone
        ((60 << 30, 60 << 20, 100 << 30, 9e3), Plan(1, 1)),
        ((0, 60 << 20, 100 << 30, 0.0), Plan(64, 64)),
    ],
)
def test_a_plan_rotates_over_more_than_the_cache_holds(given, wanted):
    assert plan(*given) == wanted
    assert [i for group in wanted.groups for i in group] == list(range(wanted.sets))


def test_arms_run_there_and_back():
    assert order(3, 4) == [0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0]


def test_rounds_fit_the_budget_within_limits():
    assert rounds(1e6, [100.0, 400.0]) == 120
    assert rounds(1e6, [25_000.0]) == 40
    assert rounds(1e6, [1e6]) == 10


def test_a_summary_is_a_median_and_a_range_and_not_a_mean():
    told = summary([5.0, 1.0, 2.0, 3.0, 1000.0, 4.0])
    assert (told.middle, told.low, told.high) == (3.5, 2.0, 5.0)
    with pytest.raises(ValueError):
        summary([])


H200 = Device(
    "NVIDIA H200", Target(), 132, 60 << 20, Ceilings(4280, {"bfloat16": 735}, 60, 1.2),
    datasheet("NVIDIA H200", Ceilings(4280, {}, 60, 1.2))[0],
)  # fmt: skip


def test_a_time_that_the_datasheet_rules_out_is_a_fault_and_not_a_record():
    cost = Cost(bytes=480_000_000)  # 100 us at 4.8 TB/s
    assert possible(91.0, cost, H200).time_us == pytest.approx(112.15, abs=0.01)
    with pytest.raises(CandidateError, match="memory") as caught:
        possible(89.0, cost, H200)
    assert caught.value.stage == "light"
    with pytest.raises(CandidateError, match="matmul"):
        possible(80.0, Cost(1, 0, 10**11, "bfloat16"), H200)


@pytest.mark.parametrize(
    ("name", "bandwidth"),
    [
        ("NVIDIA H200", 4800),
        ("NVIDIA H100 80GB HBM3", 3350),
        ("NVIDIA H100 PCIe", 2000),
        ("NVIDIA A100-SXM4-80GB", 2039),
        ("NVIDIA B200", 8000),
        ("NVIDIA L40S", 864),
    ],
)
def test_known_devices_have_their_datasheet(name, bandwidth):
    limits, source = datasheet(name, H200.measured)
    assert limits.bandwidth_gbs == bandwidth and "datasheet" in source


def test_an_unknown_device_is_limited_by_what_was_measured_and_says_so():
    limits, source = datasheet("NVIDIA Strange", H200.measured)
    assert limits.bandwidth_gbs == pytest.approx(MARGIN * 4280)
    assert limits.matmul_tflops == {"bfloat16": pytest.approx(MARGIN * 735)}
    assert "no table" in source


def test_noise_is_how_far_apart_one_kernel_is_from_itself():
    assert noise({"40us": [40.0, 40.4]}) == {"40us": pytest.approx(0.01)}


def test_a_graph_as_a_module_computes_the_same():
    op = op_of(lambda x: torch.softmax(x * 2 + torch.tensor([1.0]), -1).chunk(2, 1)[0].clone())
    graph = op.reference.graphs[str(AT)]
    x = torch.randn(3, 40)
    (wanted,), (got,) = run(graph, [x]), baselines.module(graph, CPU)(x)
    assert torch.equal(wanted, got) and "getitem" in {node.op for node in graph.nodes}


def test_a_rival_that_computes_something_else_is_no_rival():
    graph, x = op_of(lambda x: x * 2).reference.graphs[str(AT)], [torch.randn(3, 40)]
    baselines.agrees(lambda args: args[0] * 2.01, graph, x)
    for wrong in (lambda a: a[0] * 2.1, lambda a: a[0][:2] * 2, lambda a: (a[0] * 2, a[0])):
        with pytest.raises(baselines.NotApplicable, match="something else"):
            baselines.agrees(wrong, graph, x)


def test_a_baseline_that_is_not_there_is_told_from_one_that_cannot_run(monkeypatch):
    op = plain_op()
    for name in ("cudnn", "flash", "liger"):
        with pytest.raises(baselines.NotApplicable, match=name):
            baselines.baseline(name, op, AT, CPU)
    with pytest.raises(LabError, match="eager, compile"):
        baselines.baseline("fastest", op, AT, CPU)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LabError, match="C compiler"):
        baselines.baseline("compile", op, AT, CPU)
