"""The report as one HTML file: no script, no network, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dstl_core.savepoint.connectors.source_positions import holder_text
from dstl_core.savepoint.report.html_contents import (
    StateName,
    contents_parts,
    detailed_states,
)
from dstl_core.savepoint.report.page_parts import (
    MOST_SHOWN,
    count_text,
    left_out,
    paragraph,
    spread,
    table,
)
from dstl_core.shown import html_text, moment_text, size_text

_STYLE = """
:root { color-scheme: light dark; --ink: #1c1e26; --soft: #5b6070; --line: #d5d8e0;
  --back: #ffffff; --bar: #3f51b5; --warn: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaf2; --soft: #a3a9bb; --line: #3b4050;
  --back: #16181f; --bar: #9fa8da; --warn: #ffb74d; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  margin: 0 auto; max-width: 60rem; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h1, h2, h3 { line-height: 1.25; }
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
        yield f'\n<h2 class="warn">Needs attention</h2>{table(heads, rows)}'
    yield f"\n<h2>Sizes</h2>{_shares(figures)}"
    if figures["compared"] is not None:
        yield from _comparison(figures["compared"])
    detailed = detailed_states(figures["operators"])
    for each in figures["operators"][:MOST_SHOWN]:  # the largest ones
        yield from _operator(each, detailed)
    yield left_out(len(figures["operators"]), "operator")
    if figures["sources"]:
        columns = ("source", "split", "position", "held by", "status")
        splits = [
            (
                each["op"],
                each["split"],
                f"{each['word']} {each['position']}".strip(),
                holder_text(each["subtask"], each["version"]),
                each["status"],
            )
            for each in figures["sources"]
        ]
        when = f"The snapshot was written at {moment_text(figures['written_ms'])}."
        yield f"\n<h2>Where it resumes</h2>{paragraph(when)}{table(columns, splits)}"
    if figures["pending"]:
        rows = [
            (each["sink"], str(each["checkpoint_id"] or ""), f"{each['committables']:,}")
            for each in figures["pending"]
        ]
        yield f"\n<h2>What is committed</h2>{table(('sink', 'checkpoint', 'committables'), rows)}"


def _sentence(figures: dict[str, Any]) -> str:
    operators, total = figures["operators"], figures["bytes"]
    parts = [f"{size_text(total)} of state, {count_text(len(operators), 'operator')}"]
    if total:
        first = operators[0]
        name = first["uid"] or first["name"] or first["hash"]
        parts.append(f"{100 * first['bytes'] / total:.0f} % in {name}")
    parts.append(f"findings that need attention: {len(figures['attention'])}")
    return ", ".join(parts) + "."


def _form(figures: dict[str, Any]) -> str:
    kind = " ".join(each for each in (figures["kind"], figures["format"]) if each)
    stored = sum(each["bytes"] for each in figures["files"])
    files = count_text(len(figures["files"]), "file")
    return (
        f"{kind or 'Snapshot'} of checkpoint {figures['checkpoint_id']}, metadata version "
        f"{figures['version']}; {files} with {size_text(stored)}, "
        f"{size_text(figures['inline_bytes'])} of state inside the metadata. {_how(figures)}"
    )


def _how(figures: dict[str, Any]) -> str:
    if figures["at_ms"] is None:
        return "The figures come from metadata and headers; no record was read."
    counted = f"Every record was counted. Ages count to {moment_text(figures['at_ms'])}."
    if figures["shows_keys"]:
        return f"{counted} The page shows keys and values."
    return f"{counted} A key is shown as the first digits of the sha256 of its text."


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
    return table(("operator", *heads), operators) + table(("kind", *heads), kinds)


def _operator(operator: dict[str, Any], detailed: set[StateName]) -> Iterator[str]:
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
        yield table(("state", "kind", "type"), rows)
    if operator["bytes"]:
        yield spread("subtask", "bytes", operator["subtasks"])
    if operator["key_groups"] is not None and operator["key_groups"]["largest"]:
        yield spread("key group", "bytes", operator["key_groups"])
    if operator["contents"] is not None:
        yield from contents_parts(operator, detailed)


def _comparison(compared: dict[str, Any]) -> Iterator[str]:
    before, after = compared["bytes_before"], compared["bytes_after"]
    shared = count_text(compared["shared_files"], "file")
    yield f"\n<h2>Since checkpoint {compared['checkpoint_id']}</h2><p>"
    yield html_text(
        f"{size_text(before)} became {size_text(after)}. {shared} with "
        f"{size_text(compared['shared_bytes'])} are the same; files with "
        f"{size_text(compared['new_bytes'])} are new. Compared with {compared['path']}."
    )
    yield "</p>"
    rows = [(each["operator"], *_change(each)) for each in compared["operators"]]
    yield table(("operator", "before", "after", "growth"), rows)
    if compared.get("states"):
        heads = ("operator", "state", "entries before", "after", "new", "gone", "changed", "bytes")
        yield table(heads, [_state_change(each) for each in compared["states"]])
    if compared["changes"]:
        yield table(("changes of operators and states",), [(each,) for each in compared["changes"]])


def _change(operator: dict[str, Any]) -> tuple[str, str, str]:
    before, after = operator["before"], operator["after"]
    if before is None:
        return "", size_text(after), "new"
    if after is None:
        return size_text(before), "", "gone"
    growth = f"{100 * (after - before) / before:+.1f} %" if before else ""
    return size_text(before), size_text(after), growth


def _state_change(state: dict[str, Any]) -> tuple[str, ...]:
    if state["problem"]:
        return state["operator"], state["problem"], "", "", "", "", "", ""
    before, after = (state[side] or {"entries": 0, "bytes": 0} for side in ("before", "after"))
    return (
        state["operator"],
        state["state"],
        f"{before['entries']:,}",
        f"{after['entries']:,}",
        f"{state['new']:,}",
        f"{state['gone']:,}",
        "other type" if state["changed"] is None else f"{state['changed']:,}",
        f"{'-' if after['bytes'] < before['bytes'] else '+'}"
        f"{size_text(abs(after['bytes'] - before['bytes']))}",
    )
