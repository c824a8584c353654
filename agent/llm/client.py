"""A model behind any OpenAI-compatible chat endpoint, held to a time, a size and to silence."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

import httpx2
import openai
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel, Field, SecretStr, ValidationError

from agent.llm.address import check_address
from agent.llm.chat import Call, Complete, EndpointError, Message, Reply, recorded

#: The largest answer that is read, in bytes: a reply of 64 KiB of source with room around it.
MAX_BYTES = 1 << 20
#: The longest wait before another try, in seconds, whatever the server asks for.
LONGEST_WAIT = 30.0
#: For endpoints that ask for none, as local servers mostly do.
NO_KEY = SecretStr("")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operator's settings for a model.

    `timeout` is in seconds, for one whole answer; `patience` for all tries of a request together.
    Raises `ValueError` for an address that `check_address` refuses.
    """

    base_url: str
    model: str
    key: SecretStr = NO_KEY
    timeout: float = 120.0
    patience: float = 240.0
    retries: int = 3
    max_tokens: int = 8192
    temperature: float | None = None

    def __post_init__(self) -> None:
        check_address(self.base_url)


def from_endpoint(
    endpoint: Endpoint,
    record: Callable[[Call], None],
    sleep: Callable[[float], None] = time.sleep,
    jitter: Callable[[], float] = random.random,
    clock: Callable[[], float] = time.monotonic,
) -> Complete:
    """The endpoint's model. Rate limits, server errors and time-outs alone are tried again.

    Waits double from a second, or are what the server asks for, up to half a minute.
    """
    client = openai.OpenAI(
        base_url=endpoint.base_url,
        api_key=endpoint.key.get_secret_value() or "none",
        timeout=endpoint.timeout,
        max_retries=0,
        http_client=httpx2.Client(
            trust_env=not _is_loopback(endpoint.base_url),
            timeout=endpoint.timeout,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [lambda response: _bound(response, endpoint.timeout)]},
        ),
    )

    def complete(messages: Sequence[Message]) -> Reply:
        until = clock() + endpoint.patience
        for attempt in range(endpoint.retries + 1):
            try:
                return _ask(client, endpoint, messages, min(endpoint.timeout, until - clock()))
            except _PassingError as error:
                failure = error
            wait = min(LONGEST_WAIT, failure.wait or 2.0**attempt) * (0.5 + jitter() / 2)
            if attempt == endpoint.retries or clock() + wait >= until:
                break
            sleep(wait)
        raise EndpointError(str(failure))

    return recorded(complete, record)


class _PassingError(Exception):
    """A failure that may be over in a moment: in `wait` seconds, where the server says so."""

    def __init__(self, said: str, wait: float | None = None) -> None:
        super().__init__(said)
        self.wait = wait


class _Usage(BaseModel):
    prompt_tokens: int = Field(0, ge=0, le=10**8)
    completion_tokens: int = Field(0, ge=0, le=10**8)


class _Said(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Said


class _Completion(BaseModel):
    """What we read of an answer; tool calls and the rest are not asked for, and not read."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def _ask(
    client: openai.OpenAI, endpoint: Endpoint, messages: Sequence[Message], timeout: float
) -> Reply:
    """One request. A reply without text is an empty reply; the key is cut from what is said."""
    try:
        raw = client.chat.completions.with_raw_response.create(
            model=endpoint.model,
            messages=[_turn(m) for m in messages],
            max_tokens=endpoint.max_tokens,
            timeout=timeout,
            temperature=openai.omit if endpoint.temperature is None else endpoint.temperature,
        )
        answer = _Completion.model_validate_json(raw.content)
    except openai.APITimeoutError:
        raise _PassingError(f"the model gave no answer in {timeout:.3g} s") from None
    except openai.APIStatusError as error:
        raise _refusal(error.status_code, error.response.headers) from None
    except (openai.APIError, httpx2.HTTPError):
        raise EndpointError("the model endpoint cannot be reached, or hung up") from None
    except _OversizedError:
        raise EndpointError("the model endpoint answered with too much") from None
    except ValidationError:
        raise EndpointError("the model endpoint answered with no chat completion") from None
    used = answer.usage or _Usage(prompt_tokens=0, completion_tokens=0)
    text = _without(endpoint.key, answer.choices[0].message.content or "")
    return Reply(text, used.prompt_tokens, used.completion_tokens, endpoint.model)


def _turn(message: Message) -> ChatCompletionMessageParam:
    match message.role:
        case "system":
            return {"role": "system", "content": message.content}
        case "user":
            return {"role": "user", "content": message.content}
        case "assistant":
            return {"role": "assistant", "content": message.content}


def _refusal(status: int, headers: Mapping[str, str]) -> EndpointError | _PassingError:
    if status in (401, 403):
        return EndpointError(f"the model endpoint refuses the key (HTTP {status})")
    said = f"the model endpoint answers HTTP {status}"
    if status not in (408, 429) and status < 500:
        return EndpointError(said)
    wait = headers.get("retry-after", "")
    return _PassingError(said, float(wait) if wait.isdecimal() and len(wait) < 6 else None)


def _without(key: SecretStr, text: str) -> str:
    """The text with the key cut out: an endpoint may say back what it was sent."""
    secret = key.get_secret_value()
    return text.replace(secret, "[key]") if secret else text


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _OversizedError(Exception):
    """An answer that is too large, or packed so that it could become so."""


def _bound(response: httpx2.Response, seconds: float) -> None:
    """Hold the body to `MAX_BYTES` and to a time; the client's own limit is on each read alone."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _OversizedError
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = _Bounded(response.stream, MAX_BYTES, time.monotonic() + seconds)


class _Bounded(httpx2.SyncByteStream):
    """A body that ends in an error when it grows too large or takes too long."""

    def __init__(self, body: httpx2.SyncByteStream, size: int, deadline: float) -> None:
        self._body, self._size, self._deadline = body, size, deadline

    def __iter__(self) -> Iterator[bytes]:
        read = 0
        for chunk in self._body:
            read += len(chunk)
            if read > self._size:
                raise _OversizedError
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the answer takes too long")
            yield chunk

    def close(self) -> None:
        self._body.close()
