"""From a candidate to a verdict: the stages in order, cheapest first, and whose fault a failure is.

Nothing is timed that is not right, and nothing is run that does not compile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from evaluator.errors import CandidateError
from evaluator.matrix import Point, is_public
from kernel_library.candidate import Candidate
from kernel_library.spec import ITEMSIZE, OpSpec, Workload
from kernel_library.tape import Recording
from kernel_library.verdict import (
    Checked,
    KernelFacts,
    Measurement,
    Passed,
    Record,
    Rejected,
    Verdict,
)

Recordings = tuple[Recording, ...]
#: Measurements, and what should be known of how they were taken.
Timed = tuple[tuple[Measurement, ...], tuple[str, ...]]
Run = Callable[[OpSpec, Candidate, Sequence[Point]], tuple[Checked, ...]]
Measure = Callable[[OpSpec, Sequence[Point], Recordings], Timed]
#: What was checked, what was timed, and the seconds of it that were not for checking, by name.
Finished = tuple[tuple[Checked, ...], Timed, Mapping[str, float]]
#: Checks at some points, then times the recordings of others.
Finish = Callable[[OpSpec, Candidate, Sequence[Point], Sequence[Point], Recordings], Finished]
#: Spilled bytes per thread beyond which a kernel is not worth the GPU's time.
MOST_SPILLS = 1024
#: Said of hidden sizes, with or without other options, that a problem does not have.
LEFT_OUT = "left out: the reference itself raises there"
#: Characters of an option and its value in a note: a stranger's default may be any text.
LONGEST_OPTION = 80
#: What vector units compute for each byte that comes: 63 TFLOP/s beside 4.3 TB/s on an H200.
VECTOR_FLOPS_A_BYTE = 15


@dataclass(frozen=True, slots=True)
class Lab:
    """The stages and what they run on. Tests put stand-ins here.

    `measure` times the recordings of the timed points; `finish` checks first, at the smoke points
    and then at the matrix, and raises at stage "smoke" for what fails at the first. `deep` looks
    into what is too dear to ask of every candidate, and tells what it could look into. `able`
    leaves out the hidden points that the reference itself cannot take.
    """

    record_of: Record
    screen: Callable[[OpSpec, Candidate], None]
    smoke: Callable[[OpSpec], Sequence[Point]]
    matrix: Callable[[OpSpec, Candidate], Sequence[Point]]
    timed: Callable[[OpSpec], Sequence[Point]]
    record: Callable[[OpSpec, Candidate, Sequence[Point]], Recordings]
    measure: Measure
    finish: Finish
    deep: Callable[[OpSpec, Candidate], tuple[str, ...]]
    able: Callable[[OpSpec, Sequence[Point]], Sequence[Point]] = lambda op, points: points


@dataclass(slots=True)
class _Watch:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[stage] = round(self.seconds.get(stage, 0.0) + spent, 4)

    def parts(self, whole: str, seconds: Mapping[str, float]) -> None:
        """Say that so much of one stage was others."""
        self.seconds[whole] = round(self.seconds[whole] - sum(seconds.values()), 4)
        for part, spent in seconds.items():
            self.seconds[part] = round(self.seconds.get(part, 0.0) + spent, 4)


def one_by_one(run: Run, measure: Measure) -> Finish:
    """Finishes by the one after the other."""

    def finish(
        op: OpSpec, candidate: Candidate, points: Sequence[Point],
        timed: Sequence[Point], recordings: Recordings,
    ) -> Finished:  # fmt: skip
        checked, started = run(op, candidate, points), time.perf_counter()
        measured = measure(op, timed, recordings)
        return checked, measured, {"speed": time.perf_counter() - started}

    return finish


def evaluate(op: OpSpec, candidate: Candidate, lab: Lab, *, deep: bool = False) -> Verdict:
    """Judge a candidate: a verdict if the fault is the candidate's, an exception if it is ours.

    `deep` adds the stage that only what would enter the library goes through.
    """
    watch = _Watch()
    kernels: tuple[KernelFacts, ...] = ()
    try:
        with watch("screen"):
            lab.screen(op, candidate)
        smoke, timed = lab.smoke(op), lab.timed(op)
        with watch("record"):
            tapes = lab.record(op, candidate, [*smoke, *timed])
        kernels = facts_of(tapes)
        fit_to_run(op, [*smoke, *timed], tapes)
        with watch("correct"):
            drawn, timed_tapes = [*smoke, *lab.matrix(op, candidate)], tapes[len(smoke) :]
            points = lab.able(op, drawn)
            checked, told, spent = lab.finish(op, candidate, points, timed, timed_tapes)
        watch.parts("correct", spent)
        measured, notes = told
        if deep:
            with watch("deep"):
                notes = (*notes, *lab.deep(op, candidate))
        record = _told(lab, watch, kernels)
        silent = len(points) - sum(each.cases for each in checked)
        met = (_sizes(op, drawn, points), *_silent(silent), *_unmoved(op, [*points, *timed]))
        whole = replace(record, checks=(*met, *record.checks, *notes))
        return Passed(checked, whole, measured, kernels)
    except CandidateError as error:
        facts = error.kernels or kernels
        record = _told(lab, watch, facts)
        return Rejected(error.stage, error.reason, record, error.at, facts)


def _sizes(op: OpSpec, drawn: Sequence[Point], points: Sequence[Point]) -> str:
    """How many hidden sizes there were, and how many the reference could not take."""
    unseen = len({str(at) for at, _ in points if not is_public(op, at)})
    lost = len({str(at) for at, _ in drawn if not is_public(op, at)}) - unseen
    told = f"{unseen or 'no'} hidden size{'s' * (unseen != 1)}"
    return f"{told}, {lost} {LEFT_OUT}" if lost else told


def _silent(cases: int) -> Iterator[str]:
    """How many cases held nobody (`evaluator.meaningful`)."""
    if cases:
        cases_say = "case says" if cases == 1 else "cases say"
        yield f"{cases} {cases_say} nothing: torch's own answer fails there, or there is none"


def _unmoved(op: OpSpec, points: Sequence[Point]) -> Iterator[str]:
    """The options that had one value wherever the candidate was judged: it may ignore them."""
    values = [op.option_values(at) for at, _ in points]
    still = [name for name in op.options if len({each[name] for each in values}) == 1]
    if still:
        told = ", ".join(f"{name}={values[0][name]!r}"[:LONGEST_OPTION] for name in still)
        yield f"options tried at one value alone: {told}"


def _told(lab: Lab, watch: _Watch, kernels: Sequence[KernelFacts]) -> Record:
    targets = tuple(sorted({k.target for k in kernels}))
    return replace(lab.record_of, compiled_for=targets, seconds=dict(watch.seconds))


def facts_of(tapes: Sequence[Recording]) -> tuple[KernelFacts, ...]:
    """Each distinct kernel's facts, in the order in which they were first launched."""
    return tuple(dict.fromkeys(k for tape in tapes for k in tape.tape.kernels))


def fit_to_run(op: OpSpec, points: Sequence[Point], tapes: Recordings) -> None:
    """Raise `CandidateError` for what the compiler's own report of these points rules out."""
    kernels = facts_of(tapes)
    for kernel in kernels:
        if kernel.spills > MOST_SPILLS:
            told = f"{kernel.name} spills {kernel.spills} bytes a thread to memory"
            remedy = "use smaller tiles, or more warps"
            raise CandidateError("resources", f"{told}: {remedy}", None, kernels)
    dense = facts_of(
        [tape for (at, _), tape in zip(points, tapes, strict=True) if wants_matrix_units(op, at)]
    )
    if dense and not any(k.matmul_instructions for k in dense):
        told = "the op is a matrix product, and no kernel uses matrix instructions: use tl.dot"
        raise CandidateError("resources", told, None, kernels)


def wants_matrix_units(op: OpSpec, at: Workload) -> bool:
    """Whether an op's product of short floats is more than vector units do while memory is read.

    Not in float32, whose products have no matrix unit that is exact enough; nor where a vector
    meets a matrix. An op that may call torch's own product has its matrix instructions there.
    """
    cost = op.cost(at)
    short = ITEMSIZE[cost.matmul_dtype] < ITEMSIZE["float32"]
    return short and not op.allows and cost.matmul_flops > VECTOR_FLOPS_A_BYTE * cost.bytes
