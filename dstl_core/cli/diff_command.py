"""``dstl diff``: what differs between two snapshots."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JsonOption,
    KeyTypeOption,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import plain_console, printable, write_json
from dstl_core.savepoint.diff import counts_of, diff_snapshots


def diff(
    before: Annotated[str, typer.Argument(help="The older savepoint or checkpoint.")],
    after: Annotated[str, typer.Argument(help="The newer one.")],
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Show added, removed and changed entries per state; with --json, every entry as one line.

    Exit code 1 if anything differs.
    """
    old, new = (
        load(path, allow_root, relocate, changelog_base, key_type) for path in (before, after)
    )
    differences = diff_snapshots(old, new)
    found = False
    if as_json:
        for each in differences:
            found = True
            write_json([each.to_json()])
    else:
        console = plain_console()
        for (operator, kind, state), counts in sorted(counts_of(differences).items()):
            found = True
            changes = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
            console.print(printable(f"{operator}  {kind} {state}: {changes}"))
        if not found:
            console.print("no differences")
    if found:
        raise typer.Exit(1)
