"""The library as a proposer: kernels for the same function, called and tuned as the problem needs.

What a kernel's space says in its own axes is put in the problem's, so that a sweep goes on there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import seeds
from agent.declared import declared_space
from agent.library import from_library
from agent.loop import Proposer
from evaluator.isolate import Isolate
from evaluator.match import Match, adapt, same_function
from kernel_library.candidate import Candidate
from kernel_library.device import Device
from kernel_library.formula import FormulaError
from kernel_library.space import Config, Space, Tuned, nearest
from kernel_library.spec import OpSpec, Workload
from kernel_library.store import Store
from kernel_library.unit import discover, space_names


@dataclass(frozen=True, slots=True)
class Known:
    """A kernel of the library: its op, its source at its tuned settings, and its space."""

    op: OpSpec
    candidate: Candidate
    space: Space = Space({})

    def config(self, at: Workload) -> Config:
        """The setting to begin with: tuned for a size like this, or by the space's own rule."""
        row = nearest(self.candidate.tuned, at.dims, at.dtypes)
        if row is not None:
            return row.config
        try:
            return self.space.default(space_names(self.op, at)) or self.candidate.config
        except FormulaError:
            return self.candidate.config


@dataclass(slots=True)
class Library:
    """Known kernels, fitted to a problem; remembers the space of each fitted one by its source."""

    known: tuple[Known, ...]
    isolate: Isolate
    spaces: dict[str, Space] = field(default_factory=dict)

    def proposer(self) -> Proposer:
        """Proposes each kernel that computes the problem's function, once."""
        pairs = [(each.op, each.candidate) for each in self.known]
        return from_library(pairs, self.match, self.fit)

    def match(self, op: OpSpec, other: OpSpec) -> Match | None:
        """How the other op stands for this one."""
        return same_function(op, other, self.isolate)

    def fit(self, match: Match, op: OpSpec, candidate: Candidate) -> Candidate:
        """The kernel behind an adapter, with a setting for each of the problem's workloads."""
        known = next(each for each in self.known if each.candidate.digest == candidate.digest)
        adapted = adapt(match, op, candidate)
        self.spaces[adapted.source] = translated(known.space, match)
        rows = [
            Tuned(at.dims, at.dtypes, known.config(match.workload(op, at)), at.options)
            for at in op.workloads
        ]
        return replace(adapted, config=rows[0].config, tuned=tuple(rows), parent=candidate.digest)

    def space_of(self, candidate: Candidate) -> Space | None:
        """What may be tuned: a library kernel's own space, or what the source declares."""
        return self.spaces.get(candidate.source) or declared_space(candidate)


def seed_kernels(device: Device | None) -> Iterator[Known]:
    """The seeds, at the settings tuned for this device if there are any."""
    for unit in discover(seeds):
        yield Known(unit.spec, unit.candidate(device=device.name if device else None), unit.space)


def known_kernels(store: Store, device: Device | None) -> tuple[Known, ...]:
    """The seeds, then what people have accepted; none that is in quarantine."""
    kernels = store.kernels()
    barred = {k.name for k in kernels if k.origin == "seed" and k.quarantine}
    accepted = [k for k in kernels if k.origin == "job" and not k.quarantine]
    fit = [seed for seed in seed_kernels(device) if seed.op.name not in barred]
    return (*fit, *(Known(k.op, k.candidate) for k in accepted))


def translated(space: Space, match: Match) -> Space:
    """The space with its formulas in the problem's axes and options."""
    means = {**match.axes, **{n: repr(v) for n, v in match.options.items()}, **match.forwarded}
    return Space(
        space.knobs,
        {knob: substituted(formula, means) for knob, formula in space.rule.items()},
        tuple(substituted(formula, means) for formula in space.constraints),
    )


def substituted(formula: str, means: Mapping[str, str]) -> str:
    """The formula with each name exchanged for what it means; other names stay."""

    class Exchange(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(means[node.id], mode="eval").body if node.id in means else node

    return ast.unparse(Exchange().visit(ast.parse(formula, mode="eval")))
