"""``dstl upgrade``: moves the state of a job of Flink 1.x to Flink 2.x."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    CopyOption,
    DryRunOption,
    FormatOption,
    JarOption,
    JobsOption,
    JsonOption,
    KeepCompressionOption,
    KeyTypeOption,
    OverwriteOption,
    PathArgument,
    ProtoOption,
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
    write_savepoint,
)
from dstl_core.display import cut_text, size_text, table_lines
from dstl_core.errors import ConfigError

if TYPE_CHECKING:
    from dstl_core.savepoint.edit.trial import Forecast
    from dstl_core.savepoint.edit.upgrade import SavepointUpgrade, UpgradeStep
    from dstl_core.savepoint.read.snapshot import Snapshot

_WHAT = "converting"

VersionOption = Annotated[
    str,
    typer.Option("--to", metavar="VERSION", help="Version of Flink that restores it: 2.0 to 2.3."),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="NAME=TYPE",
        help="The Java type of a state or a field that the jars do not show, such as "
        "'items=List<shop.Line>' or 'shop.Cart.lines=List<shop.Line>'; repeat it.",
    ),
]
NewJarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--new-jar",
        metavar="JAR",
        help="Jar of the new job, with classes that take the place of Scala's; repeat it.",
    ),
]
NewKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--new-key",
        metavar="OP=TYPE",
        help="The Java type of an operator's keys, in place of one of Scala; repeat it.",
    ),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--to-template",
        metavar="SAVEPOINT",
        help="Savepoint of the new job, whose types take the place of Scala's.",
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option("--drop", metavar="STATE", help="Leave a state out: STATE or OP/STATE."),
]


def upgrade(
    path: PathArgument,
    out: Annotated[
        str | None,
        typer.Argument(metavar="OUT", help="Folder of the new savepoint; not needed with --plan."),
    ] = None,
    to: VersionOption = "2.2",
    jar: JarOption = None,
    proto: ProtoOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show what happens to each state; write nothing.")
    ] = False,
    drop: DropOption = None,
    types: TypesOption = None,
    new_jar: NewJarOption = None,
    new_key: NewKeyOption = None,
    to_template: TemplateOption = None,
    share: ShareOption = False,
    copy: CopyOption = False,
    form: FormatOption = None,
    dry_run: DryRunOption = False,
    overwrite: OverwriteOption = False,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    keep_compression: KeepCompressionOption = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
) -> None:
    """Convert a savepoint of Flink 1.x for Flink 2.x.

    Kryo values and collections get the types that the same job has in Flink 2.x, and types of
    Scala's API those that you name or that a savepoint of the new job has. Messages in Kryo become
    byte[] (--proto, --type STATE=byte[]). All else is copied. Keyed state gets canonical form, or
    native form with --format native. With --copy, --share or --format native, an operator with
    nothing to convert keeps its form, and RocksDB's files of unchanged states stay. With --plan,
    the exit code is 1 if a state is blocked.
    """
    from dstl_core.savepoint.edit.upgrade import BLOCKED, SavepointUpgrade
    from dstl_core.savepoint.read.snapshot_names import cut_pairs, is_last

    if out is None and not plan:
        raise ConfigError("OUT is missing: give the folder of the new savepoint, or --plan.")
    source = load(path, allow_root, relocate, changelog_base, key_type, jar, proto=proto)
    planned = SavepointUpgrade(
        source,
        to,
        drop or (),
        cut_pairs("--type", types, "NAME=TYPE, e.g. 'items=List<shop.Line>'", is_last),
        files=files_of(share=share, copy=copy, canonical=False),
        format=form_of(form) or "canonical",
        new_jars=new_jar or (),
        new_keys=cut_pairs("--new-key", new_key, "OP=TYPE", is_last),
        template=_template(to_template),
    )
    steps, written, forecast = planned.plan(), None, None
    if out is not None and not plan:
        how = Encoding(runner_of(jobs, spark), keep_compression)
        if dry_run:
            forecast = forecast_of(planned, out, overwrite=overwrite, encoding=how)
        else:
            written = write_savepoint(planned, out, overwrite=overwrite, what=_WHAT, encoding=how)
    if as_json:
        write_json([_report(planned, steps, written, forecast)], indent=1)
    else:
        _print(planned, steps, written, forecast)
    if plan and any(step.action == BLOCKED for step in steps):
        raise typer.Exit(1)


def _template(path: str | None) -> Snapshot | None:
    from dstl_core.savepoint.read.snapshot import Snapshot

    return None if path is None else Snapshot.load(path, serializers=serializers_in_use())


def _report(
    savepoint: SavepointUpgrade,
    steps: list[UpgradeStep],
    written: str | None,
    forecast: Forecast | None,
) -> dict[str, object]:
    states = [
        {**asdict(step), "entries": savepoint.converted.get((step.operator, step.state))}
        for step in steps
    ]
    told = {} if forecast is None else {"forecast": forecast.to_json()}
    return {"path": written, "bytes": savepoint.source_size, "states": states, **told}


def _print(
    savepoint: SavepointUpgrade,
    steps: list[UpgradeStep],
    written: str | None,
    forecast: Forecast | None,
) -> None:
    from dstl_core.savepoint.edit.upgrade import KEEP

    kept = sum(step.action == KEEP for step in steps)
    rows = [
        (step.operator, step.state, step.action, _types(step))
        for step in steps
        if step.action != KEEP
    ]
    lines = table_lines(("operator", "state", "action", "type"), rows) if rows else []
    lines.append(f"{kept} states are kept byte for byte")
    if forecast is not None:
        lines += [str(forecast), "nothing was written"]
    elif written is None:
        lines.append(f"{size_text(savepoint.source_size)} of state to read; nothing was written")
    else:
        entries = sum(savepoint.converted.values())
        lines += [*sharing_note(savepoint), *native_note(savepoint)]
        lines.append(f"{entries:,} entries converted; written: {written}")
    print_lines(lines)


def _types(step: UpgradeStep) -> str:
    old, new = cut_text(step.old), cut_text(step.new)
    if step.reason:
        return f"{old}: {step.reason}"
    if new == old:
        return f"{old}, as Kryo 5" if "Kryo<" in step.old else old
    return f"{old} -> {new}" if new else old
