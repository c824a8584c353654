"""What a candidate sees in the interpreter: CPU tensors that say `cuda:0`, and one Hopper GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from evaluator.poison import fill

#: An H200, as far as launchers ask, but with one SM: programs run one after another here, and a
#: kernel whose programs wait for each other would wait for ever.
PROPERTIES = SimpleNamespace(
    name="NVIDIA H200", major=9, minor=0, multi_processor_count=1, warp_size=32,
    total_memory=150_000_000_000, L2_cache_size=62_914_560, shared_memory_per_block=49_152,
    shared_memory_per_block_optin=232_448, shared_memory_per_multiprocessor=233_472,
    regs_per_multiprocessor=65_536, max_threads_per_multi_processor=2048,
)  # fmt: skip
DEVICE = torch.device("cuda", 0)
_EMPTY = {
    torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted,
    torch.Tensor.new_empty, torch.Tensor.new_empty_strided,
}  # fmt: skip
_ANSWERS: Mapping[Any, object] = {
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.get_device: 0,
}
_SAME = {torch.Tensor.cuda, torch.Tensor.pin_memory}


class PretendCuda(TorchFunctionMode):
    """Within it, tensors say `cuda:0`, are made on the CPU, and `empty` ones hold poison."""

    def __init__(self, poison: int) -> None:
        super().__init__()
        self.poison = poison

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Answer what a GPU would be asked, and run the rest on the CPU."""
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func in _SAME:
            return args[0]
        args = tuple(_on_cpu(a) for a in args)
        result = func(*args, **{k: _on_cpu(v, k) for k, v in (kwargs or {}).items()})
        if func in _EMPTY and isinstance(result, torch.Tensor) and result.numel():
            fill(result, self.poison)
        return result


def _on_cpu(value: object, name: str = "") -> object:
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.startswith("cuda") and name in ("", "device"):
        return "cpu"
    return value


def pretend_cuda() -> None:
    """Let `torch.cuda` and Triton's driver answer as on a machine with one GPU; process-wide."""
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None, device=DEVICE)
    answers: Mapping[str, Callable[..., object]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: PROPERTIES.name,
        "current_stream": lambda device=None: stream,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": lambda device=None: nullcontext(),
        "device_of": lambda tensor=None: nullcontext(),
        "stream": lambda stream=None: nullcontext(),
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


class Driver:
    """Stands for Triton's CUDA driver where a launcher asks it about the device."""

    def __init__(self, target: object) -> None:
        self.target = target
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {
                "max_shared_mem": PROPERTIES.shared_memory_per_block_optin,
                "max_num_regs": PROPERTIES.regs_per_multiprocessor,
                "multiprocessor_count": PROPERTIES.multi_processor_count,
                "warpSize": PROPERTIES.warp_size,
            }
        )

    def get_current_target(self) -> object:
        """Hopper."""
        return self.target

    def get_current_device(self) -> int:
        """The first GPU."""
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """What tensors say that they lie on."""
        return DEVICE

    def get_device_interface(self) -> object:
        """The torch module of the device."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Nothing is timed here: `evaluator.autotuned` has chosen already."""
        return lambda call, *, quantiles=(0.5,), **_: [1.0] * len(quantiles)
