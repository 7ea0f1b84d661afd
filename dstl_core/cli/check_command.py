"""``dstl check``: whether a changed job restores a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    JsonOption,
    KeyTypeOption,
    RelocateOption,
    RootOption,
    load,
)
from dstl_core.cli.output import print_lines, write_json
from dstl_core.errors import ConfigError

if TYPE_CHECKING:
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.restores.restore_result import RestoreResult


NewJobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JAR|PATH", help="The jar of the new job, and then PATH; or PATH with --expect."
    ),
]
RestoredArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PATH", help="Folder of the savepoint or checkpoint that the job restores."
    ),
]
ExpectOption = Annotated[
    str | None,
    typer.Option("--expect", metavar="NEW", help="A savepoint of the new job, in place of a jar."),
]
ToOption = Annotated[
    str | None,
    typer.Option("--to", metavar="VERSION", help="The version of Flink that restores: 2.2, .."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="OP[/STATE]", help="An operator or a state that may be lost."),
]
UnchangedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--unchanged",
        metavar="OP[/STATE]",
        help="With a jar: an operator or a state whose declaration did not change.",
    ),
]
ClassOption = Annotated[
    str | None,
    typer.Option("--class", metavar="MAIN", help="The main class, for a jar with several jobs."),
]
ColumnsKeptOption = Annotated[
    bool,
    typer.Option("--columns-kept", help="With --expect: columns of SQL rows kept their places."),
]
RunOption = Annotated[
    bool,
    typer.Option(
        "--run",
        help="With a jar: real Flink compares the types and reads values. It runs code of the jar.",
    ),
]
FlinkOption = Annotated[
    str | None,
    typer.Option(
        "--flink",
        metavar="DIR",
        help="With --run: a folder with Flink's jars; otherwise those that pip installed.",
    ),
]


def check(
    first: NewJobArgument,
    path: RestoredArgument = None,
    expect: ExpectOption = None,
    jar: JarOption = None,
    to: ToOption = None,
    drop: DropOption = None,
    unchanged: UnchangedOption = None,
    main: ClassOption = None,
    columns_kept: ColumnsKeptOption = False,
    run: RunOption = False,
    flink: FlinkOption = None,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Say whether a job restores a savepoint.

    The job is the one in JAR, or the one that wrote NEW. The verdict is for each state:
    compatible, compatible after migration, unknown, incompatible. The exit code is 1 if one of them
    is unknown or incompatible. No class of the jar is run, unless --run asks for it.
    """
    if (path is None) == (expect is None):
        raise ConfigError(
            "The new job is wrong: expected its jar and then the savepoint (JAR PATH), or the "
            f"savepoint and --expect NEW, got {'neither' if path is None else 'both'}."
        )
    if (unchanged or main or run) if path is None else columns_kept:
        raise ConfigError(
            "The options do not fit: --unchanged, --class and --run go with JAR PATH, "
            "--columns-kept with --expect; leave them out."
        )
    if flink is not None and not run:
        raise ConfigError("The options do not fit: --flink goes with --run; add --run.")

    def snapshot(folder: str, types: list[str] | None) -> Snapshot:
        return load(folder, allow_root, relocate, changelog_base, types)

    from dstl_core.savepoint.restores.flink_answers import FlinkInstallation
    from dstl_core.savepoint.restores.restore_check import check_restore

    result = check_restore(
        snapshot(first if path is None else path, key_type),
        snapshot(str(expect), None) if path is None else first,
        to=to,
        drop=drop or (),
        columns_kept=columns_kept,
        unchanged=unchanged or (),
        main=main,
        jars=jar or (),
        flink=FlinkInstallation.find(flink) if run else None,
    )
    _show(result, as_json=as_json)


def _show(result: RestoreResult, *, as_json: bool) -> None:
    if as_json:
        write_json([result.to_json()], indent=1)
    else:
        _print(result)
    if not result.is_compatible:
        raise typer.Exit(1)


def _print(result: RestoreResult) -> None:
    from dstl_core.state.tables.compatibility import Verdict

    styles = {Verdict.INCOMPATIBLE: "red", Verdict.UNKNOWN: "yellow"}
    lines = [
        (str(line), styles.get(line.verdict, ""))
        for line in sorted(result.lines, key=lambda line: -line.verdict)
        if line.reason or line.verdict is not Verdict.COMPATIBLE_AS_IS
    ]
    lines += [(f"note: {note}", "") for note in result.notes]
    print_lines([*lines, (result.summary, "bold")])
