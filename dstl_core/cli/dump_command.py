"""``dstl dump``: every entry as one JSON object a line."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    KeyTypeOption,
    OperatorOption,
    PathArgument,
    RelocateOption,
    RootOption,
    StateOption,
    load,
    selected,
)


def dump(
    path: PathArgument,
    op: OperatorOption = None,
    state: StateOption = None,
    opaque: Annotated[
        bool,
        typer.Option("--opaque", help="Print values that only Java can read, as class and hex."),
    ] = False,
    hide_expired: Annotated[
        str | None,
        typer.Option(
            "--hide-expired",
            metavar="TTL",
            help="Leave out values that were not accessed for 90m, 24h, ..",
        ),
    ] = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
) -> None:
    """Print every entry as one JSON object a line.

    If one operator cannot be read, the others are still printed.
    """
    from dstl_core.cli.dump_lines import dump_lines, expiry_of

    expiry = expiry_of(hide_expired)
    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar)
    operators = selected(snapshot, op)
    if not dump_lines(snapshot, operators, state, opaque=opaque, expiry=expiry, named=bool(op)):
        raise typer.Exit(2)
