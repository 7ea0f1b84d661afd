"""``dstl offsets``: where sources stand, and a copy in which they stand elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from dstl_core.cli.options import (
    CanonicalOption,
    ChangelogBaseOption,
    CopyOption,
    JsonOption,
    OutOption,
    OverwriteOption,
    PathArgument,
    RelocateOption,
    RootOption,
    ShareOption,
    files_of,
    load,
    required_out,
)
from dstl_core.cli.output import (
    complain_of,
    print_lines,
    sharing_note,
    write_json,
    write_savepoint,
)
from dstl_core.clock import SystemClock
from dstl_core.errors import ConfigError
from dstl_core.shown import age_text, duration_text, moment_text, table_lines

if TYPE_CHECKING:
    from dstl_core.savepoint.connectors.set_positions import MovedSplit
    from dstl_core.savepoint.connectors.source_positions import SourcePosition

_HEADS = ("source", "connector", "split", "position", "stop", "held by", "status")
_TIME_HEAD = "time of position"
_MOVED_HEADS = ("source", "split", "old", "new", "effect")
_LONGEST_HEX = 40


def offsets(
    path: PathArgument,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SPLIT=POSITION",
            help="Go on at another position; SPLIT is topic/partition or an id, also OP:SPLIT.",
        ),
    ] = None,
    earliest: Annotated[
        bool, typer.Option("--earliest", help="Start over with every other partition of Kafka.")
    ] = False,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    share: ShareOption = False,
    copy: CopyOption = False,
    canonical: CanonicalOption = False,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
) -> None:
    """Show where every source stands.

    With --set or --earliest, it writes a copy to --out in which sources stand elsewhere. Keyed
    state stays as it is, so records that are read again count twice. With --json, each split is
    one JSON object a line. The exit code is 1 if a split is lost or held twice, and if where a
    source stands is not known.
    """
    from dstl_core.savepoint.connectors.set_positions import set_positions
    from dstl_core.savepoint.connectors.source_positions import source_positions
    from dstl_core.savepoint.edit.savepoint_edit import edit_savepoint
    from dstl_core.savepoint.read.snapshot_names import cut_pairs, is_last

    snapshot = load(path, allow_root, relocate, changelog_base, None)
    files = files_of(share=share, copy=copy, canonical=canonical)
    if set_ or earliest:
        folder = required_out(out, "--set and --earliest need")
        changes = cut_pairs("--set", set_, "SPLIT=POSITION", is_last)
        changed, moved = set_positions(snapshot, changes, earliest=earliest)
        edit = edit_savepoint(changed).with_files(files)
        written = write_savepoint(edit, folder, overwrite=overwrite)
        if as_json:
            rows = [each.to_json() for each in moved]
            shared = edit.shares_files_in
            write_json([{"path": written, "moved": rows, "shares_files_in": shared}])
        else:
            table = table_lines(_MOVED_HEADS, map(_moved_row, moved))
            print_lines([*table, *sharing_note(edit), f"written: {written}"])
        return
    if out is not None:
        raise ConfigError("--out needs --set or --earliest.")
    positions = list(source_positions(snapshot))
    if as_json:
        write_json(each.to_json() for each in positions)
    else:
        _print(positions, snapshot.written_ms)
    if complain_of((position.op, position.problem) for position in positions):
        raise typer.Exit(1)


def _print(positions: list[SourcePosition], written_ms: int | None) -> None:
    """A table, with a column for times of positions if there are any, and the snapshot's time."""
    heads, rows = list(_HEADS), [_row(each) for each in positions]
    if any(each.time_ms is not None for each in positions):
        heads.append(_TIME_HEAD)
        for row, position in zip(rows, positions, strict=True):
            row.append(_time(position))
    lines = table_lines(heads, rows) if positions else ["no sources"]
    if positions and written_ms is not None:
        age = age_text(written_ms, SystemClock().now_ms())
        lines.append(f"snapshot written: {moment_text(written_ms)}, {age}")
    print_lines(lines)


def _time(position: SourcePosition) -> str:
    """The time of a position, and how far it is behind the snapshot."""
    if position.time_ms is None:
        return ""
    if position.snapshot_ms is None or position.snapshot_ms < position.time_ms:
        return moment_text(position.time_ms)
    behind = duration_text(position.snapshot_ms - position.time_ms)
    return f"{moment_text(position.time_ms)}, {behind} behind"


def _row(source: SourcePosition) -> list[str]:
    position = source.position
    if source.connector is None and len(position) > _LONGEST_HEX:
        position = f"{position[:_LONGEST_HEX]}.. ({len(position) // 2} bytes)"
    return [
        source.op,
        source.connector
        or ("unknown" if source.version is None else f"unknown (version {source.version})"),
        source.split,
        f"{source.word} {position}".strip(),
        source.stop or "",
        source.holder,
        source.status,
    ]


def _moved_row(split: MovedSplit) -> list[str]:
    if split.records is None:
        effect = ""
    elif split.records < 0:
        effect = f"reads {-split.records:,} again"
    else:
        effect = f"skips {split.records:,}" if split.records else "stays"
    return [split.op, split.split, split.old, split.new, effect]
