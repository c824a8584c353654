"""The scoreboard at a glance: an SVG, a dot for each workload by how it stands to its rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log2

#: Pixels: the names' column, the ratios' scale, a kernel's row, and what is above and below.
_NAMES, _SCALE, _ROW, _TOP, _BOTTOM = 220, 480, 22, 34, 28
#: Readable on white and on dark: a reader's page has a background of its own.
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#7a828e}line{stroke:#7a828e;stroke-opacity:.3}"
    "line.even{stroke-opacity:1}.win{fill:#2da44e}.tie{fill:#8c959f}.loss{fill:#cf222e}"
)


@dataclass(frozen=True, slots=True)
class Dot:
    """A workload of a kernel: the best baseline's time over ours, and what that counts as."""

    kernel: str
    workload: str
    ratio: float
    outcome: str


def picture(dots: Sequence[Dot]) -> str:
    """A row for each kernel, on a scale of powers of two; "" where there is nothing to show."""
    if not dots:
        return ""
    logs = [log2(dot.ratio) for dot in dots]
    low, high = min(-1, floor(min(logs))), max(1, ceil(max(logs)))
    kernels = list(dict.fromkeys(dot.kernel for dot in dots))
    wide, tall = _NAMES + _SCALE + 20, _TOP + _ROW * len(kernels) + _BOTTOM
    told = "Best baseline's time over ours, one dot a workload: right of 1x is faster"

    def x(power: float) -> float:
        return _NAMES + _SCALE * (power - low) / (high - low)

    def y(kernel: str) -> float:
        return _TOP + _ROW * (kernels.index(kernel) + 0.5)

    def parts() -> Iterator[str]:
        yield f'<text x="{_NAMES}" y="16">{told}</text>'
        for power in range(low, high + 1):
            at, end, kind = f"{x(power):.0f}", tall - _BOTTOM, ' class="even"' if power == 0 else ""
            yield f'<line{kind} x1="{at}" x2="{at}" y1="{_TOP}" y2="{end}"/>'
            yield f'<text x="{at}" y="{end + 18}" text-anchor="middle">{2**power:g}x</text>'
        for kernel in kernels:
            at = f'x="{_NAMES - 12}" y="{y(kernel) + 4:.0f}" text-anchor="end"'
            yield f"<text {at}>{escape(kernel)}</text>"
        for dot, log in zip(dots, logs, strict=True):
            title = f"{dot.kernel} {dot.workload}: {dot.ratio:.2f}x, {dot.outcome}"
            at = f'cx="{x(log):.1f}" cy="{y(dot.kernel):.0f}" r="5" fill-opacity=".75"'
            yield f'<circle class="{dot.outcome}" {at}><title>{escape(title)}</title></circle>'

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}"'
        f' role="img" aria-label="{told}"><style>{_STYLE}</style>' + "".join(parts()) + "</svg>\n"
    )
