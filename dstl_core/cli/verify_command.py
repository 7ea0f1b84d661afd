"""``dstl verify``: checks every file and record of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    load,
    runner_of,
)
from dstl_core.cli.output import print_lines, progress, write_json

if TYPE_CHECKING:
    from dstl_core.savepoint.verify.verify import Report


def verify(
    path: PathArgument,
    as_json: JsonOption = False,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    work: WorkOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
) -> None:
    """Check every file and record, and the key group of every key.

    The exit code is 1 if anything is wrong.
    """
    from dstl_core.savepoint.verify.verify import verify_snapshot

    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar)
    total = sum(operator.state.state_size for operator in snapshot.operators)
    with progress("checking", total) as advance:
        report = verify_snapshot(
            snapshot, on_progress=advance, jobs=runner_of(jobs, spark), work=work
        )
    if as_json:
        write_json([report.to_json()], indent=1)
    else:
        _print(report)
    if report.findings:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    lines = [(str(finding), "red") for finding in report.findings]
    lines += [(f"note: {note}", "yellow") for note in report.notes]
    result = "no problems" if not report.findings else f"{len(report.findings)} problems"
    end = (
        f"{result}: {report.operators} operators, {report.files} files, "
        f"{report.entries:,} entries, {report.keys_checked:,} keys in their key groups"
        f"{f', {report.digests_checked} files as written' if report.digests_checked else ''}"
    )
    print_lines([*lines, end])
