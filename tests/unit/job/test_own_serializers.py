"""Subtasks with serializers of a job's own, in each place of state, cold and on disk."""

from dataclasses import dataclass

import pytest

from dstl_core.codec.serializers import BUILT_IN, Types, TypeSerializer
from dstl_core.errors import ConfigError
from dstl_core.functions import CheckpointedFunction, KeyedProcessFunction
from dstl_core.job.task.warm_backend import HELD
from dstl_core.model.snapshot_type import CheckpointType
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.ttl import StateTtlConfig
from tests.unit.job.subtasks import Subtask

SNAPSHOT = "com.example.CentsSnapshot"


@dataclass(frozen=True)
class Cents(TypeSerializer[float]):
    """Numbers with two digits, as text."""

    digits: int = 2
    snapshot_class = SNAPSHOT
    snapshot_version = 1
    type_name = "Cents"

    def write_snapshot_payload(self, out):
        out.write_i32(self.digits)

    def serialize(self, value, out):
        Types.STRING.serialize(f"{value:.{self.digits}f}", out)

    def deserialize(self, data):
        return float(Types.STRING.deserialize(data))


def read_cents(data, version, context):
    return Cents(data.read_i32("digits"))


READERS = {SNAPSHOT: read_cents}
CENTS = Cents(2)


class Last(KeyedProcessFunction):
    """Gives the value before, of a state whose type has an own serializer in some place."""

    def __init__(self, descriptor: StateDescriptor):
        self._descriptor = descriptor

    def open(self, runtime_context):
        descriptor = self._descriptor
        if isinstance(descriptor, MapStateDescriptor):
            self._state = runtime_context.get_map_state(descriptor)
        elif isinstance(descriptor, ListStateDescriptor):
            self._state = runtime_context.get_list_state(descriptor)
        else:
            self._state = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        state, new = self._state, value["d"]
        if isinstance(self._descriptor, MapStateDescriptor):
            was = next(iter(state.values()), None)
            state.put(1.5, new)
        elif isinstance(self._descriptor, ListStateDescriptor):
            was = next(iter(state.get()), None)
            state.update([new])
        else:
            was = state.value()
            state.update(new)
        yield {"k": value["k"], "was": was}


class InOperatorState(CheckpointedFunction, KeyedProcessFunction):
    def initialize_state(self, context):
        self._list = context.operator_state_store.get_list_state(
            ListStateDescriptor("buffer", CENTS)
        )
        self._last = next(iter(self._list.get()), None)

    def snapshot_state(self, context):
        self._list.update([self._last])

    def process_element(self, value, ctx):
        yield {"k": value["k"], "was": self._last}
        self._last = value["d"]


PLACES = {
    "value": Last(ValueStateDescriptor("s", CENTS)),
    "value with a time to live": Last(
        ValueStateDescriptor("s", CENTS, ttl=StateTtlConfig(3_600_000))
    ),
    "nested": Last(ValueStateDescriptor("s", Types.NULLABLE(CENTS))),
    "list": Last(ListStateDescriptor("s", CENTS)),
    "map": Last(MapStateDescriptor("s", CENTS, CENTS)),
    "operator state": InOperatorState(),
}
in_each_place = pytest.mark.parametrize("function", PLACES.values(), ids=PLACES)
BACKENDS = [HashMapStateBackend(), EmbeddedRocksDBStateBackend()]


@in_each_place
@pytest.mark.parametrize("backend", BACKENDS, ids=["memory", "disk"])
@pytest.mark.parametrize("kind", [CheckpointType.CHECKPOINT, CheckpointType.FULL_CHECKPOINT])
def test_state_of_an_own_serializer_is_restored_without_a_copy(tmp_path, function, backend, kind):
    subtask = Subtask(tmp_path, function, backend, readers=READERS)
    expected = None
    for number in range(3):
        HELD.clear()
        subtask.local = tmp_path / f"machine {number}"
        warmth, _, before = subtask.run(number + 0.25, kind=kind)
        assert (warmth, before) == ("cold", [expected])
        expected = number + 0.25


@in_each_place
def test_without_its_reader_nothing_is_reported(tmp_path, function):
    subtask = Subtask(tmp_path, function)
    with pytest.raises(
        ConfigError, match=rf"the serializer Cents, .*register a reader of '{SNAPSHOT}'"
    ):
        subtask.run(1.0)
    assert subtask.handles == ()


def test_a_reader_that_returns_another_serializer_is_refused(tmp_path):
    def read_wrong(data, version, context):
        data.read_i32("digits")
        return Cents(3)

    subtask = Subtask(tmp_path, PLACES["list"], readers={SNAPSHOT: read_wrong})
    with pytest.raises(ConfigError, match=r"expected .*digits=2.*got .*digits=3"):
        subtask.run(1.0)


def test_a_registry_knows_what_it_has_beyond_another():
    registry = BUILT_IN.copy()
    assert registry.beyond(BUILT_IN) == {}
    registry.register(SNAPSHOT, read_cents)
    replaced = next(iter(BUILT_IN))
    registry.register(replaced, read_cents)
    assert registry.beyond(BUILT_IN) == {SNAPSHOT: read_cents, replaced: read_cents}
