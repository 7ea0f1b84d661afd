"""Tasks, results and change sets as values."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from dstl_core.changelog.change_set import StateChangeSet
from dstl_core.changelog.upload import UploadResult, UploadTasksResult
from dstl_core.errors import UploadFailedError
from dstl_core.model.change import StateChange
from dstl_core.model.handle import FileStateHandle
from dstl_core.model.sequence import SequenceNumber
from tests.unit.changelog.upload.doubles import Outcomes, change_set

REMOTE, LOCAL = FileStateHandle("s3://b/x", 10), FileStateHandle("file:/x", 10)


def test_a_change_set_counts_payload_and_gives_its_changes_back() -> None:
    changes = [StateChange(2, b"two"), StateChange(-1, b"meta"), StateChange(1, b"")]
    own_set = StateChangeSet(UUID(int=7), SequenceNumber(3), iter(changes))
    assert (own_set.log_id, own_set.sequence_number, own_set.size) == (
        UUID(int=7),
        SequenceNumber(3),
        7,
    )
    assert own_set.changes == (changes[1], changes[2], changes[0])
    assert own_set != StateChangeSet(UUID(int=7), SequenceNumber(3), changes)
    with pytest.raises(TypeError):
        own_set.encoded[0] = 1  # type: ignore[index]


def test_a_result_takes_number_and_size_from_its_set() -> None:
    result = UploadResult.of(REMOTE, LOCAL, change_set(5, number=9), 17, 18)
    assert result == UploadResult(REMOTE, LOCAL, 17, 18, SequenceNumber(9), 5)


def test_one_outcome_however_many_threads_bring_one() -> None:
    outcomes = Outcomes()
    tasks = [outcomes.task(1) for _ in range(50)]
    barrier = threading.Barrier(4)

    def finish(worker: int) -> None:
        for task in tasks:
            barrier.wait()
            if worker % 2:
                task.complete([])
            else:
                task.fail(RuntimeError("lost"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(finish, range(4)))
    assert len(outcomes.results) + len(outcomes.errors) == 50


def test_every_task_is_told_and_then_the_errors_of_callbacks_come_out() -> None:
    outcomes = Outcomes()

    def refuse() -> None:
        raise RuntimeError("mine")

    tasks = [outcomes.task(1, callback=refuse), outcomes.task(2), outcomes.task(3, callback=refuse)]
    offsets = {task: dict.fromkeys(task.change_sets, (0, 0)) for task in tasks}
    with pytest.raises(ExceptionGroup, match="upload callbacks failed") as caught:
        UploadTasksResult(offsets, REMOTE).complete()
    assert [str(each) for each in caught.value.exceptions] == ["mine", "mine"]
    assert outcomes.results.keys() == {tasks[1]}


def test_a_task_without_all_its_sets_fails() -> None:
    outcomes = Outcomes()
    task = outcomes.task(1, 2)
    UploadTasksResult({task: {task.change_sets[0]: (0, 0)}}, REMOTE).complete()
    assert isinstance(outcomes.errors[task], UploadFailedError)


def test_discarding_takes_both_files_and_without_an_owner_nothing() -> None:
    discarded: list[FileStateHandle] = []
    UploadTasksResult({}, REMOTE, LOCAL, discard_handle=discarded.append).discard()
    assert discarded == [REMOTE, LOCAL]
    UploadTasksResult({}, REMOTE, LOCAL).discard()
    assert UploadTasksResult({}, REMOTE).state_size == 10
