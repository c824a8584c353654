"""Brings a stranger's source to life, on a machine without a GPU. Runs in the intake job."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from evaluator.errors import ProblemError
from evaluator.intake.wire import Failure

_MODULE = "problem"


class OnCpu(TorchFunctionMode):
    """Whatever device a source asks for, it gets the CPU; remembers what its numbers are drawn of.

    `drawn` holds the two bounds of each `randint`, `shuffled` the length of each `randperm`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.drawn: set[tuple[int, int]] = set()
        self.shuffled: set[int] = set()

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None  # noqa: ANN401
    ) -> Any:  # fmt: skip  # noqa: ANN401
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0]
        if kwargs.get("device") is not None and not _is_meta(kwargs["device"]):
            kwargs["device"] = torch.device("cpu")
        if func is torch.Tensor.to:
            args = tuple(torch.device("cpu") if _is_gpu(arg) else arg for arg in args)
        if func is torch.randint:
            named = (kwargs[bound] for bound in ("low", "high") if bound in kwargs)
            *_, low, high = 0, 0, *(n for n in (*args, *named) if isinstance(n, int))
            self.drawn.add((low, high))
        if func is torch.randperm:
            self.shuffled.add(kwargs.get("n", *args[:1]))
        return func(*args, **kwargs)


def _is_gpu(value: object) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


def _is_meta(device: object) -> bool:
    return str(device) == "meta"


def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with every device that it asks for taken to be the CPU."""

    def called(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with OnCpu():
            return function(*args, **kwargs)

    return called


@contextmanager
def _uncompiled() -> Iterator[None]:
    """`torch.compile` gives back what it is given: its own stances import all of the compiler."""
    compiled = torch.compile

    def as_written(model: Any = None, **_: Any) -> Any:  # noqa: ANN401
        return model if model is not None else as_written

    torch.compile = as_written
    try:
        yield
    finally:
        torch.compile = compiled


@contextmanager
def loaded(source: str) -> Iterator[ModuleType]:
    """The source as a module, from a file of its own so that `inspect` can read it back.

    What it has `torch.compile` do is done as it is written: a graph is what is asked for.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{_MODULE}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(_MODULE, path)
        if spec is None or spec.loader is None:
            raise ProblemError("cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE] = module
        try:
            with _uncompiled():
                with OnCpu():
                    spec.loader.exec_module(module)
                yield module
        finally:
            del sys.modules[_MODULE]


def failure(error: BaseException) -> Failure:
    """What to tell the author of an exception: the message, and the last line of theirs in it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).name == f"{_MODULE}.py"]
    where = f"line {lines[-1]}" if lines else ""
    if isinstance(error, ProblemError):
        return Failure(error.message, error.where or where)
    name, text = type(error).__name__, str(error).strip().split("\n\n")[0][:400]
    if "does not require grad" in text:
        text += " (gradients are off here: take them under `torch.enable_grad()`)"
    if "DataDependent" in name:
        text = "what it does depends on values (`.item()`, or `if` on a tensor), so it has no graph"
    return Failure(f"{name}: {text}" if text else name, where)
