"""``dstl check``: whether a changed job restores a snapshot."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    KeyTypeOption,
    PathArgument,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import plain_console, printable, write_json
from dstl_core.savepoint.check.compatibility import Verdict, version_text
from dstl_core.savepoint.check.restore_check import VERDICT_TEXTS, RestoreCheck, check_restore

_STYLES = {Verdict.INCOMPATIBLE: "red", Verdict.UNKNOWN: "yellow"}


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
    """Say whether the job that wrote NEW restores this snapshot, state by state.

    The verdicts are: compatible, compatible after migration, unknown, incompatible. The exit code
    is 1 if one of them is unknown or incompatible.
    """
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
    console = plain_console()
    for line in sorted(found.lines, key=lambda each: -each.verdict):
        if line.reason or line.verdict is not Verdict.COMPATIBLE_AS_IS:
            console.print(Text(printable(str(line)), _STYLES.get(line.verdict, "")))
    for note in found.notes:
        console.print(Text(printable(f"note: {note}")))
    states = sum(line.state is not None for line in found.lines)
    console.print(
        Text(
            f"{VERDICT_TEXTS[found.verdict]}: {states} states, Flink {version_text(found.flink)}",
            "bold",
        )
    )
