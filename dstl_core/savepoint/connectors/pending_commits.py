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
from dstl_core.display import moment_text, option_text
from dstl_core.errors import NoSuchOperatorError, SavepointError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.connectors.known_states import (
    COMMITTER_STATE,
    SINK,
    ConnectorState,
    connector_states,
)
from dstl_core.savepoint.connectors.legacy_commits import LegacyRow, legacy_commits
from dstl_core.savepoint.edit.changed_elements import with_elements, with_operators
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames

UNKNOWN, SUSPECTED = "UNKNOWN", "SUSPECTED"
COMMITTED_AT_RESTORE = ("RECEIVED", "RETRY", "PRECOMMITTED")
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
            ``COMMITTED`` are not; ``OPEN`` is aborted. ``UNKNOWN``: the state of a sink that cannot
            be read; ``SUSPECTED``: the state of an operator that may be a sink.
        retries: How often the commit was tried again.
        kind: ``kafka``, ``file``, ``transaction`` (of a ``TwoPhaseCommitSinkFunction``),
            ``records`` (of a ``GenericWriteAheadSink``), ``bytes`` if no format fits, or ``state``
            for a whole state that is not known.
        committable: Its fields; hex for ``bytes``; name, type and size for ``state``.
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
    def problem(self) -> str | None:
        """What a person has to know of the state; None if its commits are known."""
        if self.state == SUSPECTED:
            return f"it may be a sink, and what it commits is not known: {self.text}"
        return f"what the sink commits is not known: {self.text}" if self.state == UNKNOWN else None

    @property
    def text(self) -> str:
        """The committable in a few words."""
        if self.kind == "kafka":
            fields = self.committable
            return f"{fields['transactionalId']} (epoch {fields['epoch']})"
        if self.kind == "file" and self.committable["pending"]:
            pending = self.committable["pending"]
            if pending["path"] is None:
                return f"file of a file system of its own: {pending['recoverable']}"
            return f"{pending['path']} ({pending['size']} bytes)"
        if self.kind == "transaction":
            fields = self.committable
            return f"{fields['transaction']} (since {moment_text(fields['start'])})"
        if self.kind == "records":
            return f"of a checkpoint of {moment_text(self.committable['start'])}"
        if self.kind == "state":
            fields = self.committable
            whose = "" if fields["connector"] is None else f" of {fields['connector']}"
            return f"{fields['state']!r}{whose}: {fields['elements']} of {fields['type']}"
        return str(self.committable)


def pending_commits(snapshot: Snapshot) -> Iterator[PendingCommit]:
    """Every committable that a Sink V2 keeps, and what sinks before Sink V2 have to commit.

    What of them cannot be read, and operators that may be sinks, have a row a state:
    ``known_states`` says which.

    Raises:
        FormatError: The state of a committer is damaged.
    """
    yield from _legacy_commits(snapshot)
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


def _legacy_commits(snapshot: Snapshot) -> Iterator[PendingCommit]:
    """The rows of sinks before Sink V2, and of what is not known."""
    for operator in snapshot.operators:
        for state in connector_states(operator, SINK):
            yield from _of_sink(state)


def _of_sink(state: ConnectorState) -> Iterator[PendingCommit]:
    """The rows of a sink that is no Sink V2, or of one whose committables are of another format."""
    operator = state.operator
    unread = state.elements
    if state.name == COMMITTER_STATE:
        # Others (Paimon) keep other bytes under the same name.
        unread -= sum(1 for _ in _collectors_of(operator))
    elif (rows := legacy_commits(state)) is not None:
        yield from (_legacy_row(operator, row) for row in rows if not row.is_unread)
        unread = sum(row.is_unread for row in rows)
    if unread:
        fields = {
            "connector": None if state.known is None else state.known.connector,
            "state": state.name,
            "type": state.type_name,
            "elements": unread,
        }
        status = SUSPECTED if state.known is None else UNKNOWN
        uid = operator.uid or None
        yield PendingCommit(operator.label, uid, None, None, status, 0, "state", fields)


def _legacy_row(operator: OperatorSnapshot, row: LegacyRow) -> PendingCommit:
    return PendingCommit(
        operator.label,
        operator.uid or None,
        row.checkpoint_id,
        row.subtask,
        row.state,
        0,
        row.kind,
        row.committable,
    )


def without_commits(
    snapshot: Snapshot, checkpoint_ids: Sequence[int] | None, op: str | None = None
) -> Snapshot:
    """The snapshot without pending commits, for ``edit_savepoint``.

    Args:
        snapshot: The snapshot.
        checkpoint_ids: The checkpoints whose committables are dropped; None drops all.
        op: The only committer to change, or its sink: uid, hash or name.

    Raises:
        SavepointError: A checkpoint has no committables.
        NoSuchOperatorError: There is no such operator.
    """
    dropped = None if checkpoint_ids is None else frozenset(checkpoint_ids)
    only = None if op is None else _committers(snapshot, op)
    _refuse_legacy(snapshot, dropped, only)
    with_commits = [
        (operator, collector)
        for operator, _, collector in _collectors(snapshot)
        if only is None or operator.operator_id in only
    ]
    known = {key for _, collector in with_commits for key, _ in collector.entries}
    missing = sorted((dropped or set()) - known)
    if missing or not known:
        shown = ", ".join(map(str, sorted(known))) or "none"
        whose = "The sinks have" if op is None else f"Operator {op!r} has"
        what = f"Checkpoint {missing[0]} has" if missing else whose
        raise SavepointError(
            f"{what} no committables; checkpoints with committables: {shown}.",
            location=str(snapshot.folder),
        )
    operators = {operator.operator_id: operator for operator, _ in with_commits}

    def change(_: int, elements: list[bytes]) -> list[bytes]:
        return [_without(each, dropped) for each in elements]

    states = {
        key: with_elements(operator, COMMITTER_STATE, change) for key, operator in operators.items()
    }
    return with_operators(snapshot, states)


def _committers(snapshot: Snapshot, name: str) -> frozenset[OperatorID]:
    """The operator of this name, and the committer of the sink of this name. The uid of a committer
    is made of that of its sink, which has the writer.
    """
    operators = {each.label: each for each in snapshot.operators}
    sink = operators.get(f"{_COMMITTER_OF}{name}")
    try:
        named = snapshot[name]
    except NoSuchOperatorError:
        if sink is None:
            raise
        return frozenset({sink.operator_id})
    sink = operators.get(f"{_COMMITTER_OF}{named.uid}")
    return frozenset({named.operator_id, *(() if sink is None else (sink.operator_id,))})


def _refuse_legacy(
    snapshot: Snapshot, dropped: frozenset[int] | None, only: frozenset[OperatorID] | None
) -> None:
    """Refuses to keep what the caller wants to drop.

    Raises:
        SavepointError: All is to be dropped, or all of an operator, and a sink keeps commits that
            are not of Sink V2.
    """
    if dropped is not None and only is None:
        return
    for operator in snapshot.operators:
        if only is not None and operator.operator_id not in only:
            continue
        for state in connector_states(operator, SINK):
            if any(row.state in (*COMMITTED_AT_RESTORE, UNKNOWN) for row in _of_sink(state)):
                selected = SnapshotNames(snapshot).text_of(operator)
                raise SavepointError(
                    f"The commits of operator {operator.label!r} cannot be dropped: it is no Sink "
                    f"V2; name a committer (--op) or checkpoints to drop those of others, or leave "
                    f"the operator out (dstl rewrite {option_text('--remove', selected)}).",
                    location=str(snapshot.folder),
                )


def _without(element: bytes, dropped: frozenset[int] | None) -> bytes:
    """An element of the stored list: i32 length, then the frame."""
    if not is_collector(element[4:]):
        return element
    version, collector = parse_collector(element[4:])
    framed = write_versioned(Versioned(version, collector.without(dropped)))
    parse_collector(framed)  # what is written can be read
    return len(framed).to_bytes(4, "big") + framed


def _collectors(snapshot: Snapshot) -> Iterator[tuple[OperatorSnapshot, int, Collector]]:
    """Operator, subtask and what it keeps."""
    for operator in snapshot.operators:
        yield from _collectors_of(operator)


def _collectors_of(operator: OperatorSnapshot) -> Iterator[tuple[OperatorSnapshot, int, Collector]]:
    """Those of one operator, without bytes that are of no Sink V2."""
    for subtask, handle, reader in operator.operator_state_readers(COMMITTER_STATE):
        for info in handle.states:
            if info.name != COMMITTER_STATE:
                continue
            for element in reader.elements(info):
                if isinstance(element, bytes) and is_collector(element):
                    yield operator, subtask, parse_collector(element)[1]
