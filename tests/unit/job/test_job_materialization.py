"""A materialization beside epochs whose files were retired under it."""

from types import SimpleNamespace

import pytest

from dstl_core.errors import StateFileNotFoundError
from dstl_core.job.coordination.job_materialization import BackgroundMaterialization, adopt
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange

OWN = KeyGroupRange(0, 1)


def checkpoint(number, base):
    stream = ByteStreamStateHandle(base, base.encode())
    keyed = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(OWN, (0, 0)), stream)
    handle = ChangelogStateBackendHandle((keyed,), (), OWN, number, 1, 0, f"id {number}")
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator = OperatorState(OperatorID.for_uid("op"), 1, 2, (subtask,))
    return CheckpointMetadata(3, number, (operator,))


def adopted_onto(current):
    """What becomes of it where the pipeline has ``current`` by now."""

    def read():
        raise StateFileNotFoundError("Cannot read a file of the base.")

    file = SimpleNamespace(metadata=current)
    tasks = SimpleNamespace(
        coordinator=SimpleNamespace(require_latest=lambda: None), load=lambda latest: file
    )
    return adopt(tasks, BackgroundMaterialization(checkpoint(1, "base"), read))


def test_it_is_not_adopted_where_the_state_has_another_base():
    assert adopted_onto(checkpoint(2, "another base")) is None


def test_a_file_that_is_missing_from_the_same_base_is_an_error():
    with pytest.raises(StateFileNotFoundError):
        adopted_onto(checkpoint(2, "base"))
