"""Charts as inline SVG, for the page of a report and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.display import html_text

CELLS = 128
"""Bars of a chart. More key groups than that share bars."""
_BAR, _HEIGHT, _WIDTH = 6, 64, 640
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


def line(places: Sequence[float], heights: Sequence[int], label: str) -> str:
    """A line over an area, from zero to the largest height.

    Args:
        places: Where each point is between left and right, in ascending order; at least two.
        heights: Its height.
        label: What a screen reader says.
    """
    first, width = places[0], (places[-1] - places[0]) or 1
    largest = max([*heights, 1])
    points = [
        f"{_WIDTH * (place - first) / width:.1f} {_HEIGHT - (_HEIGHT - 2) * height / largest:.1f}"
        for place, height in zip(places, heights, strict=True)
    ]
    path = "L".join(points)
    return (
        f'<svg class="line" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">'
        f"<title>{html_text(label)}</title>"
        f'<path class="area" d="M0 {_HEIGHT}L{path}L{_WIDTH} {_HEIGHT}z"/>'
        f'<path class="edge" d="M{path}"/></svg>'
    )
