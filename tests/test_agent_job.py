"""A whole job of the agent: library, sweep and model together, then once more with no network."""

from collections.abc import Callable
from dataclasses import replace

from pydantic import SecretStr

from agent.declared import declared_space
from agent.library import from_library
from agent.llm.chat import Call, Complete
from agent.llm.client import Endpoint, from_endpoint
from agent.llm.loopback import fails, says, serve
from agent.llm.propose import from_model
from agent.llm.replay import Replay
from agent.loop import Evaluate, drive, optimize, verdicts_of
from agent.stop import first_of, near_roofline, out_of
from agent.sweep import from_space
from agent.team import in_order
from kernel_library.candidate import Candidate
from kernel_library.job import Attempt, Budget, Finished
from kernel_library.spec import OpSpec, Tensor, Workload
from kernel_library.verdict import Measurement, Passed, Record, Rejected, Verdict

AT = Workload({"M": 4096, "N": 8192}, {"T": "float16"}, "measure")
OP = OpSpec("twice", {"x": Tensor("M N")}, {"y": Tensor("M N")}, (AT,))
HERE = Record("replayed", "namespaces")
SOURCE = """\
import triton

SPACE = {"BLOCK": [256, 512, 1024]}

@triton.jit
def _twice(x_ptr, BLOCK):
    pass  # plan

def twice(x, *, BLOCK):
    return x
"""


def source(plan: str) -> str:
    return SOURCE.replace("# plan", f"# {plan}")


def reply(plan: str) -> str:
    return f'Try {plan}.\n```python\n{source(plan)}```\n```json\n{{"BLOCK": 256}}\n```\n'


SHELF = [
    (replace(OP, name="double"), Candidate("double", source("library"), "twice", {"BLOCK": 256}))
]


def judge(op: OpSpec, candidate: Candidate) -> Verdict:
    """The wide plan is right and faster than the library's; each is best at BLOCK 1024."""
    if "# broken" in candidate.source:
        return Rejected("correct", "the tail is not written", HERE)
    best_us = 101.0 if "# wide" in candidate.source else 150.0
    time_us = best_us * (1 + (1024 - candidate.config["BLOCK"]) / 4096)
    return Passed((), HERE, (Measurement(AT, time_us, time_us, time_us, 100.0, "memory"),))


def job(
    model: Complete, evaluate: Evaluate, clock: Callable[[], float], notes: list[str]
) -> tuple[list[Attempt], Finished]:
    team = in_order(
        from_library(SHELF, lambda op, found: "x->x", lambda m, op, c: replace(c, op=op.name)),
        from_space(declared_space),
        from_model(model),
        note=notes.append,
    )
    history: list[Attempt] = []
    stop = first_of(out_of(Budget(), clock), near_roofline(0.05))
    ended = drive(optimize(OP, team, evaluate, stop, clock=clock), history.append)
    return history, ended


def test_a_job_takes_the_librarys_structure_the_sweeps_numbers_and_the_models_ideas():
    calls: list[Call] = []
    notes: list[str] = []
    script = [fails(503), says(reply("broken")), says("I am sorry."), says(reply("wide"))]
    with serve(script) as url:
        endpoint = Endpoint(url, "tiny", SecretStr("sk-0"))
        model = from_endpoint(endpoint, calls.append, lambda seconds: None)
        history, ended = job(model, judge, lambda: 0.0, notes)

    told = [(a.candidate.proposer, a.candidate.config["BLOCK"]) for a in history]
    assert told == [
        ("library", 256), ("sweep", 512), ("sweep", 1024),
        ("llm", 256), ("llm", 256), ("sweep", 512), ("sweep", 1024),
    ]  # fmt: skip
    assert [a.usage.tokens_in for a in history] == [0, 0, 0, 100, 200, 0, 0]
    assert ended.why == "Every workload runs within 5% of what this device can do."
    assert ended.best == history[-1].candidate.digest
    assert notes == [
        "the library has no other kernel for this function",
        "the settings of the best kernel are tuned (3 were tried)",
    ]

    again, ended_again = job(Replay(calls), verdicts_of(history), lambda: 0.0, [])
    assert (again, ended_again) == (history, ended)
