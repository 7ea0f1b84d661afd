"""``dstl inspect``: operators, states and files of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from dstl_core.cli.output import print_lines, write_json
from dstl_core.display import size_text, table_lines


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
    from dstl_core.savepoint.access.summary import snapshot_summary

    summary = snapshot_summary(load(path, allow_root, relocate, changelog_base, key_type, jar))
    if as_json:
        write_json([summary], indent=1)
    else:
        print_lines(summary_lines(summary))


def summary_lines(summary: dict[str, Any]) -> Iterator[str | tuple[str, str]]:
    """A snapshot for people: lines, some with a style."""
    yield summary["path"], "bold"
    kind = ", ".join(each for each in (summary["kind"], summary["format"]) if each)
    yield (
        f"checkpoint {summary['checkpoint_id']}, metadata version {summary['version']}, "
        f"{size_text(summary['metadata_bytes'])} of metadata{f', {kind}' if kind else ''}"
    )
    yield f"{len(summary['files'])} files, {size_text(summary['bytes'])} of state"
    for operator in summary["operators"]:
        yield ""
        yield from operator_lines(operator)


def operator_lines(operator: dict[str, Any]) -> Iterator[str | tuple[str, str]]:
    """An operator for people: lines, some with a style."""
    title = operator["uid"] or operator["name"] or operator["hash"]
    yield f"{title}  {operator['hash']}", "bold"
    finished = ", finished" if operator["finished"] else ""
    yield (
        f"parallelism {operator['parallelism']} of {operator['max_parallelism']}, "
        f"{size_text(operator['bytes'])}, keyed state: {operator['keyed_state']}{finished}"
    )
    if operator["key_type"]:
        yield f"key: {operator['key_type']}"
    others = {
        "coordinator_bytes": "coordinator state",
        "channel_bytes": "in-flight data",
        "raw_keyed_bytes": "raw keyed state",
        "raw_operator_bytes": "raw operator state",
    }
    for name, what in others.items():
        if operator[name]:
            yield f"{what}: {size_text(operator[name])}"
    if operator["problem"]:
        yield f"not readable: {operator['problem']}", "yellow"
    for state in operator["not_readable"]:
        classes = ", ".join(state["classes"])
        sentence = f"not readable without its Java classes: state {state['state']!r} ({classes})"
        if classes == "java.lang.Object":
            sentence = (
                f"values of any class: state {state['state']!r} ({classes}); dump shows those of "
                f"classes that need no jar"
            )
        yield sentence, "yellow"
    if operator["key_type_note"]:
        yield f"note: {operator['key_type_note']}", "yellow"
    infos = operator["states"] + operator["operator_states"]
    if infos:
        yield from table_lines(
            ("state", "kind", "type"),
            [(each["name"], each["kind"], each["type"]) for each in infos],
        )
