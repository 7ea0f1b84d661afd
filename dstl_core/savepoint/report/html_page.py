"""The report as one HTML file: no script, no network, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dstl_core.shown import html_table, html_text, size_text

CELLS = 128
"""Bars of a chart. More key groups than that share bars."""
_WIDTH, _HEIGHT = 768, 64
_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e26; --soft: #5b6070; --line: #d5d8e0;
  --back: #ffffff; --bar: #3f51b5; --warn: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf2; --soft: #a3a9bb; --line: #3b4050;
  --back: #16181f; --bar: #9fa8da; --warn: #ffb74d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  margin: 0 auto; max-width: 60rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h1, h2 { line-height: 1.25; }
h2 { border-top: 1px solid var(--line); padding-top: 1rem; }
.soft { color: var(--soft); } .warn { color: var(--warn); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0;
  border-bottom: 1px solid var(--line); } th { color: var(--soft); font-weight: 600;
  overflow-wrap: normal; } td:first-child { min-width: 7rem; }
svg { width: 100%; height: 4rem; } svg rect, svg path { fill: var(--bar); }
@media print { body { max-width: none; } h2 { break-after: avoid; } table { break-inside: avoid; } }
"""


def report_page(figures: dict[str, Any]) -> str:
    """The page of ``report_figures``. Equal figures give equal bytes."""
    title = f"Snapshot {figures['path']}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html_text(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"{''.join(_parts(figures, title))}\n</body></html>\n"
    )


def _parts(figures: dict[str, Any], title: str) -> Iterator[str]:
    yield f"<h1>{html_text(title)}</h1>\n<p>{html_text(_sentence(figures))}</p>"
    yield f'<p class="soft">{html_text(_form(figures))}</p>'
    if figures["attention"]:
        rows = [
            (each["operator"] or "", each["what"], each["command"]) for each in figures["attention"]
        ]
        heads = ("operator", "what", "command")
        yield f'\n<h2 class="warn">Needs attention</h2>{_table(heads, rows)}'
    yield f"\n<h2>Sizes</h2>{_shares(figures)}"
    if figures["compared"] is not None:
        yield from _comparison(figures["compared"])
    for each in figures["operators"]:
        yield from _operator(each)
    if figures["sources"]:
        columns = ("source", "split", "position", "held by", "status")
        splits = [
            (
                each["op"],
                each["split"],
                f"{each['word']} {each['position']}".strip(),
                "enumerator" if each["subtask"] is None else f"subtask {each['subtask']}",
                each["status"],
            )
            for each in figures["sources"]
        ]
        yield f"\n<h2>Where it resumes</h2>{_table(columns, splits)}"
    if figures["pending"]:
        rows = [
            (each["sink"], str(each["checkpoint_id"]), f"{each['committables']:,}")
            for each in figures["pending"]
        ]
        yield f"\n<h2>What is committed</h2>{_table(('sink', 'checkpoint', 'committables'), rows)}"


def _sentence(figures: dict[str, Any]) -> str:
    operators, total = figures["operators"], figures["bytes"]
    parts = [f"{size_text(total)} of state, {len(operators)} operators"]
    if total:
        first = operators[0]
        name = first["uid"] or first["name"] or first["hash"]
        parts.append(f"{100 * first['bytes'] / total:.0f} % in {name}")
    parts.append(f"findings that need attention: {len(figures['attention'])}")
    return ", ".join(parts) + "."


def _form(figures: dict[str, Any]) -> str:
    kind = " ".join(each for each in (figures["kind"], figures["format"]) if each)
    stored = sum(each["bytes"] for each in figures["files"])
    return (
        f"{kind or 'Snapshot'} of checkpoint {figures['checkpoint_id']}, metadata version "
        f"{figures['version']}; {len(figures['files']):,} files with {size_text(stored)}, "
        f"{size_text(figures['inline_bytes'])} of state inside the metadata. The figures come from "
        f"metadata and headers; no record was read."
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f'<div class="scroll">{html_table(heads, rows)}</div>'


def _shares(figures: dict[str, Any]) -> str:
    total = figures["bytes"] or 1
    kinds = [
        (kind, size_text(size), f"{100 * size / total:.1f} %")
        for kind, size in sorted(figures["bytes_by_kind"].items(), key=lambda each: -each[1])
    ]
    operators = [
        (
            each["uid"] or each["hash"],
            size_text(each["bytes"]),
            f"{100 * each['bytes'] / total:.1f} %",
        )
        for each in figures["operators"]
    ]
    heads = ("bytes", "share")
    return _table(("operator", *heads), operators) + _table(("kind", *heads), kinds)


def _operator(operator: dict[str, Any]) -> Iterator[str]:
    title = operator["uid"] or operator["name"] or operator["hash"]
    yield f'\n<h2>{html_text(title)}</h2><p class="soft">'
    yield html_text(
        f"{operator['name'] or ''} {operator['hash']}: parallelism {operator['parallelism']} of "
        f"{operator['max_parallelism']}, {size_text(operator['bytes'])}, keyed state: "
        f"{operator['keyed_state']}".strip()
    )
    yield "</p>"
    states = operator["states"] + operator["operator_states"]
    if states:
        rows = [(each["name"], each["kind"], each["type"]) for each in states]
        yield _table(("state", "kind", "type"), rows)
    if operator["bytes"]:
        yield _spread("subtask", operator["subtasks"])
    if operator["key_groups"] is not None and operator["key_groups"]["largest"]:
        yield _spread("key group", operator["key_groups"])


def _spread(what: str, spread: dict[str, Any]) -> str:
    text = (
        f"Bytes by {what}: largest {size_text(spread['largest'])}, median "
        f"{size_text(round(spread['median']))}, skew {spread['skew']:g}, {spread['empty']} empty."
    )
    return f"<p>{html_text(text)}</p>{_bars(spread['bytes'], text)}"


def _bars(sizes: Sequence[int], label: str) -> str:
    """A bar for each size; neighbours share one if there are more than ``CELLS``."""
    each = -(-len(sizes) // CELLS)
    cells = [sum(sizes[at : at + each]) for at in range(0, len(sizes), each)]
    largest, width = max(cells), _WIDTH / len(cells)
    bar = f"h{width * 0.8:.1f}V{_HEIGHT}z"
    path = "".join(
        f"M{index * width:.1f} {_HEIGHT}v-{_HEIGHT * size / largest:.1f}{bar}"
        for index, size in enumerate(cells)
        if size
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">'
        f'<title>{html_text(label)}</title><path d="{path}"/></svg>'
    )


def _comparison(compared: dict[str, Any]) -> Iterator[str]:
    before, after = compared["bytes_before"], compared["bytes_after"]
    yield f"\n<h2>Since checkpoint {compared['checkpoint_id']}</h2><p>"
    yield html_text(
        f"{size_text(before)} became {size_text(after)}. {compared['shared_files']:,} files with "
        f"{size_text(compared['shared_bytes'])} are the same; files with "
        f"{size_text(compared['new_bytes'])} are new. Compared with {compared['path']}."
    )
    yield "</p>"
    rows = [(each["operator"], *_change(each)) for each in compared["operators"]]
    yield _table(("operator", "before", "after", "growth"), rows)
    if compared["changes"]:
        yield _table(
            ("changes of operators and states",), [(each,) for each in compared["changes"]]
        )


def _change(operator: dict[str, Any]) -> tuple[str, str, str]:
    before, after = operator["before"], operator["after"]
    if before is None:
        return "", size_text(after), "new"
    if after is None:
        return size_text(before), "", "gone"
    growth = f"{100 * (after - before) / before:+.1f} %" if before else ""
    return size_text(before), size_text(after), growth
