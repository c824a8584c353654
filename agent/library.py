"""Proposals from the library, found by what an op computes and not by how it is spelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.loop import Exhausted, History, Proposal, Proposer
from kernel_library.candidate import Candidate
from kernel_library.spec import OpSpec

Match = TypeVar("Match")

NOTHING = "the library has no kernel for this function"
NOTHING_ELSE = "the library has no other kernel for this function"


def from_library(
    kernels: Sequence[tuple[OpSpec, Candidate]],
    match: Callable[[OpSpec, OpSpec], Match | None],
    adapt: Callable[[Match, OpSpec, Candidate], Candidate],
) -> Proposer:
    """Propose each kernel whose op computes the same function as ours, once.

    `match(op, library_op)` says how one op's arguments stand for the other's, or None;
    `adapt(match, op, candidate)` wraps the library's kernel to be called as `op` is. Matching
    may run both references, so it is done once for each pair, and only as far as needed.
    """
    adapted: dict[tuple[str, int], Candidate | None] = {}

    def fitted(op: OpSpec, i: int) -> Candidate | None:
        key = (op.digest, i)
        if key not in adapted:
            found = match(op, kernels[i][0])
            adapted[key] = None if found is None else _named(found, op, i)
        return adapted[key]

    def _named(found: Match, op: OpSpec, i: int) -> Candidate:
        library_op, candidate = kernels[i]
        why = f"computes the same function as the library's {library_op.name}"
        return replace(adapt(found, op, candidate), proposer="library", why=why)

    def propose(op: OpSpec, history: History) -> Proposal | Exhausted:
        seen = {a.candidate.digest for a in history}
        for i in range(len(kernels)):
            candidate = fitted(op, i)
            if candidate is not None and candidate.digest not in seen:
                return Proposal(candidate)
        return Exhausted(NOTHING_ELSE if any(adapted.values()) else NOTHING)

    return propose
