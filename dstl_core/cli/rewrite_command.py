"""``dstl rewrite``: writes an edited copy of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_core.cli.options import (
    CanonicalOption,
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
    RelocateOption,
    RootOption,
    ShareOption,
    SparkOption,
    duration_ms,
    files_of,
    form_of,
    load,
    moment_ms,
    runner_of,
)
from dstl_core.cli.output import (
    Encoding,
    complain,
    forecast_of,
    native_note,
    print_lines,
    sharing_note,
    write_json,
    write_savepoint,
)
from dstl_core.clock import SystemClock
from dstl_core.display import size_text
from dstl_core.errors import ConfigError

if TYPE_CHECKING:
    from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
    from dstl_core.savepoint.edit.trial import Forecast
    from dstl_core.savepoint.read.snapshot import Snapshot
    from dstl_core.savepoint.read.snapshot_names import SnapshotNames

RenameOption = Annotated[
    list[str] | None,
    typer.Option("--rename", metavar="OLD=NEW", help="Give an operator a new uid."),
]
RemoveOption = Annotated[
    list[str] | None, typer.Option("--remove", metavar="OP", help="Leave an operator out.")
]
MergeOption = Annotated[
    list[str] | None,
    typer.Option("--merge", metavar="OP=INTO", help="Move all states of an operator to INTO."),
]
MaxParallelismOption = Annotated[
    int | None,
    typer.Option(
        "--max-parallelism",
        metavar="N",
        help="New max parallelism of all operators. Operators at 1 stay there.",
    ),
]
SplitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="OP/STATE=NEW",
        help="Move a state to a new operator with this uid; repeat it for more states.",
    ),
]
RenameStateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rename-state", metavar="OP/STATE=NEW", help="Give a keyed state in RocksDB a new name."
    ),
]
DropStateOption = Annotated[
    list[str] | None,
    typer.Option("--drop-state", metavar="OP/STATE", help="Leave a keyed state in RocksDB out."),
]
EraseKeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--erase-keys",
        metavar="[OP=]FILE",
        help="Erase all state and timers of the keys in FILE, one on each line as dump shows it.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="OP/STATE=EXPR",
        help="Keep the entries of a keyed state for which this is true: amount > 0 and key <> 'x'.",
    ),
]
DropExpiredOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop-expired",
        metavar="[[OP/]STATE=]TTL",
        help="Leave out values last accessed so long ago, of a state or all with a time to live.",
    ),
]
NowOption = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="T",
        help="When --drop-expired judges, e.g. 2026-11-26T00:00Z; by default now.",
    ),
]
DistinctOption = Annotated[
    list[str] | None,
    typer.Option(
        "--distinct",
        metavar="OP/STATE",
        help="Keep one of equal elements of a union state, which multiplies with restores.",
    ),
]
EmptyStateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--empty-state",
        metavar="OP/STATE",
        help="Leave all elements of a list or union state out.",
    ),
]
CheckpointIdOption = Annotated[
    int | None,
    typer.Option(
        "--checkpoint-id",
        metavar="N",
        help="Number of the new snapshot; a job that restores it counts on from there.",
    ),
]
_PREPOSITIONS = {"split": "to", "merge": "into"}


def rewrite(
    path: PathArgument,
    out: Annotated[str, typer.Argument(metavar="OUT", help="Folder of the new savepoint.")],
    rename: RenameOption = None,
    remove: RemoveOption = None,
    max_parallelism: MaxParallelismOption = None,
    split: SplitOption = None,
    merge: MergeOption = None,
    rename_state: RenameStateOption = None,
    drop_state: DropStateOption = None,
    distinct: DistinctOption = None,
    empty_state: EmptyStateOption = None,
    erase_keys: EraseKeysOption = None,
    where: WhereOption = None,
    drop_expired: DropExpiredOption = None,
    now: NowOption = None,
    checkpoint_id: CheckpointIdOption = None,
    relocate: RelocateOption = None,
    share: ShareOption = False,
    copy: CopyOption = False,
    canonical: CanonicalOption = False,
    form: FormatOption = None,
    dry_run: DryRunOption = False,
    overwrite: OverwriteOption = False,
    jobs: JobsOption = None,
    spark: SparkOption = None,
    keep_compression: KeepCompressionOption = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
) -> None:
    """Write an edited copy of a snapshot.

    Edits rename, remove, rescale, split and merge operators, rename and drop states, erase keys,
    entries and expired values, shrink or empty list states, and change the number of the
    checkpoint. Native keyed state that no edit changes stays native: files of a checkpoint are
    shared with the copy, files of a savepoint are copied. Otherwise the copy is canonical, or
    native with --format native, and needs no file of the original.
    """
    from dstl_core.savepoint.edit.element_edits import EmptiedStates
    from dstl_core.savepoint.edit.rewrite import edit_by_names
    from dstl_core.savepoint.read.snapshot_names import SnapshotNames

    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar)
    names = SnapshotNames(snapshot)
    edit = edit_by_names(
        snapshot,
        rename=names.renaming("--rename", rename),
        remove=remove or (),
        max_parallelism=max_parallelism,
        split=names.splitting("--split", split or ()),
        merge=names.merging("--merge", merge),
        distinct=names.places("--distinct", distinct or ()),
        checkpoint_id=checkpoint_id,
        rename_states=names.renaming_states("--rename-state", rename_state or ()),
        drop_states=names.places("--drop-state", drop_state or ()),
        files=files_of(share=share, copy=copy, canonical=canonical),
        form=form_of(form),
        erase_keys=names.keys_of_files("--erase-keys", erase_keys or ()),
        where=names.renaming_states("--where", where or (), "OP/STATE=EXPR"),
        drop_expired=_expiring(snapshot, names, drop_expired or (), now),
        edits=[EmptiedStates(names.places("--empty-state", empty_state or ()))],
    )
    plan = edit.plan()
    how = Encoding(runner_of(jobs, spark), keep_compression)
    forecast = forecast_of(edit, out, overwrite=overwrite, encoding=how) if dry_run else None
    written = None if dry_run else write_savepoint(edit, out, overwrite=overwrite, encoding=how)
    _print(edit, plan, written, forecast, as_json=as_json)


def _expiring(
    snapshot: Snapshot, names: SnapshotNames, texts: Iterable[str], now: str | None
) -> dict[tuple[str, str], tuple[int, int]]:
    """The time to live of states: ``STATE=TTL``, ``OP/STATE=TTL``, or ``TTL`` of all others."""
    option, form = "--drop-expired", "[[OP/]STATE=]TTL"
    if not texts:
        if now is not None:
            raise ConfigError(f"--now needs {option}, which judges by it.")
        return {}
    from dstl_core.savepoint.purge.rules import has_ttl
    from dstl_core.savepoint.read.snapshot_names import cut_pairs, is_last

    now_ms = SystemClock().now_ms() if now is None else moment_ms("--now", now)
    ttls: dict[tuple[str, str], int] = {}
    of_all: int | None = None
    for text in texts:
        if "=" not in text:
            if of_all is not None:
                raise ConfigError(f"{option} is given twice for all states; leave one of them out.")
            of_all = duration_ms(option, text)
            continue
        [(name, ttl)] = cut_pairs(option, [text], form, is_last).items()
        for place in names.states(option, name, form):
            key = f"hash:{place.operator.operator_id.hex}", place.state or ""
            ttls[key] = duration_ms(option, ttl)
    for operator in snapshot.operators if of_all is not None else ():
        for info in operator.states if operator.keyed_handles else ():
            if has_ttl(info.meta):
                ttls.setdefault((f"hash:{operator.operator_id.hex}", info.name), of_all or 0)
            else:
                complain(f"no time to live, not touched: {names.text_of(operator, info.name)}")
    return {place: (ttl, now_ms) for place, ttl in ttls.items()}


def _print(
    edit: SavepointEdit,
    plan: list[dict[str, Any]],
    written: str | None,
    forecast: Forecast | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        told = {} if forecast is None else {"forecast": forecast.to_json()}
        shared = edit.shares_files_in
        purged = {} if written is None else {"purged": edit.purged}
        said = {"path": written, "operators": plan, "shares_files_in": shared, **told, **purged}
        write_json([said], indent=1)
        return
    lines = [*map(_sentence, plan), *sharing_note(edit), *native_note(edit)]
    if edit.source is not None and edit.checkpoint_id is not None:
        lines.append(f"checkpoint id {edit.source.metadata.checkpoint_id} -> {edit.checkpoint_id}")
    lines += [] if forecast is None else [str(forecast)]
    if written is not None:
        lines += [*map(_purged, edit.purged.items())]
    end = "nothing was written" if written is None else f"written: {written}"
    print_lines([*lines, end])


def _sentence(line: dict[str, Any]) -> str:
    parts = [f"{line['action']} {line['operator']}"]
    if "new_operator" in line:
        parts.append(f"{_PREPOSITIONS.get(line['action'], 'as')} {line['new_operator']}")
    if line.get("states"):
        parts.append(f"states {', '.join(line['states'])}")
    if "new_state" in line:
        parts.append(f"as {line['new_state']}")
    if line.get("keys"):
        parts.append(f"{line['keys']:,} keys")
    if "elements" in line:
        before, after = line["elements"]
        parts.append(f"elements {before:,} -> {after:,}")
    if line["bytes"] is not None:
        parts.append(f"({size_text(line['bytes'])})")
    if "max_parallelism" in line:
        old, new = line["max_parallelism"]
        parts.append(f"max parallelism {old} -> {new}")
    if line.get("keyed_state", "canonical -> canonical") != "canonical -> canonical":
        parts.append(line["keyed_state"])
    return " ".join(parts)


def _purged(item: tuple[str, Mapping[str, int]]) -> str:
    """What went from an operator. Nothing of it was found again."""
    operator, counts = item
    shown = ", ".join(f"{count:,} of {state}" for state, count in sorted(counts.items()))
    return f"entries gone from {operator}: {shown or 'none'}; none is left"
