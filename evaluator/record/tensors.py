"""Tape tensors: meta to torch, `cuda:0` to the candidate, with made-up addresses to Triton.

C++ sees the meta device, so nothing ever reaches for a CUDA build or a context. The candidate's own
questions (`x.device`, `x.is_cuda`, `x.data_ptr()`) pass through `__torch_function__` and hear
`cuda:0`; below it, where that hook is off, torch's own decompositions see meta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernel_library.tape import Buffer, Call, Step, View

CUDA = torch.device("cuda", 0)
#: Far apart and page-aligned, so that no offset error lands in a neighbour unnoticed; and no number
#: that a launcher would pass for another reason.
FIRST_ADDRESS, GAP, ALIGNMENT = 0x5A7E_39C4_1000, 1 << 20, 4096
COPIES_UP = "copies host data to the device, in time that no tape shows"
OUTLIVES = "outlives its call: make workspaces in each call, and keep none"
INSTEAD = "compute it in the kernel, or pass its numbers and tensors as arguments"


class TapeError(Exception):
    """The launcher does on the host what only device data could decide, or copies data up."""


@dataclass(slots=True)
class Memory:
    """The storages that were seen, each at an address of its own."""

    buffers: list[Buffer] = field(default_factory=list)
    _storages: list[Any] = field(default_factory=list)  # kept alive: an address is used once
    _addresses: list[int] = field(default_factory=list)
    _known: dict[int, int] = field(default_factory=dict)
    _past: dict[int, Any] = field(default_factory=dict)  # of earlier calls, kept alive as well
    _top: int = FIRST_ADDRESS

    def begin(self) -> None:
        """Forget the last call, but for what it had: no other may have that."""
        past = self._past | {storage._cdata: storage for storage in self._storages}
        self.__init__(_past=past)  # type: ignore[misc]

    def buffer(self, tensor: torch.Tensor, name: str = "") -> int:
        """The number of the tensor's buffer; `name` marks it as that input's."""
        with torch._C.DisableTorchFunctionSubclass():
            storage = tensor.untyped_storage()
        number = self._known.get(storage._cdata)
        if storage._cdata in self._past:
            raise TapeError(f"memory of another call is used again: it {OUTLIVES}")
        if number is None:
            number = self._known[storage._cdata] = len(self.buffers)
            size = storage.nbytes()
            self.buffers.append(Buffer("input" if name else "made", size, name))
            self._storages.append(storage)
            self._addresses.append(self._top)
            self._top += (size + GAP + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return number

    def address(self, tensor: torch.Tensor) -> int:
        """The made-up device address of the tensor's first element."""
        base = self._addresses[self.buffer(tensor)]
        with torch._C.DisableTorchFunctionSubclass():
            return base + int(tensor.storage_offset()) * tensor.element_size()

    def find(self, address: int) -> tuple[int, int]:
        """The buffer and offset in bytes that an address lies in. Raises TapeError."""
        for number in range(len(self.buffers) - 1, -1, -1):
            offset = address - self._addresses[number]
            if offset >= 0:
                if offset <= self.buffers[number].bytes:
                    return number, offset
                break
        raise TapeError(f"a launch was given memory that no tensor of this call has: it {OUTLIVES}")

    def holds(self, number: int) -> bool:
        """Whether a number is an address of some tensor."""
        known = zip(self._addresses, self.buffers, strict=True)
        return any(0 <= number - at <= buffer.bytes for at, buffer in known)

    def view(self, tensor: torch.Tensor) -> View:
        """Where the tensor lies. Raises TapeError where that does not say what it holds."""
        number = self.buffer(tensor)
        with torch._C.DisableTorchFunctionSubclass():
            if tensor.is_neg() or tensor.is_conj():
                raise TapeError("a tensor's sign is left to a bit beside its memory: use a kernel")
            offset = int(tensor.storage_offset()) * tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            return View(number, offset, tuple(tensor.shape), tuple(tensor.stride()), dtype)


MEMORY = Memory()


class TapeTensor(torch.Tensor):
    """A tensor without data that says it is on `cuda:0`."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own signature
        if func in ANSWERS:
            return ANSWERS[func](args[0])
        if func in REFUSED:
            raise TapeError(f"host code needs device data: {REFUSED[func]}")
        kwargs = to_meta(kwargs or {})
        out = super().__torch_function__(func, types, to_meta(args), kwargs)  # type: ignore[no-untyped-call]
        return wrap(out)


ANSWERS: dict[Any, Callable[[Any], Any]] = {
    torch.Tensor.device.__get__: lambda t: CUDA,
    torch.Tensor.is_cuda.__get__: lambda t: True,  # type: ignore[attr-defined]
    torch.Tensor.is_meta.__get__: lambda t: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda t: 0,
    torch.Tensor.data_ptr: lambda t: MEMORY.address(t),
    torch.Tensor.cuda: lambda t: t,
}
REFUSED: dict[Any, str] = {
    torch.Tensor.item: ".item()",
    torch.Tensor.tolist: ".tolist()",
    torch.Tensor.cpu: ".cpu()",
    torch.Tensor.numpy: ".numpy()",
    torch.Tensor.__bool__: "bool(tensor)",
    torch.Tensor.__int__: "int(tensor)",
    torch.Tensor.__float__: "float(tensor)",
    torch.Tensor.__index__: "a tensor as an index",
}
_UPLOADS = {
    torch.tensor: "torch.tensor(...)",
    torch.as_tensor: "torch.as_tensor(...)",
    torch.asarray: "torch.asarray(...)",
    torch.Tensor.new_tensor: ".new_tensor(...)",
    torch.Tensor.cuda: ".cuda()",
}


class Devices(TorchFunctionMode):
    """Every request for a CUDA tensor gets a tape tensor."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own signature
        kwargs = kwargs or {}
        if func in _UPLOADS and _goes_up(func, args, kwargs):
            raise TapeError(f"{_UPLOADS[func]} {COPIES_UP}: {INSTEAD}")
        return wrap(func(*to_meta(args), **to_meta(kwargs)))


class AtImport(TorchFunctionMode):
    """While the module is loaded, no device memory is made."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own signature
        if "cuda" in str((kwargs or {}).get("device")):
            raise TapeError(f"device memory made at import {OUTLIVES}")
        return func(*args, **(kwargs or {}))


def _goes_up(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:  # noqa: ANN401
    """Whether host data would be copied to the device; a tape tensor is there already."""
    there = bool(args) and isinstance(args[0], TapeTensor)
    told = kwargs.get("device")
    if func is torch.Tensor.new_tensor:
        return there if told is None else "cuda" in str(told)
    return not there and (func is torch.Tensor.cuda or "cuda" in str(told))


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down the aten calls that compute; allocations and views are no steps."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps = steps

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - torch's own signature
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - torch's own signature
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not computes(func):
            return out
        if len(_places((args, kwargs, out))) > 1:
            raise TapeError(f"{func} {COPIES_UP}: {INSTEAD}")
        aliases = [r.alias_info for r in func._schema.returns]
        fresh = [t for t in _tensors(out) if not any(a is not None for a in aliases)]
        views: list[View] = []
        call = Call(
            op=str(func),
            args=tuple(_json(a, views) for a in args),
            kwargs={k: _json(v, views) for k, v in kwargs.items() if k != "device"},
            views=tuple(views),
            results=tuple(MEMORY.view(t) for t in fresh),
        )
        self.steps.append(call)
        return out


ALLOCATES = {
    "aten::empty", "aten::empty_like", "aten::empty_permuted", "aten::empty_strided",
    "aten::new_empty", "aten::new_empty_strided",
}  # fmt: skip
#: Views by what they do, though their schema does not say so: what `reshape` calls after a copy.
LOOKS = {"aten::_unsafe_view"}


def computes(func: Any) -> bool:  # noqa: ANN401 - an overload of any namespace
    """Whether a call does more than allocate, or look at memory in another way.

    One that gives nothing back is made for what it does, and what an op outside of aten says of
    itself is a stranger's word.
    """
    name, aliases = func._schema.name, [r.alias_info for r in func._schema.returns]
    looks = bool(aliases) and all(a is not None and not a.is_write for a in aliases)
    return not name.startswith("aten::") or (name not in ALLOCATES | LOOKS and not looks)


def _places(values: Any) -> set[bool]:  # noqa: ANN401 - arguments and results of an op
    """Where its tensors are: True for the device, False for the host."""
    with torch._C.DisableTorchFunctionSubclass():
        return {v.is_meta for v in tree_leaves(values) if isinstance(v, torch.Tensor)}


def _tensors(out: Any) -> list[torch.Tensor]:  # noqa: ANN401 - whatever an op returns
    found = out if isinstance(out, list | tuple) else [out]
    return [t for t in found if isinstance(t, torch.Tensor)]


def _json(value: Any, views: list[View]) -> Any:  # noqa: ANN401 - an op's argument, as JSON
    match value:
        case torch.Tensor():
            views.append(MEMORY.view(value))
            return {"view": len(views) - 1}
        case torch.dtype():
            return {"dtype": str(value).removeprefix("torch.")}
        case torch.device() | torch.layout() | torch.memory_format():
            return {"torch": str(value).removeprefix("torch.")}
        case list() | tuple():
            return [_json(v, views) for v in value]
        case None | bool() | int() | float() | str():
            return value
    raise TapeError(f"an aten call was given a {type(value).__name__}")


def to_meta(x: Any) -> Any:  # noqa: ANN401 - any argument of any call
    """The argument with CUDA devices exchanged for meta."""
    match x:
        case torch.device(type="cuda"):
            return torch.device("meta")
        case str() if x == "cuda" or x.startswith("cuda:"):
            return "meta"
        case list() | tuple() if type(x) in (list, tuple):
            return type(x)(to_meta(i) for i in x)
        case dict():
            return {k: to_meta(v) for k, v in x.items()}
    return x


def wrap(x: Any) -> Any:  # noqa: ANN401 - any result of any call
    """The result with meta tensors made tape tensors."""
    if isinstance(x, torch.Tensor) and not isinstance(x, TapeTensor):
        with torch._C.DisableTorchFunctionSubclass():
            return x.as_subclass(TapeTensor) if x.is_meta else x
    if type(x) in (list, tuple):
        return type(x)(wrap(i) for i in x)
    return x
