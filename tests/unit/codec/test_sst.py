"""RocksDB's table files: our reader against RocksDB itself, and against damage."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
import rocksdict
import xxhash

from dstl_core.codec.checksums import masked_crc32c
from dstl_core.codec.sst.block import (
    BlockHandle,
    block_entries,
    index_entries,
    unpack_block,
)
from dstl_core.codec.sst.file import RangeTombstone, SstFile
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.errors import FormatError
from tests.examples import places
from tests.golden_files import SNAPSHOTS

KEY_GROUPS = 16


def opened(raw: bytes) -> SstFile:
    return SstFile(lambda start, end: raw[start:end], len(raw))


def options(**more: Any) -> rocksdict.Options:
    made = rocksdict.Options(raw_mode=True)
    made.create_if_missing(True)
    made.set_disable_auto_compactions(True)
    made.set_compression_type(more.get("compression", rocksdict.DBCompressionType.snappy()))
    table = rocksdict.BlockBasedOptions()
    table.set_block_size(more.get("block_size", 512))
    table.set_format_version(more.get("format_version", 5))
    table.set_index_block_restart_interval(more.get("index_restarts", 1))
    if "checksum" in more:
        table.set_checksum_type(more["checksum"])
    if more.get("two_level"):
        table.set_index_type(rocksdict.BlockBasedIndexType.two_level_index_search())
        table.set_partition_filters(True)
        table.set_bloom_filter(10, False)
    made.set_block_based_table_factory(table)
    return made


def filled(
    path: Path, seed: int, *, rounds: int = 4, range_deletes: bool = False, **more: Any
) -> dict[bytes, bytes]:
    """A database of several files and levels; gives what RocksDB itself reads from it."""
    random_ = random.Random(seed)
    made = options(**more)
    database = rocksdict.Rdict(str(path), made)
    for at in range(rounds):
        for _ in range(random_.randrange(20, 300)):
            key = bytes((random_.randrange(KEY_GROUPS),)) + b"%03d" % random_.randrange(200)
            if random_.random() < 0.25:
                database.delete(key)
            else:
                database[key] = random_.randbytes(random_.randrange(0, 60))
        if range_deletes and (random_.random() < 0.8 or at == rounds - 1):
            start = random_.randrange(KEY_GROUPS)
            database.delete_range(bytes((start,)), bytes((start + random_.randrange(1, 4),)))
        database.flush()
        if at == rounds // 2:
            database.compact_range(None, None)
    database.flush()
    rows = {bytes(key): bytes(value) for key, value in database.items()}
    database.close()
    return rows


def table_files(path: Path) -> list[SstFile]:
    return [opened(file.read_bytes()) for file in sorted(path.glob("*.sst"))]


LAYOUTS: dict[str, dict[str, Any]] = {
    "snappy": {"compression": rocksdict.DBCompressionType.snappy()},
    "none": {"compression": rocksdict.DBCompressionType.none()},
    "lz4": {"compression": rocksdict.DBCompressionType.lz4()},
    "zstd": {"compression": rocksdict.DBCompressionType.zstd()},
    "zlib": {"compression": rocksdict.DBCompressionType.zlib()},
    "large blocks": {"block_size": 1 << 20},
    "partitioned index": {"two_level": True, "block_size": 128},
    "old format": {"format_version": 2},
    "index with differences": {"index_restarts": 8, "block_size": 128},
    "crc32c": {"checksum": rocksdict.ChecksumType.crc32c()},
    "xxhash": {"checksum": rocksdict.ChecksumType.xxhash()},
    "xxhash64": {"checksum": rocksdict.ChecksumType.xxhash64()},
    "xxh3": {"checksum": rocksdict.ChecksumType.xxh3()},
}
COMPRESSIONS = {
    "snappy": b"Snappy",
    "none": b"NoCompression",
    "lz4": b"LZ4",
    "zstd": b"ZSTD",
    "zlib": b"Zlib",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_those_that_rocksdb_reads(tmp_path: Path, layout: str, seed: int) -> None:
    rows = filled(tmp_path / "db", seed, **LAYOUTS[layout])
    files = table_files(tmp_path / "db")
    assert len(files) > 1
    compression = COMPRESSIONS.get(layout, b"Snappy")
    assert {file.properties[b"rocksdb.compression"] for file in files} == {compression}
    index_kind = 2 if layout == "partitioned index" else 0
    for file in files:
        raw = file.properties[b"rocksdb.block.based.table.index.type"]
        assert int.from_bytes(raw, "little") == index_kind
    assert dict(merged_rows(files, b"", None)) == rows


@pytest.mark.parametrize("seed", range(12))
def test_range_tombstones(tmp_path: Path, seed: int) -> None:
    rows = filled(tmp_path / "db", seed, rounds=6, range_deletes=True)
    files = table_files(tmp_path / "db")
    assert any(file.tombstones for file in files)
    assert dict(merged_rows(files, b"", None)) == rows


def test_a_range_tombstone_ends_with_its_file(tmp_path: Path) -> None:
    """As RocksDB reads it: beyond the keys of its file, what it deleted is gone, and what came
    later may have lost its sequence number.
    """
    database = rocksdict.Rdict(str(tmp_path / "db"), options())
    database[b"\1a"] = database[b"\1z"] = b"deleted"
    database.delete_range(b"\1", b"\3")
    database[b"\1m"] = b"kept"
    database.flush()
    database.close()
    other = rocksdict.Rdict(str(tmp_path / "other"), options())
    other[b"\2"] = b"later"
    other.flush()
    other.close()
    [file], [later] = (
        [each.read_bytes() for each in (tmp_path / name).glob("*.sst")] for name in ("db", "other")
    )
    cut = SstFile(lambda start, end: file[start:end], len(file), (b"\1a", b"\1z"))
    assert opened(file).tombstones == [RangeTombstone(b"\1", b"\3", 3)]
    assert dict(merged_rows([cut, opened(later)], b"", None)) == {b"\1m": b"kept", b"\2": b"later"}


@pytest.mark.parametrize("seed", range(3))
def test_a_range_of_keys_is_a_part_of_the_rows(tmp_path: Path, seed: int) -> None:
    rows = filled(tmp_path / "db", seed, block_size=100)
    files = table_files(tmp_path / "db")
    read: dict[bytes, bytes] = {}
    for group in range(KEY_GROUPS + 1):
        part = dict(merged_rows(files, bytes((group,)), bytes((group + 1,))))
        assert all(key[0] == group for key in part)
        read |= part
    assert read == rows
    assert dict(merged_rows(files, bytes((250,)), None)) == {}


# ------------------------------------------------------------------------------- real Flink's


def flinks() -> list[Path]:
    rows = []
    for fixture in SNAPSHOTS:
        if "rocksdb" in fixture.name:
            rows += [
                path
                for path in sorted(fixture.folder.rglob("*"))
                if path.is_file() and path.read_bytes()[-8:] == b"\xf7\xcf\xf4\x85\xb7\x41\xe2\x88"
            ]
    return rows


def test_files_by_flink_name_their_states() -> None:
    families = {opened(path.read_bytes()).column_family for path in flinks()}
    assert families >= {"cnt", "names", "m", "red", "agg", "_timer_state/event_user-timers"}
    tombstones = [each for path in flinks() for each in opened(path.read_bytes()).tombstones]
    assert tombstones, "the rescaled one has range tombstones"


@pytest.mark.slow
@pytest.mark.parametrize("path", flinks()[::7], ids=lambda path: path.name[:8])
def test_every_changed_byte_of_a_data_block_is_found(path: Path) -> None:
    raw = path.read_bytes()
    rows = list(merged_rows([opened(raw)], b"", None))
    for at in places(len(raw), 7):
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        try:
            read = list(merged_rows([opened(bytes(damaged))], b"", None))
        except FormatError:
            continue
        # Nothing reads the filters, nor the padding of the footer.
        assert read == rows, at


@pytest.mark.slow
@pytest.mark.parametrize("path", flinks()[::5], ids=lambda path: path.name[:8])
def test_cutting_a_file_anywhere_is_a_format_error(path: Path) -> None:
    raw = path.read_bytes()
    for size in range(len(raw)):
        with pytest.raises(FormatError):
            list(merged_rows([opened(raw[:size])], b"", None))


# -------------------------------------------------------------------------------------- blocks


def masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_the_masked_checksums_of_rfc_3720() -> None:
    assert masked_crc32c(b"123456789") == masked(0xE3069283)
    assert masked_crc32c(bytes(32)) == masked(0x8A9136AA)


@pytest.mark.parametrize(
    ("kind", "checksum"),
    [
        (0, 12345),
        (1, masked(google_crc32c.value(b"payload\0"))),
        (2, xxhash.xxh32_intdigest(b"payload\0")),
        (3, xxhash.xxh64_intdigest(b"payload\0") & 0xFFFFFFFF),
        (4, xxhash.xxh3_64_intdigest(b"payload") & 0xFFFFFFFF),
    ],
)
def test_checksums_of_every_kind(kind: int, checksum: int) -> None:
    raw = b"payload\0" + checksum.to_bytes(4, "little")
    assert unpack_block(raw, kind, 0) == b"payload"
    if kind:
        with pytest.raises(FormatError, match="checksum of a block is wrong"):
            unpack_block(b"q" + raw[1:], kind, 0)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"\0\0\0\0", "A block is too short"),
        (b"\xff\xff\xff\xff\x7f" + b"\1\0\0\0\0", "A block is too large"),
        (b"\xff\xff\xff\xff\xff" + b"\1\0\0\0\0", "does not end"),
        (b"\5abc" + b"\1\0\0\0\0", "A compressed block is damaged"),
        (
            b"\5abc" + b"\2\0\0\0\0",
            "compressed block is damaged|unpacked size of a block",
        ),
        (b"\5abc" + b"\4\0\0\0\0", "A compressed block is damaged"),
        (b"\5abc" + b"\7\0\0\0\0", "A compressed block is damaged"),
        (b"\5abc" + b"\3\0\0\0\0", "compression of a block is not supported"),
    ],
)
def test_blocks_that_do_not_unpack(raw: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        unpack_block(raw, 0, 0)


def test_an_unknown_checksum_is_refused() -> None:
    with pytest.raises(FormatError, match="unknown checksum"):
        unpack_block(bytes(9), 9, 0)


ONE_RESTART = b"\0\0\0\0\1\0\0\0"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b"", "no restart offsets"),
        (b"\0\0\0\0", "too short for its restart offsets"),
        (b"\xff\xff\xff\x7f", "too short for its restart offsets"),
        (b"\1\0\0\x80", "hash index"),
        (b"\1\0\0" + ONE_RESTART, "longer than the block"),
        (b"\0\5\0abc" + ONE_RESTART, "longer than the block"),
        (b"\0\1\5a" + ONE_RESTART, "longer than the block"),
        (b"\0\1" + ONE_RESTART, "does not end"),
    ],
)
def test_damaged_entries(payload: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        list(block_entries(payload, 0))


def test_an_index_with_differences() -> None:
    # A whole handle, then one whose size is 3 more and that follows right after it.
    payload = b"\0\1a\x64\x0a" + b"\1\1b\6" + b"\0\2zz\xc8\1\5" + ONE_RESTART
    assert list(index_entries(payload, 0, delta_encoded=True)) == [
        (b"a", BlockHandle(100, 10)),
        (b"ab", BlockHandle(115, 13)),
        (b"zz", BlockHandle(200, 5)),
    ]
    with pytest.raises(FormatError):
        list(index_entries(b"\0\7a" + ONE_RESTART, 0, delta_encoded=True))
