"""``dstl gc``: files that no snapshot references."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import JsonOption
from dstl_core.cli.output import print_lines, write_json
from dstl_core.display import size_text


def gc(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="Folder of savepoints or of a pipeline.")
    ],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; the default only lists them.")
    ] = False,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="AGE", help="Keep files younger than this: 24h, 90m, 7d, .."
        ),
    ] = "24h",
    also_referenced_from: Annotated[
        list[str] | None,
        typer.Option(
            "--also-referenced-from",
            metavar="DIR",
            help="A folder of snapshots that reference files here.",
        ),
    ] = None,
    flink_job_stopped: Annotated[
        bool,
        typer.Option(
            "--flink-job-stopped", help="Confirm that the Flink job of the folder is stopped."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the files that no snapshot references.

    With --delete, it deletes them.
    """
    from dstl_core.savepoint.gc import check_is_folder, collect_garbage, parse_age

    for folder in (base, *(also_referenced_from or ())):
        check_is_folder(folder)
    report = collect_garbage(
        base,
        delete=delete,
        older_than_ms=parse_age(older_than),
        also_referenced_from=also_referenced_from or (),
        flink_job_stopped=flink_job_stopped,
    )
    if as_json:
        write_json([report.to_json()], indent=1)
        return
    lines = [f"{each.size:>12,}  {each.location}" for each in report.garbage]
    kept = ", ".join(f"{count} {reason}" for reason, count in sorted(report.kept.items()))
    verb = "deleted" if delete else "garbage (nothing was deleted; use --delete)"
    lines.append(
        f"{len(report.garbage)} files, {size_text(report.size)} {verb}; {report.snapshots} "
        f"snapshots{f'; kept: {kept}' if kept else ''}"
    )
    print_lines(lines)
