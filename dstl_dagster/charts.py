"""Small charts with axes, units and the last value, as SVG inside Markdown.

Dagster draws Markdown in place only below 1000 characters, picture included. Its event log keeps
every picture. The colours are legible on a light and on a dark page.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import ChangelogStateBackendHandle, KeyGroupsSavepointStateHandle

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
    from dstl_core.checkpoint.store.epoch_facts import EpochFacts
    from dstl_core.model.ids import OperatorID

Chart = dg.MarkdownMetadataValue
MAX_POINTS = 24
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 312, 8, 72
_MAX_LABEL = 16
_BASES = ("start", "materialization", "migration")


def line_chart(points: Sequence[tuple[str, float]], title: str, unit: str) -> Chart:
    """A line through values. Of too many points, each drawn one is the maximum of several.

    Args:
        points: Label and value, oldest first.
        title: What the values are; for those who cannot see the picture, too.
        unit: Unit of the values; bytes are ``B``.
    """
    values = _largest([value for _, value in points])
    top = max([*values, 0]) or 1
    step = (_RIGHT - _LEFT) / max(len(values) - 1, 1)
    places = [
        f"{_LEFT + step * at:.0f} {_BOTTOM - value * (_BOTTOM - _TOP) / top:.0f}"
        for at, value in enumerate(values)
    ]
    drawn = ""
    if places:
        # A line of no length has a round end, so that a single value is seen, too.
        path = "L".join([*places, places[-1]])
        drawn = f'<path d="M{path}" stroke="#6e66e8" stroke-width="3" stroke-linecap="round"/>'
    first, last = (points[0][0], points[-1][0]) if points else ("none yet", "")
    middle = f"last: {shown(points[-1][1], unit)}" if points else ""
    return _chart(title, shown(top, unit), first, middle, last, drawn)


def bar_chart(values: Sequence[float], title: str, unit: str, middle: str) -> Chart:
    """Bars over numbered places. Of too many, each drawn bar is the maximum of several.

    Args:
        values: The first is that of place 0.
        title: What the values are.
        unit: Unit of the values.
        middle: The text under the bars.
    """
    last = str(max(len(values) - 1, 0))
    return _bars(_largest(values), title, unit, "0", middle, last)


def histogram_chart(counts: Sequence[int], title: str, ends: tuple[str, str]) -> Chart:
    """Bars of how many values are in each part of a span.

    Args:
        counts: The number of values of each part, in order.
        title: What is counted.
        ends: The smallest and the largest value.
    """
    return _bars(counts, title, "", ends[0], f"{sum(counts):,} {title}", ends[1])


def _bars(
    bars: Sequence[float], title: str, unit: str, first: str, middle: str, last: str
) -> Chart:
    top = max([*bars, 0]) or 1
    step = (_RIGHT - _LEFT) / max(len(bars), 1)
    path = "".join(
        f"M{_LEFT + step * (at + 0.5):.0f} {_BOTTOM}V{_BOTTOM - value * (_BOTTOM - _TOP) / top:.0f}"
        for at, value in enumerate(bars)
    )
    drawn = f'<path d="{path}" stroke="#6e66e8" stroke-width="{max(step - 2, 1):.0f}"/>'
    return _chart(title, shown(top, unit), first, middle, last, drawn)


def _chart(title: str, top: str, first: str, middle: str, last: str, drawn: str) -> Chart:
    first, last = (escape(each[:_MAX_LABEL]) for each in (first, last))
    under = _BOTTOM + 14
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="320" height="92" fill="none" '
        f'font-family="sans-serif" font-size="10">{drawn}'
        f'<path d="M{_LEFT} {_TOP}V{_BOTTOM}H{_RIGHT}" stroke="#808080"/><g fill="#808080">'
        f'<text x="{_LEFT}" y="{under}">{first}</text><g text-anchor="end">'
        f'<text x="{_LEFT - 4}" y="{_TOP + 6}">{escape(top)}</text>'
        f'<text x="{_LEFT - 4}" y="{_BOTTOM}">0</text>'
        f'<text x="{_RIGHT}" y="{under}">{last}</text></g>'
        f'<text x="184" y="{under}" text-anchor="middle">{escape(middle)}</text></g></svg>'
    )
    encoded = base64.b64encode(svg.encode()).decode()
    return dg.MetadataValue.md(f"![{title}](data:image/svg+xml;base64,{encoded})")


def _largest(values: Sequence[float]) -> list[float]:
    """At most ``MAX_POINTS`` values; the last one stays as it is."""
    if len(values) <= MAX_POINTS:
        return list(values)
    size = -(-(len(values) - 1) // (MAX_POINTS - 1))
    before = values[:-1]
    return [max(before[at : at + size]) for at in range(0, len(before), size)] + [values[-1]]


def shown(value: float, unit: str) -> str:
    """A number of three digits with its unit, e.g. ``1.2 MB``."""
    if unit == "s":
        return f"{value:.3g} s" if value < 1_000 else f"{value:,.0f} s"
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def epoch_charts(commits: Sequence[CompletedCheckpoint], log_bytes: int | None) -> dict[str, Chart]:
    """The charts of a pipeline's latest commits, by their name as metadata.

    Args:
        commits: Oldest first.
        log_bytes: The log of the last one; None if that is no longer retained.
    """
    epochs = [each for each in commits if each.facts.input is not None]

    def of(fact: Callable[[EpochFacts], float], title: str, unit: str) -> Chart:
        return line_chart([(_label(each), fact(each.facts)) for each in epochs], title, unit)

    return {
        "dstl/log_chart": of(lambda commit: commit.log_bytes, "log bytes per epoch", "B"),
        "dstl/log_total_chart": line_chart(
            _log_totals(commits, log_bytes), "bytes of the whole log", "B"
        ),
        "dstl/state_chart": line_chart(
            [
                (str(commit.checkpoint_id), commit.facts.materialized_bytes)
                for commit in commits
                if commit.facts.materialized_bytes is not None
            ],
            "bytes of state per materialization",
            "B",
        ),
        "dstl/keys_chart": of(lambda commit: commit.changed_keys, "keys changed per epoch", ""),
        "dstl/seconds_chart": of(lambda commit: commit.seconds, "seconds per epoch", "s"),
    }


def _label(commit: CompletedCheckpoint) -> str:
    epoch_input = commit.facts.input
    text = "" if epoch_input is None else str(epoch_input.id)
    return text if text.isprintable() else repr(text)


def _log_totals(
    commits: Sequence[CompletedCheckpoint], log_bytes: int | None
) -> list[tuple[str, float]]:
    """The points of ``log_totals``."""
    totals = log_totals(commits, log_bytes)
    return [(str(each.checkpoint_id), log) for each, log in zip(commits, totals, strict=True)]


def log_totals(commits: Sequence[CompletedCheckpoint], log_bytes: int | None) -> list[float]:
    """The log after each commit since the last base that the commits show, or before it.

    Args:
        commits: Oldest first.
        log_bytes: The log of the last one; None if it is not known.
    """
    totals: list[float] = []
    added = sum(each.facts.log_bytes for each in commits)
    has_base = any(each.facts.kind in _BASES for each in commits)
    total = 0 if has_base or log_bytes is None else log_bytes - added
    for commit in commits:
        if commit.facts.kind in _BASES:
            total = 0
        total += commit.facts.log_bytes
        totals.append(float(max(total, 0)))
    return totals


def key_group_chart(metadata: CheckpointMetadata, operator: OperatorID) -> dict[str, Any]:
    """Bytes of the base per key group, and how far the largest is from the mean; nothing if there
    is no base.
    """
    sizes: dict[int, int] = {}
    for stored in metadata.operators:
        if stored.operator_id == operator:
            for subtask in stored.subtasks:
                handle = subtask.managed_keyed_state
                if isinstance(handle, ChangelogStateBackendHandle):
                    for part in handle.materialized:
                        if isinstance(part, KeyGroupsSavepointStateHandle):
                            sizes |= _sizes_of(part)
    if not any(sizes.values()):
        return {}
    values = [sizes[group] for group in sorted(sizes)]
    skew = max(values) * len(values) / sum(values)
    return {
        "dstl/key_group_skew": round(skew, 2),
        "dstl/key_group_chart": bar_chart(
            values, "bytes per key group", "B", f"largest: {skew:.2g} x mean"
        ),
    }


def _sizes_of(handle: KeyGroupsSavepointStateHandle) -> Mapping[int, int]:
    """Bytes of each key group's section; sections follow each other in the file."""
    sizes = dict.fromkeys(handle.key_group_range, 0)
    sections = handle.offsets.sections(handle.stream.state_size)
    return sizes | {group: end - start for group, start, end in sections}
