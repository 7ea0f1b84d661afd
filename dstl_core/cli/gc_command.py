"""``dstl gc``: files that no snapshot references."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import JsonOption
from dstl_core.cli.output import plain_console, printable, write_json
from dstl_core.savepoint.check.gc import check_is_folder, collect_garbage, parse_age


def gc(
    base: Annotated[str, typer.Argument(help="Folder of savepoints or of a pipeline.")],
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the files; the default only lists them.")
    ] = False,
    older_than: Annotated[
        str, typer.Option("--older-than", help="Keep files younger than this: 24h, 90m, 7d, ..")
    ] = "24h",
    also_referenced_from: Annotated[
        list[str] | None,
        typer.Option(
            "--also-referenced-from", help="A folder of snapshots that reference files here."
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
    """List the files that no snapshot references; --delete deletes them."""
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
    console = plain_console()
    for each in report.garbage:
        console.print(printable(f"{each.size:>12,}  {each.location}"))
    kept = ", ".join(f"{count} {reason}" for reason, count in sorted(report.kept.items()))
    verb = "deleted" if delete else "garbage (nothing was deleted; use --delete)"
    console.print(
        f"{len(report.garbage)} files, {report.size:,} bytes {verb}; {report.snapshots} snapshots"
        f"{f'; kept: {kept}' if kept else ''}"
    )
