"""``dstl inspect``: operators, states and files of a snapshot."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import plain_console, printable, write_json
from dstl_core.savepoint.check.summary import snapshot_summary


def inspect(
    path: PathArgument,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
) -> None:
    """Show operators, states with kind and type, sizes, and files."""
    summary = snapshot_summary(load(path, allow_root, relocate, changelog_base, key_type, jar))
    if as_json:
        write_json([summary], indent=1)
    else:
        _print_summary(summary)


def _print_summary(summary: dict[str, Any]) -> None:
    console = plain_console()
    console.print(Text(printable(summary["path"]), "bold"))
    kind = ", ".join(each for each in (summary["kind"], summary["format"]) if each)
    console.print(
        f"checkpoint {summary['checkpoint_id']}, metadata version {summary['version']}, "
        f"{summary['metadata_bytes']:,} bytes of metadata{f', {kind}' if kind else ''}"
    )
    console.print(f"{len(summary['files'])} files, {summary['bytes']:,} bytes of state")
    for operator in summary["operators"]:
        _print_operator(console, operator)


def _print_operator(console: Console, operator: dict[str, Any]) -> None:
    title = printable(operator["uid"] or operator["name"] or operator["hash"])
    console.print(Text.assemble("\n", (title, "bold"), f"  {operator['hash']}"))
    finished = ", finished" if operator["finished"] else ""
    console.print(
        f"parallelism {operator['parallelism']} of {operator['max_parallelism']}, "
        f"{operator['bytes']:,} bytes, keyed state: {operator['keyed_state']}{finished}"
    )
    if operator["key_type"]:
        console.print(printable(f"key: {operator['key_type']}"))
    others = {
        "coordinator_bytes": "coordinator state",
        "channel_bytes": "in-flight data",
        "raw_keyed_bytes": "raw keyed state",
        "raw_operator_bytes": "raw operator state",
    }
    for name, what in others.items():
        if operator[name]:
            console.print(f"{what}: {operator[name]:,} bytes")
    if operator["problem"]:
        console.print(Text(printable(f"not readable: {operator['problem']}"), "yellow"))
    for each in operator["not_readable"]:
        classes = ", ".join(each["classes"])
        sentence = f"not readable without its Java classes: state {each['state']!r} ({classes})"
        console.print(Text(printable(sentence), "yellow"))
    if operator["key_type_note"]:
        console.print(Text(printable(f"note: {operator['key_type_note']}"), "yellow"))
    rows = [(info["name"], info["kind"], info["type"]) for info in operator["states"]]
    rows += [(info["name"], info["kind"], info["type"]) for info in operator["operator_states"]]
    if rows:
        table = Table()
        for column in ("state", "kind", "type"):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        console.print(table, soft_wrap=False)
