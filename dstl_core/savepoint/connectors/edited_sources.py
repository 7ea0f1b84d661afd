"""One edit of a snapshot's sources: what they are, where they go on, and what they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.connectors.consumer_to_source import with_kafka_sources
from dstl_core.savepoint.connectors.kafka_topics import RenamedTopic, with_topics
from dstl_core.savepoint.connectors.kinesis_to_source import streams_of, with_kinesis_sources
from dstl_core.savepoint.connectors.set_positions import MovedSplit, set_positions
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.read.snapshot import Snapshot


@dataclass(frozen=True)
class EditedSources:
    """An edit of sources, and what it changes.

    Args:
        edit: Writes the copy.
        moved: The splits with another position, or of another source.
        topics: The topics with another name.
        left_out: Partitions without a position, which a new source discovers anew.
    """

    edit: SavepointEdit
    moved: tuple[MovedSplit, ...]
    topics: tuple[RenamedTopic, ...]
    left_out: tuple[str, ...]


def edited_sources(
    snapshot: Snapshot,
    *,
    kafka_sources: Mapping[str, str],
    positions: Mapping[str, str],
    topics: Mapping[str, str],
    earliest: bool = False,
    kinesis_sources: Mapping[str, str] | None = None,
    stream_arns: Sequence[str] = (),
) -> EditedSources:
    """Starts an edit: consumers become sources first, then positions change, then topics.

    Args:
        snapshot: The snapshot. All names are its own.
        kafka_sources: Operator of a ``FlinkKafkaConsumer`` to the uid of the ``KafkaSource``.
        positions: See ``set_positions``.
        topics: See ``with_topics``.
        earliest: See ``set_positions``.
        kinesis_sources: Operator of a ``FlinkKinesisConsumer`` to the uid of the
            ``KinesisStreamsSource``.
        stream_arns: The ARN of each stream that they read.

    Raises:
        NoSuchOperatorError: The snapshot lacks an operator.
        SavepointError: See ``with_kafka_sources``, ``with_kinesis_sources`` and ``set_positions``.
        ConfigError: See ``with_kinesis_sources``, ``set_positions`` and ``with_topics``.
    """
    of_kinesis, streams = kinesis_sources or {}, streams_of(stream_arns)
    if streams and not of_kinesis:
        raise ConfigError("--stream-arn needs --kinesis-source.")
    if twice := kafka_sources.keys() & of_kinesis.keys():
        raise ConfigError(
            f"Operator {min(twice)!r} cannot become two sources: --kafka-source and "
            f"--kinesis-source name it."
        )
    uids = {**kafka_sources, **of_kinesis}
    consumers = {name: snapshot[name] for name in uids}
    changed, moved, left_out = snapshot, list[MovedSplit](), tuple[str, ...]()
    if kafka_sources:
        converted = with_kafka_sources(snapshot, [consumers[name] for name in kafka_sources])
        changed, moved = converted.snapshot, list(converted.moved)
        left_out = converted.left_out
    if of_kinesis:
        shards = [consumers[name] for name in of_kinesis]
        changed, moved_shards = with_kinesis_sources(changed, shards, streams)
        moved += moved_shards
    if positions or earliest:
        changed, set_splits = set_positions(changed, positions, earliest=earliest)
        names = {(row.op, row.split) for row in set_splits}
        moved = [row for row in moved if (row.op, row.split) not in names] + set_splits
    renamed = list[RenamedTopic]()
    if topics:
        changed, renamed = with_topics(changed, topics)
    edit = edit_savepoint(changed)
    for name, uid in uids.items():
        old = OperatorIdentifier(consumers[name].operator_id, consumers[name].uid or None)
        edit = edit.change_operator_identifier(old, OperatorIdentifier.for_uid(uid))
    return EditedSources(edit, tuple(moved), tuple(renamed), left_out)
