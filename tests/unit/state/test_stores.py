"""What functions get of their contexts: every method of the two stores, on both backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import CheckpointedFunction, RawStateOperator, RichMapFunction
from dstl_core.model.handle import CheckpointedStateScope
from dstl_core.model.snapshot_type import CheckpointMetaData
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.context import (
    FunctionInitializationContext,
    FunctionSnapshotContext,
    StateInitializationContext,
    StateSnapshotContext,
)
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location
from dstl_core.testing import ManualClock, MemoryFileIO
from tests.stateful_job import ALL_CHECKPOINTS, SumAndCount

LAYOUT = JobLayout.of(Location.parse("memory://test/base"), "ab" * 16)
BACKENDS: list[StateBackend] = [
    HashMapStateBackend(),
    EmbeddedRocksDBStateBackend(cache_bytes=1 << 20, write_buffer_bytes=1 << 20),
]


class Function(RichMapFunction, CheckpointedFunction):
    """Keeps its contexts, and does with each element what the test says."""

    def __init__(self, work: Callable[[Function], Any] = lambda self: None) -> None:
        self._work = work

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.context = context

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.snapshot = context

    def map(self, value: Any) -> Any:
        return self._work(self)


@pytest.fixture(params=BACKENDS, ids=lambda kind: kind.identifier)
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., OperatorSubtask]]:
    disk = MemoryFileIO()
    environment = TaskEnvironment(
        request.param,
        None,
        HandleResolver(disk, LAYOUT.root),
        file_system_streams(LAYOUT, disk, inline_threshold=0),
        ManualClock(),
    )
    made: list[OperatorSubtask] = []

    def make(
        function: Function,
        restore: PrioritizedOperatorSubtaskState | None = None,
        *,
        keyed: bool = True,
    ) -> OperatorSubtask:
        key_type = Types.STRING if keyed else None
        setup = OperatorSetup("map", key_type, lambda value: value, 1, 8)
        made.append(OperatorSubtask(setup, environment, 0, function, restore))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def test_every_kind_of_state_of_the_keyed_store(
    start: Callable[..., OperatorSubtask],
) -> None:
    def work(function: Function) -> dict[str, Any]:
        store = function.context.keyed_state_store
        value = store.get_state(ValueStateDescriptor("value", Types.INT))
        value.update((value.value() or 0) + 1)
        names = store.get_list_state(ListStateDescriptor("list", Types.STRING))
        names.add("x")
        pairs = store.get_map_state(MapStateDescriptor("map", Types.STRING, Types.LONG))
        pairs.put("n", len(names.get()))
        largest = store.get_reducing_state(ReducingStateDescriptor("reducing", max, Types.INT))
        largest.add(value.value())
        mean = store.get_aggregating_state(
            AggregatingStateDescriptor(
                "aggregating", SumAndCount(), Types.TUPLE(Types.LONG, Types.LONG)
            )
        )
        mean.add(value.value())
        text = store.get_folding_state(
            FoldingStateDescriptor("folding", ">", lambda a, b: f"{a}{b}", Types.STRING)
        )
        text.add(value.value())
        return {
            "value": value.value(),
            "list": names.get(),
            "map": dict(pairs.items()),
            "reducing": largest.get(),
            "aggregating": mean.get(),
            "folding": text.get(),
        }

    subtask = start(Function(work))
    [first] = subtask.process("a")
    [_other] = subtask.process("b")
    [second] = subtask.process("a")
    assert first == {
        "value": 1,
        "list": ["x"],
        "map": {"n": 1},
        "reducing": 1,
        "aggregating": 1.0,
        "folding": ">1",
    }
    assert _other == first
    assert second == {
        "value": 2,
        "list": ["x", "x"],
        "map": {"n": 2},
        "reducing": 2,
        "aggregating": 1.5,
        "folding": ">12",
    }


def test_the_keyed_store_of_an_operator_without_a_key(
    start: Callable[..., OperatorSubtask],
) -> None:
    function = Function()
    start(function, keyed=False)
    with pytest.raises(ConfigError, match="key"):
        function.context.keyed_state_store.get_state(ValueStateDescriptor("n", Types.INT))


def test_every_kind_of_state_of_the_operator_store(
    start: Callable[..., OperatorSubtask],
) -> None:
    function = Function()
    subtask = start(function)
    store = function.context.operator_state_store
    assert store.get_registered_state_names() == set()
    assert store.get_registered_broadcast_state_names() == set()
    split = store.get_list_state(ListStateDescriptor("split", Types.STRING))
    union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING))
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING, Types.LONG))
    split.add("a")
    split.add_all(["b", "c"])
    union.update(["u", "v"])
    rules.put("one", 1)
    assert store.get_registered_state_names() == {"split", "union"}
    assert store.get_registered_broadcast_state_names() == {"rules"}
    # The same state, however often it is asked for.
    assert store.get_list_state(ListStateDescriptor("split", Types.STRING)).get() == split.get()

    state = subtask.snapshot(CheckpointMetaData(1, 0), ALL_CHECKPOINTS)
    assert state.managed_operator_state is not None
    again = Function()
    start(
        again,
        PrioritizedOperatorSubtaskState(1, managed_operator_state=(state.managed_operator_state,)),
    )
    store = again.context.operator_state_store
    assert store.get_registered_state_names() == {"split", "union"}
    assert store.get_registered_broadcast_state_names() == {"rules"}
    assert store.get_list_state(ListStateDescriptor("split", Types.STRING)).get() == list("abc")
    union = store.get_union_list_state(ListStateDescriptor("union", Types.STRING))
    assert union.get() == ["u", "v"]
    rules = store.get_broadcast_state(MapStateDescriptor("rules", Types.STRING, Types.LONG))
    assert rules.get("one") == 1
    union.clear()
    assert union.get() == []


def test_broadcast_state_is_a_map(start: Callable[..., OperatorSubtask]) -> None:
    function = Function()
    start(function)
    rules = function.context.operator_state_store.get_broadcast_state(
        MapStateDescriptor("config", Types.STRING, Types.LONG)
    )
    rules.put("global-config", 1)
    rules.put_all({"a": 2, "b": 3})
    rules.put("a", 20)
    assert rules.get("global-config") == 1
    assert rules.get("nothing") is None
    assert rules.contains("b")
    assert not rules.contains("nothing")
    rules.remove("b")
    rules.remove("nothing")
    assert sorted(rules.items()) == sorted(rules.entries()) == [("a", 20), ("global-config", 1)]
    rules.clear()
    assert list(rules.items()) == []


def test_what_contexts_tell(start: Callable[..., OperatorSubtask]) -> None:
    class Raw(Function, RawStateOperator):
        def initialize_raw_state(self, context: StateInitializationContext) -> None:
            self.raw = context

        def snapshot_raw_state(self, context: StateSnapshotContext) -> None:
            self.raw_snapshot = context
            stream = context.checkpoint_stream_factory.create_checkpoint_state_output_stream(
                CheckpointedStateScope.EXCLUSIVE
            )
            stream.write(b"mine")
            self.written = stream.close_and_get_handle()

    fresh = Raw()
    subtask = start(fresh)
    assert not fresh.context.is_restored
    assert fresh.context.managed_initialization_context is fresh.context
    assert list(fresh.raw.raw_operator_state_inputs) == []
    subtask.snapshot(CheckpointMetaData(7, 1_234), ALL_CHECKPOINTS)
    assert (fresh.snapshot.checkpoint_id, fresh.snapshot.checkpoint_timestamp) == (7, 1_234)
    assert fresh.raw_snapshot.checkpoint_id == 7
    assert fresh.written.state_size == 4

    restored = Raw()
    start(restored, PrioritizedOperatorSubtaskState(7))
    # Restored, although the snapshot holds nothing for it.
    assert restored.context.is_restored
    assert restored.context.restored_checkpoint_id == 7
