"""The order of the stages, and whose fault a failure is."""

from dataclasses import replace

import pytest

from evaluator.errors import CandidateError, LabError
from evaluator.evaluate import Lab, evaluate, one_by_one
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec, Option, Tensor, Workload
from kernel_library.tape import Recording, Tape
from kernel_library.verdict import Checked, KernelFacts, Passed, Record

AT = Workload({"N": 8}, {"T": "float16"}, "measure")
OP = OpSpec("copy", {"x": Tensor("N")}, {"y": Tensor("N")}, (AT,))
PRODUCT = OpSpec("product", {"x": Tensor("N")}, {"y": Tensor("N")}, (AT,), matmul_flops="99 * N")
CANDIDATE = Candidate("copy", "", "copy")
KERNEL = KernelFacts("k", "sm_90", 32, 0, 0, 4)


def never(*_):
    pytest.fail("this stage should not run")


def fails(error: Exception):
    def stage(*_):
        raise error

    return stage


def lab(**stages) -> Lab:
    tape = Recording(Tape((), (), (), stages.pop("kernels", (KERNEL,))), {})
    standing = {
        "record_of": Record("interpreted", "namespaces"),
        "screen": lambda op, c: None,
        "smoke": lambda op: [],
        "matrix": lambda op, c: [],
        "timed": lambda op: [(AT, None)],
        "record": lambda op, c, points: tuple(tape for _ in points),
        "run": lambda op, c, points: (Checked(AT, 0.0, 0.0, len(points)),),
        "measure": lambda op, points, tapes: ((), ("no such baseline here",)),
        "deep": never,
    }
    found = standing | stages
    found["finish"] = one_by_one(found.pop("run"), found["measure"])
    return Lab(**found)


def test_a_right_kernel_passes_and_says_what_it_was_compiled_for():
    verdict = evaluate(OP, CANDIDATE, lab())
    assert isinstance(verdict, Passed) and verdict.record.compiled_for == ("sm_90",)


def test_a_wrong_kernel_is_not_timed():
    wrong = fails(CandidateError("correct", "y is off by 40 times", AT))
    verdict = evaluate(OP, CANDIDATE, lab(run=wrong, measure=never))
    assert (verdict.kind, verdict.reason, verdict.at) == ("rejected", "y is off by 40 times", AT)


def test_the_smoke_points_are_checked_before_all_others():
    seen = []

    def run(op, candidate, points):
        seen.extend(points)
        return ()

    hidden, bent = (replace(AT, dims={"N": 7}), None), (AT, "bent")
    stages = lab(run=run, smoke=lambda op: [(AT, None)], matrix=lambda op, c: [hidden, bent])
    verdict = evaluate(OP, CANDIDATE, stages)
    assert verdict.kind == "passed"
    assert seen == [(AT, None), hidden, bent]
    assert verdict.record.checks[0] == "1 hidden size"


def test_hidden_sizes_that_the_reference_cannot_take_are_told():
    odd, even = ((replace(AT, dims={"N": n}), None) for n in (7, 6))
    drawn = {"matrix": lambda op, c: [(AT, None), odd, even]}
    some = lab(**drawn, able=lambda op, points: [p for p in points if p != odd])
    told = evaluate(OP, CANDIDATE, some).record.checks[0]
    assert told == "1 hidden size, 1 left out: the reference itself raises there"
    none = lab(**drawn, able=lambda op, points: [(AT, None)])
    told = evaluate(OP, CANDIDATE, none).record.checks[0]
    assert told == "no hidden sizes, 2 left out: the reference itself raises there"


def test_options_that_never_moved_are_told():
    options = {"eps": Option(1e-6), "window": Option(0), "mode": Option("m" * 999)}
    op = replace(OP, options=options)
    moved = (replace(AT, dims={"N": 7}, options={"eps": 64e-6}), None)
    checks = evaluate(op, CANDIDATE, lab(matrix=lambda op, c: [(AT, None), moved])).record.checks
    assert checks[1].startswith("options tried at one value alone: window=0, mode='mmm")
    assert len(checks[1]) < 200 and "eps" not in checks[1]


def test_cases_that_say_nothing_are_told():
    def run(op, candidate, points):
        return (Checked(AT, 0.0, 0.0, len(points) - 2),)

    checks = evaluate(OP, CANDIDATE, lab(run=run, matrix=lambda op, c: [(AT, None)] * 5))
    assert checks.record.checks[1].startswith("2 cases say nothing")


def test_what_does_not_compile_is_not_run():
    broken = fails(CandidateError("record", "line 3: no"))
    verdict = evaluate(OP, CANDIDATE, lab(record=broken, run=never))
    assert verdict.stage == "record"


def test_our_own_failure_is_not_the_candidates():
    with pytest.raises(LabError):
        evaluate(OP, CANDIDATE, lab(run=fails(LabError("the GPU is gone"))))


def test_spills_stop_a_kernel_before_it_is_run():
    spilling = KernelFacts("k", "sm_90", 255, 4096, 0, 4)
    verdict = evaluate(OP, CANDIDATE, lab(kernels=(spilling,), run=never))
    assert verdict.stage == "resources" and verdict.kernels == (spilling,)


def test_a_product_must_use_matrix_instructions():
    assert evaluate(PRODUCT, CANDIDATE, lab(run=never)).stage == "resources"
    tensor_cores = KernelFacts("k", "sm_90", 32, 0, 0, 4, matmul_instructions=8)
    assert evaluate(PRODUCT, CANDIDATE, lab(kernels=(tensor_cores,))).kind == "passed"


def test_a_product_in_float32_or_with_a_vector_needs_no_matrix_instructions():
    single = Workload({"N": 8}, {"T": "float32"}, "measure")
    thin, own = replace(PRODUCT, matmul_flops="2 * N"), replace(PRODUCT, allows=("mm",))
    for op, at in [(PRODUCT, single), (thin, AT), (own, AT)]:
        # that other workloads are of another dtype says nothing of these kernels
        op = replace(op, workloads=(AT, single))
        assert evaluate(op, CANDIDATE, lab(timed=lambda op, at=at: [(at, None)])).kind == "passed"


def test_what_is_to_be_known_of_the_times_stands_in_the_record():
    assert evaluate(OP, CANDIDATE, lab()).record.checks == (
        "no hidden sizes", "no such baseline here",
    )  # fmt: skip


def test_seconds_are_kept_by_stage():
    seconds = evaluate(OP, CANDIDATE, lab()).record.seconds
    assert set(seconds) == {"screen", "record", "correct", "speed"}


def test_only_what_would_enter_the_library_is_looked_into_deeply():
    looked = lab(deep=lambda op, c: ("30 runs equal to the bit",))
    assert evaluate(OP, CANDIDATE, lab()).kind == "passed"
    record = evaluate(OP, CANDIDATE, looked, deep=True).record
    assert record.checks[1:] == ("no such baseline here", "30 runs equal to the bit")
    assert "deep" in record.seconds
    races = fails(CandidateError("deep", "k races on shared memory"))
    assert evaluate(OP, CANDIDATE, lab(deep=races), deep=True).stage == "deep"
    wrong = fails(CandidateError("correct", "y is off by 40 times", AT))
    assert evaluate(OP, CANDIDATE, lab(run=wrong), deep=True).stage == "correct"
