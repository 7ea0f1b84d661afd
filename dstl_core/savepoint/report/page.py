"""The report as one HTML file: no script, no network, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dstl_core.display import duration_text, moment_text, printable, size_text
from dstl_core.savepoint.connectors.source_positions import holder_text
from dstl_core.savepoint.report.charts import bars, line

MOST_SHOWN = 1_000
"""Rows of a table, and operators with a section of their own."""
DETAILED_STATES = 60
"""States with charts and largest keys; the others stand in the tables of their operators."""
_OPEN_BYTES = 0.1
"""An operator with this share of the bytes is unfolded."""

StateName = tuple[str, str]
"""Hash of the operator, and the name of the state."""


def report_page(figures: dict[str, Any]) -> str:
    """The page of ``report_figures``. Equal figures give equal bytes."""
    template = templates().get_template("page.html.j2")
    return template.render(figures=figures, detailed=detailed_states(figures["operators"]))


def detailed_states(operators: Sequence[dict[str, Any]]) -> set[StateName]:
    """The largest states of all operators."""
    sizes = [
        (state["key_bytes"] + state["value_bytes"], (operator["hash"], state["name"]))
        for operator in operators
        if operator["contents"] is not None
        for state in operator["contents"]["states"]
        if state["entries"]
    ]
    return {name for _, name in sorted(sizes, reverse=True)[:DETAILED_STATES]}


@cache
def templates() -> Environment:
    """The templates of the page. Texts of a snapshot are escaped, and cannot control a terminal."""
    environment = Environment(
        loader=PackageLoader("dstl_core.savepoint.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": size_text,
        "moment": moment_text,
        "duration": duration_text,
        "number": _number,
        "count": _count,
        "share": _share,
        "growth": _growth,
        "distance": _distance,
    }
    environment.globals |= {
        "bars": lambda shares, label: Markup(bars(shares, label)),
        "growth_line": _growth_line,
        "holder": holder_text,
        "entries_of": _entries_of,
        "ages_of": _ages_of,
        "MOST_SHOWN": MOST_SHOWN,
        "OPEN_BYTES": _OPEN_BYTES,
    }
    return environment


def _printable(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _count(count: int, noun: str) -> str:
    """A number of things: ``1 file``, ``2 files``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{100 * part / (whole or 1):.{digits}f} %"


def _growth(after: int, before: int) -> str:
    return f"{100 * (after - before) / before:+,.1f} %" if before else ""


def _distance(part: dict[str, Any]) -> str:
    """A part of a ladder of distances in words: ``1 h to 1 d ahead``."""
    from_ms, to_ms = part["from_ms"], part["to_ms"]
    if from_ms is None:
        return f"more than {duration_text(-(to_ms or 0))} behind"
    if to_ms is None:
        return f"more than {duration_text(from_ms)} ahead"
    if to_ms <= 0:
        return f"{duration_text(-to_ms)} to {duration_text(-from_ms)} behind"
    return f"{duration_text(from_ms)} to {duration_text(to_ms)} ahead"


def _growth_line(history: Sequence[dict[str, Any]], label: str) -> Markup:
    """A line of the bytes of checkpoints: by time, or by their order if a time is not known."""
    times = [point["at_ms"] for point in history]
    in_order = None not in times and times == sorted(times) and times[0] < times[-1]
    places = times if in_order else range(len(times))
    return Markup(line(list(places), [point["bytes"] for point in history], label))


def _entries_of(operators: Sequence[dict[str, Any]]) -> int:
    return sum(
        state["entries"]
        for operator in operators
        for state in (operator["contents"] or {"states": ()})["states"]
    )


def _ages_of(ages: dict[str, Any]) -> list[dict[str, Any]]:
    """How many values have which age, by the steps of times to live: a part for each step and one
    for those that are younger than the first.
    """
    steps = ages["would_expire"]
    older = [ages["count"], *(each["count"] for each in steps), 0]
    words = [
        f"up to {duration_text(steps[0]['ttl_ms'])}",
        *(
            f"{duration_text(one['ttl_ms'])} to {duration_text(two['ttl_ms'])}"
            for one, two in pairwise(steps)
        ),
        f"more than {duration_text(steps[-1]['ttl_ms'])}",
    ]
    return [
        {"age": word, "count": before - after}
        for word, before, after in zip(words, older[:-1], older[1:], strict=True)
    ]
