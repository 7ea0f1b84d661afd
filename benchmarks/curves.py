"""The page of the site about epochs and its pictures, from the result file of the benchmark alone.

``python -m benchmarks epochs`` and ``day`` measure, and ``python -m benchmarks curves`` draws.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks import day, results
from benchmarks.epochs import NAMES

DOCS = Path(__file__).parents[1] / "docs"
COLORS = (
    *("#2563eb", "#15803d", "#b45309", "#7c3aed", "#dc2626"),
    *("#0891b2", "#64748b", "#be185d", "#4d7c0f", "#a16207"),
)
OURS = ("aggregate", "column", "row", "rocksdb")
OF_DAY = ("local", "bounded", "spark")
FASTER = 1.1
"""A smaller ratio is no difference: it changes from run to run."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 820, 360, 70, 540, 40, 310
Points = Mapping[str, Sequence[tuple[float, float]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--docs", default=str(DOCS), help="the folder of the site's pages")


def run(arguments: argparse.Namespace) -> None:
    figures = results.read("epochs")
    if figures is None:
        raise SystemExit("There are no figures. Run python -m benchmarks epochs first.")
    write(figures, results.read("day"), Path(arguments.docs))


def write(figures: Mapping[str, Any], of_day: Mapping[str, Any] | None, docs: Path) -> None:
    """Writes the page and its pictures; ``of_day`` has the figures of a user's day."""
    cases = [{"share": 1.0, **case} for case in figures["cases"]]  # once no share was stored
    pictures = []
    for keys in sorted({case["keys"] for case in cases}):
        own = [case for case in cases if case["keys"] == keys]
        whole = [case for case in own if case["share"] == 1]
        pictures.append((f"{keys:,} keys of state", f"epochs-rows-{keys}", "rows", whole))
        for rows in sorted({case["rows"] for case in own}):
            same = [case for case in own if case["rows"] == rows]
            title = f"{rows:,} rows on {keys:,} keys of state, by share of keys"
            pictures.append((title, f"epochs-share-{rows}-{keys}", "share", same))
    parts = []
    for title, name, by, some in pictures:
        if len({case[by] for case in some}) < 2:
            continue
        (docs / "images" / f"{name}.svg").write_text(chart(title, name, by, _points(some, by)))
        parts.append(f"![{title}](../images/{name}.svg)\n")
    page = docs / "internals" / "epochs-by-size.md"
    page.write_text(_page(figures["machine"], cases, "\n".join(parts), of_day))


def _points(cases: Sequence[Mapping[str, Any]], by: str) -> Points:
    points: dict[str, list[tuple[float, float]]] = {}
    for case in sorted(cases, key=lambda case: case[by]):
        for form, own in case["forms"].items():
            points.setdefault(form, []).append((case[by], own["median"]))
    return points


def chart(title: str, name: str, by: str, points: Points) -> str:
    """Seconds by size, both by their logarithm, a line for each form."""
    every = [at for line in points.values() for at in line]
    (x0, x1), (y0, y1) = (
        (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))))
        for values in zip(*every, strict=True)
    )
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)

    def x(value: float) -> float:
        return _LEFT + (math.log10(value) - x0) / (x1 - x0) * (_RIGHT - _LEFT)

    def y(value: float) -> float:
        return _BOTTOM - (math.log10(value) - y0) / (y1 - y0) * (_BOTTOM - _TOP)

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dstl-pic" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-labelledby="{name}-title">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f"<desc>Seconds of a warm epoch by {by}; the table of the page has the figures.</desc>",
        f"<style>{_style()}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>',
        f'<text x="{_LEFT}" y="22">{escape(title)}: seconds of a warm epoch</text>',
    ]
    for power in range(y0, y1 + 1):
        at = y(10.0**power)
        drawn += [
            f'<path d="M{_LEFT} {at:.0f}H{_RIGHT}" style="stroke: var(--line)" opacity=".4"/>',
            f'<text class="soft" x="10" y="{at + 4:.0f}">{10.0**power:g}</text>',
        ]
    for power in range(x0, x1 + 1):
        label = f"{10**power:,} rows" if by == "rows" else f"{10.0**power:.1%}"
        drawn.append(
            f'<text class="soft mid" x="{x(10.0**power):.0f}" y="{_BOTTOM + 22}">{label}</text>'
        )
    for number, (form, line) in enumerate(points.items()):
        color = COLORS[list(NAMES).index(form)]
        path = "L".join(f"{x(one):.1f} {y(two):.1f}" for one, two in line)
        height = _TOP + 14 + 22 * number
        drawn += [
            f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2.5"/>',
            *(f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{color}"/>' for a, b in line),
            f'<path d="M{_RIGHT + 20} {height - 4}h20" stroke="{color}" stroke-width="4"/>',
            f'<text class="soft" x="{_RIGHT + 48}" y="{height}">{escape(NAMES[form])}</text>',
        ]
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _style() -> str:
    """The colours and the classes of the site's other pictures."""
    picture = (DOCS / "images" / "epoch.svg").read_text()
    return picture.partition("<style>")[2].partition("</style>")[0]


def _losses(
    size: str, medians: Mapping[str, float], ours: Sequence[str], names: Mapping[str, str]
) -> list[str]:
    """A line for each form of dstl that another tool beats at a size."""
    others = {form: own for form, own in medians.items() if form not in ours}
    best = min(others, key=lambda form: others[form])
    return [
        f"* {size}: {names[best]}, {own / others[best]:.2f} times as fast as {names[form]}."
        for form, own in medians.items()
        if form in ours and own > FASTER * others[best]
    ]


def _day(figures: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The lines of a user's day, and those where another tool is faster."""
    lines, losses = [], []
    for case in figures["cases"]:
        rows, keys, kind, *share = case["case"].split(":")
        skew = f", {float(share[0]):.0%} of the rows on one" if share else ""
        size = f"a user's day, {int(rows):,} rows on {int(keys):,} keys ({kind}{skew})"
        medians = {form: own["median"] for form, own in case["forms"].items()}
        lines += [
            f"| {size} | {day.NAMES[form]} | {own['median']:.2f} | {own['peak_mib']:,} "
            f"| {_restored(own)} |"
            for form, own in case["forms"].items()
        ]
        losses += _losses(size[0].upper() + size[1:], medians, OF_DAY, day.NAMES)
    return lines, losses


def _restored(figures: Mapping[str, Any]) -> str:
    seconds = figures.get("restored")
    return "-" if seconds is None else f"{seconds:.2f} ({figures['read_mib']} MiB)"


def _page(
    machine: dict[str, Any],
    cases: Sequence[Mapping[str, Any]],
    pictures: str,
    of_day: Mapping[str, Any] | None,
) -> str:
    rows, losses = [], []
    for case in cases:
        medians = {form: own["median"] for form, own in case["forms"].items()}
        size = f"{case['rows']:,} rows from {case['share']:.0%} of {case['keys']:,} keys"
        rows += [f"| {size} | {NAMES[form]} | {own:.2f} |" for form, own in medians.items()]
        losses += _losses(size, medians, OURS, NAMES)
    days, of_days = ([], []) if of_day is None else _day(of_day)
    losses += of_days
    if of_day is not None:
        days = [
            "\n## A user's day\n",
            f"Eight aggregates of text, decimals and times by key, from Parquet to the commit "
            f"(`python -m benchmarks day`; `rows:keys:type`). Restored: seconds of an epoch of "
            f"{day.COLD_ROWS:,} rows without a local copy of the state, from the log alone.\n",
            "| batch | form | seconds | peak, MiB | restored, s |\n|---|---|---|---|---|",
            *days,
            "",
            *(line.rstrip() for line in day.machines(of_day["cases"])),
        ]
    measured = {form for case in cases for form in case["forms"]}
    missing = ", ".join(name for form, name in NAMES.items() if form not in measured)
    not_here = f" This run did not measure: {missing}." if missing else ""
    better = losses or ["Of the sizes that this run measured: nowhere."]
    return "\n".join(
        [
            "# Epochs by size\n",
            "`python -m benchmarks epochs` measures this, and `python -m benchmarks curves` writes "
            "this page and its pictures from what it measured.\n",
            f"{machine['date']}. {results.describe(machine)}\n",
            "The figures are medians of warm [epochs](../glossary.md#epoch) of one run. The forms "
            "do the same work: a count and a sum per [key](../glossary.md#key). A machine's noise "
            "is about a quarter: compare ratios, not "
            f"seconds.{not_here}\n",
            "PyFlink has no part of an epoch but the function: its state is empty at first, its "
            "rows come from CSV files, and there are no checkpoints. Its process mode asks Flink "
            "for each value over a socket.\n",
            pictures,
            "## Where another tool is the better choice\n",
            "Faster by a tenth or more:\n",
            *better,
            "\nA batch that takes its result at once and keeps no state needs no dstl: Spark's "
            "`groupBy` alone does less. A result for each row within milliseconds needs a job "
            "that goes on, in Flink or in Spark's Structured Streaming: an epoch has a fixed cost "
            "that the smallest batches show.\n",
            "## Figures\n",
            "| batch | form | seconds |\n|---|---|---|",
            *rows,
            *days,
            "",
        ]
    )
