"""The state of a sink that commits in two phases (``TwoPhaseCommitSinkFunction``).

Source: ``TwoPhaseCommitSinkFunction.StateSerializer`` of Flink 1.20.5 and, in the package
``legacy``, of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers.base import (
    AnySerializer,
    CompositeSerializer,
    JsonValue,
    SnapshotContext,
    read_composite_header,
    readers_of,
)

_SINK = "org.apache.flink.streaming.api.functions.sink."
_CLASS = "TwoPhaseCommitSinkFunction$StateSerializerSnapshot"
_LEAST_TRANSACTION = 8


class Transaction(NamedTuple):
    """A transaction, and its start in milliseconds since 1970."""

    handle: Any
    start: int


class SinkState(NamedTuple):
    """The open transaction, the transactions to commit, and the user's context."""

    pending: Transaction | None
    to_commit: list[Transaction]
    context: Any


@dataclass(frozen=True)
class TwoPhaseCommitSerializer(CompositeSerializer[SinkState]):
    """The open transaction (after a bool if it is optional), i32 count and the transactions to
    commit, bool, and the context if the bool is true. A transaction is its handle and an i64.
    """

    transaction: AnySerializer
    context: AnySerializer
    outer_version: int = 4
    pending_may_lack: bool = True
    snapshot_class: ClassVar[str] = _SINK + "legacy." + _CLASS
    kind: ClassVar[str] = "SinkState"
    part_names: ClassVar[tuple[str, ...]] = ("transaction", "context")

    def serialize(self, value: SinkState, out: DataOutput) -> None:
        if self.pending_may_lack:
            out.write_bool(value.pending is not None)
        if value.pending is not None:
            self._write(value.pending, out)
        out.write_i32(len(value.to_commit))
        for transaction in value.to_commit:
            self._write(transaction, out)
        out.write_bool(value.context is not None)
        if value.context is not None:
            self.context.serialize(value.context, out)

    def _write(self, value: Transaction, out: DataOutput) -> None:
        self.transaction.serialize(value.handle, out)
        out.write_i64(value.start)

    def deserialize(self, data: DataInput) -> SinkState:
        pending = None
        if not self.pending_may_lack or data.read_bool("has an open transaction"):
            pending = self._read(data)
        count = data.read_count("transactions to commit", _LEAST_TRANSACTION)
        to_commit = [self._read(data) for _ in range(count)]
        has_context = data.read_bool("has a context")
        return SinkState(
            pending, to_commit, self.context.deserialize(data) if has_context else None
        )

    def _read(self, data: DataInput) -> Transaction:
        return Transaction(self.transaction.deserialize(data), data.read_i64("transaction start"))

    def write_outer_fields(self, out: DataOutput) -> None:
        if self.outer_version >= 4:
            out.write_bool(self.pending_may_lack)

    @classmethod
    def read_snapshot_payload(cls, data: DataInput, context: SnapshotContext) -> Self:
        outer = read_composite_header(data, 2, 3, 4)
        may_lack = data.read_bool("pending may lack") if outer == 4 else outer == 3
        transaction, user_context = context.read_nested(data, 2)
        return cls(transaction, user_context, outer, may_lack)

    def to_text(self, value: SinkState) -> JsonValue:
        return {
            "pending": None if value.pending is None else self._text(value.pending),
            "to_commit": [self._text(each) for each in value.to_commit],
            "context": None if value.context is None else self.context.to_text(value.context),
        }

    def _text(self, value: Transaction) -> JsonValue:
        return {"transaction": self.transaction.to_text(value.handle), "start": value.start}


@dataclass(frozen=True)
class OldTwoPhaseCommitSerializer(TwoPhaseCommitSerializer):
    """The same format in Flink 1.x."""

    snapshot_class: ClassVar[str] = _SINK + _CLASS


READERS = readers_of(TwoPhaseCommitSerializer, OldTwoPhaseCommitSerializer)
