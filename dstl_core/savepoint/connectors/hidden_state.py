"""Connectors whose positions or commits are in a snapshot, and which dstl does not read.

Sources before FLIP-27 and sinks before Sink V2 keep them in list or union state of their own names.
No file names the class of a connector, so the names of its states do; they are constants of the
classes in the table below. Union state of another operator without keyed state may be the positions
of a source, and list state what a sink has pending: these are suspected, unless the operator's name
says that it is the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from dstl_core.codec.operator_state import OperatorStateReader
from dstl_core.codec.serializers.opaque import JavaSerializer
from dstl_core.codec.serializers.operators.two_phase_commit import (
    SinkState,
    TwoPhaseCommitSerializer,
)
from dstl_core.model.handle import OperatorStateMetaInfo
from dstl_core.savepoint.connectors.pending_commits import COMMITTER_STATE
from dstl_core.savepoint.connectors.source_positions import READER_STATE
from dstl_core.savepoint.read.entries import OP_LIST, OP_UNION
from dstl_core.savepoint.read.operator_catalog import OPERATOR_KINDS
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

SOURCE, SINK = "source", "sink"
_SHOWN = (READER_STATE, COMMITTER_STATE, "writer_raw_states")
_KNOWN = {
    "topic-partition-offset-states": (SOURCE, "FlinkKafkaConsumer or FlinkPulsarSource"),
    "Kinesis-Stream-Shard-State": (SOURCE, "FlinkKinesisConsumer"),
    "file-monitoring-state": (SOURCE, "readFile"),
    "message-acknowledging-source-state": (SOURCE, "RMQSource or another acknowledging source"),
    "from-elements-state": (SOURCE, "fromElements"),
    "stateful-sequence-source-state": (SOURCE, "StatefulSequenceSource"),
    "bucket-states": (SINK, "StreamingFileSink or the file system sink of SQL"),
    "max-part-counter": (SINK, "StreamingFileSink or the file system sink of SQL"),
    "pending-checkpoints": (SINK, "GenericWriteAheadSink"),
    "next-transactional-id-hint-v2": (SINK, "FlinkKafkaProducer"),
    "next-transactional-id-hint": (SINK, "FlinkKafkaProducer"),
}
"""By name of the state: what the operator is, and the class that keeps it. Sources: the constants
of ``FlinkKafkaConsumerBase``, ``FlinkKinesisConsumer``, ``ContinuousFileReaderOperator``,
``ContinuousFileMonitoringFunction``, ``MessageAcknowledgingSourceBase``, ``FromElementsFunction``,
``StatefulSequenceSource``, ``StreamingFileSinkHelper``, ``GenericWriteAheadSink`` and
``FlinkKafkaProducer`` of Flink 1.x and its connectors.
"""
_READ = "", None
"""Of a state that the commands show."""


@dataclass(frozen=True, slots=True)
class HiddenState:
    """A state that may have what a command does not show.

    Args:
        op: The operator: its uid, or its hash.
        role: ``source`` or ``sink``.
        connector: The class that keeps it; None if it is only suspected.
        state: Its name.
        kind: ``op-list`` or ``op-union``.
        elements: How many it has.
    """

    op: str
    role: str
    connector: str | None
    state: str
    kind: str
    elements: int

    def __str__(self) -> str:
        what = f"state {self.state!r} ({self.kind}, {self.elements} elements)"
        if self.connector is None:
            return f"operator {self.op!r} may be a {self.role}: {what} is not known"
        return f"operator {self.op!r} is a {self.role} of {self.connector}: {what} is not shown"


def hidden_states(snapshot: Snapshot, role: str) -> list[HiddenState]:
    """The states of sources or of sinks that the commands do not show. Empty state hides nothing.

    Args:
        snapshot: The snapshot, whose operator state is read.
        role: ``SOURCE`` or ``SINK``.

    Raises:
        FormatError: Operator state is damaged.
    """
    return [state for each in snapshot.operators for state in _of(each, role)]


def _of(operator: OperatorSnapshot, role: str) -> Iterator[HiddenState]:
    counts: Counter[tuple[str, str]] = Counter()
    known: dict[tuple[str, str], tuple[str, str | None] | None] = {}
    for _, handle, reader in operator.operator_state_readers():
        for info in handle.states:
            key = info.name, OPERATOR_KINDS[info.mode]
            counts[key] += len(info.offsets)
            known[key] = _KNOWN.get(info.name) or _by_type(reader, info)
    if any(name in _SHOWN for name, _ in counts):
        return
    for (name, kind), count in sorted(counts.items()):
        of = known[name, kind]
        if of is None and _is_suspected(operator, kind, role):
            of = role, None
        if of is not None and of[0] == role and count:
            yield HiddenState(operator.label, role, of[1], name, kind, count)


def _by_type(
    reader: OperatorStateReader, info: OperatorStateMetaInfo
) -> tuple[str, str | None] | None:
    """What the type of a state says: of ``ContinuousFileReaderOperator`` only the type is its own,
    and of a ``TwoPhaseCommitSinkFunction`` the transactions that can be read are shown.
    """
    serializer = reader.header.state(info).value_serializer
    if info.name == "splits" and isinstance(serializer, JavaSerializer):
        return SOURCE, "readFile"
    if isinstance(serializer, TwoPhaseCommitSerializer):
        is_read = all(isinstance(each, SinkState) for each in reader.elements(info))
        return _READ if is_read else (SINK, "TwoPhaseCommitSinkFunction")
    return None


def _is_suspected(operator: OperatorSnapshot, kind: str, role: str) -> bool:
    """Whether unknown state of this kind may belong to a connector."""
    if operator.keyed_handles or kind not in (OP_LIST, OP_UNION):
        return False
    if operator.name:
        return operator.name.lower().startswith(f"{role}:")
    return kind == (OP_UNION if role == SOURCE else OP_LIST)
