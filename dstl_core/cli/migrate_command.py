"""``dstl migrate``: moves the state of a job to the changed job, by a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.examples import epilog
from dstl_core.cli.options import (
    ChangelogBaseOption,
    CopyOption,
    DryRunOption,
    FormatOption,
    JobsOption,
    JsonOption,
    KeepCompressionOption,
    OverwriteOption,
    RelocateOption,
    RootOption,
    ShareOption,
    SparkOption,
    files_of,
    form_of,
    load,
    runner_of,
    serializers_in_use,
)
from dstl_core.cli.output import (
    Encoding,
    forecast_of,
    native_note,
    print_lines,
    sharing_note,
    write_json,
    write_lines,
    write_savepoint,
)
from dstl_core.errors import ConfigError

if TYPE_CHECKING:
    from dstl_core.savepoint.edit.kept_state import Files
    from dstl_core.savepoint.migrate.declaration import Migration
    from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
    from dstl_core.savepoint.migrate.proposal.proposal import Proposal
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.write.folder import KeyedForm

migrate = typer.Typer(
    name="migrate",
    help="Keep the state of a job that changed.",
    no_args_is_help=True,
)

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The declaration, a YAML file.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", metavar="SAVEPOINT", help="Savepoint of the old job; default: in FILE."),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--to-template", metavar="SAVEPOINT", help="Savepoint of the new job, started empty."
    ),
]
KeysOption = Annotated[
    bool, typer.Option("--show-keys", help="Show up to five keys of values that do not fit.")
]


@migrate.command(epilog=epilog("migrate plan"))
def plan(
    file: FileArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write proposed rules into FILE, which has none yet.")
    ] = False,
    as_json: JsonOption = False,
    from_: FromOption = None,
    to_template: TemplateOption = None,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
) -> None:
    """Show what becomes of each state of a job that changed.

    FILE names the old savepoint, a savepoint of the new job that started empty, and the compiled
    plans of SQL jobs. Without rules in FILE, the plan is a proposal: it keeps what is the same and
    converts what loses nothing; ??? stands where a person has to decide. With rules, the plan says
    what they do. The exit code is 1 if something must be decided.
    """
    from dstl_core.savepoint.migrate.declaration import Migration

    migration = Migration.load(file)
    old = _old(migration, from_, allow_root, relocate, changelog_base)
    if write or not {"operators", "drop_operators", "start_empty"} & migration.document.keys():
        if to_template is not None:
            raise ConfigError("A proposal reads to_template from FILE: write it there.")
        _propose(file, old, write=write, as_json=as_json)
        return
    prepared = _migration(migration, old, to_template)
    if as_json:
        write_json([prepared.plan_json()], indent=1)
    else:
        print_lines(prepared.plan_lines())
    if prepared.plan.problems:
        raise typer.Exit(1)


def _propose(file: str, old: Snapshot | None, *, write: bool, as_json: bool) -> None:
    from dstl_core.savepoint.migrate.proposal.proposal_file import propose_file

    proposal = propose_file(file, old, write=write, serializers=serializers_in_use())
    if as_json:
        write_json([proposal.to_json()], indent=1)
    elif write:
        print_lines([f"{file}: {_summary(proposal)}"])
    else:
        write_lines([proposal.text])
    if proposal.decisions:
        raise typer.Exit(1)


def _summary(proposal: Proposal) -> str:
    operators = len(proposal.declaration.get("operators", {}))
    decisions = proposal.decisions
    ready = "nothing is left to decide" if not decisions else f"{decisions} to decide (???)"
    return f"rules for {operators} of {len(proposal.operators)} operators with state; {ready}"


@migrate.command(epilog=epilog("migrate apply"))
def apply(
    file: FileArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder of the new savepoint.")],
    share: ShareOption = False,
    copy: CopyOption = False,
    form: FormatOption = None,
    dry_run: DryRunOption = False,
    overwrite: OverwriteOption = False,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    keep_compression: KeepCompressionOption = False,
    as_json: JsonOption = False,
    from_: FromOption = None,
    to_template: TemplateOption = None,
    show_keys: KeysOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="FRACTION",
            help="Compute a share of the key groups again and compare: above 0, up to 1, or all.",
        ),
    ] = None,
) -> None:
    """Write the migrated savepoint, and read it back before it becomes visible.

    With a template, the result is checked as ``dstl check`` does it. With --copy, --share or
    --format native, RocksDB's files of states whose bytes stay are kept.
    """
    from dstl_core.savepoint.migrate.declaration import Migration

    part = _share(check)
    migration = Migration.load(file)
    old = _old(migration, from_, allow_root, relocate, changelog_base)
    files = files_of(share=share, copy=copy, canonical=False)
    prepared = _migration(migration, old, to_template, show_keys, part, form_of(form), files)
    how = Encoding(runner_of(jobs, spark), keep_compression)
    if dry_run:
        forecast = forecast_of(prepared, out, overwrite=overwrite, encoding=how)
        if as_json:
            write_json([{"path": None, "forecast": forecast.to_json()}], indent=1)
        else:
            print_lines([str(forecast), "nothing was written"])
        return
    written = write_savepoint(prepared, out, overwrite=overwrite, what="migrating", encoding=how)
    if as_json:
        write_json([{"path": written, **prepared.report}], indent=1)
        return
    lines = [
        f"{operator}/{state}: {count.before:,} entries before, {count.after:,} after"
        + (f", {count.merged:,} merged" if count.merged else "")
        + (f", {count.nulled:,} became null" if count.nulled else "")
        for (operator, state), count in sorted(prepared.counts.items())
    ]
    lines += [f"{operator}/{state}: files are kept" for operator, state in sorted(prepared.kept)]
    lines += [f"note: {each}" for each in prepared.plan.notes]
    lines += [
        f"{operator}: {number:,} key groups computed again, and equal"
        for operator, number in sorted(prepared.recomputed.items())
    ]
    if prepared.check is not None:
        lines.append(f"check: {prepared.check.summary}")
    lines += [*sharing_note(prepared), *native_note(prepared)]
    print_lines([*lines, f"written: {written}"])


def _share(text: str | None) -> float:
    from dstl_core.errors import ConfigError

    if text is None:
        return 0.0
    try:
        share = 1.0 if text == "all" else float(text)
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise ConfigError(
            f"--check is wrong: expected a number above 0, up to 1, or all, got {text!r}."
        )
    return share


def _old(
    migration: Migration,
    from_: str | None,
    allow_root: list[str] | None,
    relocate: list[str] | None,
    changelog_base: str | None,
) -> Snapshot | None:
    """The savepoint of the old job; None if neither the option nor the file names it."""
    path = migration.from_ if from_ is None else from_
    return None if path is None else load(str(path), allow_root, relocate, changelog_base, None)


def _migration(
    migration: Migration,
    old: Snapshot | None,
    to_template: str | None,
    show_keys: bool = False,
    recompute: float = 0.0,
    form: KeyedForm | None = None,
    files: Files | None = None,
) -> SavepointMigration:
    from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
    from dstl_core.savepoint.read.snapshot import Snapshot

    types = serializers_in_use()
    return SavepointMigration(
        migration,
        old,
        None if to_template is None else Snapshot.load(to_template, serializers=types),
        show_keys=show_keys,
        recompute=recompute,
        serializers=types,
        format=form or "canonical",
        files=files,
    )
