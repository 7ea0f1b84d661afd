"""The database on disk, from one task to the next."""

import random

import pytest

from dstl_core.errors import StorageError
from dstl_core.state.backends.rocksdb_store import MAX_RUNS, RocksDBStore
from dstl_core.state.tables.store import Shape
from tests.full_disk import full_disk

CACHE_BYTES = 3 << 20


class Task:
    """One database after the other, each from what the one before has released."""

    def __init__(self, folder):
        self.folder = folder
        self.source = None

    def __enter__(self):
        self.store = RocksDBStore(
            self.folder, cache_bytes=CACHE_BYTES, write_buffer_bytes=4 << 20, source=self.source
        )
        self.rows = self.store.open_table(Shape.ROWS).new_group(0)
        return self.store, self.rows

    def __exit__(self, *error):
        self.source = self.store.release()

    def files(self):
        return {each.name for each in self.source.glob("*.sst")}


def test_a_database_from_a_source_has_the_cache_and_the_filters_of_a_new_one(tmp_path):
    task = Task(tmp_path)
    for number in range(3):
        with task as (store, rows):
            rows[b"%d" % number] = b"value"
            store.db.flush()
            assert store.db.property_int_value("rocksdb.block-cache-capacity") == CACHE_BYTES
            tables = store.db.property_value("rocksdb.aggregated-table-properties")
            filtered = int(tables.partition("# entries for filter=")[2].partition(";")[0])
            assert filtered == store.runs == number + 1


@pytest.mark.slow
def test_what_a_task_changes_is_not_merged_with_all_that_there_is(tmp_path):
    task = Task(tmp_path)
    chosen = random.Random(8)
    with task as (_, rows):
        for number in range(20_000):
            rows[b"%06d" % number] = chosen.randbytes(20)
    large = task.files()
    expected = {}
    for _ in range(MAX_RUNS - 2):
        with task as (_, rows):
            assert len(rows) == 20_000  # which takes longer than what is merged beside it
            for number in chosen.sample(range(20_000), 20):
                value = expected[b"%06d" % number] = chosen.randbytes(20)
                rows[b"%06d" % number] = value
    with task as (_, rows):
        assert {scope: rows[scope] for scope in expected} == expected
        assert len(rows) == 20_000
    assert len(large) == 1
    assert large <= task.files()


def test_runs_that_nobody_had_time_to_merge_are_merged_before_a_database_is_given_away(tmp_path):
    task = Task(tmp_path)
    with task as (store, rows):
        store.db.set_options({"disable_auto_compactions": "true"})
        for number in range(MAX_RUNS + 1):
            rows[b"%d" % number] = b"value"
            store.db.flush()
        assert store.runs == MAX_RUNS + 1
    with task as (store, rows):
        assert store.runs == 1
        assert len(rows) == MAX_RUNS + 1


@pytest.mark.parametrize("file", ["OPTIONS-000123", "rocksdict-config.json"])
def test_options_that_lie_in_a_source_are_not_read(tmp_path, file):
    task = Task(tmp_path)
    with task as (_, rows):
        rows[b"key"] = b"value"
    (task.source / file).write_bytes(b"\xff no options \x00")
    with task as (store, rows):
        assert rows[b"key"] == b"value"
        assert store.db.property_int_value("rocksdb.block-cache-capacity") == CACHE_BYTES


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path):
    with full_disk(), pytest.raises(StorageError, match=r"failed \(.*File too large"):
        RocksDBStore(tmp_path, cache_bytes=CACHE_BYTES, write_buffer_bytes=1 << 20)
    store = RocksDBStore(tmp_path, cache_bytes=CACHE_BYTES, write_buffer_bytes=1 << 16)
    rows = store.open_table(Shape.ROWS).new_group(0)
    chosen = random.Random(8)
    with full_disk(20_000):
        with pytest.raises(StorageError, match="make sure that its folder is"):
            for number in range(100_000):
                rows[b"%d" % number] = chosen.randbytes(50)
        with pytest.raises(StorageError, match="make sure that its folder is"):
            store.release()
        store.close()
    assert not list(tmp_path.iterdir())
