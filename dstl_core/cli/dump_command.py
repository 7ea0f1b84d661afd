"""``dstl dump`` and ``dstl changelog``: entries, or change records, as one JSON object a line."""

from __future__ import annotations

from typing import Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    JobsOption,
    KeyTypeOption,
    OperatorOption,
    PathArgument,
    ProtoOption,
    RelocateOption,
    RootOption,
    SparkOption,
    StateOption,
    StateTypeOption,
    load,
    require_state,
    runner_of,
    selected,
)
from dstl_core.cli.output import complain, write_json


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
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Only this key, without a scan: a string as it is, others as JSON. Repeatable.",
        ),
    ] = None,
    key_file: Annotated[
        str | None,
        typer.Option("--key-file", metavar="FILE", help="Only the keys in a file, one a line."),
    ] = None,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
    state_type: StateTypeOption = None,
    proto: ProtoOption = None,
) -> None:
    """Print every entry as one JSON object a line.

    If one operator cannot be read, the others are still printed.
    """
    from dstl_core.cli.dump_lines import dump_keys, dump_lines, expiry_of, keys_of

    expiry = expiry_of(hide_expired)
    keys = keys_of(key, key_file)
    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar, state_type, proto)
    snapshot.require_typed_states()
    operators = selected(snapshot, op)
    if keys:
        dump_keys(snapshot, operators, state, keys, opaque=opaque, expiry=expiry)
        return
    runner = runner_of(jobs, spark)
    if not dump_lines(
        snapshot, operators, state, opaque=opaque, expiry=expiry, named=bool(op), jobs=runner
    ):
        raise typer.Exit(2)


def changelog(
    path: PathArgument,
    op: OperatorOption = None,
    state: StateOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Print the change records of a checkpoint's changelog.

    Each is one JSON object a line, in replay order.
    """
    from dstl_core.savepoint.read.changes import change_lines, has_changelog

    snapshot = load(path, allow_root, relocate, changelog_base, key_type)
    logged = [operator for operator in selected(snapshot, op) if has_changelog(operator)]
    if op and logged and state is not None:
        require_state(snapshot, logged, state)
    for operator in logged:
        write_json(change_lines(operator, state))
    if not logged:
        complain(f"{snapshot.folder} has no changelog: nothing was logged since the full state")
