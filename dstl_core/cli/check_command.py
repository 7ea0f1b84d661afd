"""``dstl check``: whether a changed job restores a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import print_lines, write_json
from dstl_core.shown import printable

if TYPE_CHECKING:
    from dstl_core.savepoint.check.restore_check import RestoreCheck


def check(
    path: PathArgument,
    expect: Annotated[
        str, typer.Option("--expect", metavar="NEW", help="A savepoint of the new job.")
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="VERSION", help="The version of Flink that restores: 2.2, .."),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop",
            metavar="OP[/STATE]",
            help="An operator or a state that may be lost. Can be given several times.",
        ),
    ] = None,
    columns_kept: Annotated[
        bool,
        typer.Option("--columns-kept", help="Columns of SQL rows kept their places."),
    ] = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Say whether the job that wrote NEW restores PATH.

    It says so for each state: compatible, compatible after migration, unknown, incompatible. The
    exit code is 1 if one of them is unknown or incompatible.
    """
    from dstl_core.savepoint.check.restore_check import check_restore

    found = check_restore(
        load(path, allow_root, relocate, changelog_base, key_type),
        load(expect, allow_root, relocate, changelog_base, None),
        to=to,
        drop=drop or (),
        columns_kept=columns_kept,
    )
    if as_json:
        write_json([found.to_json()], indent=1)
    else:
        _print(found)
    if not found.is_compatible:
        raise typer.Exit(1)


def _print(found: RestoreCheck) -> None:
    from dstl_core.savepoint.check.compatibility import Verdict

    styles = {Verdict.INCOMPATIBLE: "red", Verdict.UNKNOWN: "yellow"}
    lines = [
        (printable(str(line)), styles.get(line.verdict, ""))
        for line in sorted(found.lines, key=lambda each: -each.verdict)
        if line.reason or line.verdict is not Verdict.COMPATIBLE_AS_IS
    ]
    lines += [(printable(f"note: {note}"), "") for note in found.notes]
    print_lines([*lines, (found.summary, "bold")])
