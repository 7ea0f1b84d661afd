"""A few bytes that stand for many: each is refused before memory is taken for it."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from dstl_core.checkpoint.store.metadata_file import MAX_SIDECAR_BYTES, read_sidecar
from dstl_core.codec.change_format import segment_body
from dstl_core.codec.classfile.job_jar import MAX_ENTRIES, JarFile, JobClasses
from dstl_core.codec.columnar.keyed.sst_blocks import TableReader
from dstl_core.codec.metadata.metadata_format import (
    MAX_ITEMS,
    MAX_OFFSETS,
    CountedInput,
    read_metadata,
    write_metadata,
)
from dstl_core.codec.operator_state import (
    OperatorStateReader,
    list_state_meta,
    write_operator_stream,
)
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.codec.serializers.arrays import BytePrimitiveArraySerializer
from dstl_core.codec.snappy_frames import (
    MAX_CHUNK_DATA,
    MAX_UNPACKED_BYTES,
    STREAM_IDENTIFIER,
    compress_frames,
    decompress_frames,
)
from dstl_core.codec.sst.block import block_entries
from dstl_core.codec.sst.file import TABLE_MAGIC, SstFile
from dstl_core.errors import FormatError, StorageError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ChangelogStateHandleStream,
    EmptySegmentFileStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    InMemoryChangelogStateHandle,
    KeyedStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.property.file_damage import memory_limit
from tests.unit.codec.java_bytes import i32

# ------------------------------------------------------------------------------- table files


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def entry(shared: int, rest: bytes, value: bytes) -> bytes:
    return varint(shared) + varint(len(rest)) + varint(len(value)) + rest + value


def payload(*entries: bytes) -> bytes:
    return b"".join(entries) + struct.pack("<II", 0, 1)


def table_file(data: list[bytes], index: bytes | None = None) -> bytes:
    """A table file without checksums, its blocks packed with Snappy."""
    out = bytearray()

    def add(block: bytes) -> bytes:
        packed = bytes(cramjam.snappy.compress_raw(block))
        place = varint(len(out)) + varint(len(packed))
        out.extend(packed + b"\1" + bytes(4))
        return place

    places = [add(block) for block in data]
    lines = [entry(0, bytes([at]) + bytes(8), place) for at, place in enumerate(places, 1)]
    index_place = add(payload(*lines) if index is None else index)
    properties = add(payload(entry(0, b"rocksdb.column.family.name", b"state")))
    meta_index = add(payload(entry(0, b"rocksdb.properties", properties)))
    head = (b"\0" + meta_index + index_place).ljust(41, b"\0")
    return bytes(out) + head + struct.pack("<IQ", 5, TABLE_MAGIC)


def opened(raw: bytes) -> SstFile:
    return SstFile(lambda start, end: raw[start:end], len(raw))


KEY = 2 << 20
REPEATS = 1 << 17


def repeated_key(value: bytes) -> bytes:
    """A block with one long key, which 12 bytes each repeat."""
    trailers = (struct.pack("<Q", REPEATS + 1 - at << 8 | 1) for at in range(REPEATS + 1))
    first = entry(0, bytes(KEY) + next(trailers), value)
    return payload(first, *(entry(KEY, trailer, value) for trailer in trailers))


def test_keys_that_share_a_long_part_have_a_limit_together() -> None:
    """They take 256 GiB. The file has 1 MB."""
    block = repeated_key(b"")
    with memory_limit(512 << 20):
        with pytest.raises(FormatError, match="keys of a table file are too large together"):
            for _ in block_entries(block, 0):
                pass
        raw = table_file([block])
        assert len(raw) < 1 << 20
        assert [key for key, _ in opened(raw).index] == [b"\1"]
        with pytest.raises(FormatError, match="keys of a table file are too large together"):
            stored = TableReader(opened(raw)).read(b"", None)
            assert stored is not None
            stored.entries(b"", None, 0)


def test_the_index_of_a_table_file_has_a_limit() -> None:
    raw = table_file([], repeated_key(varint(0) + varint(0)))
    assert len(raw) < 1 << 20
    with memory_limit(512 << 20):
        with pytest.raises(FormatError):
            _ = opened(raw).index
        with pytest.raises(FormatError, match="The index of a table file is too large"):
            TableReader(opened(raw))


# ------------------------------------------------------------------------- compressed streams


def chunk(claimed: int) -> bytes:
    """A chunk that says how much it unpacks to."""
    body = varint(claimed)
    return b"\0" + (len(body) + 4).to_bytes(3, "little") + bytes(4) + body


@pytest.mark.slow
def test_chunks_that_claim_their_most_have_a_limit_together() -> None:
    raw = STREAM_IDENTIFIER + chunk(MAX_CHUNK_DATA) * (MAX_UNPACKED_BYTES // MAX_CHUNK_DATA + 1)
    assert len(raw) < 1 << 20
    with pytest.raises(FormatError, match=f"expected <= {MAX_UNPACKED_BYTES} bytes"):
        decompress_frames(raw, 0, len(raw))


def test_a_segment_is_not_unpacked_beyond_the_size_in_its_handle() -> None:
    segment = b"\1" + compress_frames(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="expected <= 1000 bytes, got 67108864"):
            segment_body(segment, 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_an_element_that_offsets_repeat_counts_as_often() -> None:
    size = 1 << 20
    meta = list_state_meta("s", OperatorStateMode.SPLIT_DISTRIBUTE, BytePrimitiveArraySerializer())
    raw, [info] = write_operator_stream([(meta, [i32(size) + bytes(size)])], [])
    often = MAX_UNPACKED_BYTES // size + 1
    repeated = OperatorStateMetaInfo(info.name, info.mode, info.offsets * often)
    with (
        memory_limit(512 << 20),
        pytest.raises(FormatError, match="elements of operator state 's' are too large together"),
    ):
        OperatorStateReader(raw, (repeated,), BUILT_IN).elements(repeated)
    twice = OperatorStateMetaInfo(info.name, info.mode, info.offsets * 2)
    assert OperatorStateReader(raw, (twice,), BUILT_IN).elements(twice) == [bytes(size)] * 2


# ----------------------------------------------------------------------------------- metadata

NOWHERE = EmptySegmentFileStateHandle()
KEY_GROUPS = KeyGroupRange(0, 0)
COUNT = 5_000


def keyed(handle: KeyedStateHandle) -> OperatorState:
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    return OperatorState(OperatorID(bytes(16)), 1, 128, (subtask,))


def listed(*states: OperatorStateMetaInfo) -> OperatorState:
    handle = OperatorStreamStateHandle(states, NOWHERE, None)
    subtask = OperatorSubtaskState(0, managed_operator_state=handle)
    return OperatorState(OperatorID(bytes(16)), 1, 128, (subtask,))


SMALLEST: dict[str, Callable[[int], list[OperatorState]]] = {
    "operators": lambda count: [
        OperatorState(OperatorID(at.to_bytes(16, "big")), 1, 128, ()) for at in range(count)
    ],
    "subtasks": lambda count: [
        OperatorState(
            OperatorID(bytes(16)),
            count,
            count,
            tuple(OperatorSubtaskState(at) for at in range(count)),
        )
    ],
    "finished subtasks": lambda count: [
        OperatorState(
            OperatorID(bytes(16)),
            count,
            count,
            tuple(OperatorSubtaskState(at, finished=True) for at in range(count)),
        )
    ],
    "states": lambda count: [
        listed(*[OperatorStateMetaInfo("", OperatorStateMode.UNION, ())] * count)
    ],
    "offsets": lambda count: [
        listed(OperatorStateMetaInfo("", OperatorStateMode.UNION, tuple(range(1000, count + 1000))))
    ],
    "change sets": lambda count: [
        keyed(
            ChangelogStateHandleStream(
                tuple((NOWHERE, 1000 + at) for at in range(count)), KEY_GROUPS, 0, 0, "", ""
            )
        )
    ],
    "changes": lambda count: [
        keyed(InMemoryChangelogStateHandle(((1000, b""),) * count, KEY_GROUPS, 0, 0, ""))
    ],
    "files": lambda count: [
        keyed(
            IncrementalRemoteKeyedStateHandle(
                "", KEY_GROUPS, 1, 0, NOWHERE, (("", FileStateHandle("", 1000)),) * count, (), ""
            )
        )
    ],
}


@pytest.mark.parametrize("kind", SMALLEST)
def test_an_item_of_the_metadata_takes_a_bounded_number_of_bytes(kind: str) -> None:
    """So a limit of items is one of memory, too. No item is smaller than these."""
    raw = write_metadata(CheckpointMetadata(3, 1, tuple(SMALLEST[kind](COUNT))))
    tracemalloc.start()
    try:
        read_metadata(raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / COUNT < (48 if kind == "offsets" else 300)


def test_counts_below_the_limit_have_a_limit_together() -> None:
    data = CountedInput(i32(MAX_ITEMS // 2, MAX_ITEMS // 2, 1))
    assert data.read_count("files", 0) + data.read_count("files", 0) == MAX_ITEMS
    with pytest.raises(FormatError, match=f"too many items: .*got {MAX_ITEMS + 1} up to here"):
        data.read_count("files", 0)


def test_offsets_have_a_limit_of_their_own() -> None:
    data = CountedInput(i32(4) + bytes(32))
    assert data.read_counted_i64s("offsets") == (0, 0, 0, 0)
    with pytest.raises(FormatError, match="The metadata has too many offsets"):
        data.read_i64s(MAX_OFFSETS - 3)


def test_metadata_with_too_many_items_is_refused_before_they_are_read() -> None:
    raw = bytearray(write_metadata(CheckpointMetadata(3, 1, tuple(SMALLEST["files"](2)))))
    at = raw.index(i32(2))
    raw[at : at + 4] = i32(MAX_ITEMS)
    with pytest.raises(FormatError, match=r"A count does not fit|The metadata has too many items"):
        read_metadata(bytes(raw))
    raw += bytes(3 * MAX_ITEMS)
    with (
        memory_limit(512 << 20),
        pytest.raises(FormatError, match="The metadata has too many items"),
    ):
        read_metadata(bytes(raw))


def test_a_sidecar_has_a_limit(tmp_path: Path) -> None:
    (tmp_path / "_dstl.json").touch()
    os.truncate(tmp_path / "_dstl.json", MAX_SIDECAR_BYTES + 1)
    folder = Location.parse(tmp_path)
    with memory_limit(128 << 20), pytest.raises(StorageError, match="The sidecar is too large"):
        read_sidecar(open_file_io(folder), folder)


# --------------------------------------------------------------------------------------- jars


def jar_of_names(count: int) -> bytes:
    """A jar of empty files, of its directory only."""
    head = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", *[0] * 11, 4, *[0] * 6)
    body = b"".join(head + b"%04x" % (at & 0xFFFF) for at in range(count))
    end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(body), 0)
    end += struct.pack("<4sLQL", b"PK\6\7", 0, len(body), 1)
    end += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)
    return body + end


@pytest.mark.slow
def test_names_in_many_jars_have_a_limit_together() -> None:
    """Each one takes 50 bytes of a jar and 400 of memory."""
    assert zipfile.ZipFile(io.BytesIO(jar_of_names(2))).namelist() == ["0000", "0001"]
    raw = jar_of_names(MAX_ENTRIES // 2 + 1)
    with pytest.raises(FormatError, match=r"jars have too many entries together, at b\.jar"):
        JobClasses([JarFile(name, io.BytesIO(raw)) for name in ("a.jar", "b.jar")])
