"""Workers' heartbeats: who is there, and what each is doing."""

from __future__ import annotations

from sqlalchemy import select

from kernel_library.store.part import Part
from kernel_library.store.tables import Worker
from kernel_library.store.views import Json, WorkerView


class Workers(Part):
    """Workers by name."""

    def beat(self, name: str, queue: str, doing: str | None, facts: Json) -> None:
        """A worker says that it lives, and what it does; one name is one worker."""
        seen = self.database.now()
        with self.database.write() as session:
            session.merge(Worker(name=name, queue=queue, seen=seen, doing=doing, facts=facts))

    def workers(self) -> list[WorkerView]:
        """Every worker ever seen, the last seen first."""
        with self.database.read() as session:
            found = session.scalars(select(Worker).order_by(Worker.seen.desc(), Worker.name))
            return [WorkerView(w.name, w.queue, w.seen, w.doing, w.facts) for w in found]
