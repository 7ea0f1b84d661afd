import logging
import os

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.functions import RichMapFunction
from dstl_core.job.spec.job_spec import JobSpec, TaskSpec
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.job.task.assigned_state import encode_assigned
from dstl_core.job.task.local_copies import (
    KEPT_PER_RANGE,
    CopyFolder,
    CopyParts,
    drop_copies_of,
)
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState

RANGE = KeyGroupRange(0, 1)
BASE = KeyGroupsSavepointStateHandle(
    KeyGroupRangeOffsets(RANGE, (0, 0)), ByteStreamStateHandle("base", b"b")
)


def log(name):
    segment = FileStateHandle(f"file:/x/{name}", 3)
    return ChangelogStateHandleStream(((segment, 0),), RANGE, 3, 3, "filesystem", name)


def parts(*names):
    logs = tuple(log(name) for name in names)
    return CopyParts.of([ChangelogStateBackendHandle((BASE,), logs, RANGE, 1, 1, 0, "id")])


class Same(RichMapFunction):
    def map(self, value):
        return value


def folder(tmp_path, max_bytes=1 << 20, subtask=0, parallelism=1, base_path="file:/x"):
    operator = KeyedOperator("u", "k", Types.STRING, Same())
    job = JobSpec(
        name="j",
        base_path=base_path,
        operators=(operator,),
        parallelism=parallelism,
        max_parallelism=2 * parallelism,
        local_copies=LocalCopies(None if tmp_path is None else str(tmp_path), max_bytes),
    )
    task = TaskSpec(
        job=job, parent=base_path, assigned=(encode_assigned(PrioritizedOperatorSubtaskState()),)
    )
    return CopyFolder(task, subtask)


def publish(copies, of, content=b"state"):
    def save(built):
        (built / "data").write_bytes(content)
        return {"note": of.name}

    keep(copies, of, save)
    return copies.path / of.name


def keep(copies, of, save):
    begun = copies.begin(save)
    if begun is not None:
        copies.finish(begun, of, {})


def test_an_older_state_leads_to_a_newer_one_by_its_log():
    older, newer = parts("a"), parts("a", "b", "c")
    assert newer.since(older) == (log("b"), log("c"))
    assert newer.since(newer) == ()
    assert older.since(newer) is None
    assert newer.since(parts("b")) is None
    other_base = CopyParts(("other",), older.log, older.log_handles)
    assert newer.since(other_base) is None


def test_the_nearest_copy_is_found(tmp_path):
    copies = folder(tmp_path)
    publish(copies, parts("a"))
    nearest = publish(copies, parts("a", "b"))
    publish(copies, parts("a", "x"))
    path, manifest, parts_kept = copies.find(parts("a", "b", "c"))
    assert (path, manifest["note"], parts_kept.log) == (
        nearest,
        parts("a", "b").name,
        parts("a", "b").log,
    )
    assert copies.find(parts("z")) is None


def test_a_copy_that_is_not_whole_is_not_found(tmp_path):
    copies = folder(tmp_path)
    path = publish(copies, parts("a"))
    manifest = (path / "copy.json").read_text()
    for damage in (
        lambda: (path / "data").write_bytes(b"less"),
        (path / "data").unlink,
        lambda: (path / "copy.json").write_text("[1]"),
        lambda: (path / "copy.json").write_text(manifest.replace("note", "nose")),
    ):
        assert copies.find(parts("a")) is not None
        damage()
        assert copies.find(parts("a")) is None
        assert not path.exists(), "a new copy may have its name"
        publish(copies, parts("a"))


def test_old_copies_go(tmp_path):
    copies = folder(tmp_path)
    for at, name in enumerate("abcde"):
        path = publish(copies, parts(name))
        os.utime(path, ns=(at, at))
    publish(copies, parts("f"))
    kept = [each.name for each in copies.path.iterdir()]
    assert len(kept) == KEPT_PER_RANGE and parts("f").name in kept


def test_pipelines_of_one_name_with_two_base_paths_keep_their_own_copies(tmp_path):
    production = publish(folder(tmp_path), parts("a"))
    development = folder(tmp_path, base_path="file:/development")
    for name in "abcde":
        publish(development, parts(name))
    assert production.exists()
    assert drop_copies_of(JobID.for_name("j"), str(tmp_path)) == 1 + KEPT_PER_RANGE
    assert not production.exists() and not any(development.path.iterdir())


def test_the_bytes_of_all_copies_are_bounded(tmp_path):
    copies = folder(tmp_path, max_bytes=1500)
    first = publish(copies, parts("a"), b"x" * 1000)
    os.utime(first, ns=(1, 1))
    second = publish(copies, parts("b"), b"x" * 1000)
    assert not first.exists() and second.exists()


@pytest.mark.slow
def test_the_copies_of_many_subtasks_pass_their_limit_by_a_64th_at_most(tmp_path):
    limit, size, most = 64_000, 400, 0
    for subtask in range(300):
        publish(folder(tmp_path, limit, subtask, 300), parts("a"), b"x" * size)
        most = max(most, sum(each.stat().st_size for each in tmp_path.glob("*/*/*/*/*")))
    assert limit < most + size * 10, "the limit was reached"
    assert most <= limit * 65 // 64 + 2 * size


def test_a_copy_that_the_disk_refuses_is_no_error(tmp_path, caplog):
    gone = tmp_path / "dropped by another process"

    def save(built):
        (built / "data").hardlink_to(gone)

    caplog.set_level(logging.INFO)
    copies = folder(tmp_path)
    keep(copies, parts("a"), save)
    assert list(copies.path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"no folder")
    keep(folder(tmp_path / "file"), parts("a"), save)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert caplog.text.count("a local copy was not kept") == 2


def test_one_private_folder_where_the_shared_one_is_open_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"dstl-local-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    first, second = folder(None), folder(None)
    assert first.path == second.path
    assert not first.path.is_relative_to(shared)
    assert len(list(tmp_path.iterdir())) == 2
    assert first.path.parents[2].stat().st_mode & 0o077 == 0
