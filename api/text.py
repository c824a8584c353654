"""A stranger's text, shown so that nothing in it can hide or act."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from markupsafe import Markup, escape
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer, TextLexer

#: A diff of more lines than this takes seconds: it is left to the reader's own tools.
MOST_LINES = 4000
_CONTEXT = 3
#: Pygments' expressions for Python take time by the square of a gap or a line: 16 KiB of blank
#: lines took 8.7 s of this process, which answers everyone. What no kernel has is not coloured.
_MOST_COLOURED, _LONGEST_LINE, _LONGEST_GAP = 128 * 1024, 500, 300
_NO_COLOURS = (
    '<p class="plain">Without colours: too long, or too oddly laid out, to be coloured.</p>'
)
#: Letters by name, blanks by look: Unicode counts them as letters or marks.
_BLANK = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5")


def visible(text: str) -> Markup:
    """The text as HTML in which every character that shows nothing, or turns text round, shows."""
    return _marked(str(escape(text)))


def percent(share: float) -> str:
    """A share as a percentage: `83.1 %`."""
    return f"{share * 100:.1f} %"


def source_html(source: str) -> Markup:
    """Python, coloured and numbered; a line can be linked to. Odd text is numbered alone."""
    formatter = HtmlFormatter(
        linenos="table", anchorlinenos=True, lineanchors="L", cssclass="code", wrapcode=True
    )
    bom = "\ufeff" if source.startswith("\ufeff") else ""  # which Pygments would drop
    lexer = PythonLexer(stripnl=False) if is_plain(source) else TextLexer(stripnl=False)
    note = "" if is_plain(source) else _NO_COLOURS
    return _marked(note + bom) + _marked(highlight(source, lexer, formatter))


def is_plain(source: str) -> bool:
    """Whether the highlighter can be trusted with a text: no longer than code is, and no long
    lines or gaps."""
    longest = max(map(len, source.split("\n")))
    gap = re.search(rf"\s{{{_LONGEST_GAP}}}", source)
    return len(source) <= _MOST_COLOURED and longest <= _LONGEST_LINE and gap is None


@lru_cache(maxsize=1)
def highlight_css() -> str:
    """The colours of source for a light page, and for a dark one."""
    light = HtmlFormatter(style="xcode").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _marked(html: str) -> Markup:
    return Markup(re.sub(r"[^\n\t -~]", lambda found: _mark(found[0]), html))


def _mark(character: str) -> str:
    if not is_unseen(character):
        return character
    name = unicodedata.name(character, "CONTROL CHARACTER")
    return f'<span class="unseen" title="{name}">U+{ord(character):04X}</span>'


def is_unseen(character: str) -> bool:
    """Whether a character shows nothing, looks like a plain space, or changes the order of text."""
    category = unicodedata.category(character)
    selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    odd_space = category == "Zs" and character != " "
    return category in ("Cc", "Cf", "Zl", "Zp") or odd_space or selector or character in _BLANK


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff; a gap stands for lines that are the same in both."""

    kind: Literal["same", "gone", "new", "gap"]
    old: int | None
    new: int | None
    text: str


def diff(old: str, new: str) -> tuple[DiffLine, ...] | None:
    """The lines that changed with three around each; None where the texts are too long."""
    # splitlines would also part at form feeds and U+2028, which Python does not
    a, b = _lines(old), _lines(new)
    if max(len(a), len(b)) > MOST_LINES:
        return None
    return tuple(_diff(a, b))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _diff(a: list[str], b: list[str]) -> Iterator[DiffLine]:
    for number, group in enumerate(
        difflib.SequenceMatcher(None, a, b).get_grouped_opcodes(_CONTEXT)
    ):
        if number:
            yield DiffLine("gap", None, None, "")
        for tag, i, i_end, j, j_end in group:
            if tag == "equal":
                yield from (
                    DiffLine("same", i + k + 1, j + k + 1, line)
                    for k, line in enumerate(a[i:i_end])
                )
                continue
            yield from (DiffLine("gone", k + 1, None, a[k]) for k in range(i, i_end))
            yield from (DiffLine("new", None, k + 1, b[k]) for k in range(j, j_end))
