"""The CUDA driver, as far as a player needs it: load a binary, launch it, say which call failed.

Every function works in the context that is current; torch's own (after `torch.cuda.init`) will do.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from evaluator.errors import LabError
from evaluator.play.packing import room
from kernel_library.tape import Descriptor, Launch

#: More dynamic shared memory than this has to be asked for, by function.
SHARED_WITHOUT_ASKING = 48 * 1024
#: Clusters beyond this size are not portable; Hopper and later take 16.
PORTABLE_CTAS = 8
#: Errors that say that the device code itself is at fault, in words for its author.
FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "reads or writes an address outside its buffers",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "reads or writes a misaligned address",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "uses an address of the wrong memory space",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "runs an illegal instruction",
    "CUDA_ERROR_INVALID_PC": "jumps outside its code",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "overflows its stack",
    "CUDA_ERROR_ASSERT": "fails an assertion of its own",
    "CUDA_ERROR_LAUNCH_FAILED": "fails while it runs",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "does not finish",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "asks for more registers or shared memory than there are",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "has a cooperative grid that cannot be resident",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "asks for a cluster that the device cannot form",
    "CUDA_ERROR_INVALID_VALUE": "is launched with an argument, grid or shape that is not valid",
    "CUDA_ERROR_INVALID_IMAGE": "is no binary that this driver can load",
    "CUDA_ERROR_NOT_FOUND": "names a function that its binary does not hold",
}  # fmt: skip


class CudaError(Exception):
    """A call of the driver failed: which one, and the driver's name for the error."""

    def __init__(self, call: str, code: str) -> None:
        super().__init__(f"{call}: {code}")
        self.call, self.code = call, code


def driver() -> ModuleType:
    """The driver's bindings. Raises `LabError` on a machine that has none."""
    try:
        return import_module("cuda.bindings.driver")
    except (ImportError, RuntimeError) as error:
        raise LabError(f"no CUDA driver to replay with: {error}") from error


def call(name: str, *args: Any) -> Any:  # noqa: ANN401
    """The result of a driver call, by name. Raises `CudaError` unless it succeeded."""
    cuda = driver()
    try:
        code, *values = getattr(cuda, name)(*args)
    except RuntimeError as error:
        raise LabError(f"the CUDA driver does not answer {name}: {error}") from error
    if code != cuda.CUresult.CUDA_SUCCESS:
        raise CudaError(name, code.name)
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel that is loaded and ready to launch, and the bytes of each parameter it takes."""

    handle: Any
    module: Any
    parameters: tuple[int, ...] = ()


def load(image: bytes, launch: Launch) -> Function:
    """The function that a launch names, given the shared memory and cluster that it asks for."""
    module = call("cuModuleLoadData", image)
    handle = call("cuModuleGetFunction", module, launch.function.encode())
    attribute = driver().CUfunction_attribute
    if launch.shared_bytes > SHARED_WITHOUT_ASKING:
        name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetCacheConfig", handle, driver().CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED)
        call("cuFuncSetAttribute", handle, name, launch.shared_bytes)
    if launch.num_ctas > PORTABLE_CTAS:
        name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        call("cuFuncSetAttribute", handle, name, 1)
    return Function(handle, module, tuple(_parameters(handle)))


def _parameters(handle: Any) -> Iterator[int]:  # noqa: ANN401
    """The bytes of each parameter; the driver tells the end of the list by refusing an index."""
    for index in itertools.count():
        try:
            _, size = call("cuFuncGetParamInfo", handle, index)
        except CudaError as error:
            if error.code == "CUDA_ERROR_INVALID_VALUE":
                return
            raise
        yield int(size)


class Prepared:
    """A launch with its arguments laid out in memory, to be run any number of times."""

    def __init__(self, function: Function, launch: Launch, arguments: Sequence[bytes]) -> None:
        self.function, self.launch = function, launch
        sizes = [room(argument) for argument in arguments]
        self._room = ctypes.create_string_buffer(sum(sizes) + 64)
        at = -(-ctypes.addressof(self._room) // 64) * 64
        self._parameters = (ctypes.c_void_p * max(1, len(arguments)))()
        for i, (argument, size) in enumerate(zip(arguments, sizes, strict=True)):
            ctypes.memmove(at, argument, len(argument))
            self._parameters[i] = at
            at += size

    def run(self, stream: int) -> None:
        """Launch on a stream, given by its handle. Grids with a zero in them are no work."""
        if 0 in self.launch.grid:
            return
        config = _config(self.launch, stream)
        address = ctypes.addressof(self._parameters)
        call("cuLaunchKernelEx", config, self.function.handle, address, 0)


def _config(launch: Launch, stream: int) -> Any:  # noqa: ANN401
    """How Triton launches: its grid counts clusters along x, its blocks are flat."""
    cuda = driver()
    config = cuda.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.gridDimX = launch.grid[0] * launch.num_ctas
    config.blockDimX, config.blockDimY, config.blockDimZ = 32 * launch.num_warps, 1, 1
    config.sharedMemBytes, config.hStream = launch.shared_bytes, cuda.CUstream(stream)
    attributes = _attributes(launch)
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _attributes(launch: Launch) -> list[Any]:
    cuda = driver()
    kinds = cuda.CUlaunchAttributeID
    attributes = []

    def add(kind: Any) -> Any:  # noqa: ANN401
        attribute = cuda.CUlaunchAttribute()
        attribute.id = kind
        attributes.append(attribute)
        return attribute.value

    if launch.dependent:
        value = add(kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
        value.programmaticStreamSerializationAllowed = 1
    if launch.cooperative:
        add(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE).cooperative = 1
    if launch.num_ctas != 1:
        size = add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).clusterDim
        size.x, size.y, size.z = launch.num_ctas, 1, 1
        value = add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
        policy = cuda.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
        value.clusterSchedulingPolicyPreference = policy
    return attributes


def tensor_map(descriptor: Descriptor, address: int) -> bytes:
    """The 128 bytes of a tiled CUtensorMap over memory at `address`, as Triton encodes it."""
    cuda = driver()
    rank = len(descriptor.block)
    strides = [descriptor.element_bytes * stride for stride in descriptor.stride[:-1]]
    fill = cuda.CUtensorMapFloatOOBfill
    encoded = call(
        "cuTensorMapEncodeTiled",
        cuda.CUtensorMapDataType(descriptor.element_type),
        rank,
        address,
        [cuda.cuuint64_t(size) for size in reversed(descriptor.shape)],
        [cuda.cuuint64_t(stride) for stride in reversed(strides)],
        [cuda.cuuint32_t(size) for size in reversed(descriptor.block)],
        [cuda.cuuint32_t(1)] * rank,
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        cuda.CUtensorMapSwizzle(descriptor.swizzle),
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
        if descriptor.fill_nan
        else fill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    return ctypes.string_at(int(encoded.getPtr()), 128)


def synchronize(stream: int) -> None:
    """Wait for a stream. Raises `CudaError` with what device code did wrong."""
    call("cuStreamSynchronize", driver().CUstream(stream))


def is_done(stream: int) -> bool:
    """Whether a stream has nothing left to do. Raises `CudaError` as `synchronize` does."""
    try:
        call("cuStreamQuery", driver().CUstream(stream))
    except CudaError as error:
        if error.code == "CUDA_ERROR_NOT_READY":
            return False
        raise
    return True


def reset_persisting_l2() -> None:
    """Let no line stay in L2 because a kernel once asked for that."""
    call("cuCtxResetPersistingL2Cache")
