"""List and union states of operators that tell which source or sink an operator is.

A savepoint names no class of a connector. What is left of a source before FLIP-27, or of a sink
before Sink V2, is the name of its state and the type of its elements. ``KNOWN`` has those of Flink
and of the connectors that people run. An operator with none of them is only suspected, by one rule:

* Flink gives the operators of such sources and sinks names that start with ``Source: `` and
  ``Sink: ``. If the snapshot has names, these decide.
* Metadata before version 5 has no names. There, each operator without keyed state is suspected.

Empty states never make an operator suspect: they hold no position, and nothing to commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dstl_core.codec.operator_state import OperatorStateReader
from dstl_core.model.handle import OperatorStateMetaInfo
from dstl_core.savepoint.read.entries import OP_BROADCAST
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.read.snapshot import OperatorSnapshot

READER_STATE = "SourceReaderState"
COMMITTER_STATE = "streaming_committer_raw_states"
SOURCE, SINK, NEITHER = "source", "sink", "neither"
_ROLE_PREFIXES = {"Source: ": SOURCE, "Sink: ": SINK}


@dataclass(frozen=True, slots=True)
class KnownState:
    """A state that a connector gives a fixed name.

    Args:
        name: The name; with ``*`` in front, what it ends with; ``*`` alone for every name.
        element: A part of the name of the elements' type; empty for every type.
        role: ``source`` if its elements are positions, ``sink`` if they are to be committed,
            ``neither`` for what is beside them.
        connector: Who writes it.
    """

    name: str
    element: str
    role: str
    connector: str

    def fits(self, name: str, type_name: str) -> bool:
        is_named = name.endswith(self.name[1:]) if self.name[0] == "*" else name == self.name
        return is_named and self.element in type_name


KAFKA_CONSUMER, KINESIS_CONSUMER = "FlinkKafkaConsumer", "FlinkKinesisConsumer"
READ_FILE = "readFile"
QUEUE, ELEMENTS = "MessageAcknowledgingSource", "FromElements"
SEQUENCE, DATA_GENERATOR = "StatefulSequenceSource", "DataGeneratorSource"
FILES, WRITE_AHEAD = "StreamingFileSink", "GenericWriteAheadSink"
COMPACTION = "compaction of FileSink"
TWO_PHASE = "TwoPhaseCommitSinkFunction"
KNOWN = (
    # FLIP-27 and Sink V2: SourceOperator, SinkWriterOperator, CommitterOperator of Flink 2.2.1.
    KnownState(READER_STATE, "byte[]", SOURCE, "source of FLIP-27"),
    KnownState(COMMITTER_STATE, "byte[]", SINK, "Sink V2"),
    KnownState("writer_raw_states", "byte[]", NEITHER, "writer of Sink V2"),
    # The compactor of FileSink: CompactCoordinator and CompactorOperator of Flink 2.2.1.
    KnownState("remaining_compact_commit_raw_state", "byte[]", SINK, COMPACTION),
    KnownState("remaining_requests_raw_state", "byte[]", SINK, COMPACTION),
    # Functions of Flink 1.20.5, in the package legacy of 2.2.1: classes of the same names.
    KnownState("file-monitoring-state", "Long", SOURCE, READ_FILE),
    KnownState("splits", "JavaObject", SOURCE, READ_FILE),
    KnownState("message-acknowledging-source-state", "JavaObject", SOURCE, QUEUE),
    KnownState("from-elements-state", "Integer", SOURCE, ELEMENTS),
    KnownState("stateful-sequence-source-state", "Long", SOURCE, SEQUENCE),
    KnownState("*-sequence-state", "Long", SOURCE, DATA_GENERATOR),
    KnownState("state", "SinkState<", SINK, TWO_PHASE),
    KnownState("pending-checkpoints", "JavaObject", SINK, WRITE_AHEAD),
    KnownState("bucket-states", "byte[]", SINK, FILES),
    KnownState("max-part-counter", "Long", NEITHER, FILES),
    # Files of SQL: PartitionTimeCommitTrigger, ProcTimeCommitTrigger, CompactCoordinator,
    # CompactOperator, AbstractStreamingWriter of Flink 1.20.5 and 2.2.1.
    KnownState("pending-partitions", "List<", SINK, "partitions of SQL"),
    KnownState("pending-partitions-with-time", "Map<", SINK, "partitions of SQL"),
    KnownState("checkpoint-id-to-watermark", "Map<", NEITHER, "partitions of SQL"),
    KnownState("files-state", "Map<", SINK, "compaction of SQL"),
    KnownState("expired-files", "Map<", NEITHER, "compaction of SQL"),
    KnownState("end_of_input_state", "Boolean", NEITHER, "files of SQL"),
    # Operators that are no connectors: WindowAggOperator, StreamSortOperator, AsyncWaitOperator,
    # CollectSinkFunction (whose client asks again) of Flink 1.20.5 and 2.2.1.
    KnownState("watermark", "Long", NEITHER, "windows of SQL"),
    KnownState("localBufferState", "", NEITHER, "sort of SQL"),
    KnownState("_async_wait_operator_state_", "", NEITHER, "asynchronous IO"),
    KnownState("bufferState", "byte[]", NEITHER, "collect"),
    KnownState("offsetState", "Long", NEITHER, "collect"),
    # Kafka: FlinkKafkaConsumerBase and FlinkKafkaProducer of flink-connector-kafka 3.
    KnownState("topic-partition-offset-states", "KafkaTopicPartition", SOURCE, KAFKA_CONSUMER),
    KnownState("next-transactional-id-hint", "", NEITHER, "FlinkKafkaProducer"),
    KnownState("next-transactional-id-hint-v2", "", NEITHER, "FlinkKafkaProducer"),
    # Others took the name of Kafka's: RocketMQSourceFunction (rocketmq-flink), FlinkPulsarSource
    # (pulsar-flink 2.7 and before).
    KnownState("topic-partition-offset-states", "MessageQueue", SOURCE, "RocketMQSourceFunction"),
    KnownState("topic-partition-offset-states", "MessageId", SOURCE, "FlinkPulsarSource"),
    KnownState("topic-partition-offset-states", "", SOURCE, "consumer of topics"),
    KnownState("topic-offset-states", "", SOURCE, "FlinkPulsarSource"),
    # Kinesis: FlinkKinesisConsumer of flink-connector-aws before 5, and Amazon's own.
    KnownState("Kinesis-Stream-Shard-State", "", SOURCE, KINESIS_CONSUMER),
    # Change data: DebeziumSourceFunction of flink-cdc.
    KnownState("offset-states", "byte[]", SOURCE, "DebeziumSourceFunction"),
    KnownState("history-records-states", "String", NEITHER, "DebeziumSourceFunction"),
    # Tables: IcebergFilesCommitter (iceberg-flink), AbstractStreamWriteFunction (hudi-flink).
    KnownState("iceberg-files-committer-state", "", SINK, "IcebergFilesCommitter"),
    KnownState("iceberg-flink-job-id", "", NEITHER, "IcebergFilesCommitter"),
    KnownState("write-metadata-state", "", SINK, "Hudi"),
    KnownState("write-metadata-state-v2", "", SINK, "Hudi"),
    KnownState("job-id-state", "", NEITHER, "Hudi"),
    # Databases: XaSinkStateSerializer of flink-connector-jdbc; any name.
    KnownState("*", "XaSinkState", SINK, "JdbcXaSinkFunction"),
)
"""The first one that fits counts."""


@dataclass(frozen=True)
class StatePart:
    """One subtask's part of a state."""

    subtask: int
    reader: OperatorStateReader
    info: OperatorStateMetaInfo


@dataclass(frozen=True)
class ConnectorState:
    """A list or union state of a source or sink.

    Args:
        operator: The operator.
        name: Name of the state.
        kind: ``op-list`` or ``op-union``.
        type_name: Type of its elements.
        known: The connector's state; None if the operator is only suspected.
        parts: The parts of all subtasks.
    """

    operator: OperatorSnapshot
    name: str
    kind: str
    type_name: str
    known: KnownState | None
    parts: tuple[StatePart, ...]

    @property
    def elements(self) -> int:
        return sum(len(part.info.offsets) for part in self.parts)


def connector_states(operator: OperatorSnapshot, role: str) -> Iterator[ConnectorState]:
    """The states by which an operator is a source (or a sink), or may be one.

    Args:
        operator: The operator.
        role: ``source`` or ``sink``.

    Raises:
        FormatError: Operator state is damaged.
    """
    parts = _parts(operator)
    known = {key: _known(key) for key in parts}
    is_known = any(state is not None and state.role != NEITHER for state in known.values())
    suspected = frozenset[str]() if is_known else _suspected(operator)
    for key, listed in parts.items():
        state = known[key]
        roles = suspected if state is None else frozenset({state.role})
        connector_state = ConnectorState(operator, *key, state, tuple(listed))
        if role in roles and (state is not None or connector_state.elements):
            yield connector_state


def may_coordinate_source(operator: OperatorSnapshot) -> bool:
    """Whether the state of a coordinator may be that of a source: no state of the operator says
    what the operator is.

    Raises:
        FormatError: Operator state is damaged.
    """
    coordinator = operator.state.coordinator_state
    if coordinator is None or coordinator.state_size == 0:
        return False
    if operator.name and not operator.name.startswith("Source: "):
        return False
    return not any(map(_known, _parts(operator)))


_StateKey = tuple[str, str, str]
"""Name, kind and type of the elements."""


def _parts(operator: OperatorSnapshot) -> dict[_StateKey, list[StatePart]]:
    parts: dict[_StateKey, list[StatePart]] = {}
    for subtask, handle, reader in operator.operator_state_readers():
        for info in handle.states:
            kind = OPERATOR_KINDS[info.mode]
            if kind == OP_BROADCAST:
                continue
            type_name = reader.header.state(info).value_serializer.type_name
            part = StatePart(subtask, reader, info)
            parts.setdefault((info.name, kind, type_name), []).append(part)
    return parts


def _known(key: _StateKey) -> KnownState | None:
    name, _, type_name = key
    return next((state for state in KNOWN if state.fits(name, type_name)), None)


def _suspected(operator: OperatorSnapshot) -> frozenset[str]:
    """What an operator may be whose states are all unknown: see the module."""
    if operator.name:
        roles = (
            role for prefix, role in _ROLE_PREFIXES.items() if operator.name.startswith(prefix)
        )
        return frozenset(roles)
    has_keyed_state = any(
        subtask.managed_keyed_state is not None or subtask.raw_keyed_state is not None
        for subtask in operator.state.subtasks
    )
    return frozenset() if has_keyed_state else frozenset({SOURCE, SINK})
