"""What sources before FLIP-27 store: elements of list states whose classes are the connector's.

    partition of Kafka    := Kryo (class id, reference, zigzag hash, zigzag partition, reference,
                             text topic), i64 offset; hash = 31 * topic.hashCode() + partition
    shard of Kinesis      := POJO (flags, each field: bool is null, [text]), Kryo (class id,
                             reference, zigzag hash, reference, text number, zigzag sub-number);
                             hash = 37 * (number.hashCode() + Long.hashCode(sub-number))
    split of readFile     := Java's serialization of TimestampedFileInputSplit
    messages of a queue   := Java's serialization of SerializedCheckpointData[]

Source: ``FlinkKafkaConsumerBase`` and recorded state of the connector for Flink 1.8 to 1.20;
``FlinkKinesisConsumer`` and its ``StreamShardMetadata`` and ``SequenceNumber``;
``ContinuousFileReaderOperator`` and ``MessageAcknowledgingSourceBase`` of Flink 1.20.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.connectors.connector_fields import Position, whole
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaArray, JavaObject, JavaValue, read_java_object
from dstl_core.codec.kryo.kryo_input import KryoInput
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.serializers.strings import read_string_value, string_java_hash
from dstl_core.errors import FormatError

_FIRST_VALUE = 1
"""Kryo's mark of a value that was not written before."""
_MARKERS = {
    -915623761776: "not set",
    -915623761775: "earliest",
    -915623761774: "latest",
    -915623761773: "committed",
}
"""What ``KafkaTopicPartitionStateSentinel`` stores before a record was read."""
_SHARD_MARKERS = {
    "EARLIEST_SEQUENCE_NUM": "earliest",
    "LATEST_SEQUENCE_NUM": "latest",
    "AT_TIMESTAMP_SEQUENCE_NUM": "configured time",
    "SHARD_ENDING_SEQUENCE_NUM": "finished",
}
"""What ``SentinelSequenceNumber`` stores before a record was read, and behind the last one."""
_NO_SUBCLASS = 2
"""The flags of a POJO that is of its declared class and not null."""
_SHARD_FIELDS = (
    "adjacentParentShardId",
    "endingHashKey",
    "endingSequenceNumber",
    "parentShardId",
    "shardId",
    "startingHashKey",
    "startingSequenceNumber",
    "streamName",
)
_SPLIT = "org.apache.flink.streaming.api.functions.source.TimestampedFileInputSplit"
_MESSAGES = "[Lorg.apache.flink.streaming.api.functions.source.SerializedCheckpointData;"


def kafka_partition(raw: bytes) -> Position:
    """A partition of ``FlinkKafkaConsumer``, and the last offset that it read.

    Raises:
        FormatError: The element is none.
    """
    data = DataInput(raw)
    value = KryoInput(data, Dialect.KRYO_2)
    value.varint("class")
    _expect_first(value, _PARTITION)
    stored_hash, partition = value.zigzag("hash"), value.zigzag("partition")
    _expect_first(value, _PARTITION)
    topic = value.string("topic")
    value.commit()
    offset = data.read_i64("offset")
    data.expect_end("a partition of Kafka")
    if topic is None or stored_hash != _hash_of(topic, partition):
        raise FormatError(_PARTITION, field="hash", got=stored_hash)
    marker = _MARKERS.get(offset)
    name = f"{topic}/{partition}"
    return Position(name, str(offset), "last") if marker is None else Position(name, marker)


@dataclass(frozen=True, slots=True)
class KinesisShard:
    """An element of the state of ``FlinkKinesisConsumer``.

    Args:
        fields: Those of its ``StreamShardMetadata``, by name; None for what is not known.
        number: The sequence number of the last record that was read, or a marker.
        sub_number: Its place in an aggregate of records; negative outside of one.
    """

    fields: dict[str, str | None]
    number: str
    sub_number: int

    @property
    def marker(self) -> str | None:
        """The position, if it is no number."""
        return _SHARD_MARKERS.get(self.number)

    @property
    def position(self) -> Position:
        name = f"{self.fields['streamName']}/{self.fields['shardId']}"
        if self.marker is not None:
            return Position(name, self.marker)
        value = self.number if self.sub_number < 0 else f"{self.number}-{self.sub_number}"
        return Position(name, value, "last")


def kinesis_shard(raw: bytes) -> KinesisShard:
    """A shard of ``FlinkKinesisConsumer``, and the last record that it read.

    Raises:
        FormatError: The element is none.
    """
    data = DataInput(raw)
    flags = data.read_u8("flags")
    if flags != _NO_SUBCLASS:
        raise FormatError(_SHARD, field="flags", expected=_NO_SUBCLASS, got=flags)
    shard = {
        name: None if data.read_bool("is null") else read_string_value(data)
        for name in _SHARD_FIELDS
    }
    value = KryoInput(data, Dialect.KRYO_2)
    value.varint("class")
    _expect_first(value, _SHARD)
    stored_hash = value.zigzag("hash")
    _expect_first(value, _SHARD)
    number, sub_number = value.string("number"), value.zigzag_long("sub-number")
    value.commit()
    data.expect_end("a shard of Kinesis")
    if number is None or stored_hash != _hash_of_number(number, sub_number):
        raise FormatError(_SHARD, field="hash", got=stored_hash)
    return KinesisShard(shard, number, sub_number)


_PARTITION, _SHARD = "Not a partition of Kafka", "Not a shard of Kinesis"


def _expect_first(value: KryoInput, otherwise: str) -> None:
    got = value.u8("reference")
    if got != _FIRST_VALUE:
        raise FormatError(otherwise, field="reference", expected=_FIRST_VALUE, got=got)


def _hash_of(topic: str, partition: int) -> int:
    """Java's hash of a partition, with 32 bits."""
    return _int32(31 * string_java_hash(topic) + partition)


def _hash_of_number(number: str, sub_number: int) -> int:
    """Java's hash of a sequence number, with 32 bits."""
    unsigned = sub_number & (1 << 64) - 1
    return _int32(37 * (string_java_hash(number) + (unsigned ^ unsigned >> 32)))


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >> 31 else number


def file_split(raw: bytes) -> Position:
    """A split of ``readFile`` that a reader has not finished.

    Raises:
        FormatError: The element is none.
    """
    split = whole(raw, "an object of Java", read_java_object)
    if not isinstance(split, JavaObject) or split.name != _SPLIT:
        raise FormatError("Not a split of readFile", expected=_SPLIT, got=_name(split))
    fields = split.fields
    start, length = _whole(fields, "start"), _whole(fields, "length")
    path = fields.get("file")
    uri = path.fields.get("uri") if isinstance(path, JavaObject) else None
    text = uri.fields.get("string") if isinstance(uri, JavaObject) else None
    if not isinstance(text, str):
        raise FormatError("Not a split of readFile", field="file", got=_name(uri))
    state = fields.get("splitState")
    if isinstance(state, JavaObject) and state.name == "java.lang.Long":
        state = state.fields.get("value")
    name, stop = f"{text} [{start}+{length}]", str(start + length)
    if state is None:
        return Position(name, str(start), "byte", stop)
    # What the number means is for the input format to say; formats of text store a byte's place.
    value = str(state) if isinstance(state, int) else f"of class {_name(state)}"
    return Position(name, value, "state", stop)


def acknowledged_messages(raw: bytes) -> list[Position]:
    """The messages of a queue that are acknowledged when a checkpoint completes.

    Raises:
        FormatError: The element is no such list.
    """
    listed = whole(raw, "an object of Java", read_java_object)
    if not isinstance(listed, JavaArray) or listed.name != _MESSAGES:
        raise FormatError("No messages of a queue", expected=_MESSAGES, got=_name(listed))
    positions = []
    for item in listed.items:
        if not isinstance(item, JavaObject):
            raise FormatError("No messages of a queue", got=_name(item))
        checkpoint = _whole(item.fields, "checkpointId")
        count = _whole(item.fields, "numIds")
        positions.append(Position(f"checkpoint {checkpoint}", str(count), "messages"))
    return positions


def _whole(fields: dict[str, JavaValue], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int):
        raise FormatError("A field of an object of Java is no number", field=name)
    return value


def _name(value: JavaValue) -> str:
    return str(getattr(value, "name", type(value).__name__))
