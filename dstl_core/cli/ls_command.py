"""``dstl ls``: the snapshots below a folder or in a bucket."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dstl_core.cli.options import JsonOption
from dstl_core.cli.output import complain, print_lines, write_json
from dstl_core.shown import age_text, size_text, table_lines

_HEADS = ("snapshot", "kind", "checkpoint", "written", "state", "operators", "metadata")


def ls(
    base: Annotated[
        str,
        typer.Argument(metavar="BASE", help="Folder or bucket of savepoints, checkpoints or jobs."),
    ],
    as_json: JsonOption = False,
) -> None:
    """List the snapshots below a folder or in a bucket.

    Age and size are rounded. With --json, they are exact, and each snapshot is one JSON object a
    line. The exit code is 1 if one of them cannot be read.
    """
    from dstl_core.clock import SystemClock
    from dstl_core.savepoint.check.gc import check_is_folder
    from dstl_core.savepoint.check.listing import describe, snapshots_below
    from dstl_core.storage.file_io import open_file_io
    from dstl_core.storage.location import Location

    check_is_folder(base)
    folder = Location.parse(base)
    files = open_file_io(folder)
    found = (describe(each, folder, files) for each in snapshots_below(folder, files))
    problems = []
    if as_json:
        for each in found:
            problems += [each["problem"]] if each["problem"] else []
            write_json([each])
    else:
        snapshots = list(found)
        problems = [each["problem"] for each in snapshots if each["problem"]]
        now_ms = SystemClock().now_ms()
        print_lines(
            table_lines(_HEADS, [_row(each, now_ms) for each in snapshots])
            if snapshots
            else ["no snapshots"]
        )
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
