"""What the committer of a Sink V2 keeps: requests to commit, by checkpoint and writer.

    collector v2   := i32 0xB91F252C, list c (checkpoint)
    checkpoint c   := i64 id, [c >= 1: i32 subtasks], list s (subtask)
    subtask s      := [s >= 1: i32 subtask], list 0 (request), i32 committables, [s <= 1: i32
                      drained], i32 failed
    request        := versioned committable, i32 retries, i32 state
    global v2      := i32 0xB91F252B, bool, [list (committable)], versioned collector

A list is a versioned list. Flink 1.15 to 1.19 write c = s = 0, 1.20 writes 1 and 1, 2.x writes 1
and 2. Source: ``CommittableCollectorSerializer`` and ``GlobalCommitterSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dstl_core.codec.connectors.connector_fields import (
    Json,
    check_version,
    read_choice,
    read_flag,
    whole,
)
from dstl_core.codec.connectors.envelope import (
    Versioned,
    parse_versioned,
    read_versioned,
    read_versioned_list,
    write_versioned,
)
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.errors import FormatError

_VERSION = 2
_COLLECTOR = 0xB91F252C - (1 << 32)
_GLOBAL = 0xB91F252B - (1 << 32)
_STATES = ("RECEIVED", "RETRY", "FAILED", "COMMITTED")


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One committable that a sink has to commit."""

    checkpoint_id: int
    subtask: int | None
    committable: Versioned
    retries: int
    state: str


@dataclass(frozen=True, slots=True)
class Collector:
    """What one subtask of a committer keeps.

    ``entries`` are the checkpoints as bytes, by id: what is kept of them is written back as it was.
    """

    version: int
    entries: tuple[tuple[int, bytes], ...]
    requests: tuple[CommitRequest, ...]
    is_global: bool = False
    committed_globally: tuple[Versioned, ...] | None = None

    def without(self, dropped: frozenset[int] | None) -> bytes:
        """The bytes of the collector without some checkpoints, or without all (None)."""
        kept = [raw for key, raw in self.entries if dropped is not None and key not in dropped]
        out = DataOutput()
        out.write_i32(_COLLECTOR)
        out.write_i32(self.version)
        out.write_i32(len(kept))
        for raw in kept:
            out.write_sized(raw)
        if not self.is_global:
            return out.to_bytes()
        framed = DataOutput()
        framed.write_i32(_GLOBAL)
        framed.write_bool(self.committed_globally is not None)
        if self.committed_globally is not None:
            version = self.committed_globally[0].version if self.committed_globally else 0
            framed.write_i32(version)
            framed.write_i32(len(self.committed_globally))
            for committable in self.committed_globally:
                framed.write_sized(committable.data)
        framed.write_bytes(write_versioned(Versioned(_VERSION, out.to_bytes())))
        return framed.to_bytes()


def is_collector(element: bytes) -> bool:
    """Whether an element of a committer's state is of Sink V2. Others (Paimon) use the same name
    for other bytes.
    """
    magic = int.from_bytes(element[8:12], "big", signed=True)
    return len(element) >= 12 and magic in (_COLLECTOR, _GLOBAL)


def parse_collector(element: bytes) -> tuple[int, Collector]:
    """The version of the outer frame, and the collector in an element of the committer's state.

    Raises:
        FormatError: The element is of another format.
    """
    framed = parse_versioned(element)
    check_version("What a committer keeps", framed.version, (_VERSION,))
    return framed.version, whole(framed.data, "what a committer keeps", _read_any)


def _read_any(data: DataInput) -> Collector:
    at = data.position
    magic = data.read_i32("magic number")
    if magic == _COLLECTOR:
        return _read_collector(data)
    if magic != _GLOBAL:
        raise FormatError("Not what a committer keeps", offset=at, field="magic number", got=magic)
    committed = tuple(read_versioned_list(data)) if read_flag(data, "has committables") else None
    inner = read_versioned(data)
    check_version("What a global committer keeps", inner.version, (_VERSION,))

    def read(nested: DataInput) -> Collector:
        nested.read_expected_i32("magic number", _COLLECTOR)
        return _read_collector(nested)

    collector = whole(inner.data, "what a global committer keeps", read)
    return Collector(collector.version, collector.entries, collector.requests, True, committed)


def _read_collector(data: DataInput) -> Collector:
    version = data.read_i32("version of checkpoints")
    check_version("Checkpoints of a committer", version, (0, 1))
    entries, requests = [], []
    for _ in range(data.read_count("checkpoints", 4)):
        raw = data.read_bytes(data.read_length("checkpoint"))
        checkpoint_id, checkpoint_requests = _read_checkpoint(raw, version)
        entries.append((checkpoint_id, raw))
        requests += checkpoint_requests
    return Collector(version, tuple(entries), tuple(requests))


def _read_checkpoint(raw: bytes, version: int) -> tuple[int, list[CommitRequest]]:
    data = DataInput(raw)
    checkpoint_id = data.read_i64("checkpoint id")
    if version >= 1:
        data.read_i32("subtasks")
    requests: list[CommitRequest] = []
    for subtask in read_versioned_list(data):
        requests += _read_subtask(subtask, checkpoint_id)
    data.expect_end("a checkpoint of a committer")
    return checkpoint_id, requests


def _read_subtask(subtask: Versioned, checkpoint_id: int) -> list[CommitRequest]:
    check_version("A writer's committables", subtask.version, (0, 1, 2))
    data = DataInput(subtask.data)
    index = data.read_i32("subtask") if subtask.version >= 1 else None
    requests = []
    for framed in read_versioned_list(data):
        request = DataInput(framed.data)
        committable = read_versioned(request)
        retries = request.read_i32("retries")
        state = read_choice(request, "state", _STATES)
        request.expect_end("a request to commit")
        requests.append(CommitRequest(checkpoint_id, index, committable, retries, state))
    data.read_i32("committables")
    if subtask.version <= 1:
        data.read_i32("drained")
    data.read_i32("failed")
    data.expect_end("a writer's committables")
    return requests


def describe_committable(committable: Versioned) -> tuple[str, Json]:
    """The kind of a committable and its fields; ``bytes`` with hex if no format fits."""
    for name, read in _FORMATS.items():
        try:
            return name, whole(committable.data, name, partial(read, committable))
        except FormatError:
            continue
    return "bytes", committable.data.hex()


def _kafka(committable: Versioned, data: DataInput) -> Json:
    check_version("A transaction of Kafka", committable.version, (1,))
    epoch = data.read_i16("epoch")
    return {
        "producerId": data.read_i64("producer id"),
        "epoch": epoch,
        "transactionalId": data.read_utf("transactional id"),
    }


_FILE = 0x1E765C80
_PENDING_FILE = 0x2C853C89
_RECOVERABLE = 0x1E744B57


def _file(committable: Versioned, data: DataInput) -> Json:
    check_version("A file", committable.version, (2,))
    data.read_expected_i32("magic number", _FILE)
    shown: Json = {"bucketId": data.read_utf("bucket")}
    shown["pending"] = pending_file(read_versioned(data)) if read_flag(data, "pending") else None
    cleanup = read_versioned(data).data.hex() if read_flag(data, "clean up") else None
    compacted = data.read_utf("compacted file") if read_flag(data, "compacted") else None
    return {**shown, "cleanup": cleanup, "compactedFileToCleanup": compacted}


def pending_file(pending: Versioned) -> Json:
    """A file that waits for its final name, with what its file system needs for it.

    Raises:
        FormatError: The bytes are of another format.
    """
    check_version("A pending file", pending.version, (2,))

    def read(data: DataInput) -> Json:
        data.read_expected_i32("magic number", _PENDING_FILE)
        path = data.read_utf("path") if read_flag(data, "has path") else None
        size = data.read_i64("size")
        return {"path": path, "size": size, "recoverable": _recoverable(read_versioned(data))}

    return whole(pending.data, "a pending file", read)


def _recoverable(recoverable: Versioned) -> Json:
    """What a local file system needs to finish a file; hex for other file systems."""
    raw = recoverable.data
    if int.from_bytes(raw[:4], "little") != _RECOVERABLE or len(raw) < 20:
        return raw.hex()
    sizes = [int.from_bytes(raw[at : at + 4], "little") for at in (12, 16)]
    if 20 + sum(sizes) != len(raw):
        return raw.hex()
    offset = int.from_bytes(raw[4:12], "little")
    target, temp = raw[20 : 20 + sizes[0]], raw[20 + sizes[0] :]
    return {
        "target": target.decode(errors="replace"),
        "temp": temp.decode(errors="replace"),
        "offset": offset,
    }


_FORMATS = {"kafka": _kafka, "file": _file}
