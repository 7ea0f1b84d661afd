"""What is assigned to a subtask is the same on the worker, for every handle that Flink writes."""

from dataclasses import replace

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.coordination.assignment import assign_state
from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.errors import FormatError
from dstl_core.job.task.assigned_state import decode_assigned, encode_assigned
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from tests.golden_files import SNAPSHOTS


def assigned(fixture, parallelism):
    """What the subtasks of all operators of a snapshot get, at a parallelism of their own or at
    another one. In-flight data is left out, which no job of dstl restores.
    """
    operators = [
        replace(
            operator.state,
            subtasks=tuple(
                replace(state, input_channel_state=(), result_subpartition_state=())
                for state in operator.state.subtasks
            ),
        )
        for operator in Snapshot.load(fixture.snapshot).operators
        if operator.state.coordinator_state is None
    ]
    for state in operators:
        plan = OperatorPlan(
            state.operator_id,
            "u",
            min(parallelism or state.parallelism, state.max_parallelism),
            state.max_parallelism,
            True,
        )
        assignment = assign_state(
            7, [plan], [state], allow_non_restored_state=False, source="file:/s"
        )
        yield from assignment.subtasks[state.operator_id]


@pytest.mark.parametrize("parallelism", [None, 3])
@pytest.mark.parametrize("fixture", SNAPSHOTS, ids=str)
def test_every_assigned_state_is_the_same_again(fixture, parallelism):
    for state in assigned(fixture, parallelism):
        assert decode_assigned(encode_assigned(state)) == state


def test_a_start_without_state_is_not_a_restore():
    decoded = decode_assigned(encode_assigned(PrioritizedOperatorSubtaskState()))
    assert decoded == PrioritizedOperatorSubtaskState()
    assert not decoded.is_restored


def test_damage_is_refused():
    raw = encode_assigned(PrioritizedOperatorSubtaskState(3))
    for damaged in (raw[:-1], raw + b"\0", raw[:9] + b"\x7f" + raw[10:]):
        with pytest.raises(FormatError):
            decode_assigned(damaged)
