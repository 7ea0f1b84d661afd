"""Charts as inline SVG, for the page of a report and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.shown import html_text

CELLS = 128
"""Bars of a chart. More key groups than that share bars."""
_BAR, _HEIGHT = 6, 64
_FEW = 32
"""Up to so many bars have gaps, and are not stretched over the page."""


def bars(shares: Sequence[int], label: str) -> str:
    """A bar for each share; neighbours share one if there are more than ``CELLS``."""
    width = -(-len(shares) // CELLS)
    cells = [sum(shares[at : at + width]) for at in range(0, len(shares), width)]
    largest = max([*cells, 1])
    tops = [_HEIGHT - max(round(_HEIGHT * cell / largest), cell > 0) for cell in cells]
    if len(cells) <= _FEW:
        path = "".join(f"V{top}h{_BAR - 1}V{_HEIGHT}h1" for top in tops)
        style = f' style="max-width:{4 * _BAR * len(cells)}px"'
    else:
        path = "".join(f"V{top}h{_BAR}" for top in tops)
        style = ""
    return (
        f'<svg viewBox="0 0 {_BAR * len(cells)} {_HEIGHT}"{style} preserveAspectRatio="none" '
        f'role="img"><title>{html_text(label)}</title>'
        f'<path d="M0 {_HEIGHT}{path}V{_HEIGHT}z"/></svg>'
    )
