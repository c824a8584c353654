"""Pages out of templates: escaped by default, and failing on a name that is missing."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from api.chart import bar
from api.forms import FormKey
from api.models import result_of
from api.text import highlight_css, percent, source_html, visible
from kernel_library.recipe import written

HERE = Path(__file__).parent


def page(request: Request, template: str, status: int = 200, **context: object) -> HTMLResponse:
    """The template as a response; `token` is there for its forms."""
    key = FormKey(request)
    html = _templates().get_template(template).render(context | {"token": key.token})
    response = HTMLResponse(html, status, {"cache-control": "no-store"})
    key.give(response)
    return response


def when(at: datetime | None) -> Markup:
    """A moment to the minute; a dash for what has not happened."""
    return _time(at, "%Y-%m-%d %H:%M")


def clock(at: datetime | None) -> Markup:
    """A moment's time of day."""
    return _time(at, "%H:%M:%S")


def _time(at: datetime | None, form: str) -> Markup:
    if at is None:
        return Markup("–")
    full = at.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(full, full, f"{at:{form}}")


def number(value: float) -> str:
    """At least three significant digits, and thousands parted: `0.0380`, `37.4`, `1,342`."""
    places = 4 if value < 0.1 else 3 if value < 1 else 2 if value < 10 else 1 if value < 1000 else 0
    return f"{value:,.{places}f}"


def _fingerprint() -> str:
    """Changes when a static file does, so that a browser may keep the one it has."""
    files = sorted((HERE / "static").iterdir())
    texts = [path.read_bytes() for path in files] + [highlight_css().encode()]
    return sha256(b"\0".join(texts)).hexdigest()[:12]


@lru_cache(maxsize=1)
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "visible": visible, "code": source_html, "when": when, "clock": clock, "number": number,
        "bar": bar, "percent": percent, "result": result_of,
        "written": written,
    }  # fmt: skip
    environment.globals["fingerprint"] = _fingerprint()
    return environment
