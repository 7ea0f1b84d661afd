"""Subtasks on local copies that are not what they should be."""

import hashlib

import pytest

from dstl_core.errors import FormatError, StorageError, UploadFailedError
from dstl_core.job.task.held_state import HELD
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.columns.checked_files import check_file, write_checked
from tests.full_disk import full_disk
from tests.kernel_sizes import kernels_from
from tests.unit.job.subtasks import BY_ROW_AND_COLUMN, ByColumn, ByRow, ByRowInTables, Subtask


def test_a_damaged_database_is_restored_and_dropped(tmp_path):
    subtask = Subtask(tmp_path, ByRowInTables(), EmbeddedRocksDBStateBackend())
    subtask.run(1.0, 2.0)
    assert subtask.run(3.0, 4.0) == ("warm", 2, [1.0, 2.0])
    for manifest in subtask.local.glob("**/MANIFEST*"):
        size = manifest.stat().st_size
        manifest.unlink()
        manifest.write_bytes(bytes(size))
    assert subtask.run(5.0, 6.0) == ("cold", 2, [3.0, 4.0])
    assert subtask.run(7.0, 8.0) == ("warm", 2, [5.0, 6.0])
    assert not list(subtask.local.glob("*/*/*/.*"))


@pytest.mark.parametrize("suffix", [".arrow", ".npy", ".json"])
def test_columns_with_one_bit_flipped_are_restored_and_kept_anew(tmp_path, suffix):
    subtask = Subtask(tmp_path, ByColumn())
    subtask.run(*range(40))
    for number, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9), 1):
        for path in subtask.local.glob(f"*/*/*/*/*{suffix}"):
            flipped = bytearray(path.read_bytes())
            flipped[int(share * len(flipped))] ^= 1 << number
            path.write_bytes(flipped)
        before = [at + number - 1 for at in range(40)]
        warmth, changes, was = subtask.run(*(each + 1 for each in before))
        assert (warmth, changes, was) == ("cold", 40, before)
    assert subtask.run(*range(40))[0] == "warm"


def test_files_that_were_checked_are_checked_again_when_they_change(tmp_path):
    path = tmp_path / "file"
    digest = write_checked(path, lambda file: file.write(b"content"))
    assert digest == hashlib.sha256(b"content").hexdigest()
    check_file(path, digest)
    path.write_bytes(b"comtent")
    with pytest.raises(FormatError, match="damaged"):
        check_file(path, digest)
    other = tmp_path / "other"
    other.write_bytes(b"content")
    check_file(other, digest)


@BY_ROW_AND_COLUMN
def test_a_disk_that_takes_no_copy_is_no_error(tmp_path, function, backend):
    (tmp_path / "file").write_bytes(b"no folder")
    subtask = Subtask(tmp_path, function, backend, local=tmp_path / "file")
    subtask.run(1.0)
    assert subtask.run(2.0)[2] == [1.0]
    assert subtask.run(3.0)[2] == [2.0]


@BY_ROW_AND_COLUMN
@pytest.mark.slow
def test_a_disk_that_is_full_when_a_copy_is_kept_is_no_error(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0)
    for size in (0, 10, 100, 1000):
        before = float(subtask.count)
        assert subtask.run(before + 1, at_close=full_disk(size))[2] == [before]
    assert subtask.run(0.0)[2] == [5.0]
    assert subtask.run(1.0) == ("warm", 1, [0.0])
    assert not list(subtask.local.glob("*/*/*/.*"))


@BY_ROW_AND_COLUMN
@pytest.mark.slow
def test_a_disk_that_is_full_in_an_epoch_costs_only_the_epoch(tmp_path, function, backend):
    subtask = Subtask(tmp_path, function, backend)
    subtask.run(1.0, 2.0)
    for size in (0, 10, 100):
        with pytest.raises((StorageError, UploadFailedError), match="File too large"):
            subtask.run(5.0, 6.0, at_snapshot=full_disk(size))
    assert subtask.run(3.0, 4.0)[1:] == (2, [1.0, 2.0])
    assert subtask.run(5.0, 6.0) == ("warm", 2, [3.0, 4.0])


def test_a_database_whose_disk_is_full_from_the_start_costs_only_the_epoch(tmp_path):
    subtask = Subtask(
        tmp_path, ByRowInTables(), EmbeddedRocksDBStateBackend(str(tmp_path / "other"))
    )
    subtask.run(1.0, 2.0)
    with full_disk(), pytest.raises(StorageError, match="make sure that its folder is"):
        subtask.run(5.0, 6.0)
    assert subtask.run(3.0, 4.0)[1:] == (2, [1.0, 2.0])
    assert not list(subtask.local.glob("*/*/*/.*"))
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    "function",
    [ByRow(), ByRowInTables(), ByColumn()],
    ids=["rows", "rows in tables", "columns"],
)
def test_zero_and_minus_zero_are_two_values(tmp_path, function):
    subtask = Subtask(tmp_path, function)
    subtask.run(0.0, 1.0)
    assert subtask.run(-0.0, 1.0)[1] >= 1
    assert str(subtask.run(2.0, 2.0)[2]) == "[-0.0, 1.0]"


def test_state_that_is_too_large_for_memory_is_restored_and_a_warning_says_so(tmp_path, caplog):
    subtask = Subtask(tmp_path, ByRowInTables())
    subtask.max_entries = 2
    subtask.run(1.0, 2.0)
    assert subtask.run(3.0, 4.0) == ("warm", 2, [1.0, 2.0])
    assert caplog.text == ""
    assert subtask.run(5.0, 6.0, 7.0) == ("warm", 3, [3.0, 4.0, None])
    assert "a subtask has 3 entries, a worker keeps at most 2; raise max_entries" in caplog.text
    assert subtask.run(8.0) == ("cold", 1, [5.0])


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["in batches", "one by one"])
@pytest.mark.parametrize(
    "backend", [HashMapStateBackend(), EmbeddedRocksDBStateBackend()], ids=["heap", "rocksdb"]
)
def test_a_worker_that_gets_a_subtask_back_replays_the_logs_of_the_other(
    tmp_path, monkeypatch, backend, least
):
    kernels_from(monkeypatch, least)
    subtask = Subtask(tmp_path, ByRowInTables(), backend)
    subtask.run(1.0, 2.0)
    one = HELD.copy()
    HELD.clear()
    subtask.local = tmp_path / "other"  # the second worker is on another machine
    assert subtask.run(3.0, 4.0, 5.0) == ("cold", 3, [1.0, 2.0, None])
    assert subtask.run(6.0, 7.0) == ("warm", 2, [3.0, 4.0])
    HELD.clear()
    HELD.update(one)
    subtask.local = tmp_path / "local"
    assert subtask.run(8.0, 9.0, 10.0) == ("caught up", 3, [6.0, 7.0, 5.0])
    assert subtask.run(0.0) == ("warm", 1, [8.0])
