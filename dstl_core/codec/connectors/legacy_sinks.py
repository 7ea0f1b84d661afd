"""What sinks before Sink V2 have to commit: elements of list states.

    bucket v1, v2   := i32 0x1E764B79, versioned bucket id, utf path, i64 creation time of the open
                       file, bool, [versioned open file], i32 version of pending files, i32 n,
                       n x (i64 checkpoint, i32 m, m x (i32 length, pending file))
    write-ahead     := Java's serialization of GenericWriteAheadSink$PendingCheckpoint

A bucket stands in a versioned frame. A pending file is that of a file sink. Source:
``BucketStateSerializer`` and ``GenericWriteAheadSink`` of Flink 1.20.5.
"""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.codec.connectors.committables import pending_file
from dstl_core.codec.connectors.connector_fields import Json, check_version, read_flag, whole
from dstl_core.codec.connectors.envelope import Versioned, parse_versioned, read_versioned
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import JavaObject, read_java_object
from dstl_core.errors import FormatError

_BUCKET = 0x1E764B79
_PENDING = "org.apache.flink.streaming.runtime.operators.GenericWriteAheadSink$PendingCheckpoint"
_LEAST_PENDING = 4


@dataclass(frozen=True, slots=True)
class LegacyCommit:
    """What is committed at restore: fields as JSON, and the checkpoint that it belongs to."""

    checkpoint_id: int
    fields: Json


def bucket_commits(raw: bytes) -> list[LegacyCommit]:
    """The closed files of a bucket of ``StreamingFileSink`` that wait for their final name.

    Raises:
        FormatError: The element is no bucket.
    """
    framed = parse_versioned(raw)
    check_version("A bucket of files", framed.version, (1, 2))
    return whole(framed.data, "a bucket of files", _read_bucket)


def _read_bucket(data: DataInput) -> list[LegacyCommit]:
    data.read_expected_i32("magic number", _BUCKET)
    read_versioned(data)  # the bucket's id is of a class of the user
    bucket = data.read_utf("path of the bucket")
    data.read_i64("creation time")
    if read_flag(data, "has an open file"):
        read_versioned(data)
    version = data.read_i32("version of pending files")
    files = []
    for _ in range(data.read_count("checkpoints", 12)):
        checkpoint_id = data.read_i64("checkpoint id")
        for _ in range(data.read_count("pending files", _LEAST_PENDING)):
            stored = Versioned(version, data.read_bytes(data.read_length("pending file")))
            files.append(
                LegacyCommit(checkpoint_id, {"bucket": bucket, "pending": _pending(stored)})
            )
    return files


def _pending(stored: Versioned) -> Json:
    """The file; hex if another file system, or an older Flink, has its own form."""
    try:
        return pending_file(stored)
    except FormatError:
        return {"path": None, "size": None, "recoverable": stored.data.hex()}


def write_ahead_commit(raw: bytes) -> LegacyCommit:
    """The records of a checkpoint that ``GenericWriteAheadSink`` still has to write.

    Raises:
        FormatError: The element is none.
    """
    data = DataInput(raw)
    pending = read_java_object(data)
    data.expect_end("an object of Java")
    if not isinstance(pending, JavaObject) or pending.name != _PENDING:
        raise FormatError("No pending checkpoint of a write-ahead sink", expected=_PENDING)
    fields = {name: pending.fields.get(name) for name in ("checkpointId", "subtaskId", "timestamp")}
    checkpoint_id = fields["checkpointId"]
    if not all(isinstance(value, int) for value in fields.values()):
        raise FormatError("A field of a pending checkpoint is no number", got=str(fields))
    assert isinstance(checkpoint_id, int), "all fields are numbers"
    return LegacyCommit(
        checkpoint_id, {"subtask": fields["subtaskId"], "start": fields["timestamp"]}
    )
