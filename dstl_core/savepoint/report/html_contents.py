"""The part of the page about what stands in the state of an operator."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from dstl_core.savepoint.report.page_parts import (
    bars,
    distance_text,
    paragraph,
    spread,
    table,
)
from dstl_core.shown import duration_text, html_text, moment_text, size_text

DETAILED_STATES = 60
"""States with charts and largest keys; the others stand in the tables of their operators."""
_KEYS = 5
_HISTOGRAMS = 4

StateName = tuple[str, str]
"""Hash of the operator, and the name of the state."""


def detailed_states(operators: Sequence[dict[str, Any]]) -> set[StateName]:
    """The largest states of all operators."""
    sizes = [
        (each["key_bytes"] + each["value_bytes"], (operator["hash"], each["name"]))
        for operator in operators
        if operator["contents"] is not None
        for each in operator["contents"]["states"]
        if each["entries"]
    ]
    return {name for _, name in sorted(sizes, reverse=True)[:DETAILED_STATES]}


def contents_parts(operator: dict[str, Any], detailed: Collection[StateName]) -> Iterator[str]:
    """Tables and charts of an operator's states."""
    contents = operator["contents"]
    if contents["problem"]:
        yield paragraph(f"Its records cannot be read: {contents['problem']}", "warn")
        return
    if contents["states"]:
        heads = ("state", "entries", "keys", "bytes of keys", "of values", "skew", "empty groups")
        yield table(heads, [_row(each) for each in contents["states"]])
    for each in contents["states"]:
        if (operator["hash"], each["name"]) in detailed:
            yield from _state(each)
    if contents["operator_states"]:
        rows = [
            (each["name"], each["kind"], _number(each["entries"]))
            for each in contents["operator_states"]
        ]
        yield table(("operator state", "kind", "elements"), rows)


def _row(state: dict[str, Any]) -> tuple[str, ...]:
    skew = state["key_groups"]["skew"]
    return (
        state["name"],
        f"{state['entries']:,}",
        _number(state["keys"]),
        size_text(state["key_bytes"]),
        size_text(state["value_bytes"]),
        "" if skew is None else f"{skew:g}",
        f"{state['key_groups']['empty']:,}",
    )


def _number(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _state(state: dict[str, Any]) -> Iterator[str]:
    yield f"<h3>{html_text(state['name'])}</h3>"
    if state["note"]:
        yield paragraph(f"Not all figures are known: {state['note']}", "soft")
    if state["elements"] is not None:
        yield paragraph(f"{state['elements']:,} elements in {state['entries']:,} lists.")
    yield spread("key group", "entries", state["key_groups"])
    yield from _largest(state)
    for each in state["numbers"][:_HISTOGRAMS]:
        yield from _histogram(each)
    if state["ttl"] is not None:
        yield from _ages(state["ttl"])
    if state["timers"] is not None:
        yield from _timers(state["timers"])
    if state["windows"] is not None:
        yield from _windows(state["windows"])


def _largest(state: dict[str, Any]) -> Iterator[str]:
    total = state["key_bytes"] + state["value_bytes"] or 1
    rows = [
        (
            each["key"],
            f"{each.get('entries', 1):,}",
            size_text(each["bytes"]),
            f"{100 * each['bytes'] / total:.1f} %",
        )
        for each in state["largest_keys"][:_KEYS]
    ]
    if rows:
        yield table(("largest keys", "entries", "bytes", "share"), rows)
    entries = [
        (each["key"], f"{each['entries']:,}", size_text(each["bytes"]))
        for each in state["most_entries"][:_KEYS]
    ]
    if entries and state["keys"] != state["entries"]:
        yield table(("keys with most entries", "entries", "bytes"), entries)


def _histogram(numbers: dict[str, Any]) -> Iterator[str]:
    parts = numbers["histogram"]
    if not parts:
        return
    ends = f"{parts[0]['from']:,g} to {parts[-1]['to']:,g}"
    more = "".join(
        f", {numbers[name]:,} {text}"
        for name, text in (("nulls", "nulls"), ("not_finite", "not finite"))
        if numbers[name]
    )
    text = f"{numbers['column']}: {numbers['count']:,} numbers from {ends} by powers of 2{more}."
    if "smallest" in numbers:
        text += f" Smallest {numbers['smallest']:,g}, largest {numbers['largest']:,g}."
    yield paragraph(text)
    yield bars([each["count"] for each in parts], text)


def _ages(ages: dict[str, Any]) -> Iterator[str]:
    if not ages["count"]:
        return
    yield paragraph(
        f"Time to live: {ages['count']:,} values, last used from {moment_text(ages['oldest_ms'])} "
        f"to {moment_text(ages['newest_ms'])}."
    )
    rows = [
        (duration_text(each["ttl_ms"]), f"{each['count']:,}", size_text(each["bytes"]))
        for each in ages["would_expire"]
    ]
    if ages["ttl_ms"] is not None:
        given = (duration_text(ages["ttl_ms"]), f"{ages['expired']:,}")
        rows.insert(0, (f"{given[0]} (given)", given[1], size_text(ages["expired_bytes"])))
    yield table((f"time to live, at {moment_text(ages['at_ms'])}", "expired", "bytes"), rows)


def _timers(timers: dict[str, Any]) -> Iterator[str]:
    yield paragraph(
        f"{timers['count']:,} timers from {moment_text(timers['earliest_ms'])} to "
        f"{moment_text(timers['latest_ms'])}; {timers['behind']:,} are not later than the "
        f"{timers['counts_from']}, {moment_text(timers['from_ms'])}."
    )
    yield _distances("timers", timers["distances"])


def _windows(windows: dict[str, Any]) -> Iterator[str]:
    more = "more than " if windows["more"] else ""
    yield paragraph(
        f"{more}{windows['windows']:,} windows with {windows['entries']:,} entries are open, with "
        f"ends from {moment_text(windows['earliest_end_ms'])} to "
        f"{moment_text(windows['latest_end_ms'])}; {windows['behind']:,} entries are in windows "
        f"that end before the {windows['counts_from']}, {moment_text(windows['from_ms'])}."
    )
    yield _distances("entries", windows["distances"])


def _distances(what: str, distances: Sequence[dict[str, Any]]) -> str:
    rows = [
        (distance_text(each["from_ms"], each["to_ms"]), f"{each['count']:,}") for each in distances
    ]
    return table(("distance", what), rows)
