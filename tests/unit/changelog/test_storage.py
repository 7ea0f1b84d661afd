"""The changelog of a job as a user sees it: writers, files, readers."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.ledger import FsSnapshotResult
from dstl_core.config import ChangelogOptions
from dstl_core.errors import UploadFailedError
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from tests.golden_files import GOLDEN

JOB = JobID.for_name("job")
ZERO = SequenceNumber(0)


def storage(path: Path, *, compressed: bool = False) -> FsStateChangelogStorage:
    return FsStateChangelogStorage(
        JOB, ChangelogOptions.of(base_path=str(path), compression_enabled=compressed)
    )


def persist_all(changes: list[tuple[int, bytes]], log: FsStateChangelogStorage) -> FsSnapshotResult:
    writer = log.create_writer("operator", KeyGroupRange(0, 127))
    for key_group, change in changes:
        writer.append(key_group, change)
    return writer.persist(ZERO, 1).result()


@pytest.mark.parametrize("compressed", [False, True])
def test_write_and_read(tmp_path: Path, compressed: bool) -> None:
    # StateChangelogStorageTest of Flink: random changes of 405 bytes, a set for each key group.
    rng = random.Random(7)
    log = storage(tmp_path, compressed=compressed)
    writer = log.create_writer("operator", KeyGroupRange(0, 5))
    written: dict[int, list[bytes]] = {}
    for key_group in range(6):
        for _ in range(20):
            change = rng.randbytes(405)
            writer.append(key_group, change)
            written.setdefault(key_group, []).append(change)
        writer.next_sequence_number()
    handle = writer.persist(writer.initial_sequence_number(), 1).result()
    read: dict[int, list[bytes]] = {}
    for change_ in log.create_reader().get_changes(handle.job_manager_owned_snapshot):
        read.setdefault(change_.key_group, []).append(change_.change)
    assert read == written


def test_files_lie_where_flink_puts_them(tmp_path: Path) -> None:
    handle = persist_all([(3, b"x")], storage(tmp_path)).job_manager_owned_snapshot
    [(stream, offset)] = handle.handles_and_offsets
    [path] = (tmp_path / JOB.hex / "dstl").iterdir()
    assert stream.path == f"file:{path}"  # type: ignore[union-attr]
    assert (offset, len(path.name)) == (0, 36)
    # The handle counts the body without the flag byte.
    assert stream.state_size == path.stat().st_size - 1


@pytest.mark.parametrize("folder", ["changelog-segment", "changelog-segment-compressed"])
def test_a_segment_is_the_file_that_real_flink_writes(tmp_path: Path, folder: str) -> None:
    sample = json.loads((GOLDEN / folder / "sample.json").read_bytes())
    pattern = bytes.fromhex(sample["pattern"])
    changes = [(i & 127, i.to_bytes(4, "little") + pattern[4:]) for i in range(sample["n"])]
    log = storage(tmp_path, compressed=sample["compressed"])
    handle = persist_all(changes, log).job_manager_owned_snapshot
    [path] = (tmp_path / JOB.hex / "dstl").iterdir()
    [expected] = sample["handles"]
    assert path.read_bytes() == (GOLDEN / folder / expected["file"]).read_bytes()
    [(stream, offset)] = handle.handles_and_offsets
    assert (stream.state_size, offset) == (expected["stateSize"], expected["offset"])


def test_writers_of_one_storage_have_logs_of_their_own(tmp_path: Path) -> None:
    log = storage(tmp_path)
    first, second = (log.create_writer("operator", KeyGroupRange(0, 5)) for _ in range(2))
    first.append(0, b"first")
    second.append(0, b"second")
    for writer, change in ((first, b"first"), (second, b"second")):
        handle = writer.persist(ZERO, 1).result().job_manager_owned_snapshot
        assert [each.change for each in log.create_reader().get_changes(handle)] == [change]


def test_a_failed_upload_is_kept_until_the_disk_is_back(tmp_path: Path) -> None:
    log = storage(tmp_path)
    (tmp_path / JOB.hex).mkdir()
    (tmp_path / JOB.hex / "dstl").write_text("a file stands where the folder should be")
    writer = log.create_writer("operator", KeyGroupRange(0, 5))
    writer.append(0, b"kept")
    with pytest.raises(UploadFailedError, match="Cannot write"):
        writer.persist(ZERO, 1).result()
    os.remove(tmp_path / JOB.hex / "dstl")
    writer.append(0, b"more")
    handle = writer.persist(ZERO, 2).result().job_manager_owned_snapshot
    changes = [each.change for each in log.create_reader().get_changes(handle)]
    assert changes == [b"kept", b"more"]


def test_after_the_close_uploads_fail_and_nothing_is_lost(tmp_path: Path) -> None:
    # Hazard H10: the original never calls back.
    log = storage(tmp_path)
    writer = log.create_writer("operator", KeyGroupRange(0, 5))
    writer.append(0, b"kept")
    log.close()
    log.close()
    with pytest.raises(UploadFailedError, match="scheduler"):
        writer.persist(ZERO, 1).result()
