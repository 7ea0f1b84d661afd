"""Table files by columns of their entries, against the record-wise merge and RocksDB itself."""

import ctypes
import random
import struct
import tracemalloc

import cramjam
import pytest

from dstl_core.codec.columnar.keyed import sst_rows
from dstl_core.codec.columnar.keyed.sst_blocks import MAX_BLOCKS_BYTES, TableReader
from dstl_core.codec.columnar.keyed.sst_rows import has_twin, merged_spans
from dstl_core.codec.columnar.keyed.sst_writer import tables_of
from dstl_core.codec.keyed_canonical import write_section
from dstl_core.codec.sst.block import MAX_BLOCK_BYTES
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.codec.sst.table_builder import TableBuilder
from dstl_core.errors import FormatError
from tests.unit.codec.test_sst import KEY_GROUPS, LAYOUTS, filled, flinks, opened, table_files

FLINKS = flinks()


def rows_of(files, first, last, prefix_bytes=1):
    """Rows by stored key, as ``merged_rows`` gives them."""
    rows = {}
    for spans in merged_spans(list(map(TableReader, files)), first, last, prefix_bytes):
        for span, key_group in zip(spans.spans.tolist(), spans.key_groups.tolist(), strict=True):
            start, end, value, value_end, _ = span
            key = key_group.to_bytes(prefix_bytes, "big") + ctypes.string_at(start, end - start)
            assert not rows or key > max(rows)
            rows[key] = ctypes.string_at(value, value_end - value)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_rows_are_those_that_rocksdb_reads(tmp_path, layout, seed):
    expected = filled(tmp_path, seed, **LAYOUTS[layout])
    files = table_files(tmp_path)
    assert rows_of(files, 0, KEY_GROUPS - 1) == expected
    part = rows_of(files, 3, 7)
    assert part == {key: value for key, value in expected.items() if 3 <= key[0] <= 7}


def test_a_large_file_is_read_some_key_groups_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(sst_rows, "BYTES_AT_ONCE", 2_000)
    expected = filled(tmp_path, 3, rounds=6)
    files = table_files(tmp_path)
    assert len(list(merged_spans(list(map(TableReader, files)), 0, KEY_GROUPS - 1, 1))) > 4
    assert rows_of(files, 0, KEY_GROUPS - 1) == expected


def test_a_large_key_group_is_read_in_ranges_of_keys(tmp_path, monkeypatch):
    expected = filled(tmp_path, 3, rounds=6)
    files = table_files(tmp_path)
    monkeypatch.setattr(sst_rows, "READ_BYTES", 300)
    monkeypatch.setattr(sst_rows, "_CUT_FROM_TIMES", 1)
    monkeypatch.setattr(sst_rows, "CUT_BYTES", 300)
    parts = list(merged_spans(list(map(TableReader, files)), 0, KEY_GROUPS - 1, 1))
    assert len(parts) > 2 * KEY_GROUPS
    assert rows_of(files, 0, KEY_GROUPS - 1) == expected


def test_a_large_key_group_is_cut_in_every_file_of_a_level(monkeypatch):
    """Each file of a level has other keys, so a few of one file divide nothing of the others."""
    rows = [(b"\5" + number.to_bytes(4, "big"), random.randbytes(50)) for number in range(5000)]
    tables = tables_of(["n"], 1, [(5, write_section([(0, rows)]))], 20_000)
    files = [opened(b"".join(written.table.parts)) for written in tables]
    assert len(files) > 10
    monkeypatch.setattr(sst_rows, "READ_BYTES", 20_000)
    monkeypatch.setattr(sst_rows, "_CUT_FROM_TIMES", 1)
    monkeypatch.setattr(sst_rows, "CUT_BYTES", 8_000)
    parts = list(merged_spans(list(map(TableReader, files)), 5, 5, 1))
    assert max(len(part.spans) for part in parts) < 400
    assert rows_of(files, 5, 5) == dict(rows)


class OnStore:
    """The bytes of a file of a store, which reads ranges before they are asked for."""

    def __init__(self, raw):
        self.raw, self.begun, self.late, self.asked = raw, [], [], []

    def begin(self, start, end):
        self.begun.append((start, end))

    def __call__(self, start, end):
        if self.begun:
            self.late.append((start, end) not in self.begun[:-1])
            self.asked.append((start, end))
        return self.raw[start:end]


@pytest.mark.parametrize("at_once", [3_000, 1_000_000])
def test_the_next_range_of_a_store_is_read_ahead_across_key_groups(tmp_path, monkeypatch, at_once):
    """Each range but the last is begun before the one that is read: of key groups, and of keys."""
    expected = filled(tmp_path, 3, rounds=6)
    monkeypatch.setattr(sst_rows, "STORE_READ_BYTES", 3_000)
    monkeypatch.setattr(sst_rows, "_CUT_FROM_TIMES", at_once / 3_000)
    stores = [OnStore(file.read_bytes()) for file in sorted(tmp_path.glob("*.sst"))]
    files = [SstFile(store, len(store.raw)) for store in stores]
    assert rows_of(files, 0, KEY_GROUPS - 1) == expected
    for store in stores:
        assert len(store.late) > 3
        assert sum(store.late) <= 1, "the last range has none after it"
        assert len(store.asked) == len(set(store.asked)), "a block of many parts is read once"


def test_files_of_other_keys_are_not_read():
    """As a level of RocksDB has them; the index alone does not say where the first block starts."""
    stores, files = [], []
    for group in range(4):
        rows = [(bytes([group]) + number.to_bytes(4, "big"), b"value") for number in range(100)]
        [written] = tables_of(["n"], 1, [(group, write_section([(0, rows)]))], 1 << 20)
        table = written.table
        data = b"".join(table.parts)
        stores.append(OnStore(data))
        files.append(SstFile(stores[-1], len(data), (table.smallest, table.largest)))
    assert rows_of(files, 2, 2) == dict(merged_rows(files[2:3], b"", None))
    assert [bool(store.begun) for store in stores] == [False, False, True, False]
    assert dict(merged_rows(files, b"\2", b"\3")) == rows_of(files, 2, 2)


@pytest.mark.parametrize("lead", range(8))
def test_a_block_that_is_not_packed_stays_as_it_is_behind_a_packed_one(lead):
    """The packed one ends with a copy: this number, again and again, is what ends a block."""
    numbers = bytes(lead) + (1 << 24).to_bytes(8, "big") * 600
    rows = [(b"\0a", numbers), (b"\0b", random.Random(1).randbytes(200))]
    [written] = tables_of(["n"], 1, [(0, write_section([(0, rows)]))])
    data = b"".join(written.table.parts)
    file = SstFile(lambda start, end: data[start:end], len(data))
    assert len(TableReader(file).index) == len(rows)
    assert rows_of([file], 0, 0) == dict(rows)


@pytest.mark.parametrize("cut", [(1, 0), (0, -1)])
def test_a_key_for_which_nobody_would_look_is_refused(cut):
    rows = [(b"\5" + number.to_bytes(4, "big"), b"value") for number in range(100)]
    [written] = tables_of(["n"], 1, [(5, write_section([(0, rows)]))], 1 << 20)
    data, first, last = b"".join(written.table.parts), *cut
    keys = rows[first][0], rows[last - 1][0]
    file = SstFile(lambda start, end: data[start:end], len(data), keys)
    for read in (lambda: rows_of([file], 0, 255), lambda: list(file.entries(b"", None))):
        with pytest.raises(FormatError, match="a key outside those that its MANIFEST says"):
            read()


@pytest.mark.parametrize(("first", "last"), [(1, 2), (0, 1)])
def test_blocks_for_which_nobody_would_look_are_refused(first, last):
    """Nobody reads them, so the index has to tell."""
    groups = [[(bytes([at]) + b"%04d" % row, bytes(60)) for row in range(300)] for at in range(3)]
    [written] = tables_of(
        ["n"], 1, [(at, write_section([(0, rows)])) for at, rows in enumerate(groups)], 1 << 20
    )
    data = b"".join(written.table.parts)
    keys = groups[first][0][0], groups[last][-1][0]
    file = SstFile(lambda start, end: data[start:end], len(data), keys)
    start, stop = bytes([first]) + b"0100", bytes([first]) + b"0200"
    for read in (lambda: rows_of([file], 1, 1), lambda: list(file.entries(start, stop))):
        with pytest.raises(FormatError, match="a key outside those that its MANIFEST says"):
            read()


def test_files_of_one_state_by_flink_are_merged():
    together = {}
    for path in FLINKS:
        file = opened(path.read_bytes())
        together.setdefault((path.parent, file.column_family), []).append(file)
    lists = [files for (_, name), files in together.items() if len(files) > 1 and name == "names"]
    assert lists, "list state, whose elements are merge operands"
    for (folder, _), files in together.items():
        prefix_bytes = 2 if "4096" in str(folder) else 1
        if has_twin(files):
            expected = dict(merged_rows(files, b"", None))
            assert rows_of(files, 0, (1 << 8 * prefix_bytes) - 1, prefix_bytes) == expected


def test_range_deletions_are_left_to_the_record_wise_merge(tmp_path):
    filled(tmp_path, 1, range_deletes=True)
    assert not has_twin(table_files(tmp_path))


@pytest.mark.parametrize("path", FLINKS, ids=lambda path: path.stem)
def test_files_by_flink(path):
    raw = path.read_bytes()
    file = SstFile(lambda start, end: raw[start:end], len(raw))
    prefix_bytes = 2 if "4096" in str(path) else 1
    last = (1 << 8 * prefix_bytes) - 1
    expected = dict(merged_rows([file], b"", None))
    assert rows_of([file], 0, last, prefix_bytes) == expected


class OneBlock:
    """A file of one data block without compression and checksum."""

    checksum_type = 0
    user_key_index = True
    delta_index = False
    tombstones = ()

    def __init__(self, payload):
        self.raw = payload + bytes(5)
        self.data_limit = len(self.raw)
        self.size = len(payload)

    def index_payloads(self):
        size = self.size
        value = bytes((0, size & 0x7F | 0x80, size >> 7))
        yield bytes((0, 1, len(value))) + b"\xff" + value + bytes(4) + bytes((1, 0, 0, 0))

    def read(self, start, end):
        return self.raw[start:end]

    def check_count(self, count, start, stop):
        pass

    def may_hold(self, start, stop):
        return True

    def check_key(self, key):
        pass

    def check_bounds(self, bounds):
        pass


def varint(value):
    low = b""
    while value > 0x7F:
        low += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return low + bytes((value,))


class ManyBlocks(OneBlock):
    """A file of the same block many times, with ZSTD."""

    def __init__(self, payload, count):
        block = varint(len(payload)) + bytes(cramjam.zstd.compress(payload))
        super().__init__(block)
        self.count = count
        self.raw = (block + bytes((7, 0, 0, 0, 0))) * count
        self.data_limit = len(self.raw)

    def index_payloads(self):
        for at in range(self.count):
            value = varint(at * (self.size + 5)) + varint(self.size)
            yield bytes((0, 1, len(value))) + bytes((at,)) + value + bytes(4) + bytes((1, 0, 0, 0))


@pytest.mark.slow
def test_many_blocks_just_below_the_limit_of_one_have_a_limit_together():
    file = ManyBlocks(bytes(MAX_BLOCK_BYTES), 100)
    assert len(file.raw) < 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="blocks of a table file are too large together"):
            rows_of([file], 0, 255)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BLOCKS_BYTES + 4 * MAX_BLOCK_BYTES


def test_damaged_blocks_are_refused_or_read_as_the_record_wise_code_does():
    rng = random.Random(5)
    path = max(FLINKS, key=lambda candidate: candidate.stat().st_size)
    raw = path.read_bytes()
    file = SstFile(lambda start, end: raw[start:end], len(raw))
    payload, _ = next(iter(file.blocks(b"", None)))
    payload = payload[:400] + (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
    refused = 0
    for _ in range(500):
        damaged = bytearray(payload)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            rows_of([OneBlock(bytes(damaged))], 0, 255)
        except FormatError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("size", [-1, -5, -6, -100])
def test_a_block_of_less_than_no_bytes_is_refused(size):
    """An index has the size of a block as the difference from the one before it."""
    first = 30
    builder = TableBuilder("n", 1)
    builder.append(bytes(100))
    lines = b"\0\1a" + varint(0) + varint(first) + b"\1\1b" + varint(2 * (first - size) - 1)
    table = builder.finish(lines + struct.pack("<II", 0, 1))
    data = b"".join(table.parts)
    for read in (TableReader, lambda file: file.index):
        with pytest.raises(FormatError, match="outside its file or overlaps another one"):
            read(SstFile(lambda start, end: data[start:end], len(data)))


def test_entries_out_of_order_are_refused():
    def entry(key, sequence):
        stored = key + (sequence << 8 | 1).to_bytes(8, "little")
        return bytes((0, len(stored), 1)) + stored + b"v"

    def block(*entries):
        return b"".join(entries) + bytes(4) + bytes((1, 0, 0, 0))

    sorted_ = block(entry(b"\1a", 5), entry(b"\1b", 9), entry(b"\1b", 7))
    assert rows_of([OneBlock(sorted_)], 0, 255) == {b"\1a": b"v", b"\1b": b"v"}
    for wrong in (
        block(entry(b"\1b", 5), entry(b"\1a", 6)),
        block(entry(b"\1b", 5), entry(b"\1b", 6)),
        block(entry(b"\1bb", 5), entry(b"\1b", 4)),
    ):
        with pytest.raises(FormatError, match="not in order"):
            rows_of([OneBlock(wrong)], 0, 255)
