"""``dstl report``: one page about a snapshot."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    JobsOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    SparkOption,
    WorkOption,
    duration_ms,
    load,
    moment_ms,
    runner_of,
)
from dstl_core.cli.output import print_lines, progress, write_json
from dstl_core.errors import ConfigError

_PAGE_START, _PAGE_TITLE = b"<!doctype html>", b"<title>Snapshot "
_HEAD_BYTES = 512
TtlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ttl",
        metavar="[[OP/]STATE=]TTL",
        help="Count what has expired: 24h, 7d, .., for a state, that of one operator, or for all.",
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Count ages to this time; by default to when the snapshot was written.",
    ),
]


def report(
    path: PathArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The HTML file to write, in any store."
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", metavar="OLD", help="An older snapshot.")
    ] = None,
    headers_only: Annotated[
        bool,
        typer.Option("--headers-only", help="Read no records: sizes only, in a second or two."),
    ] = False,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Show keys and values instead of digests of keys.")
    ] = False,
    ttl: TtlOption = None,
    at: AtOption = None,
    as_json: JsonOption = False,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    work: WorkOption = None,
    jar: JarOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Write a page: sizes, hot keys, skew, expiry, growth.

    The page is one file without scripts, which opens from disk. It counts every record. Keys are
    digests, and no values are shown, unless --show-keys is given.
    """
    from dstl_core.savepoint.report.figures import bytes_to_read
    from dstl_core.savepoint.report.snapshot_report import report_snapshot

    if output is None and not as_json:
        raise ConfigError("A report needs -o FILE for the page, or --json for the figures.")
    if output is not None:
        _check_output(output)
    ttls = _ttls(ttl)
    at_ms = None if at is None else moment_ms("--at", at)
    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar)
    older = None
    if compare is not None:
        older = load(compare, allow_root, relocate, changelog_base, key_type, jar)
    total = bytes_to_read(snapshot, older, contents=not headers_only)
    with progress("reading", total) as advance:
        snapshot_report = report_snapshot(
            snapshot,
            compare=older,
            headers_only=headers_only,
            show_keys=show_keys,
            ttls=ttls,
            at_ms=at_ms,
            on_progress=advance,
            jobs=runner_of(jobs, spark),
            work=work,
        )
    if output is not None:
        snapshot_report.write(output)
    if as_json:
        write_json([snapshot_report.figures], indent=1)
    else:
        print_lines([f"written: {output}"])


def _check_output(output: str) -> None:
    """Refuses a place for the page before any state is read."""
    from dstl_core.storage.file_io import open_file_io
    from dstl_core.storage.location import Location

    location = Location.parse(output)
    if location.is_local and os.path.isdir(location.path):
        raise ConfigError(
            f"The page cannot be written to {output!r}, which is a folder; give a file, e.g. "
            f"{os.path.join(output, 'report.html')!r}."
        )
    if not location.is_local or os.path.isfile(location.path):  # a device has no start
        files = open_file_io(location)
        size = files.size(location)
        start = files.read_bytes(location, 0, min(size, _HEAD_BYTES)) if size else b""
        if start and not (start.startswith(_PAGE_START) and _PAGE_TITLE in start):
            raise ConfigError(
                f"The page cannot be written to {output!r}, which is no page of a report and would "
                f"be lost; give another file, or remove it."
            )
    folder = os.path.dirname(location.path)
    if location.is_local and not os.path.isdir(folder):
        raise ConfigError(
            f"The page cannot be written to {output!r}: there is no folder {folder!r}; make it "
            f"first, or give another file."
        )


def _ttls(texts: list[str] | None) -> dict[str, int]:
    """Times to live in milliseconds by name of the state, for ``report_snapshot``."""
    from dstl_core.savepoint.read.snapshot_names import cut_pairs, is_last

    states = [each for each in texts or () if "=" in each]
    ttls = {
        state: duration_ms("--ttl", text)
        for state, text in cut_pairs("--ttl", states, "[OP/]STATE=TTL", is_last).items()
    }
    for ttl in texts or ():
        if "=" not in ttl:
            ttls[""] = duration_ms("--ttl", ttl)
    return ttls
