"""What the compiler made of a kernel, read off the binary with the tools in Triton's own wheel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import triton
from pydantic import ConfigDict, TypeAdapter

from kernel_library.verdict import KernelFacts

_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_MATMUL = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma)\b")
#: HMMA, IMMA, HGMMA, QGMMA, DMMA, UTCHMMA and their like.
_SASS_MATMUL = re.compile(r"\b[A-Z]+MMA\b")
_ASYNC = re.compile(r"\b(?:cp\.async|cp\.reduce\.async|mbarrier|wgmma|tensormap|tcgen05)\b")
#: What tells one launch from another, or a graph's launches from others. Clocks are seen in the
#: binary (`image`); these lie among its constants, where no instruction names them.
_TELLS_APART = re.compile(r"%(?:gridid|envreg\d+|current_graph_exec)\b")

#: Registers and bytes spilled per thread, and whether there is any matrix instruction.
Shown = tuple[int, int, bool]
binaries_json = TypeAdapter(
    dict[str, bytes], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)
shown_json = TypeAdapter(dict[str, Shown])


def tells_launches_apart(ptx: str) -> str | None:
    """The special register by which a kernel could do one launch's work and not another's."""
    # in comments and strings, too: who leaves those out can be fooled about where they end
    found = _TELLS_APART.search(ptx)
    return found[0] if found else None


def kernel_facts(compiled: Any, target: str) -> KernelFacts:  # noqa: ANN401 - a CompiledKernel
    """Registers and bytes spilled per thread, shared memory, and what instructions the PTX has."""
    registers, spills = usage(compiled.kernel)
    ptx = compiled.asm.get("ptx", "")
    return KernelFacts(
        name=compiled.name,
        target=target,
        registers=registers,
        spills=spills,
        shared_bytes=compiled.metadata.shared,
        num_warps=compiled.metadata.num_warps,
        matmul_instructions=len(_MATMUL.findall(ptx)),
        async_instructions=len(_ASYNC.findall(ptx)),
    )


@cache
def usage(binary: bytes) -> tuple[int, int]:
    """Registers and bytes spilled per thread."""
    told = _told_by("cuobjdump", "--dump-resource-usage", binary)
    found = _USAGE.search(told)
    if found is None:
        raise RuntimeError(f"cuobjdump said nothing of resources: {told[-200:]!r}")
    registers, stack, _, local = map(int, found.groups())
    return registers, max(stack, local)


def main(request: bytes) -> bytes:
    """What each binary shows of itself, by its digest: no candidate's Python is in this process."""
    binaries = binaries_json.validate_json(request)
    return shown_json.dump_json({digest: shown(body) for digest, body in binaries.items()})


def shown(binary: bytes) -> Shown:
    """Registers and bytes spilled per thread, and whether there is any matrix instruction."""
    return (*usage(binary), bool(_SASS_MATMUL.search(_told_by("nvdisasm", "-c", binary))))


def _told_by(tool: str, flag: str, binary: bytes) -> str:
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(path), flag, file.name]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=True
        ).stdout
