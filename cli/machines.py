"""`kernelwright doctor` and `calibrate`: what this machine can do, and how fast it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.table import Column, Table

from cli.exits import USAGE, err, exits, fail, out
from cli.exits import settings as read_settings

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def doctor(json: Json = False) -> None:
    """Tell what this machine can do, and what to do about what it cannot."""
    with exits():
        found = list(_findings())
    if json:
        out.print_json(
            data=[{"what": w, "ok": ok, "found": f, "remedy": r} for w, ok, f, r in found]
        )
        return
    # a command that is cut short cannot be typed
    table = Table("", "what", "found", Column("to do", overflow="fold"), show_lines=False)
    for what, ok, told, remedy in found:
        table.add_row("[green]✓[/]" if ok else "[yellow]–[/]", what, told, "" if ok else remedy)
    out.print(table)


def _findings() -> Iterator[tuple[str, bool, str, str]]:
    import torch
    import triton

    from evaluator.sandbox import findings, sandbox_level
    from worker.judging import has_gpu, known_device

    settings = read_settings()
    gpu = has_gpu()
    name = torch.cuda.get_device_name(0) if gpu else "none: kernels are interpreted, not timed"
    yield "GPU", gpu, name, "install a CUDA build of torch on a machine with an NVIDIA GPU"
    if gpu:
        device = known_device(settings.device_path)
        told = f"{device.measured.bandwidth_gbs:.0f} GB/s" if device else "not measured"
        yield "ceilings", device is not None, told, "run `kernelwright calibrate`"
    level = sandbox_level()
    remedy = "nothing is accepted into the library below namespaces"
    yield "sandbox", level == "namespaces", level, remedy
    for wall in findings():
        told = wall.why if wall.there else f"missing ({wall.refusal}): {wall.why}"
        yield f"sandbox: {wall.name}", wall.there, told, wall.remedy
    yield "compilers", True, f"torch {torch.__version__}, triton {triton.__version__}", ""
    store = settings.store()
    try:
        current = store.is_current()
    finally:
        store.close()
    yield (
        "database",
        current,
        str(settings.home),
        "`kernelwright serve --local` brings it up to date",
    )
    yield "broker", False, "none: a local worker polls the database", "not needed on one machine"
    model = settings.llm_model or "none: the library and the sweep work without"
    yield "model", settings.llm_url is not None, model, "set KERNELWRIGHT_LLM_URL and _LLM_MODEL"


def calibrate(json: Json = False) -> None:
    """Measure this device's ceilings and noise, and keep them for every verdict."""
    from kernel_library.codec import device_json
    from worker.judging import calibrate as measure
    from worker.judging import has_gpu, rooms_beside

    with exits():
        if not has_gpu():
            raise fail("no CUDA GPU is visible here, so there is nothing to measure", USAGE)
        path = read_settings().device_path
        with rooms_beside(path) as rooms, err.status("measuring bandwidth, matmul rates and noise"):
            device = measure(rooms, path)
    if json:
        out.print_json(device_json.dump_json(device).decode())
        return
    table = Table("ceiling", "measured", "datasheet", title=device.name)
    table.add_row(
        "memory GB/s", *(f"{c.bandwidth_gbs:.0f}" for c in (device.measured, device.datasheet))
    )
    for dtype, rate in device.measured.matmul_tflops.items():
        limit = device.datasheet.matmul_tflops.get(dtype)
        table.add_row(f"matmul {dtype} TFLOP/s", f"{rate:.0f}", f"{limit:.0f}" if limit else "")
    table.add_row(
        "vector TFLOP/s", *(f"{c.vector_tflops:.0f}" for c in (device.measured, device.datasheet))
    )
    table.add_row("launch µs", f"{device.measured.launch_us:.1f}", "")
    for time_us, share in device.noise.items():
        table.add_row(f"A/A spread at {time_us:.0f} µs", f"{share:.2%}", "")
    out.print(table)
    out.print(f"kept in {path}", highlight=False, soft_wrap=True)
