"""What the sinks of a snapshot have pending, and copies in which that is dropped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dstl_core.codec.connectors.committables import (
    Collector,
    describe_committable,
    is_collector,
    parse_collector,
)
from dstl_core.codec.connectors.envelope import Versioned, write_versioned
from dstl_core.codec.serializers.operators.two_phase_commit import (
    SinkState,
    TwoPhaseCommitSerializer,
)
from dstl_core.errors import SavepointError
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.shown import moment_text

COMMITTER_STATE = "streaming_committer_raw_states"
_COMMITTER_OF = "Sink Committer: "


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """One committable of a sink.

    Args:
        op: The committer: its uid, or its hash.
        sink: Uid of the sink, if the committer's uid tells it.
        checkpoint_id: The checkpoint whose completion commits it; None where Flink does not store
            it.
        subtask: Index of the writer that made it; None where Flink does not store it.
        state: ``RECEIVED``, ``RETRY`` and ``PRECOMMITTED`` are committed at restore; ``FAILED`` and
            ``COMMITTED`` are not; ``OPEN`` is aborted.
        retries: How often the commit was tried again.
        kind: ``kafka``, ``file``, ``transaction`` (of a ``TwoPhaseCommitSinkFunction``), or
            ``bytes`` if no format fits.
        committable: Its fields; hex for ``bytes``.
    """

    op: str
    sink: str | None
    checkpoint_id: int | None
    subtask: int | None
    state: str
    retries: int
    kind: str
    committable: Any

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def text(self) -> str:
        """The committable in a few words."""
        if self.kind == "kafka":
            fields = self.committable
            return f"{fields['transactionalId']} (epoch {fields['epoch']})"
        if self.kind == "file" and self.committable["pending"]:
            pending = self.committable["pending"]
            return f"{pending['path']} ({pending['size']} bytes)"
        if self.kind == "transaction":
            fields = self.committable
            return f"{fields['transaction']} (since {moment_text(fields['start'])})"
        return str(self.committable)


def pending_commits(snapshot: Snapshot) -> Iterator[PendingCommit]:
    """Every committable that a Sink V2 keeps, and every transaction of a
    ``TwoPhaseCommitSinkFunction``.

    Raises:
        FormatError: The state of a committer is damaged.
    """
    for operator in snapshot.operators:
        yield from _transactions(operator)
    for operator, _, collector in _collectors(snapshot):
        uid = operator.uid
        sink = uid.removeprefix(_COMMITTER_OF) if uid.startswith(_COMMITTER_OF) else None
        for request in collector.requests:
            kind, committable = describe_committable(request.committable)
            yield PendingCommit(
                operator.label,
                sink,
                request.checkpoint_id,
                request.subtask,
                request.state,
                request.retries,
                kind,
                committable,
            )


def _transactions(operator: OperatorSnapshot) -> Iterator[PendingCommit]:
    """The transactions of a sink that commits in two phases; an unreadable one has no fields."""
    for subtask, handle, reader in operator.operator_state_readers():
        for info in handle.states:
            serializer = reader.header.state(info).value_serializer
            if not isinstance(serializer, TwoPhaseCommitSerializer):
                continue
            for element in reader.elements(info):
                if not isinstance(element, SinkState):
                    continue  # only Java classes can read the handle of its transaction
                text: Any = serializer.to_text(element)
                running = [] if text["pending"] is None else [text["pending"]]
                for state, listed in (("PRECOMMITTED", text["to_commit"]), ("OPEN", running)):
                    for each in listed:
                        yield PendingCommit(
                            operator.label,
                            operator.uid or None,
                            None,
                            subtask,
                            state,
                            0,
                            "transaction",
                            each,
                        )


def without_commits(
    snapshot: Snapshot, checkpoint_ids: Sequence[int] | None, op: str | None = None
) -> Snapshot:
    """The snapshot without pending commits, for ``edit_savepoint``.

    Args:
        snapshot: The snapshot.
        checkpoint_ids: The checkpoints whose committables are dropped; None drops all.
        op: The only committer to change: uid, hash or name.

    Raises:
        SavepointError: A checkpoint has no committables.
        NoSuchOperatorError: There is no such operator.
    """
    dropped = None if checkpoint_ids is None else frozenset(checkpoint_ids)
    only = None if op is None else snapshot[op].operator_id
    found = [
        (operator, collector)
        for operator, _, collector in _collectors(snapshot)
        if only is None or operator.operator_id == only
    ]
    known = {key for _, collector in found for key, _ in collector.entries}
    missing = sorted((dropped or set()) - known)
    if missing or not known:
        shown = ", ".join(map(str, sorted(known))) or "none"
        what = f"Checkpoint {missing[0]} has" if missing else "The sinks have"
        raise SavepointError(
            f"{what} no committables; checkpoints with committables: {shown}.",
            location=str(snapshot.folder),
        )
    operators = {operator.operator_id: operator for operator, _ in found}

    def change(_: int, elements: list[bytes]) -> list[bytes]:
        return [_without(each, dropped) for each in elements]

    states = {
        key: with_elements(operator, COMMITTER_STATE, change) for key, operator in operators.items()
    }
    return with_operators(snapshot, states)


def _without(element: bytes, dropped: frozenset[int] | None) -> bytes:
    """An element of the stored list: i32 length, then the frame."""
    if not is_collector(element[4:]):
        return element
    version, collector = parse_collector(element[4:])
    framed = write_versioned(Versioned(version, collector.without(dropped)))
    parse_collector(framed)  # what is written can be read
    return len(framed).to_bytes(4, "big") + framed


def _collectors(snapshot: Snapshot) -> Iterator[tuple[OperatorSnapshot, int, Collector]]:
    """Operator, subtask and what it keeps. Sinks that are no Sink V2 keep other bytes under the
    same name (Paimon); they are left out.
    """
    for operator in snapshot.operators:
        for subtask, handle, reader in operator.operator_state_readers():
            for info in handle.states:
                if info.name != COMMITTER_STATE:
                    continue
                for element in reader.elements(info):
                    if isinstance(element, bytes) and is_collector(element):
                        yield operator, subtask, parse_collector(element)[1]
