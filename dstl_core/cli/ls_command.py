"""``dstl ls``: the snapshots below a folder or in a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import complain, print_lines, write_json
from dstl_core.display import age_text, size_text, table_lines
from dstl_core.errors import ConfigError, DstlError

_HEADS = ("snapshot", "kind", "checkpoint", "written", "state", "operators", "metadata")
_STATE_HEADS = (
    "snapshot",
    "checkpoint",
    "operator",
    "state",
    "kind",
    "entries",
    "change",
    "bytes",
    "change",
)


def ls(
    base: Annotated[
        str,
        typer.Argument(metavar="BASE", help="Folder or bucket of savepoints, checkpoints or jobs."),
    ],
    states: Annotated[
        bool,
        typer.Option(
            "--states", help="Read every record, and list how each state grew since the last one."
        ),
    ] = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
) -> None:
    """List the snapshots below a folder or in a bucket.

    Age and size are rounded. With --json, they are exact, and each snapshot is one JSON object a
    line. The exit code is 1 if one of them cannot be read.
    """
    if not states and (allow_root or relocate or changelog_base):
        raise ConfigError("--allow-root, --relocate and --changelog-base need --states.")

    from dstl_core.clock import SystemClock
    from dstl_core.savepoint.folders.listing import describe, snapshots_below
    from dstl_core.savepoint.gc import check_is_folder
    from dstl_core.storage.file_io import open_file_io
    from dstl_core.storage.location import Location

    def states_of(path: str) -> dict[str, Any]:
        """The states of a snapshot with their sizes, or why they cannot be read."""
        from dstl_core.savepoint.report.contents import state_sizes  # loads the compiler

        try:
            return {"states": state_sizes(load(path, allow_root, relocate, changelog_base, None))}
        except DstlError as error:
            return {"states": [], "problem": str(error)}

    check_is_folder(base)
    folder = Location.parse(base)
    files = open_file_io(folder)
    described = (
        {**describe(entry, folder, files), **(states_of(str(entry.folder)) if states else {})}
        for entry in snapshots_below(folder, files)
    )
    problems = []
    if as_json:
        for snapshot in described:
            problems += [snapshot["problem"]] if snapshot["problem"] else []
            write_json([snapshot])
    else:
        snapshots = list(described)
        problems = [each["problem"] for each in snapshots if each["problem"]]
        now_ms = SystemClock().now_ms()
        if not snapshots:
            print_lines(["no snapshots"])
        elif states:
            print_lines(table_lines(_STATE_HEADS, list(_state_rows(snapshots))))
        else:
            print_lines(table_lines(_HEADS, [_row(each, now_ms) for each in snapshots]))
    for problem in problems:
        complain(f"A snapshot cannot be read: {problem}")
    if problems:
        raise typer.Exit(1)


def _row(snapshot: dict[str, Any], now_ms: int) -> list[str]:
    modified_ms = snapshot["modified_ms"]
    written = "" if modified_ms is None else age_text(modified_ms, now_ms)
    if snapshot["problem"]:
        return [snapshot["name"], "not readable", "", written, "", "", ""]
    kind = " ".join(each for each in (snapshot["kind"], snapshot["format"]) if each)
    return [
        snapshot["name"],
        kind or "not said",
        str(snapshot["checkpoint_id"]),
        written,
        size_text(snapshot["bytes"]),
        str(snapshot["operators"]),
        f"version {snapshot['version']}",
    ]


def _state_rows(snapshots: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row per state of each snapshot. A change counts from the snapshot before it that has the
    state and lies in the same folder.
    """
    last: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for snapshot in snapshots:
        folder = snapshot["name"].rpartition("/")[0]
        for state in snapshot.get("states", ()):
            key = (folder, state["operator"], state["state"], state["kind"])
            before = last.get(key)
            last[key] = state
            yield [
                snapshot["name"],
                str(snapshot["checkpoint_id"]),
                state["operator"],
                state["state"],
                state["kind"],
                "" if state["entries"] is None else f"{state['entries']:,}",
                _change(before, state, "entries"),
                "" if state["bytes"] is None else size_text(state["bytes"]),
                _change(before, state, "bytes"),
            ]


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any], figure: str) -> str:
    if before is None or before[figure] is None or after[figure] is None:
        return ""
    change = after[figure] - before[figure]
    sign = "-" if change < 0 else "+"
    return f"{sign}{size_text(abs(change)) if figure == 'bytes' else f'{abs(change):,}'}"
