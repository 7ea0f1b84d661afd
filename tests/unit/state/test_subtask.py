"""One function with keyed and operator state, raw state, timers, and materialization."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import CheckpointError, ConfigError, RestoreError
from dstl_core.functions import CheckpointedFunction, Context, RawStateOperator, RichMapFunction
from dstl_core.model.checkpoint import OperatorSubtaskState
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    StateInitializationContext,
    StateSnapshotContext,
)
from dstl_core.state.backends.state_backend import HashMapStateBackend
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location
from dstl_core.testing import ManualClock, MemoryFileIO
from tests.stateful_job import ALL_CHECKPOINTS

BASE = Location.parse("memory://test/base")


class StatefulMapFunction(RichMapFunction, CheckpointedFunction):
    """Keyed and operator state in one function."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        managed = context.managed_initialization_context
        self.count = managed.keyed_state_store.get_state(ValueStateDescriptor("count", Types.INT))
        self.buffer = managed.operator_state_store.get_list_state(
            ListStateDescriptor("buffer", Types.STRING)
        )
        self.restored = context.is_restored

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.snapshot = context.checkpoint_id

    def map(self, value: str) -> str:
        count = self.count.value() or 0
        self.count.update(count + 1)
        self.buffer.add(value)
        return f"{value} (processed {count + 1} times)"


class Raw(StatefulMapFunction, RawStateOperator):
    """Keeps bytes of its own beside it."""

    def initialize_raw_state(self, context: StateInitializationContext) -> None:
        keyed = [
            (raw_keyed_state_input.key_group, raw_keyed_state_input.get_stream().read())
            for raw_keyed_state_input in context.raw_keyed_state_inputs
        ]
        operator = [each.get_stream().read() for each in context.raw_operator_state_inputs]
        self.found = keyed, operator

    def snapshot_raw_state(self, context: StateSnapshotContext) -> None:
        keyed = context.get_raw_keyed_operator_state_output()
        with pytest.raises(ConfigError, match="before a key group was started"):
            keyed.write(b"x")
        for key_group in (0, 7, 3):
            keyed.start_new_key_group(key_group)
            keyed.write(b"group %d" % key_group)
        with pytest.raises(ConfigError, match="Key group 3 was started before"):
            keyed.start_new_key_group(3)
        with pytest.raises(ConfigError, match=r"Key group 8 is outside \[0, 7\]"):
            keyed.start_new_key_group(8)
        operator = context.get_raw_operator_state_output()
        for part in (b"one", b"two"):
            operator.start_new_partition()
            operator.write(part)


class Job:
    def __init__(self) -> None:
        self.disk = MemoryFileIO()
        layout = JobLayout.of(BASE, "ab" * 16)
        self.environment = TaskEnvironment(
            HashMapStateBackend(),
            None,
            HandleResolver(self.disk, layout.root),
            file_system_streams(layout, self.disk, inline_threshold=0),
            ManualClock(),
        )

    def start(
        self, function: StatefulMapFunction, state: OperatorSubtaskState | None = None
    ) -> OperatorSubtask:
        restore = None
        if state is not None:
            restore = PrioritizedOperatorSubtaskState(
                1,
                *(
                    () if handle is None else (handle,)
                    for handle in (
                        state.managed_keyed_state,
                        state.raw_keyed_state,
                        state.managed_operator_state,
                        state.raw_operator_state,
                    )
                ),
            )
        setup = OperatorSetup("map", Types.STRING, lambda value: value, 1, 8)
        return OperatorSubtask(setup, self.environment, 0, function, restore)


def test_keyed_and_operator_state_in_one_function() -> None:
    job, function = Job(), StatefulMapFunction()
    subtask = job.start(function)
    assert not function.restored
    assert [subtask.process(each) for each in ("a", "b", "a")][-1] == ["a (processed 2 times)"]
    state = subtask.snapshot(CheckpointMetaData(1, 0), ALL_CHECKPOINTS)
    assert function.snapshot == 1
    subtask.process("lost")
    subtask.close()

    again = StatefulMapFunction()
    subtask = job.start(again, state)
    assert again.restored
    assert again.buffer.get() == ["a", "b", "a"]
    assert subtask.process("a") == ["a (processed 3 times)"]


def test_raw_state_comes_back() -> None:
    job = Job()
    subtask = job.start(Raw())
    state = subtask.snapshot(CheckpointMetaData(1, 0), ALL_CHECKPOINTS)
    again = Raw()
    job.start(again, state)
    keyed, operator = again.found
    assert sorted(keyed)[0] == (0, b"group 0")
    assert {key_group for key_group, _ in keyed} == {0, 3, 7}
    assert operator == [b"one", b"two"]


def test_raw_state_that_nobody_reads_is_not_dropped_silently() -> None:
    job = Job()
    state = job.start(Raw()).snapshot(CheckpointMetaData(1, 0), ALL_CHECKPOINTS)
    with pytest.raises(RestoreError, match=r"'map' has raw state .* would be lost"):
        job.start(StatefulMapFunction(), state)


def test_a_subsumed_checkpoint_is_refused() -> None:
    subtask = Job().start(StatefulMapFunction())
    subtask.snapshot(CheckpointMetaData(2, 0), ALL_CHECKPOINTS)
    for late in (1, 2):
        with pytest.raises(CheckpointError, match="comes after checkpoint 2 was taken"):
            subtask.snapshot(CheckpointMetaData(late, 0), ALL_CHECKPOINTS)


def test_a_savepoint_names_its_files_relative_to_itself() -> None:
    subtask = Job().start(StatefulMapFunction())
    subtask.process("a")
    options = CheckpointOptions.for_savepoint("memory://test/savepoint")
    state = subtask.snapshot(CheckpointMetaData(1, 0), options)
    handle: Any = state.managed_keyed_state
    assert "/" not in handle.stream.relative_path


def test_timers_need_a_key_and_the_message_says_so() -> None:
    with pytest.raises(ConfigError, match="a timer belongs to a key; use a KeyedOperator"):
        Context(None).timer_service()
