"""The progress of a job as a picture: SVG made here, coloured by our own style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from markupsafe import Markup

Kind = Literal["timed", "untimed", "rejected"]

_WIDTH, _HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 40
_MARKS = {
    "timed": '<circle class="mark timed" cx="{x:.1f}" cy="{y:.1f}" r="4">{title}</circle>',
    "untimed": '<path class="mark untimed" d="M{x:.1f} {y:.1f}m0 -5l5 5l-5 5l-5 -5z">'
    "{title}</path>",
    "rejected": '<path class="mark rejected" d="M{x:.1f} {y:.1f}m-3.5 -3.5l7 7m0 -7l-7 7">'
    "{title}</path>",
}


@dataclass(frozen=True, slots=True)
class Point:
    """An attempt: `share` of the roofline if it was timed. `name` is text that we wrote."""

    kind: Kind
    share: float
    name: str


def progress(points: Sequence[Point]) -> Markup:
    """Each attempt by its share of the roofline, and the best so far; "" for no attempts.

    What was rejected, or passed without being timed, stands below the axis.
    """
    if not points:
        return Markup()
    top = max(1.0, *(p.share for p in points))
    body = "".join([*_grid(top), _best(points, top), *_marks(points, top)])
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="Share of the roofline by attempt; the table below has the numbers">'
        f"{body}</svg>"
    )


def _x(index: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + room * (index + 0.5) / count


def _y(share: float, top: float) -> float:
    room = _HEIGHT - _TOP - _BOTTOM
    return _TOP + room * (1 - share / top)


def _grid(top: float) -> Iterator[str]:
    for step in range(5):
        share = top * step / 4
        y = _y(share, top)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}">{share * 100:.0f} %</text>'


def _best(points: Sequence[Point], top: float) -> str:
    """The best so far, as steps that begin at the first timed attempt."""
    best = list(accumulate((p.share for p in points), max))
    steps = [(_x(i, len(points)), _y(share, top)) for i, share in enumerate(best) if share > 0]
    if len(steps) < 2:
        return ""
    line = f"M{steps[0][0]:.1f} {steps[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in steps)
    return f'<path class="best" d="{line}"/>'


def _marks(points: Sequence[Point], top: float) -> Iterator[str]:
    below = _HEIGHT - _BOTTOM + 16
    for index, point in enumerate(points):
        y = _y(point.share, top) if point.kind == "timed" else below
        title = f"<title>{point.name}</title>"
        yield _MARKS[point.kind].format(x=_x(index, len(points)), y=y, title=title)
    last = _WIDTH - _RIGHT
    yield f'<text class="tick first" x="{_LEFT}" y="{_HEIGHT - 4}">attempt 1</text>'
    if len(points) > 1:
        yield f'<text class="tick" x="{last}" y="{_HEIGHT - 4}">attempt {len(points)}</text>'


def bar(share: float) -> Markup:
    """A share of the roofline as a small bar; its number stands beside it in the table."""
    width = 60 * max(0.0, min(share, 1.0))
    return Markup(
        '<svg class="bar" viewBox="0 0 60 8" aria-hidden="true"><rect class="whole" width="60" '
        f'height="8"/><rect class="part" width="{width:.1f}" height="8"/></svg>'
    )
