"""A model that says what was recorded, so that a finished job runs again with no network."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence

from agent.llm.chat import Call, EndpointError, Message, Reply, digest


class Replay:
    """Plays recorded calls back by request, each once and in the order they were made."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._left: dict[str, deque[Call]] = defaultdict(deque)
        for call in calls:
            self._left[call.request].append(call)

    def __call__(self, messages: Sequence[Message]) -> Reply:
        """The recorded reply. Raises `EndpointError` for a request that was never made."""
        left = self._left.get(digest(messages))
        if not left:
            raise EndpointError("the recording holds no reply to this request")
        call = left.popleft()
        return Reply(call.reply, call.tokens_in, call.tokens_out, call.model)
