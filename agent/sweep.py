"""Configuration search: the best kernel so far, at other settings, for numbers not structure.

What was tried and how it did is read from the history each time, so a sweep has no state of its
own and resumes anywhere.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product

import optuna
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from agent.declared import NotASpaceError, declared_space
from agent.loop import Exhausted, History, Proposal, Proposer
from kernel_library.candidate import Candidate
from kernel_library.formula import FormulaError
from kernel_library.job import Attempt, best
from kernel_library.space import Config, Space, Tuned, nearest
from kernel_library.spec import OpSpec, Workload
from kernel_library.unit import space_names
from kernel_library.verdict import Passed

NOTHING_RIGHT = "no kernel is right yet, so there is nothing to tune"
NOTHING_TIMED = "nothing is timed here, so there is nothing to tune"
NO_SPACE = "the best kernel declares no settings to tune"

#: How often the sampler may repeat itself before a setting is taken in order instead.
ASKS = 64
#: How many settings are drawn at random before the sampler trusts what it has seen.
STARTUP = 3

Setting = tuple[tuple[str, int], ...]
#: What a space's formulas may ask for when a candidate runs an op at a workload. A library kernel
#: that was adapted to another op names its axes its own way.
Names = Callable[[Candidate, OpSpec, Workload], Mapping[str, object]]


def own_names(candidate: Candidate, op: OpSpec, at: Workload) -> Mapping[str, object]:
    """The op's own names, for a kernel that was written for it."""
    return space_names(op, at)


def from_space(
    space_of: Callable[[Candidate], Space | None] = declared_space,
    tries: int = 24,
    seed: int = 0,
    priors: Sequence[Tuned] = (),
    names: Names = own_names,
    together: int = 1,
) -> Proposer:
    """Tune the best kernel so far in at most `tries` settings, then join each size's winner.

    So many settings as `together` says are tried at a time.

    Settings that were tuned before (`priors`, then the kernel's own table) come first, then the
    defaults, then a tree-structured Parzen estimator, or every setting where they are few enough.
    """

    def propose(op: OpSpec, history: History) -> Proposal | Exhausted:
        top = best(history)
        if top is None:
            return Exhausted(NOTHING_RIGHT)
        if not (isinstance(top.verdict, Passed) and top.verdict.measured):
            return Exhausted(NOTHING_TIMED)
        try:
            space = space_of(top.candidate)
            if space is None or not space.knobs:
                return Exhausted(NO_SPACE)
            family = _Family.of(op, space, names, top.candidate, history)
            return _next(family, tries, seed, priors, together)
        except (NotASpaceError, FormulaError) as error:
            return Exhausted(f"the best kernel cannot be tuned: {error}")

    return propose


@dataclass(frozen=True, slots=True)
class _Family:
    """The attempts that share the best kernel's source, the first of them at their root."""

    op: OpSpec
    space: Space
    names: Names
    best: Candidate
    members: tuple[Attempt, ...]

    @classmethod
    def of(
        cls, op: OpSpec, space: Space, names: Names, top: Candidate, history: History
    ) -> _Family:
        def kind(candidate: Candidate) -> tuple[str, str, int]:
            return candidate.source, candidate.entry, candidate.pick

        members = (a for a in history if kind(a.candidate) == kind(top))
        return cls(op, space, names, top, tuple(members))

    @property
    def root(self) -> Candidate:
        return self.members[0].candidate

    @property
    def tried(self) -> dict[Setting, float | None]:
        """Each setting that was judged, with its share of the roofline; None for a rejection."""
        return {
            self.setting(a.candidate.config): a.verdict.of_roofline
            if isinstance(a.verdict, Passed)
            else None
            for a in reversed(self.members)  # a setting's own trial stands, not the joined table
        }

    def setting(self, config: Config) -> Setting:
        return tuple((knob, config[knob]) for knob in self.space.knobs if knob in config)

    def fits(self, config: Config, at: Workload) -> bool:
        return self.space.is_legal(config, self.names(self.root, self.op, at))

    def default(self, at: Workload) -> Config:
        return {**self.root.config, **self.space.default(self.names(self.root, self.op, at))}

    @property
    def measured(self) -> list[Workload]:
        return [at for at in self.op.workloads if at.role == "measure"]

    def is_feasible(self, config: Config) -> bool:
        """Whether some measured workload can be run at this setting."""
        return any(self.fits(config, at) for at in self.measured)

    def child(self, config: Config, rows: Sequence[Tuned], why: str) -> Candidate:
        config = {**self.root.config, **config}
        parent = self.best.digest
        return replace(
            self.root, config=config, tuned=tuple(rows), parent=parent, proposer="sweep", why=why
        )

    def trial(self, config: Config) -> Candidate:
        """The kernel at one setting everywhere, or, where that is illegal, at its default."""
        full = {**self.root.config, **config}
        legal = [self.fits(full, at) for at in self.op.workloads]
        rows = [
            Tuned(at.dims, at.dtypes, full if fits else self.default(at), at.options)
            for at, fits in zip(self.op.workloads, legal, strict=True)
        ]
        why = ", ".join(f"{knob} = {value}" for knob, value in config.items())
        return self.child(full, () if all(legal) else rows, f"tried with {why}")


def _next(
    family: _Family, tries: int, seed: int, priors: Sequence[Tuned], together: int
) -> Proposal | Exhausted:
    tried = family.tried
    picked: list[Candidate] = []
    supposed = dict(tried)
    while len(picked) < together and len(supposed) < tries:
        config = _pick(family, supposed, tries, seed, priors)
        if config is None:
            break
        picked.append(family.trial(config))
        # what is still being judged is searched on as if it could not run
        supposed[family.setting(config)] = None
    if picked:
        return Proposal(picked[0], beside=tuple(picked[1:]))
    joined = _joined(family)
    if joined is None or joined.digest in {a.candidate.digest for a in family.members}:
        return Exhausted(f"the settings of the best kernel are tuned ({len(tried)} were tried)")
    return Proposal(joined)


def _pick(
    family: _Family,
    tried: Mapping[Setting, float | None],
    tries: int,
    seed: int,
    priors: Sequence[Tuned],
) -> Config | None:
    """A legal setting that was not tried: one known to be good, else searched for; None if none."""
    few = math.prod(map(len, family.space.knobs.values())) <= tries
    searched = () if few else _sampled(family.space, tried, seed + len(tried))
    # polishing halves the worst case on known surfaces: 18 and 39 tries of 160, against 41 and 55
    nearby = () if few or len(tried) < tries // 2 else _nearby(family.space, tried)
    for config in chain(_known(family, priors), nearby, searched, _all(family.space)):
        if family.setting(config) not in tried and family.is_feasible(config):
            return config
    return None


def _known(family: _Family, priors: Sequence[Tuned]) -> Iterator[Config]:
    """Settings that were tuned before, then the default of each measured workload."""
    for row in (*priors, *family.root.tuned):
        if row.config.keys() >= family.space.knobs.keys():
            yield dict(family.setting(row.config))
    for at in family.measured:
        yield dict(family.setting(family.default(at)))


def _all(space: Space) -> Iterator[Config]:
    return (dict(zip(space.knobs, v, strict=True)) for v in product(*space.knobs.values()))


def _sampled(space: Space, tried: Mapping[Setting, float | None], seed: int) -> Iterator[Config]:
    """What a sampler that has seen these results would try, the likeliest first."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ladders = {knob: sorted(choices) for knob, choices in space.knobs.items()}
    rungs: dict[str, BaseDistribution] = {
        knob: IntDistribution(0, len(ladder) - 1) for knob, ladder in ladders.items()
    }
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for setting, of_roofline in tried.items():
        config = dict(setting)
        if config.keys() == ladders.keys() and all(config[k] in ladders[k] for k in ladders):
            params = {knob: ladders[knob].index(value) for knob, value in setting}
            study.add_trial(
                create_trial(params=params, distributions=rungs, value=of_roofline)
                if of_roofline is not None
                else create_trial(params=params, distributions=rungs, state=TrialState.PRUNED)
            )
    for _ in range(ASKS):
        trial = study.ask(rungs)
        yield {knob: ladders[knob][trial.params[knob]] for knob in ladders}
        study.tell(trial, state=TrialState.PRUNED)


def _nearby(space: Space, tried: Mapping[Setting, float | None]) -> Iterator[Config]:
    """The best setting with one knob a rung up or down."""
    top = dict(max(tried.items(), key=lambda pair: pair[1] or 0.0)[0])
    for knob, choices in space.knobs.items():
        ladder = sorted(choices)
        if top.get(knob) in ladder:
            rung = ladder.index(top[knob])
            for value in (*ladder[rung + 1 : rung + 2], *ladder[max(0, rung - 1) : rung]):
                yield {**top, knob: value}


def _joined(family: _Family) -> Candidate | None:
    """Each measured size at the setting that was fastest there; None if the best is that already.

    A table of settings knows sizes and dtypes, not options: workloads that differ in options alone
    share the setting with the least product of their times.
    """
    fastest = _fastest(family)
    best_so_far = family.best
    if all(best_so_far.config_at(at) == config for at, config in fastest):
        return None
    rows = [Tuned(at.dims, at.dtypes, config) for at, config in fastest]
    rows += [
        Tuned(at.dims, at.dtypes, family.default(at))
        for at in family.op.workloads
        if (row := nearest(rows, at.dims, at.dtypes)) and not family.fits(row.config, at)
    ]
    return family.child(best_so_far.config, rows, "each size at the setting that was fastest there")


def _fastest(family: _Family) -> list[tuple[Workload, Config]]:
    """For each measured size and dtype: where it is, and the setting that was fastest there."""
    logs: dict[str, dict[str, float]] = defaultdict(dict)
    sizes: dict[str, Workload] = {}
    configs: dict[str, Config] = {}
    for attempt in family.members:
        if isinstance(attempt.verdict, Passed):
            for size, (at, total) in _log_times(attempt.verdict).items():
                config = attempt.candidate.config_at(at)
                key = repr(sorted(config.items()))
                sizes[size], configs[key] = at, config
                logs[size][key] = min(total, logs[size].get(key, math.inf))
    return [(sizes[size], configs[min(by, key=lambda k: by[k])]) for size, by in logs.items()]


def _log_times(verdict: Passed) -> dict[str, tuple[Workload, float]]:
    """The sum of log times for each size and dtype."""
    totals: dict[str, tuple[Workload, float]] = {}
    for m in verdict.measured:
        size = repr((m.at.dims, m.at.dtypes))
        totals[size] = (m.at, totals.get(size, (m.at, 0.0))[1] + math.log(m.time_us))
    return totals
