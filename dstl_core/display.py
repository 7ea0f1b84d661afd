"""How values look to people: one line of text, sizes, ages, plain tables, and HTML.

Programs get exact values as JSON. Nothing here reads state.
"""

from __future__ import annotations

import html
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

LONGEST_SHOWN = 2_000
"""Characters of a type that a sentence shows."""
LONGEST_KEY = 80
"""Characters of a key that a sentence shows."""
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_AGES = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def printable(text: str) -> str:
    """A text from a snapshot as one line. Characters that do not print are escaped, so that they
    cannot control the terminal.

    The form is that of JSON: two surrogates for a character above U+FFFF.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def printable_lines(text: str) -> str:
    """Lines for a terminal, as ``printable`` has each of them. JSON keeps its meaning: outside of
    texts it has no character that does not print.
    """
    return "\n".join(map(printable, text.split("\n")))


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def command_text(*words: str) -> str:
    """A command of ``dstl`` that a person can run: a shell passes every word on as it is."""
    return f"dstl {shlex.join(words)}"


def option_text(option: str, value: str) -> str:
    """An option with its value, as a shell takes them."""
    return f"{option} {shlex.quote(value)}"


def cut_text(text: str, longest: int = LONGEST_SHOWN) -> str:
    """A text for a sentence or a cell. A type that classes make may have a megabyte."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}.. ({len(text):,} characters)"


def size_text(size: int) -> str:
    """A number of bytes with at most four digits: ``17 bytes``, ``16.7 KiB``, ``1,003 MiB``."""
    if size < 1024:
        return f"{size} bytes"
    amount, unit = size / 1024, _UNITS[0]
    for unit in _UNITS:
        if amount < 1023.5 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:,.1f} {unit}" if amount < 100 else f"{amount:,.0f} {unit}"


def duration_text(milliseconds: int) -> str:
    """A duration in its largest unit, rounded down: ``3 h``, ``12 d``, ``0 s``."""
    for length, unit in _AGES:
        if milliseconds >= length:
            return f"{milliseconds // length:,} {unit}"
    return "0 s"


def age_text(moment_ms: int, now_ms: int) -> str:
    """How long ago a moment is. A moment that lies ahead says so: clocks differ."""
    if moment_ms > now_ms:
        return f"in {duration_text(moment_ms - now_ms)}"
    return f"{duration_text(now_ms - moment_ms)} ago"


def moment_text(moment_ms: int | None) -> str:
    """A moment in UTC; a moment that no calendar has is shown as a number."""
    if moment_ms is None:
        return "none"
    try:
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return f"{moment_ms:,} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns, one line a row. No line is folded or cut, so ``grep`` finds every name."""
    lines = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def html_text(text: str) -> str:
    """A text for the body or an attribute of a page. Markup in it does nothing."""
    return html.escape(printable(text), quote=True)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html_text(each)}</th>" for each in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{html_text(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
