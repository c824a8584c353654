"""Several proposers as one, cheapest first: structure from the library or a model, then numbers."""

from __future__ import annotations

from collections.abc import Callable

from agent.loop import Exhausted, History, Proposal, Proposer
from kernel_library.spec import OpSpec


def in_order(*proposers: Proposer, note: Callable[[str], None]) -> Proposer:
    """Ask each in turn until one has a proposal.

    Every turn starts at the first again, so a sweep tunes what a model has just found. Why a
    proposer has nothing is noted, once for each reason.
    """
    noted: set[str] = set()

    def propose(op: OpSpec, history: History) -> Proposal | Exhausted:
        reasons: list[str] = []
        for proposer in proposers:
            proposal = proposer(op, history)
            if isinstance(proposal, Proposal):
                return proposal
            reasons.append(proposal.why)
            if proposal.why not in noted:
                noted.add(proposal.why)
                note(proposal.why)
        return Exhausted(f"there is nothing left to try: {'; '.join(reasons)}")

    return propose
