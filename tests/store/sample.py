"""Small literals: an op, candidates and verdicts that a store can be given."""

from kernel_library.candidate import Candidate
from kernel_library.job import Attempt
from kernel_library.recipe import Index, Normal
from kernel_library.spec import OpSpec, Option, Reference, Tensor, Workload
from kernel_library.verdict import Checked, Measurement, Passed, Record, Rejected

AT = Workload({"M": 3, "N": 127}, {"T": "float16"}, "measure", {"eps": 1e-6})
# arguments in an order that no sorting would give
OP = OpSpec(
    name="gather_scale",
    inputs={
        "x": Tensor("M N", recipe=Normal()),
        "index": Tensor("M", "int64", Index("N")),
        "a": Tensor(""),
    },
    outputs={"y": Tensor("M N"), "b": Tensor("M")},
    workloads=(AT,),
    options={"eps": Option(1e-6), "causal": Option(True, (True, False))},
    reference=Reference("def reference(x, index, a): ...", graphs={}),
)


def candidate(text: str = "1") -> Candidate:
    return Candidate("gather_scale", f"# kernel {text}", "kernel", {"BLOCK": 64}, proposer="sweep")


def passed(
    time_us: float | None = None, sandbox: str = "namespaces", stages: tuple[str, ...] = ("deep",)
) -> Passed:
    evidence, seconds = "interpreted" if time_us is None else "replayed", dict.fromkeys(stages, 1.0)
    record = Record(evidence, sandbox, ("sm_90",), seconds=seconds)
    measured = () if time_us is None else (Measurement(AT, time_us, 1.0, 2.0, 1.0, "memory"),)
    return Passed((Checked(AT, 1e-3, 2e-3, 12),), record, measured)


def rejected() -> Rejected:
    return Rejected("correct", "wrong in the last rows", Record("interpreted", "namespaces"))


def attempt(text: str = "1", verdict: Passed | Rejected | None = None) -> Attempt:
    return Attempt(candidate(text), verdict or passed(), 1.5)
