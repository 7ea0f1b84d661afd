"""``dstl offsets``: where sources stand, and a copy in which they stand elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
from dstl_core.display import age_text, duration_text, moment_text, table_lines
from dstl_core.errors import ConfigError

if TYPE_CHECKING:
    from dstl_core.savepoint.connectors.edited_sources import EditedSources
    from dstl_core.savepoint.connectors.set_positions import MovedSplit
    from dstl_core.savepoint.connectors.source_positions import SourcePosition
    from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit

_HEADS = ("source", "connector", "split", "position", "stop", "held by", "status")
_TIME_HEAD = "time of position"
_MOVED_HEADS = ("source", "split", "old", "new", "effect")
_LONGEST_HEX = 40


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SPLIT=POSITION",
        help="Go on at another position; SPLIT is topic/partition or an id, also OP:SPLIT.",
    ),
]
MapOption = Annotated[
    str | None,
    typer.Option(
        "--map", metavar="FILE", help="Positions in a file, SPLIT=POSITION a line, as for --set."
    ),
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", metavar="OLD=NEW", help="Read a topic of KafkaSource under another name."
    ),
]
KafkaSourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kafka-source",
        metavar="OP=UID",
        help="Turn a FlinkKafkaConsumer into a KafkaSource with this uid.",
    ),
]
KinesisSourceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--kinesis-source",
        metavar="OP=UID",
        help="Turn a FlinkKinesisConsumer into a KinesisStreamsSource with this uid.",
    ),
]
StreamArnOption = Annotated[
    list[str] | None,
    typer.Option("--stream-arn", metavar="ARN", help="The stream that --kinesis-source reads."),
]
_EDITS = "--set, --map, --earliest, --topic, --kafka-source and --kinesis-source"


def offsets(
    path: PathArgument,
    set_: SetOption = None,
    map_: MapOption = None,
    earliest: Annotated[
        bool, typer.Option("--earliest", help="Start over with every other partition of Kafka.")
    ] = False,
    topic: TopicOption = None,
    kafka_source: KafkaSourceOption = None,
    kinesis_source: KinesisSourceOption = None,
    stream_arn: StreamArnOption = None,
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

    With --set, --map or --earliest, it writes a copy to --out in which sources stand elsewhere.
    With --topic they read topics of other names, and with --kafka-source and --kinesis-source old
    consumers are new sources. SPLIT and OLD are names of the snapshot. Keyed state stays as it is,
    so records that are read again count twice. With --json, each split is one JSON object a line.
    The exit code is 1 if a split is lost or held twice, and if where a source stands is not known.
    """
    from dstl_core.savepoint.connectors.edited_sources import edited_sources
    from dstl_core.savepoint.connectors.source_positions import source_positions
    from dstl_core.savepoint.read.snapshot_names import SnapshotNames, cut_pairs, is_last

    snapshot = load(path, allow_root, relocate, changelog_base, None)
    files = files_of(share=share, copy=copy, canonical=canonical)
    from dstl_core.savepoint.read.snapshot_names import lines_of_file

    positions = [*(set_ or []), *lines_of_file("--map", map_, "position")]
    if positions or earliest or topic or kafka_source or kinesis_source or stream_arn:
        folder = required_out(out, f"{_EDITS} need")
        names = SnapshotNames(snapshot)
        sources = edited_sources(
            snapshot,
            kafka_sources=names.renaming("--kafka-source", kafka_source, "OP=UID"),
            kinesis_sources=names.renaming("--kinesis-source", kinesis_source, "OP=UID"),
            stream_arns=stream_arn or [],
            positions=cut_pairs("--set", positions, "SPLIT=POSITION", is_last),
            topics=cut_pairs("--topic", topic, "OLD=NEW", is_last),
            earliest=earliest,
        )
        edit = sources.edit.with_files(files)
        written = write_savepoint(edit, folder, overwrite=overwrite)
        if as_json:
            write_json([_changes(sources, edit, written)])
        else:
            print_lines([*_change_lines(sources), *sharing_note(edit), f"written: {written}"])
        return
    if out is not None:
        raise ConfigError(f"--out needs one of {_EDITS}.")
    rows = list(source_positions(snapshot))
    if as_json:
        write_json(row.to_json() for row in rows)
    else:
        _print(rows, snapshot.written_ms)
    if complain_of((row.op, row.problem) for row in rows):
        raise typer.Exit(1)


def _changes(sources: EditedSources, edit: SavepointEdit, written: str) -> dict[str, Any]:
    return {
        "path": written,
        "moved": [row.to_json() for row in sources.moved],
        "topics": [row.to_json() for row in sources.topics],
        "left_out": list(sources.left_out),
        "shares_files_in": edit.shares_files_in,
    }


def _change_lines(sources: EditedSources) -> list[str]:
    lines = table_lines(_MOVED_HEADS, map(_moved_row, sources.moved)) if sources.moved else []
    lines += [
        f"topic {row.old} of {row.op} is {row.new}: partitions {row.partitions}"
        for row in sources.topics
    ]
    lines += [
        f"left out, without a position: {name}; the source reads it from the earliest offset"
        for name in sources.left_out
    ]
    return lines


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
