"""Table files by columns of their entries, against the record-wise merge and RocksDB itself."""

import ctypes
import random

import pytest

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.sst_rows import has_twin, merged_spans
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.errors import FormatError
from tests.unit.codec.test_sst import KEY_GROUPS, filled, flinks, table_files

FLINKS = flinks()


def rows_of(files, first, last, prefix_bytes=1):
    """Rows by stored key, as ``merged_rows`` gives them."""
    found = merged_spans(files, first, last, prefix_bytes)
    rows = {}
    for span, key_group in zip(found.spans, found.key_groups, strict=True):
        words = [int(each) for each in span]
        key = ctypes.string_at(words[scan.KEY_START], words[scan.KEY_END] - words[scan.KEY_START])
        value = ctypes.string_at(
            words[scan.VALUE_START], words[scan.VALUE_END] - words[scan.VALUE_START]
        )
        stored = int(key_group).to_bytes(prefix_bytes, "big") + key
        assert stored not in rows
        rows[stored] = value
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_that_rocksdb_reads(tmp_path, seed):
    expected = filled(tmp_path, seed)
    files = table_files(tmp_path)
    assert rows_of(files, 0, KEY_GROUPS - 1) == expected
    part = rows_of(files, 3, 7)
    assert part == {key: value for key, value in expected.items() if 3 <= key[0] <= 7}


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
    """A file of one data block without a checksum."""

    def __init__(self, payload):
        self.payload = payload

    def blocks(self, start, stop):
        yield self.payload, 0

    def check_count(self, count, start, stop):
        pass


def test_damaged_blocks_are_refused_or_read_as_the_record_wise_code_does():
    rng = random.Random(5)
    path = max(FLINKS, key=lambda each: each.stat().st_size)
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
