"""The arithmetic of timing, the limits of devices, and what a candidate races against."""

import subprocess
import sys
from dataclasses import replace
from random import Random
from statistics import median

import pytest
import torch
from tapes import AT, CPU, op_of, plain_op

import seeds
from evaluator.datasheet import MARGIN, datasheet
from evaluator.errors import CandidateError, LabError
from evaluator.graphs import run, trace
from evaluator.play import baselines, libraries
from evaluator.play.statistics import (
    Plan,
    noise,
    order,
    outcome,
    plan,
    possible,
    rounds,
    summary,
    versus,
)
from evaluator.play.throttle import named
from evaluator.play.timing import _Batch, kept
from kernel_library.codec import device_json
from kernel_library.device import Ceilings, Device, Target
from kernel_library.spec import Cost, Reference
from kernel_library.unit import discover
from kernel_library.verdict import Measurement


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


def test_what_a_baseline_needs_is_imported_ahead():
    code = "import sys; from evaluator.play.baselines import get_ready; get_ready(sys.argv[1:])"
    told = "; print('torch._inductor.compile_fx' in sys.modules)"
    for names, there in ((["eager", "liger"], b"False"), (["eager", "max-autotune"], b"True")):
        asked = [sys.executable, "-c", code + told, *names]
        assert subprocess.run(asked, capture_output=True, check=True).stdout.strip() == there


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


def test_noise_is_how_far_apart_one_kernel_was_from_itself_at_most():
    races = [[[40.0, 40.0, 99.0], [40.0]], [[40.4], [40.0]], [[40.0], [40.2]]]
    assert noise(races) == pytest.approx(0.01)


def drifting(scale: float, seed: int, blocks: int = 20) -> list[float]:
    """Samples of a kernel of some 40 us: jitter of 1 %, on a drift that all arms share."""
    random = Random(seed)
    drift = [40 + 4 * i / blocks for i in range(2 * blocks)]
    return [scale * us * random.gauss(1, 0.01) for us in drift]


@pytest.mark.parametrize(
    ("scale", "told"), [(1.05, "win"), (1.0, "tie"), (1.005, "tie"), (0.95, "loss")]
)
def test_a_contest_is_won_beyond_the_margin_alone(scale, told):
    assert versus(drifting(1.0, 1), drifting(scale, 2), 0.01).outcome == told


def test_the_interval_holds_the_truth_as_often_as_it_says():
    found = [versus(drifting(1, 2 * i), drifting(1.03, 2 * i + 1), 0.01) for i in range(100)]
    assert sum(one.low <= 1.03 <= one.high for one in found) >= 88
    assert max(one.high / one.low for one in found) < 1.02
    assert all(one.low <= one.times <= one.high for one in found)


def test_the_speed_up_that_is_told_is_in_its_interval_where_the_medians_ratio_is_not():
    mine, theirs = drifting(1.0, 2), drifting(1.03, 3)
    found = versus(mine, theirs, 0.01)
    told = Measurement(
        AT, median(mine), 0, 0, 30.0, "memory", {"eager": median(theirs)}, {"eager": found}
    )
    assert found.low <= told.speedup("eager") <= found.high
    assert not found.low <= median(theirs) / median(mine) <= found.high


def test_a_kernel_ties_with_itself():
    told = [versus(drifting(1, 2 * i), drifting(1, 2 * i + 1), 0.01).outcome for i in range(100)]
    assert told.count("tie") >= 95


def test_one_wild_block_decides_nothing():
    mine, theirs = drifting(1.0, 1), drifting(1.0, 2)
    theirs[6] *= 50
    assert versus(mine, theirs, 0.01).outcome == "tie"


def test_an_interval_that_reaches_the_margin_is_a_tie():
    assert [outcome(low, high, 0.02) for low, high in ((1.021, 1.1), (1.019, 1.1))] == [
        "win",
        "tie",
    ]
    assert [outcome(low, high, 0.02) for low, high in ((0.9, 0.98), (0.9, 0.981))] == [
        "loss",
        "tie",
    ]


def test_the_margin_is_that_of_the_nearest_size():
    device = replace(H200, noise={4.0: 0.02, 40.0: 0.001, 300.0: 0.005})
    assert [device.margin(us) for us in (1.0, 11.0, 14.0, 90.0, 250.0)] == pytest.approx(
        [0.06, 0.06, 0.01, 0.01, 0.015]
    )
    assert H200.margin(40.0) == 0.01
    assert device_json.validate_json(device_json.dump_json(device)) == device


def batch(held: str, rounds: int = 8) -> _Batch:
    us = 50.0 if held else 40.0
    return _Batch(((us,) * rounds, (us + 1,) * rounds), held)


def test_samples_at_a_throttled_clock_are_left_out_for_all_arms():
    heat = kept([batch(""), batch("power cap"), batch("")])
    assert heat.samples == ((40.0,) * 16, (41.0,) * 16)
    assert "power cap" in heat.notes[0] and "left out" in heat.notes[0]
    assert kept([batch("")]).notes == ()


def test_where_all_is_throttled_the_samples_stay_and_it_is_said():
    heat = kept([batch("power cap"), batch("thermal slowdown"), batch("", rounds=4)])
    assert len(heat.samples[0]) == len(heat.samples[1]) == 20
    assert "(power cap, thermal slowdown) were kept" in heat.notes[0]


def test_reasons_for_a_low_clock_are_told_from_settings():
    assert named(0x1 | 0x2 | 0x10 | 0x100) == ""
    assert named(0x4 | 0x40) == "power cap, hardware thermal slowdown"


def test_a_graph_as_a_module_computes_the_same():
    op = op_of(lambda x: torch.softmax(x * 2 + torch.tensor([1.0]), -1).chunk(2, 1)[0].clone())
    graph = op.reference.graphs[str(AT)]
    x = torch.randn(3, 40)
    (wanted,), (got,) = run(graph, [x]), baselines.module(graph, CPU)(x)
    assert torch.equal(wanted, got) and "getitem" in {node.op for node in graph.nodes}


def test_a_rival_that_computes_something_else_is_no_rival():
    graph, x = op_of(lambda x: x * 2).reference.graphs[str(AT)], [torch.randn(3, 40)]
    baselines.agrees("fla", lambda args: args[0] * 2.01, graph, x)
    for wrong in (lambda a: a[0] * 2.1, lambda a: a[0][:2] * 2, lambda a: (a[0] * 2, a[0])):
        with pytest.raises(
            baselines.NotApplicable, match="fla: its op of this name computes something else"
        ):
            baselines.agrees("fla", wrong, graph, x)


#: Torch's own, for ops that no seed has yet, are called for real below.
OWN = ("scaled_mm", "grouped_mm")


@pytest.mark.parametrize("library", [name for name in libraries.LIBRARIES if name not in OWN])
def test_a_librarys_function_is_called_as_the_table_says(monkeypatch, library):
    """Each op of the table is a seed's, and its call gets the op's own inputs and options."""
    units = {unit.op.name: unit.op for unit in discover(seeds)}
    for name, function in libraries.LIBRARIES[library].items():
        called = []
        stand_in = Recorder(lambda *args, called=called, **named: called.append((args, named)))
        monkeypatch.setitem(sys.modules, function.module, stand_in)
        op = units[name]
        inputs = [f"{tensor} of {name}" for tensor in op.inputs]
        options = {o: option.default for o, option in op.options.items()}
        libraries.find(library, name, options)(inputs)
        given = [arg for args, _ in called for arg in args]
        assert set(inputs) <= set(given)
        for option, value in function.only.items():
            with pytest.raises(libraries.Missing, match="with these options"):
                libraries.find(library, name, {**options, option: f"not {value}"})


def fp8_gemm(a, b, a_scale, b_scale):
    wide = (a.float() * a_scale) @ (b.float() * b_scale.reshape(-1, 1)).T
    return wide.to(torch.bfloat16)


def grouped_gemm(x, w, ends):
    row = torch.arange(x.shape[0])[:, None]
    of = (row >= ends).sum(-1)
    return torch.bmm(x[:, None].float(), w[of].mT.float())[:, 0].to(x.dtype)


def eighths(*shape):
    return torch.randint(-8, 9, shape).div(8)


def grouped():
    ends = torch.tensor([16, 16, 40, 64], dtype=torch.int32)
    return [eighths(64, 32).bfloat16(), eighths(4, 48, 32).bfloat16(), ends]


def scaled(*scales):
    a, b = (eighths(n, 32).to(torch.float8_e4m3fn) for n in (64, 48))
    return [a, b, *scales]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(
    ("name", "reference", "inputs"),
    [
        ("scaled_mm", fp8_gemm, scaled(torch.tensor(0.5), torch.tensor(3.0))),
        ("scaled_mm", fp8_gemm, scaled(torch.rand(64, 1), torch.rand(1, 48))),
        ("grouped_mm", grouped_gemm, grouped()),
    ],
    ids=["one scale each", "a scale a row", "groups"],
)
def test_torchs_own_products_do_what_such_a_reference_spells_out(name, reference, inputs, device):
    graph = trace(reference, inputs, {})
    op = replace(
        plain_op(), name=reference.__name__, reference=Reference("", graphs={str(AT): graph})
    )
    assert baselines.chosen(baselines.ALL, op) == ("eager", "compile", "max-autotune", name)
    there = [tensor.to(device) for tensor in inputs]
    baselines.agrees(name, baselines.baseline(name, op, AT, there[0].device), graph, there)


def test_all_are_those_that_such_an_op_may_have():
    def attention(x):
        return torch.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 3)[0, 0]

    always = ("eager", "compile", "max-autotune")
    assert baselines.chosen(baselines.ALL, plain_op()) == always
    assert baselines.chosen(("liger",), plain_op()) == ("liger",)
    assert baselines.chosen(baselines.ALL, op_of(attention)) == (*always, "cudnn", "flash")
    seed = replace(plain_op(), name="rms_norm")
    assert baselines.chosen(baselines.ALL, seed) == (*always, "liger", "fla")


class Recorder:
    """A module in which every name is the same function."""

    def __init__(self, function):
        self.function = function

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self.function


def test_a_baseline_that_is_not_there_is_told_from_one_that_cannot_run(monkeypatch):
    op = plain_op()
    for name in ("cudnn", "flash", "liger", "fla"):
        with pytest.raises(baselines.NotApplicable, match=name):
            baselines.baseline(name, op, AT, CPU)
    with pytest.raises(LabError, match="eager, compile"):
        baselines.baseline("fastest", op, AT, CPU)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LabError, match="C compiler"):
        baselines.baseline("compile", op, AT, CPU)
