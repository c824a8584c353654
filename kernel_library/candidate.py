"""A candidate: the source of a kernel that may or may not be any good."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from kernel_library.space import Config, Tuned, nearest
from kernel_library.spec import Workload


@dataclass(frozen=True, slots=True)
class Candidate:
    """Kernel source and the setting to launch it with; known by its digest.

    The judge calls `entry(*inputs, **options, **config)`; it returns the outputs in order, one
    tensor or a tuple, and writes the mutated inputs in place. `tuned` holds settings for
    particular sizes; elsewhere `config` holds. Where the source tunes itself (`@triton.autotune`),
    `pick` says which of its settings this is: no argument of the entry, but what is recorded,
    interpreted and installed. `proposer` and `why` are for people.
    """

    op: str
    source: str
    entry: str
    config: Config = field(default_factory=dict)
    tuned: tuple[Tuned, ...] = ()
    pick: int = 0
    parent: str | None = None
    proposer: str = "human"
    why: str = ""

    @property
    def digest(self) -> str:
        """The same source at the same settings has the same digest, wherever it came from."""
        settings = sorted(self.config.items())
        table = [
            (sorted(t.dims.items()), sorted(t.dtypes.items()), sorted(t.config.items()))
            for t in self.tuned
        ]
        pick = [str(self.pick)] if self.pick else []
        parts = (self.op, self.entry, repr(settings), repr(table), *pick, self.source)
        # half a surrogate is no text, and the judge's to reject
        return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()

    def config_at(self, at: Workload) -> Config:
        """The setting to launch with at this workload."""
        row = nearest(self.tuned, at.dims, at.dtypes)
        return row.config if row else self.config
