"""Charts as inline SVG, and tables, for the page of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dstl_core.shown import duration_text, html_table, html_text, size_text

CELLS = 128
"""Bars of a chart. More key groups than that share bars."""
MOST_SHOWN = 1_000
"""Rows of a table, and operators with a section of their own."""
_BAR, _HEIGHT = 6, 64
_FEW = 32
"""Up to so many bars have gaps, and are not stretched over the page."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts, which scrolls if the page is narrow. It has at most ``MOST_SHOWN`` rows."""
    shown = html_table(heads, rows[:MOST_SHOWN])
    return f'<div class="scroll">{shown}</div>{left_out(len(rows), "row")}'


def left_out(count: int, noun: str) -> str:
    """A sentence about things that are beyond ``MOST_SHOWN``; nothing if none is."""
    more = count - MOST_SHOWN
    if more <= 0:
        return ""
    return paragraph(f"{count_text(more, f'more {noun}')}: dstl report --json has all.", "soft")


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of text; ``kind`` is its class in the style sheet."""
    start = f'<p class="{kind}">' if kind else "<p>"
    return f"{start}{html_text(text)}</p>"


def spread(what: str, amount: str, shares: dict[str, Any]) -> str:
    """A sentence and a chart of a ``Spread``; ``amount`` is ``bytes`` or ``entries``."""
    show = size_text if amount == "bytes" else "{:,}".format
    text = (
        f"{amount.capitalize()} by {what}: largest {show(shares['largest'])}, median "
        f"{show(round(shares['median']))}, skew {shares['skew']:g}, {shares['empty']} empty."
    )
    return paragraph(text) + bars(shares[amount], text)


def bars(shares: Sequence[int], label: str) -> str:
    """A bar for each share; neighbours share one if there are more than ``CELLS``."""
    each = -(-len(shares) // CELLS)
    cells = [sum(shares[at : at + each]) for at in range(0, len(shares), each)]
    largest = max([*cells, 1])
    heights = [_HEIGHT - max(round(_HEIGHT * cell / largest), cell > 0) for cell in cells]
    width = _BAR * len(cells)
    if len(cells) <= _FEW:
        path = "".join(f"V{top}h{_BAR - 1}V{_HEIGHT}h1" for top in heights)
        style = f' style="max-width:{4 * width}px"'
    else:
        path = "".join(f"V{top}h{_BAR}" for top in heights)
        style = ""
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}"{style} preserveAspectRatio="none" role="img">'
        f'<title>{html_text(label)}</title><path d="M0 {_HEIGHT}{path}V{_HEIGHT}z"/></svg>'
    )


def count_text(count: int, noun: str) -> str:
    """A number of things: ``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def distance_text(from_ms: int | None, to_ms: int | None) -> str:
    """A part of a ladder of distances in words: ``1 h to 1 d ahead``."""
    if from_ms is None:
        return f"more than {duration_text(-(to_ms or 0))} behind"
    if to_ms is None:
        return f"more than {duration_text(from_ms)} ahead"
    if to_ms <= 0:
        return f"{duration_text(-to_ms)} to {duration_text(-from_ms)} behind"
    return f"{duration_text(from_ms)} to {duration_text(to_ms)} ahead"
