"""A job of one operator in this process: real subtasks, real files or memory, no coordinator.

A program is a list of elements; ``Everything`` applies them to state of every kind, ``Model`` to
plain dictionaries.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pyarrow as pa

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.checkpoint.coordination.assignment import assign_state
from dstl_core.checkpoint.coordination.pending import OperatorPlan
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions
from dstl_core.functions import (
    CheckpointedFunction,
    Context,
    KeyedProcessFunction,
    OnTimerContext,
    RuntimeContext,
)
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import (
    assign_to_key_group,
    compute_operator_index_for_key_group,
)
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.model.task_restore import PrioritizedOperatorSubtaskState
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.context import FunctionInitializationContext, FunctionSnapshotContext
from dstl_core.state.backends.state_backend import StateBackend
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location
from dstl_core.testing import ManualClock

UID = "everything"
TTL_MS = 1_000
ALL_CHECKPOINTS = CheckpointOptions.for_checkpoint_with_default_location()


class SumAndCount:
    """An average: the accumulator is (sum, count)."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] + right[1])


VALUE = ValueStateDescriptor("value", Types.LONG)
LIST = ListStateDescriptor("list", Types.STRING)
MAP = MapStateDescriptor("map", Types.STRING, Types.LONG)
REDUCING = ReducingStateDescriptor("reducing", lambda a, b: a + b, Types.LONG)
AGGREGATING = AggregatingStateDescriptor(
    "aggregating", SumAndCount(), Types.TUPLE(Types.LONG, Types.LONG)
)
FOLDING = FoldingStateDescriptor("folding", "", lambda text, value: f"{text}{value},", Types.STRING)
TTL = StateTtlConfig(TTL_MS)
EXPIRING = ValueStateDescriptor("expiring", Types.LONG, ttl=TTL)
SPLIT = ListStateDescriptor("split", Types.STRING)
UNION = ListStateDescriptor("union", Types.STRING)
BROADCAST = MapStateDescriptor("broadcast", Types.STRING, Types.LONG)

Element = Mapping[str, Any]


class Everything(KeyedProcessFunction, CheckpointedFunction):
    """Does what each element says, on state of every kind."""

    def __init__(self, *, folding: bool = True, registered: bool = True) -> None:
        self._folding_too = folding

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        operator = context.operator_state_store
        self.split = operator.get_list_state(SPLIT)
        self.union = operator.get_union_list_state(UNION)
        self.broadcast = operator.get_broadcast_state(BROADCAST)
        self.is_restored = context.is_restored

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.snapshots = context.checkpoint_id

    def open(self, runtime_context: RuntimeContext) -> None:
        if self.is_restored and runtime_context.subtask_index:
            self.union.clear()  # every subtask got all; the first one keeps them
        self.value = runtime_context.get_state(VALUE)
        self.list = runtime_context.get_list_state(LIST)
        self.map = runtime_context.get_map_state(MAP)
        self.reducing = runtime_context.get_reducing_state(REDUCING)
        self.aggregating = runtime_context.get_aggregating_state(AGGREGATING)
        if self._folding_too:
            self.folding = runtime_context.get_folding_state(FOLDING)
        self.expiring = runtime_context.get_state(EXPIRING)

    def process_element(self, value: Element, ctx: Context) -> list[Any]:
        number, timers = value.get("number", 0), ctx.timer_service()
        match value["do"]:
            case "value":
                self.value.update(number)
            case "list":
                self.list.add(str(number))
            case "list all":
                self.list.add_all([f"{number}-{each}" for each in range(number % 3)])
            case "list set":
                self.list.update([f"{number}"] * (number % 3))
            case "map":
                self.map.put(f"k{number % 4}", None if number == 7 else number)
            case "map all":
                self.map.put_all({f"k{each}": number for each in range(number % 5)})
            case "map remove":
                self.map.remove(f"k{number % 4}")
            case "reducing":
                self.reducing.add(number)
            case "aggregating":
                self.aggregating.add(number)
            case "folding" if self._folding_too:
                self.folding.add(number)
            case "expiring":
                self.expiring.update(number)
            case "clear":
                states = [self.value, self.list, self.map, self.reducing, self.aggregating]
                states[number % 5].clear()
            case "event timer":
                timers.register_event_time_timer(number)
            case "no event timer":
                timers.delete_event_time_timer(number)
            case "time timer":
                timers.register_processing_time_timer(number)
            case "split":
                self.split.add(str(number))
            case "union":
                self.union.add(str(number))
        return []

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> list[Any]:
        count = self.reducing.get() or 0
        self.reducing.add(timestamp)
        return [(ctx.time_domain().value, ctx.get_current_key(), timestamp, count)]

    def seen(self) -> dict[str, Any]:
        """What the current key has."""
        contents = {
            "value": self.value.value(),
            "list": self.list.get(),
            "map": dict(self.map.items()),
            "reducing": self.reducing.get(),
            "aggregating": self.aggregating.get(),
            "expiring": self.expiring.value(),
        }
        if self._folding_too:
            contents["folding"] = self.folding.get()
        return contents


NOTHING: dict[str, Any] = {
    "value": None,
    "list": [],
    "map": {},
    "reducing": None,
    "aggregating": None,
    "expiring": None,
    "folding": None,
}


@dataclass
class Model:
    """The same on dictionaries."""

    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    event: set[tuple[int, str]] = field(default_factory=set)
    processing: set[tuple[int, str]] = field(default_factory=set)
    split: list[str] = field(default_factory=list)
    union: list[str] = field(default_factory=list)
    broadcast: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def apply(self, element: Element, now_ms: int) -> None:
        key, number = element["key"], element.get("number", 0)
        state = self.keys.setdefault(key, copy.deepcopy(NOTHING))
        match element["do"]:
            case "value":
                state["value"] = number
            case "list":
                state["list"].append(str(number))
            case "list all":
                state["list"] += [f"{number}-{each}" for each in range(number % 3)]
            case "list set":
                state["list"] = [f"{number}"] * (number % 3)
            case "map":
                state["map"][f"k{number % 4}"] = None if number == 7 else number
            case "map all":
                state["map"].update({f"k{each}": number for each in range(number % 5)})
            case "map remove":
                state["map"].pop(f"k{number % 4}", None)
            case "reducing":
                state["reducing"] = (state["reducing"] or 0) + number
            case "aggregating":
                total, count = state["aggregating"] or (0, 0)
                state["aggregating"] = (total + number, count + 1)
            case "folding":
                state["folding"] = f"{state['folding'] or ''}{number},"
            case "expiring":
                state["expiring"] = (now_ms, number)
            case "clear":
                name = ["value", "list", "map", "reducing", "aggregating"][number % 5]
                state[name] = copy.deepcopy(NOTHING[name])
            case "event timer":
                self.event.add((number, key))
            case "no event timer":
                self.event.discard((number, key))
            case "time timer":
                self.processing.add((number, key))
            case "split":
                self.split.append(str(number))
            case "union":
                self.union.append(str(number))

    def fire(self, domain: str, up_to: int) -> list[Any]:
        timers = self.event if domain == "event" else self.processing
        due = sorted(timer for timer in timers if timer[0] <= up_to)
        output = []
        for timer in due:
            timers.discard(timer)
            time, key = timer
            state = self.keys[key]
            output.append((domain, key, time, state["reducing"] or 0))
            state["reducing"] = (state["reducing"] or 0) + time
        return output

    def seen(self, key: str, now_ms: int) -> dict[str, Any]:
        state = {**NOTHING, **self.keys.get(key, {})}
        if state["aggregating"] is not None:
            total, count = state["aggregating"]
            state["aggregating"] = total / count
        if state["expiring"] is not None:
            at, number = state["expiring"]
            state["expiring"] = number if now_ms < at + TTL_MS else None
        return state


class Job:
    """All subtasks of the operator; goes on from a checkpoint when it is told to.

    Args:
        file_io: Where everything lies.
        base: The folder of checkpoints and logs.
        max_parallelism: Key groups.
    """

    def __init__(
        self,
        file_io: FileIO,
        base: Location,
        max_parallelism: int = 16,
        *,
        function: type[Everything] = Everything,
        folding: bool = True,
        **options: Any,
    ) -> None:
        self.file_io = file_io
        self.job_id = JobID.for_name("job")
        self.layout = JobLayout.of(base, self.job_id.hex)
        self.max_parallelism = max_parallelism
        self.clock = ManualClock()
        self.options = ChangelogOptions.of(base_path=str(base), **options)
        self.subtasks: list[OperatorSubtask] = []
        self.checkpoint_id = 0
        self.output: list[Any] = []
        self._function = function
        self._folding = folding
        self._changelog: FsStateChangelogStorage | None = None

    def start(
        self,
        backend: StateBackend,
        *,
        parallelism: int,
        changelog: bool,
        snapshot: CheckpointMetadata | None = None,
        folder: Location | None = None,
        uid: str = UID,
    ) -> None:
        """Starts all subtasks, empty or from a snapshot."""
        self._setup = OperatorSetup(
            uid, Types.STRING, lambda e: e["key"], parallelism, self.max_parallelism
        )
        resolver = HandleResolver(
            self.file_io, folder or self.layout.root, allow_roots=[self.layout.root]
        )
        self._changelog = (
            FsStateChangelogStorage(
                self.job_id,
                self.options,
                self.file_io,
                scheduler=StateChangeUploadScheduler.direct_scheduler,
            )
            if changelog
            else None
        )
        environment = TaskEnvironment(
            backend,
            self._changelog,
            resolver,
            file_system_streams(self.layout, self.file_io, inline_threshold=100),
            self.clock,
            self.options,
        )
        restores = self._assigned(snapshot, parallelism, uid)
        self.subtasks = [
            OperatorSubtask(
                self._setup, environment, index, self._function(folding=self._folding), restore
            )
            for index, restore in enumerate(restores)
        ]

    def _assigned(
        self, snapshot: CheckpointMetadata | None, parallelism: int, uid: str
    ) -> Sequence[PrioritizedOperatorSubtaskState]:
        if snapshot is None:
            return [PrioritizedOperatorSubtaskState()] * parallelism
        operator_id = OperatorID.for_uid(uid)
        plan = OperatorPlan(operator_id, uid, parallelism, self.max_parallelism)
        assignment = assign_state(
            snapshot.checkpoint_id, [plan], snapshot.operators, allow_non_restored_state=True
        )
        return assignment.subtasks[operator_id]

    def owner(self, key: str) -> OperatorSubtask:
        key_group = assign_to_key_group(Types.STRING.java_hash(key), self.max_parallelism)
        index = compute_operator_index_for_key_group(
            self.max_parallelism, len(self.subtasks), key_group
        )
        return self.subtasks[index]

    def apply(self, element: Element) -> None:
        self.output += self.owner(element["key"]).process(element)

    def apply_batch(self, elements: Sequence[Element]) -> None:
        """As ``apply`` for each, a batch for each subtask, in two parts."""
        for subtask in self.subtasks:
            own = [each for each in elements if self.owner(each["key"]) is subtask]
            keys = pa.array([each["key"] for each in own], pa.string())
            half = len(own) // 2
            parts = [(part, repeat(None)) for part in (own[:half], own[half:])]
            for output in subtask.process_batch(keys, parts):
                self.output += output

    def put_broadcast(self, key: str, value: int) -> None:
        for subtask in self.subtasks:
            self.function(subtask).broadcast.put(key, value)

    @staticmethod
    def function(subtask: OperatorSubtask) -> Everything:
        own_function = subtask._function
        assert isinstance(own_function, Everything)
        return own_function

    def fire(self, domain: str, up_to: int) -> list[Any]:
        """Fires timers on every subtask; their output in order of time and key."""
        output = []
        for subtask in self.subtasks:
            output += (
                subtask.advance_watermark(up_to)
                if domain == "event"
                else subtask.advance_processing_time()
            )
        return sorted(output, key=lambda row: (row[2], row[1]))

    def checkpoint(
        self, options: CheckpointOptions = ALL_CHECKPOINTS, *, completes: bool = True
    ) -> CheckpointMetadata:
        self.checkpoint_id += 1
        identity = CheckpointMetaData(self.checkpoint_id, self.clock.now_ms())
        states = tuple(subtask.snapshot(identity, options) for subtask in self.subtasks)
        operator = OperatorState(
            self._setup.operator_id,
            self._setup.parallelism,
            self.max_parallelism,
            states,
            uid=self._setup.uid,
        )
        for subtask in self.subtasks:
            if completes:
                subtask.notify_checkpoint_complete(self.checkpoint_id)
            else:
                subtask.notify_checkpoint_aborted(self.checkpoint_id)
        return CheckpointMetadata(3, self.checkpoint_id, (operator,))

    def stop(self) -> None:
        for subtask in self.subtasks:
            subtask.close()
        if self._changelog is not None:
            self._changelog.close()
        self.subtasks, self._changelog = [], None

    def check(self, model: Model, keys: Sequence[str]) -> None:
        """What every function sees equals the model."""
        now = self.clock.now_ms()
        for key in keys:
            subtask = self.owner(key)
            assert subtask.keyed is not None
            subtask.keyed.set_current_key(key)
            seen = self.function(subtask).seen()
            expected = model.seen(key, now)
            if not self._folding:
                del expected["folding"]
            assert seen == expected, key
        functions = [self.function(subtask) for subtask in self.subtasks]
        assert sorted(x for each in functions for x in each.split.get()) == sorted(model.split)
        assert sorted(x for each in functions for x in each.union.get()) == sorted(model.union)
        for own in functions:
            assert dict(own.broadcast.items()) == model.broadcast
