"""What sinks before Sink V2 have to commit, as far as it can be read without classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dstl_core.codec.connectors.committables import describe_committable
from dstl_core.codec.connectors.envelope import parse_versioned
from dstl_core.codec.connectors.legacy_sinks import bucket_commits, write_ahead_commit
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers.operators.two_phase_commit import (
    SinkState,
    TwoPhaseCommitSerializer,
)
from dstl_core.errors import FormatError
from dstl_core.savepoint.connectors.known_states import (
    COMPACTION,
    FILES,
    TWO_PHASE,
    WRITE_AHEAD,
    ConnectorState,
    StatePart,
)

REQUESTS = "remaining_requests_raw_state"
_NO_REQUESTS = bytes.fromhex("a946be8300000000")
"""The magic number of the map of requests, and no entry: ``CompactorOperator`` of Flink 2.2.1."""


@dataclass(frozen=True, slots=True)
class LegacyRow:
    """One commit, with the fields of ``PendingCommit``. ``is_unread``: an element that only Java
    can read, or of another version.
    """

    subtask: int
    state: str = ""
    kind: str = ""
    committable: Any = None
    checkpoint_id: int | None = None
    is_unread: bool = False


def legacy_commits(state: ConnectorState) -> list[LegacyRow] | None:
    """What a sink has to commit; None if no form of its elements is known."""
    readers: dict[str, Callable[[StatePart], Iterator[LegacyRow]]] = {
        TWO_PHASE: _transactions,
        FILES: _files,
        WRITE_AHEAD: _records,
        COMPACTION: _files_to_compact,
    }
    read = None if state.known is None else readers.get(state.known.connector)
    return None if read is None else [row for part in state.parts for row in read(part)]


def _transactions(part: StatePart) -> Iterator[LegacyRow]:
    serializer = part.reader.header.state(part.info).value_serializer
    for element in part.reader.elements(part.info):
        if not isinstance(element, SinkState) or not isinstance(
            serializer, TwoPhaseCommitSerializer
        ):
            # Only Java classes can read the handle of its transaction.
            yield LegacyRow(part.subtask, is_unread=True)
            continue
        text: Any = serializer.to_text(element)
        running = [] if text["pending"] is None else [text["pending"]]
        for state, listed in (("PRECOMMITTED", text["to_commit"]), ("OPEN", running)):
            for transaction in listed:
                yield LegacyRow(part.subtask, state, "transaction", transaction)


def _files(part: StatePart) -> Iterator[LegacyRow]:
    for raw in part.reader.raw_elements(part.info):
        data = DataInput(raw)
        try:
            bucket = data.read_bytes(data.read_length("bucket"))
            commits = bucket_commits(bucket)
        except FormatError:
            yield LegacyRow(part.subtask, is_unread=True)
            continue
        for commit in commits:
            yield LegacyRow(
                part.subtask, "PRECOMMITTED", "file", commit.fields, commit.checkpoint_id
            )


def _files_to_compact(part: StatePart) -> Iterator[LegacyRow]:
    """Files that wait for their compaction, then for their commit."""
    for raw in part.reader.raw_elements(part.info):
        data = DataInput(raw)
        try:
            framed = parse_versioned(data.read_bytes(data.read_length("what a compactor keeps")))
        except FormatError:
            yield LegacyRow(part.subtask, is_unread=True)
            continue
        if part.info.name == REQUESTS and framed.data == _NO_REQUESTS:
            continue  # a subtask without requests stores an empty map
        kind, fields = describe_committable(framed)
        if part.info.name == REQUESTS or kind != "file":
            yield LegacyRow(part.subtask, is_unread=True)
            continue
        yield LegacyRow(part.subtask, "PRECOMMITTED", kind, fields)


def _records(part: StatePart) -> Iterator[LegacyRow]:
    for raw in part.reader.raw_elements(part.info):
        try:
            commit = write_ahead_commit(raw)
        except FormatError:
            yield LegacyRow(part.subtask, is_unread=True)
            continue
        yield LegacyRow(
            part.subtask, "PRECOMMITTED", "records", commit.fields, commit.checkpoint_id
        )
