"""A table file without some keys, and the rows of some keys; plain Python says what is left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import rocksdict

from dstl_core.codec.columnar.keyed import cut_table as cut_tables
from dstl_core.codec.columnar.keyed.cut_table import KeyPrefixes, count_entries, cut_table
from dstl_core.codec.columnar.keyed.marked_keys import KeyMarks
from dstl_core.codec.columnar.keyed.sst_blocks import TableReader
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.sst.manifest import starting_with
from tests.unit.codec.test_sst import LAYOUTS, filled, opened, options, table_files


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_entry_of_other_keys_is_left(tmp_path: Path, layout: str) -> None:
    filled(tmp_path, 1, **LAYOUTS[layout])
    some = random.Random(4)
    for file in table_files(tmp_path):
        before = list(file.entries(b"", None))
        keys = sorted({entry.key for entry in before})
        gone = {*some.sample(keys, min(5, len(keys))), keys[0], keys[-1]}
        ranges = KeyPrefixes(gone)
        cut = cut_table(TableReader(file), ranges)
        assert cut is not None
        data = b"".join(cut.parts(file.read))
        assert len(data) == cut.size

        after = opened(data)
        left = [entry for entry in before if entry.key not in gone]
        assert list(after.entries(b"", None)) == left
        assert cut.removed == len(before) - len(left)
        assert after.number("rocksdb.num.entries") == len(left)
        assert file.number("rocksdb.tail.start.offset") > 0
        # RocksDB takes it from the size of a file that it imports.
        assert after.number("rocksdb.tail.start.offset") == after.index[-1][1].end
        assert after.unique_id == cut.unique_id != file.unique_id
        assert (cut.smallest[:-8], cut.largest[:-8]) == (left[0].key, left[-1].key)
        assert count_entries(TableReader(after), ranges) == 0
        for key in keys:  # RocksDB looks for a key by the index alone
            stored = [entry for entry in left if entry.key == key]
            assert list(after.entries(*starting_with(key))) == stored
        assert not any(key in data[after.index[-1][1].end :] for key in gone)


@pytest.mark.parametrize("layout", ["snappy", "partitioned index", "index with differences"])
def test_an_index_has_no_key_that_went(tmp_path: Path, layout: str) -> None:
    """RocksDB's index has short keys between two blocks: the start of the second one's first key,
    which is all of a key of state where only its namespace is cut off.
    """
    database = rocksdict.Rdict(str(tmp_path), options(**LAYOUTS[layout] | {"block_size": 128}))
    keys = [b"\5customer-%03d" % number for number in range(300)]
    for key in keys:
        database[key + b"\0"] = bytes(30)
    database.flush()
    database.close()
    [file] = table_files(tmp_path)
    gone = [key for key in keys[1::2] if any(key in part for part in file.index_payloads())]
    assert len(gone) > 10
    cut = cut_table(TableReader(file), KeyPrefixes(gone))
    assert cut is not None and cut.removed == len(gone)
    after = opened(b"".join(cut.parts(file.read)))
    assert not any(key in part for key in gone for part in after.index_payloads())
    left = [entry for entry in file.entries(b"", None) if entry.key[:-1] not in gone]
    assert list(after.entries(b"", None)) == left
    for entry in left:
        assert list(after.entries(*starting_with(entry.key))) == [entry]


def test_few_bytes_of_large_values_are_unpacked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_tables, "_BYTES_TOGETHER", 10_000)
    database = rocksdict.Rdict(str(tmp_path), options(**LAYOUTS["none"]))
    for number in range(60):
        database[b"\5%03d" % number] = bytes(1_000 if number < 50 else 15_000)
    database.flush()
    database.close()
    [file] = table_files(tmp_path)
    table, gone = TableReader(file), KeyPrefixes([b"\5"])
    parts = list(cut_tables.marked_entries(table, gone, gone.marks, 0))
    assert [at for numbers, _, _ in parts for at in numbers.tolist()] == [*range(len(table.index))]
    assert max(len(entries) for _, entries, _ in parts) < 10
    assert sum(len(rows) for _, _, rows in parts) == 60


def test_a_file_of_other_keys_is_not_written_and_one_of_no_others_is_empty(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    file = table_files(tmp_path)[0]
    assert cut_table(TableReader(file), KeyPrefixes([b"nobody"])) is None
    cut = cut_table(TableReader(file), KeyPrefixes(bytes([first]) for first in range(256)))
    assert cut is not None
    assert (cut.size, [*cut.parts(file.read)]) == (0, [])
    assert cut.removed == file.number("rocksdb.num.entries")


@pytest.mark.parametrize("bounds", [[], [b"c"], [b"c", b"cx", b"f", b"m"]], ids=len)
def test_prefixes_name_the_blocks_that_may_hold_their_keys(bounds: Sequence[bytes]) -> None:
    data = np.frombuffer(b"".join(bounds) + bytes(16), np.uint8)
    ends = np.cumsum([0, *map(len, bounds)]) + address_of(data)
    index = np.stack([ends[:-1], ends[1:], ends[1:], ends[1:]], axis=1).astype(np.int64)
    letters = [bytes([letter]) for letter in range(ord("a"), ord("p"))]
    keys = sorted([*letters, *(letter + b"x" for letter in letters)])
    for prefix in [*letters, b"cx", b"fx"]:
        prefixes = KeyPrefixes([b"A", prefix])
        inside = [key for key in keys if prefixes.hold(key)]
        assert inside == [key for key in keys if key.startswith(prefix)]
        firsts = (next((at for at, own in enumerate(bounds) if key <= own), -1) for key in inside)
        assert {*prefixes.blocks(index).tolist()} >= {*firsts} - {-1}


@pytest.mark.parametrize("common", [b"", b"x", b"customer-"], ids=len)
@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_rows_that_start_with_a_key_are_marked(common: bytes, size: int) -> None:
    some = random.Random(size)
    every = list({common + some.randbytes(size) for _ in range(2000)})
    keys = every[: len(every) // 3]
    rows = [b"skip" + key + some.randbytes(some.randrange(3)) for key in every]
    rows += [b"skip" + keys[0][:-1], b"skip", b"sk", b"skip" + common]
    data = np.frombuffer(b"".join(rows) + bytes(16), np.uint8)
    ends = np.cumsum([len(row) for row in rows]) + address_of(data)
    spans = np.stack([ends - [len(row) for row in rows], ends], axis=1).astype(np.int64)
    marks = KeyMarks(keys).of(np.ascontiguousarray(spans), 4).tolist()
    assert marks == [any(row[4:].startswith(key) for key in keys) for row in rows]


def test_no_row_is_of_no_key() -> None:
    assert KeyMarks([]).of(np.zeros((2, 2), np.int64), 0).tolist() == [False, False]
