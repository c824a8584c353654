"""What happened to a job, a line at a time: the same whether it runs here or far away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Event, Thread
from typing import TYPE_CHECKING

from cli.exits import escaped

if TYPE_CHECKING:
    from kernel_library.store import Store

ENDED = frozenset({"finished", "failed", "cancelled"})
POLL_SECONDS = 0.3
Say = Callable[[str], None]


def line(kind: str, data: Mapping[str, object]) -> str:
    """One event as a line, with rich's markup; empty for what is not worth one."""
    match kind:
        case "started":
            return "a worker has taken it up"
        case "problem_read":
            return "the problem is read; looking for kernels"
        case "note":
            return f"[dim]{escaped(str(data['text']))}[/]"
        case "attempt":
            return _attempt(data)
        case "finished":
            return f"[bold]{escaped(str(data['why']))}[/]"
        case "failed" | "cancelled":
            return f"[bold red]{kind}[/]"
    return ""


def _attempt(data: Mapping[str, object]) -> str:
    who = f"{data['proposer']}: {escaped(str(data['why']))}"
    number = int(str(data["index"])) + 1
    if data["kind"] == "rejected":
        reason = escaped(str(data["reason"]).splitlines()[0])
        return f"{number:3d}  [red]rejected[/] at {data['stage']}: {reason}  [dim]{who}[/]"
    share = data.get("of_roofline")
    told = f"{share:.1%} of the roofline" if isinstance(share, float) else "right (not timed)"
    return f"{number:3d}  [green]{told}[/]  [dim]{who}[/]"


def follow(store: Store, job_id: str, say: Say, ended: Event) -> Thread:
    """Say each event of a job of this store, until `ended` is set and all are said."""

    def watch() -> None:
        seen = 0
        while True:
            last = ended.wait(POLL_SECONDS)
            for event in store.events(job_id, after=seen):
                seen = event.seq
                if text := line(event.kind, event.data):
                    say(text)
            if last:
                return

    thread = Thread(target=watch, name="follow", daemon=True)
    thread.start()
    return thread


def stream(lines: Iterable[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Kinds and data of a job's text/event-stream, up to the event that ends the job."""
    for text in lines:
        if text.startswith("data:"):
            event = json.loads(text.removeprefix("data:"))
            yield event["kind"], event["data"]
            if event["kind"] in ENDED:
                return
