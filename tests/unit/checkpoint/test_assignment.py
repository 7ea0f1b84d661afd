"""Which subtask restores which state: Flink's rules."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from dstl_core.checkpoint.coordination.assignment import assign_state
from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.errors import MaxParallelismMismatchError, NonRestoredStateError, RestoreError
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChannelStateHandle,
    ChannelStateKind,
    FileStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState

ID = OperatorID.for_uid("op")
OTHER = OperatorID.for_uid("other")


def keyed(index: int, parallelism: int, maximum: int = 128) -> KeyGroupsSavepointStateHandle:
    key_groups = compute_key_group_range_for_operator_index(maximum, parallelism, index)
    offsets = KeyGroupRangeOffsets(key_groups, tuple(range(1, 1 + len(key_groups))))
    return KeyGroupsSavepointStateHandle(offsets, FileStateHandle(f"file:/{index}", 9))


def listed(index: int, elements: int) -> OperatorStreamStateHandle:
    state = OperatorStateMetaInfo("s", OperatorStateMode.SPLIT_DISTRIBUTE, tuple(range(elements)))
    return OperatorStreamStateHandle((state,), FileStateHandle(f"file:/op-{index}", 9))


def operator_state(parallelism: int, maximum: int = 128) -> OperatorState:
    subtasks = tuple(
        OperatorSubtaskState(
            index,
            managed_operator_state=listed(index, 2),
            managed_keyed_state=keyed(index, parallelism, maximum),
        )
        for index in range(parallelism)
    )
    return OperatorState(ID, parallelism, maximum, subtasks, uid="op")


def plan(parallelism: int, maximum: int = 128, *, configured: bool = True) -> OperatorPlan:
    return OperatorPlan(ID, "op", parallelism, maximum, configured)


def assigned(
    plans: list[OperatorPlan], *states: OperatorState, allow: bool = False
) -> tuple[PrioritizedOperatorSubtaskState, ...]:
    assignment = assign_state(5, plans, states, allow_non_restored_state=allow, source="file:/s")
    return assignment.subtasks[ID]


def test_at_the_same_parallelism_each_subtask_gets_its_own() -> None:
    assert assigned([plan(2)], operator_state(2)) == tuple(
        PrioritizedOperatorSubtaskState(
            5,
            managed_keyed_state=(keyed(index, 2),),
            managed_operator_state=(listed(index, 2),),
        )
        for index in range(2)
    )


@pytest.mark.parametrize(
    ("old", "new", "sources"),
    [
        (3, 2, [[0, 1], [1, 2]]),
        (3, 4, [[0], [0, 1], [1, 2], [2]]),
        (2, 1, [[0, 1]]),
        (1, 3, [[0], [0], [0]]),
    ],
)
def test_keyed_state_goes_to_whoever_owns_part_of_it(
    old: int, new: int, sources: list[list[int]]
) -> None:
    subtasks = assigned([plan(new)], operator_state(old))
    assert [each.managed_keyed_state for each in subtasks] == [
        tuple(keyed(index, old) for index in indexes) for indexes in sources
    ]


def test_operator_state_is_redistributed() -> None:
    counts = [
        sum(
            len(state.offsets)
            for handle in subtask.managed_operator_state
            for state in handle.states
        )
        for subtask in assigned([plan(4)], operator_state(3))
    ]
    assert counts == [2, 2, 1, 1]


def test_raw_state_goes_the_same_ways() -> None:
    state = operator_state(2)
    raw = tuple(
        OperatorSubtaskState(
            subtask.index,
            raw_operator_state=subtask.managed_operator_state,
            raw_keyed_state=subtask.managed_keyed_state,
        )
        for subtask in state.subtasks
    )
    [only] = assigned([plan(1)], replace(state, subtasks=raw))
    assert only.raw_keyed_state == (keyed(0, 2), keyed(1, 2))
    assert only.raw_operator_state == (listed(0, 2), listed(1, 2))
    assert only.managed_keyed_state == only.managed_operator_state == ()


def test_a_subtask_without_state() -> None:
    state = operator_state(2)
    subtasks = assigned([plan(2)], replace(state, subtasks=state.subtasks[:1]))
    assert subtasks[1] == PrioritizedOperatorSubtaskState(5)
    assert subtasks[1].is_restored


def test_an_operator_without_state_starts_empty_but_restored() -> None:
    assert assigned([plan(2)]) == (PrioritizedOperatorSubtaskState(5),) * 2


# ------------------------------------------------------------------------------ unclaimed state


def other(*subtasks: OperatorSubtaskState, **more: object) -> OperatorState:
    return replace(OperatorState(OTHER, 1, 128, subtasks, uid="gone"), **more)


def test_state_that_no_operator_claims() -> None:
    with pytest.raises(NonRestoredStateError) as caught:
        assigned([plan(1)], other(OperatorSubtaskState(0, managed_keyed_state=keyed(0, 1))))
    assert str(caught.value) == (
        "Failed to rollback to checkpoint/savepoint file:/s. Cannot map checkpoint/savepoint state "
        "for operator gone to the new program, because the operator is not available in the new "
        "program; pass allow_non_restored_state=True to leave it out (Flink's "
        "execution.state-recovery.ignore-unclaimed-state)."
    )
    coordinated = other(coordinator_state=ByteStreamStateHandle("c", b""))
    with pytest.raises(NonRestoredStateError):
        assigned([plan(1)], coordinated)


def test_empty_state_that_no_operator_claims() -> None:
    assert len(assigned([plan(1)], other(OperatorSubtaskState(0)))) == 1
    assert len(assigned([plan(1)], other())) == 1


def test_unclaimed_state_can_be_left_out(caplog: pytest.LogCaptureFixture) -> None:
    state = other(OperatorSubtaskState(0, managed_keyed_state=keyed(0, 1)))
    with caplog.at_level(logging.INFO):
        assert len(assigned([plan(1)], state, allow=True)) == 1
    assert "operator=gone" in caplog.text


# ----------------------------------------------------------------------------- max parallelism


def test_a_parallelism_above_the_maximum_of_the_state() -> None:
    with pytest.raises(
        MaxParallelismMismatchError,
        match=r"The maximum parallelism \(4\) of the restored state is lower than the configured "
        r"parallelism \(5\)",
    ):
        assigned([plan(5, 128, configured=False)], operator_state(2, 4))


def test_another_configured_maximum() -> None:
    with pytest.raises(
        MaxParallelismMismatchError,
        match=r"Max parallelism mismatch .* operator op with max parallelism 64 to new program "
        "with max parallelism 128",
    ):
        assigned([plan(2)], operator_state(2, 64))


def test_a_derived_maximum_gives_way_to_that_of_the_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        assignment = assign_state(
            5, [plan(2, configured=False)], [operator_state(3, 64)], allow_non_restored_state=False
        )
    assert assignment.operators == (plan(2, 64, configured=False),)
    assert "Rescaling maximum parallelism for operator op from 128 to 64" in caplog.text
    # And the key groups are those of the state.
    first, second = assignment.subtasks[ID]
    assert first.managed_keyed_state == (keyed(0, 3, 64), keyed(1, 3, 64))
    assert second.managed_keyed_state == (keyed(1, 3, 64), keyed(2, 3, 64))


# ------------------------------------------------------------------------------------ the rest


def test_operators_that_had_finished() -> None:
    finished = OperatorState(ID, 2, 128, (), uid="op", fully_finished=True)
    assignment = assign_state(5, [plan(2)], [finished], allow_non_restored_state=False)
    assert assignment.finished == {ID}
    assert assignment.subtasks[ID] == (PrioritizedOperatorSubtaskState(5),) * 2


def test_in_flight_data_is_refused() -> None:
    handle = ChannelStateHandle(
        ChannelStateKind.INPUT_CHANNEL, 0, (0, 0), (4,), 9, FileStateHandle("file:/c", 9)
    )
    state = OperatorState(ID, 1, 128, (OperatorSubtaskState(0, input_channel_state=(handle,)),))
    with pytest.raises(RestoreError, match=r"an unaligned checkpoint.*take a savepoint"):
        assigned([plan(1)], state)
