from __future__ import annotations

from dataclasses import replace

from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore.carry_over import CarriedState, carry_over

ALL = KeyGroupRange(0, 127)
LEFT, RIGHT = KeyGroupRange(0, 63), KeyGroupRange(64, 127)


def base(
    key_groups: KeyGroupRange, stream: StreamStateHandle | None = None
) -> KeyGroupsSavepointStateHandle:
    offsets = tuple(1 + key_group for key_group in key_groups)
    return KeyGroupsSavepointStateHandle(
        KeyGroupRangeOffsets(key_groups, offsets),
        stream or FileStateHandle(f"file:/job/taskowned/{key_groups.start_key_group}", 1000),
    )


def log(key_groups: KeyGroupRange, name: str) -> ChangelogStateHandleStream:
    segment = FileStateHandle(f"file:/job/dstl/{name}", 100)
    return ChangelogStateHandleStream(((segment, 0),), key_groups, 90, 90, name)


def handle(
    key_groups: KeyGroupRange, *logs: ChangelogStateHandleStream, materialization_id: int = 1
) -> ChangelogStateBackendHandle:
    return ChangelogStateBackendHandle(
        (base(key_groups),), logs, key_groups, materialization_id, 7, 90, "id"
    )


def test_the_same_subtask_carries_all_of_its_handle() -> None:
    first, second = log(LEFT, "first"), log(LEFT, "second")

    carried = carry_over([handle(LEFT, first, second), handle(RIGHT, log(RIGHT, "other"))], LEFT)

    assert carried == CarriedState((base(LEFT),), (first, second), 1)


def test_scaling_down_carries_whole_logs_of_several_subtasks() -> None:
    left, right = log(LEFT, "left"), log(RIGHT, "right")

    carried = carry_over([handle(LEFT, left), handle(RIGHT, right, materialization_id=3)], ALL)

    assert carried == CarriedState((base(LEFT), base(RIGHT)), (left, right), 3)


def test_a_log_is_not_cut() -> None:
    assert carry_over([handle(ALL, log(ALL, "log"))], LEFT) is None
    assert carry_over([handle(ALL, log(ALL, "log"))], RIGHT) is None


def test_a_base_without_a_log_is_cut() -> None:
    carried = carry_over([handle(ALL)], RIGHT)

    offsets = KeyGroupRangeOffsets(RIGHT, tuple(range(65, 129)))
    assert carried == CarriedState((replace(base(ALL), offsets=offsets),), (), 1)


def test_a_base_that_is_no_changelog_handle() -> None:
    assert carry_over([base(ALL)], ALL) == CarriedState((base(ALL),), (), 0)


def test_a_relative_base_is_not_carried() -> None:
    assert carry_over([base(ALL, RelativeFileStateHandle("name", 1000))], ALL) is None


def test_nothing_is_carried_from_nothing() -> None:
    assert carry_over([], ALL) == CarriedState((), (), 0)
    assert carry_over([handle(LEFT, log(LEFT, "log"))], RIGHT) == CarriedState((), (), 0)
