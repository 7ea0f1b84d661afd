"""A copy of a snapshot in which a ``FlinkKinesisConsumer`` has become a ``KinesisStreamsSource``.

The consumer keeps each shard with its parents, its hash keys, and the last record that it read. A
source knows the stream by its ARN. Its readers hold the shards that are not read to their end, and
its enumerator hands out a shard when it holds none of its parents. It asks for shards behind the
last one that it has seen: a shard before that is never asked for, and one behind it that no reader
holds is read from its start. Source: ``KinesisStreamsSourceEnumerator``, ``SplitTracker`` and
``KinesisStreamsSourceReader`` of the connector 5.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from dstl_core.codec.connectors.connector_fields import Json
from dstl_core.codec.connectors.envelope import Versioned
from dstl_core.codec.connectors.kinesis_source import (
    AFTER,
    AT,
    ENUMERATOR_VERSION,
    LATEST,
    SPLIT_VERSION,
    TRIM_HORIZON,
    write_enumerator,
    write_split,
)
from dstl_core.codec.connectors.legacy_sources import KinesisShard, kinesis_shard
from dstl_core.errors import ConfigError
from dstl_core.savepoint.connectors.known_states import KINESIS_CONSUMER, ConnectorState
from dstl_core.savepoint.connectors.set_positions import MovedSplit
from dstl_core.savepoint.connectors.state_of_source import (
    refusal,
    state_of_consumer,
    state_of_source,
)
from dstl_core.savepoint.edit.changed_elements import with_operators
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

_TARGET = "KinesisStreamsSource"
_ARN = re.compile(r"arn:[a-z0-9-]+:kinesis:[a-z0-9-]+:\d{12}:stream/([a-zA-Z0-9_.-]{1,128})")
_SHARD = re.compile(r"shardId-(\d{12,})")
_MARKERS = {"earliest": TRIM_HORIZON, "latest": LATEST}
_NO_HASH_KEYS = "-1", "0"
"""What the source takes for a shard whose hash keys it does not know."""
_FINISHED = "finished"


def streams_of(arns: Iterable[str]) -> dict[str, str]:
    """Names of streams and their ARNs.

    Raises:
        ConfigError: A text is no ARN of a stream, or two are of streams with one name.
    """
    streams: dict[str, str] = {}
    for arn in arns:
        matched = _ARN.fullmatch(arn)
        if matched is None:
            raise ConfigError(
                f"--stream-arn is wrong: expected arn:aws:kinesis:REGION:ACCOUNT:stream/NAME, got "
                f"{arn!r}."
            )
        if streams.setdefault(matched[1], arn) != arn:
            raise ConfigError(
                f"--stream-arn is wrong: expected one ARN of the stream {matched[1]!r}, got "
                f"{streams[matched[1]]!r} and {arn!r}."
            )
    return streams


def with_kinesis_sources(
    snapshot: Snapshot, consumers: Iterable[OperatorSnapshot], streams: Mapping[str, str]
) -> tuple[Snapshot, list[MovedSplit]]:
    """The snapshot in which consumers of Kinesis have the state of a ``KinesisStreamsSource``, and
    the position of each shard before and after.

    The operators keep their ids: an edit gives them the uid that the source has in the new job.

    Args:
        snapshot: The snapshot.
        consumers: Its operators that become sources.
        streams: Streams by their names, see ``streams_of``.

    Raises:
        SavepointError: An operator is no ``FlinkKinesisConsumer`` of one stream, keeps state beside
            it, has in-flight data, or the source would lose or repeat a shard.
        ConfigError: The ARN of a stream is not among ``streams``, or one of these is not read.
    """
    states, moved, used = {}, list[MovedSplit](), set[str]()
    for consumer in consumers:
        state, _ = state_of_consumer(consumer, KINESIS_CONSUMER, _TARGET)
        read = _shards(state)
        arn = _arn(consumer, read, streams)
        used.add(arn)
        # The consumer takes the last of equal shards, in the order of subtasks.
        shards = {_number(consumer, shard): shard for shard in read}
        splits = {
            number: _split(consumer, shard, arn)
            for number, shard in sorted(shards.items())
            if shard.marker != _FINISHED
        }
        last_seen = shards[_last_seen(consumer, shards)].fields["shardId"]
        assert last_seen is not None, "its number was read"
        listed = list(splits.values())
        states[consumer.operator_id] = state_of_source(
            consumer,
            [Versioned(SPLIT_VERSION, write_split(split)) for split in listed],
            Versioned(ENUMERATOR_VERSION, write_enumerator(last_seen, listed)),
        )
        moved += [_moved(consumer, shards[number], split) for number, split in splits.items()]
    if unused := sorted(set(streams.values()) - used):
        raise ConfigError(
            f"--stream-arn is wrong: no operator of --kinesis-source reads {unused[0]!r}; leave it "
            f"out, or name the operator."
        )
    return with_operators(snapshot, states), moved


def _shards(state: ConnectorState) -> list[KinesisShard]:
    return [
        kinesis_shard(raw) for part in state.parts for raw in part.reader.raw_elements(part.info)
    ]


def _number(consumer: OperatorSnapshot, shard: KinesisShard) -> int:
    matched = _SHARD.fullmatch(shard.fields["shardId"] or "")
    if matched is None:
        raise refusal(consumer, _TARGET, f"a shard has the name {shard.fields['shardId']!r}")
    return int(matched[1])


def _arn(
    consumer: OperatorSnapshot, shards: Iterable[KinesisShard], streams: Mapping[str, str]
) -> str:
    names = sorted({shard.fields["streamName"] or "" for shard in shards})
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise refusal(
            consumer, _TARGET, f"it reads {len(names)} streams ({listed}), and a source reads one"
        )
    if names[0] not in streams:
        got = ", ".join(map(repr, streams.values())) or "none"
        raise ConfigError(
            f"--kinesis-source needs --stream-arn ARN with the ARN of the stream {names[0]!r}, "
            f"which no state of {KINESIS_CONSUMER} has; got {got}."
        )
    return streams[names[0]]


def _last_seen(consumer: OperatorSnapshot, shards: Mapping[int, KinesisShard]) -> int:
    """The last shard before which none is missing. A subtask may not have found one yet that the
    consumer would have read, or a missing one has left the stream: the source asks for it.
    """
    numbers = sorted(shards)
    last = next((n for n in numbers if n + 1 not in shards), numbers[-1])
    repeated = [n for n in numbers if n > last and shards[n].marker == _FINISHED]
    if repeated:
        raise refusal(
            consumer,
            _TARGET,
            f"shard {last + 1} is missing in its state, so the source asks for all behind shard "
            f"{last}, and would read shard {repeated[0]} again, which is read to its end; take the "
            f"savepoint when that shard has left the stream",
        )
    return last


def _split(consumer: OperatorSnapshot, shard: KinesisShard, arn: str) -> Json:
    iterator, marker = _MARKERS.get(shard.marker or ""), None
    if shard.marker is None:
        # Inside of an aggregate of records, the source reads it again from its first record.
        iterator, marker = AFTER if shard.sub_number < 0 else AT, shard.number
    if iterator is None:
        raise refusal(
            consumer,
            _TARGET,
            f"shard {shard.fields['shardId']} starts at the time in the consumer's settings, which "
            f"no state has; take the savepoint when a record of the shard was read",
        )
    first, last = (shard.fields[name] for name in ("startingHashKey", "endingHashKey"))
    if first is None or last is None:
        first, last = _NO_HASH_KEYS
    parents = (shard.fields[name] for name in ("parentShardId", "adjacentParentShardId"))
    return {
        "streamArn": arn,
        "shardId": shard.fields["shardId"],
        "iterator": iterator,
        "marker": marker,
        "parents": [parent for parent in parents if parent is not None],
        "startingHashKey": first,
        "endingHashKey": last,
    }


def _moved(consumer: OperatorSnapshot, shard: KinesisShard, split: Json) -> MovedSplit:
    place, stays = shard.position, 0 if split["iterator"] == AFTER else None
    new = {AFTER: f"last {split['marker']}", AT: f"next {split['marker']}"}
    text = new.get(split["iterator"], split["iterator"].lower())
    return MovedSplit(
        consumer.label, place.split, f"{place.word} {place.value}".strip(), text, stays
    )
