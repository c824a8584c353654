"""Stands where Triton's CUDA driver stands: compiles for real, launches on paper.

Also answers what launchers ask of `torch.cuda`, for a target that need not be present.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler import compiler as triton_compiler
from triton.runtime._allocation import NullAllocator, _allocator

from evaluator.record.facts import tells_launches_apart, usage
from evaluator.record.tensors import CUDA, MEMORY, TapeError
from kernel_library.tape import Argument, Descriptor, Launch, Pointer, Scalar, Step

#: Per architecture: SMs, shared memory per program (bytes), L2 (bytes), name.
GPUS: Mapping[int, tuple[int, int, int, str]] = {
    80: (108, 166912, 40 << 20, "NVIDIA A100-SXM4-80GB"),
    86: (84, 101376, 6 << 20, "NVIDIA GeForce RTX 3090"),
    89: (142, 101376, 96 << 20, "NVIDIA L40S"),
    90: (132, 232448, 60 << 20, "NVIDIA H200"),
    100: (148, 232448, 126 << 20, "NVIDIA B200"),
    120: (170, 101376, 96 << 20, "NVIDIA GeForce RTX 5090"),
}
#: CUtensorMapDataType of tf32 (cuda.h), which Triton asks for by a flag.
TMA_TF32 = 11


@dataclass(slots=True)
class Tape:
    """What is being written: the steps so far, the binaries, and what each one compiled to."""

    steps: list[Step]
    binaries: dict[str, bytes]
    compiled: dict[str, Any]


class RecordingDriver(DriverBase):  # type: ignore[misc]
    """A Triton driver for a target that need not be present."""

    def __init__(self, tape: Tape, arch: int) -> None:
        self.utils = _Utils(tape, arch)
        self.launcher_cls = lambda source, metadata: _Launcher(tape, source, metadata)
        self.target = GPUTarget("cuda", arch, 32)
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None
        self.get_current_stream = lambda device: 0
        self.get_device_capability = lambda device=0: divmod(arch, 10)

    @classmethod
    def is_active(cls) -> bool:
        """Triton asks; the answer is always yes."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """No C is generated here."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """What kernels are compiled for."""
        return self.target

    def get_active_torch_device(self) -> torch.device:
        """The device that the candidate believes in."""
        return CUDA

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Nothing is timed while recording: `evaluator.autotuned` has chosen already."""
        return lambda fn, **_: [1.0, 1.0, 1.0]

    def get_empty_cache_for_benchmark(self) -> None:
        """There is no cache to flush."""

    def clear_cache(self, cache: object) -> None:
        """There is no cache to flush."""

    def get_device_interface(self) -> object:
        """Stands for `torch.cuda`."""
        return torch.cuda


class _Utils:
    def __init__(self, tape: Tape, arch: int) -> None:
        self.tape, self.arch = tape, arch

    def get_device_properties(self, device: int) -> dict[str, int]:
        sms, shared, _, _ = GPUS[self.arch]
        return {
            "max_shared_mem": shared, "max_num_regs": 65536, "multiprocessor_count": sms,
            "warpSize": 32, "sm_clock_rate": 1980000, "mem_clock_rate": 3201000,
            "mem_bus_width": 6144,
        }  # fmt: skip

    def load_binary(self, name: str, kernel: bytes, *_: object) -> tuple[Any, ...]:
        digest = sha256(kernel).hexdigest()
        self.tape.binaries[digest] = kernel
        # a launcher may size its grid by how many programs fit on an SM
        return object(), (digest, name), *usage(kernel), 1024

    def unload_module(self, module: object) -> None:
        pass


class _Launcher:
    def __init__(self, tape: Tape, source: Any, metadata: Any) -> None:  # noqa: ANN401 - Triton's
        self.tape, self.metadata = tape, metadata
        self.types = tuple(source.signature.values())
        self.descriptors = iter(getattr(metadata, "tensordesc_meta", None) or ())

    def __call__(  # noqa: PLR0913 - Triton's own signature
        self, x: int, y: int, z: int, stream: int, function: tuple[str, str],
        packed: object, extra: object, enter: object, leave: object, *args: Any,  # noqa: ANN401
    ) -> None:  # fmt: skip
        digest, name = function
        m = self.metadata
        if m.global_scratch_size and isinstance(_allocator.get(), NullAllocator):
            raise TapeError(f"{name} needs memory of its own: call triton.set_allocator first")
        described = list(getattr(m, "tensordesc_meta", None) or ())
        arguments = [
            a for t, v in zip(self.types, args, strict=True) for a in _flat(t, v, described)
        ]
        launch = Launch(
            digest, name, (int(x), int(y), int(z)), m.num_warps, getattr(m, "num_ctas", 1) or 1,
            m.shared, tuple(arguments),
            scratch_bytes=m.global_scratch_size, scratch_align=m.global_scratch_align,
            profile_bytes=getattr(m, "profile_scratch_size", 0) or 0,
            cooperative=bool(m.launch_cooperative_grid), dependent=bool(m.launch_pdl),
        )  # fmt: skip
        self.tape.steps.append(launch)


def _flat(type_: Any, value: Any, described: list[Any]) -> list[Argument]:  # noqa: ANN401 - Triton's
    """The runtime arguments that one argument of the kernel becomes; none for a constant."""
    if isinstance(type_, tuple):
        return [a for t, v in zip(type_, value, strict=True) for a in _flat(t, v, described)]
    if type_ == "constexpr":
        return []
    if type_.startswith("tensordesc"):
        return _descriptor(value, described.pop(0) if described else None)
    if type_.startswith("*"):
        if value is None:
            return [Pointer(-1)]
        address = value if isinstance(value, int) else value.data_ptr()
        return [Pointer(*MEMORY.find(address))]
    if not isinstance(value, float) and MEMORY.holds(int(value)):
        raise TapeError("a launch was given an address as a number: pass the tensor itself")
    return [Scalar(type_, value if isinstance(value, float) else int(value))]


def _descriptor(value: Any, meta: Any) -> list[Argument]:  # noqa: ANN401 - Triton's
    if meta is None:
        raise TapeError("a host-side tensor descriptor needs TMA, which this target has not")
    base = Pointer(*MEMORY.find(value.base.data_ptr()))
    shape, stride = tuple(map(int, value.shape)), tuple(map(int, value.strides))
    doubled = (*shape[:-1], 2 * shape[-1]) if meta.get("fp4_padded") else shape
    tf32 = getattr(value, "round_f32_to_tf32", False)
    made = Descriptor(
        base, doubled, stride, tuple(meta["block_size"]), meta["elem_size"],
        TMA_TF32 if tf32 else _host_type(meta["elem_type"]), meta["swizzle"],
        fill_nan=value.padding == "nan",
    )  # fmt: skip
    sizes = [Scalar("i32", s) for s in shape]
    return [made, *sizes, *(Scalar("i64", s) for s in stride)]


def _host_type(device_type: int) -> int:
    """The CUtensorMapDataType (cuda.h) of the number that a kernel's metadata holds."""
    return {8: 10, 9: 8, 10: 9}.get(device_type, device_type)


def keep_compiled(tape: Tape) -> None:
    """Keep each compiled kernel beside its binary, for the facts that are read off it."""
    original = triton_compiler.CompiledKernel._init_handles

    def init_and_keep(self: Any) -> None:  # noqa: ANN401 - Triton's
        original(self)
        told = tells_launches_apart(self.asm.get("ptx", ""))
        if told is not None:
            raise TapeError(f"a kernel reads {told}: its launches must all do the same")
        tape.compiled[self.function[0]] = self

    triton_compiler.CompiledKernel._init_handles = init_and_keep


def answer_torch_cuda(arch: int) -> None:
    """Answer `torch.cuda`'s questions for the target; refuse what no tape can hold."""
    sms, shared, l2, name = GPUS[arch]
    major, minor = divmod(arch, 10)
    properties = SimpleNamespace(
        name=name, major=major, minor=minor, multi_processor_count=sms, warp_size=32,
        shared_memory_per_block_optin=shared, shared_memory_per_multiprocessor=shared + 1024,
        shared_memory_per_block=48 << 10, L2_cache_size=l2, total_memory=80 << 30,
        max_threads_per_multi_processor=2048, regs_per_multiprocessor=65536,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0,
        "set_device": lambda device: None, "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: properties,
        "get_device_capability": lambda device=None: (major, minor),
        "get_device_name": lambda device=None: name,
        "current_stream": lambda device=None: SimpleNamespace(cuda_stream=0),
        "device": lambda device=None: nullcontext(), "device_of": lambda tensor: nullcontext(),
        "is_current_stream_capturing": lambda: False,
    }  # fmt: skip
    for question, answer in answers.items():
        setattr(torch.cuda, question, answer)
    for refused in ("Stream", "Event", "CUDAGraph", "stream", "graph"):
        setattr(torch.cuda, refused, _refuse(refused))


def _refuse(name: str) -> Callable[..., None]:
    def raise_(*_: object, **__: object) -> None:
        raise TapeError(f"torch.cuda.{name} cannot be taped: launch on the current stream only")

    return raise_
