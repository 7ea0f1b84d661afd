"""Rows that wait in a temporary file, on a disk that is full."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core.errors import StorageError
from dstl_core.job.rows.spool import Spool
from tests.full_disk import full_disk

BATCH = pa.record_batch({"n": pa.array(range(1000), pa.int64())})


@pytest.mark.parametrize("room", [0, 9000])
def test_a_full_disk_is_one_sentence(tmp_path: Path, room: int) -> None:
    spool = Spool(BATCH.schema, 0, str(tmp_path))
    with full_disk(room), pytest.raises(StorageError) as refused:
        for _ in range(100):
            spool.add(BATCH)
    said = str(refused.value)
    assert f"the folder for temporary files, {tmp_path} (File too large, " in said
    assert " free): expected 7.8 KiB more" in said
    assert said.endswith("choose a folder on a larger disk, and run the command again.")
    with full_disk(0):
        del spool, refused
        gc.collect()  # closing the file tries once more, and says nothing


def test_what_the_buffer_has_is_written_before_it_is_read(tmp_path: Path) -> None:
    small = pa.record_batch({"n": pa.array([1], pa.int64())})
    spool = Spool(small.schema, 0, str(tmp_path))
    spool.add(small)
    with full_disk(0), pytest.raises(StorageError, match="choose a folder on a larger disk"):
        list(spool.batches())
    assert list(spool.batches()) == [small]


def test_the_folder_of_the_system_is_set_by_a_variable() -> None:
    spool = Spool(BATCH.schema, 0)
    with full_disk(0), pytest.raises(StorageError, match="set TMPDIR to a folder on a larger"):
        for _ in range(100):
            spool.add(BATCH)
