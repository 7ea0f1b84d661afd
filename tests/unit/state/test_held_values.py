"""Values that are held as Python objects while a batch of rows applies."""

import math
import struct

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types, VoidNamespaceSerializer
from dstl_core.errors import ConfigError, FormatError, InvariantViolation
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.held.held_values import form_of
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.testing import ManualClock

N = ValueStateDescriptor("n", Types.LONG)


def backend(max_parallelism=16):
    state = KeyedState(KeyGroupRange(0, max_parallelism - 1), max_parallelism)
    return HashMapKeyedStateBackend(state, Types.STRING)


def enter(backend, batch, row):
    backend.slot = batch.numbers[row]


def stored(backend, state, key):
    backend.set_current_key(key)
    return state.value()


def test_values_are_stored_at_the_end_of_the_batch_and_not_before():
    own = backend()
    state = own.get_value_state(N)
    own.set_current_key("a")
    state.update(5)
    own.set_current_key("c")
    state.update(7)
    with own.batch(pa.array(["a", "b", "a", "c"])) as batch:
        assert len(batch) == 3
        enter(own, batch, 0)
        assert (own.get_current_key(), state.value()) == ("a", 5)
        state.update(6)
        enter(own, batch, 1)
        assert (own.get_current_key(), state.value()) == ("b", None)
        state.update(1)
        enter(own, batch, 2)
        assert (own.get_current_key(), state.value()) == ("a", 6)
        enter(own, batch, 3)
        state.clear()
        assert state.value() is None
        assert sum(map(len, state.table.groups.values())) == 2
    assert [stored(own, state, each) for each in "abc"] == [6, 1, None]
    assert sum(map(len, state.table.groups.values())) == 2


def test_a_batch_that_fails_stores_nothing_and_releases_what_it_held():
    own = backend()
    state = own.get_value_state(N)

    def fail():
        with own.batch(pa.array(["a"])) as batch:
            enter(own, batch, 0)
            state.update(1)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert stored(own, state, "a") is None
    state.update(2)
    with own.batch(pa.array(["a"])) as batch:
        enter(own, batch, 0)
        assert state.value() == 2


def test_two_that_access_one_state_see_the_same_values():
    own = backend()
    state = own.get_value_state(N)
    with own.batch(pa.array(["a"])) as batch:
        enter(own, batch, 0)
        state.update(1)
        other = own.get_value_state(N)
        assert other.value() == 1
        other.update(2)
        assert state.value() == 2
    assert stored(own, state, "a") == 2


def test_reducing_and_aggregating_state_are_held():
    own = backend()
    add = ReducingStateDescriptor("sum", lambda one, two: one + two, Types.INT)

    class Count:
        def create_accumulator(self):
            return 0

        def add(self, value, accumulator):
            return accumulator + 1

        def get_result(self, accumulator):
            return f"{accumulator} values"

    total = own.get_or_create_keyed_state(VoidNamespaceSerializer(), add)
    count = own.get_or_create_keyed_state(
        VoidNamespaceSerializer(), AggregatingStateDescriptor("count", Count(), Types.LONG)
    )
    with own.batch(pa.array(["a", "b", "a"])) as batch:
        for row, number in enumerate((3, 4, 5)):
            enter(own, batch, row)
            total.add(number)
            count.add(number)
        assert (total.get(), count.get()) == (8, "2 values")
    own.set_current_key("b")
    assert (total.get(), count.get()) == (4, "1 values")


@pytest.mark.parametrize(
    ("declared", "code", "values"),
    [
        (Types.LONG, "q", [0, -1, 2**63 - 1, -(2**63), True]),
        (Types.INT, "i", [0, 2**31 - 1, -(2**31), False]),
        (Types.SHORT, "h", [-32768, 32767]),
        (Types.BYTE, "b", [-128, 127]),
        (Types.DOUBLE, "d", [0.0, -0.0, 1e308, math.inf, -math.inf, math.nan, 3]),
    ],
    ids=lambda case: getattr(case, "type_name", None),
)
def test_numbers_have_the_bytes_and_the_class_that_they_have_one_by_one(declared, code, values):
    own = backend()
    state = own.get_value_state(ValueStateDescriptor("n", declared))
    keys = [f"key {at}" for at in range(len(values))]
    with own.batch(pa.array(keys)) as batch:
        for row, value in enumerate(values):
            enter(own, batch, row)
            state.update(value)
            read = state.value()
            assert type(read) is (float if code == "d" else int)
            assert struct.pack(f">{code}", read) == struct.pack(f">{code}", value)
    held = {scope: raw for group in state.table.groups.values() for scope, raw in group.items()}
    for key, value in zip(keys, values, strict=True):
        scope = bytes([len(key) + 1]) + key.encode() + b"\0"
        assert held[scope] == struct.pack(f">{code}", value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "text", 1.5])
def test_a_value_that_does_not_fit_is_refused_when_it_is_set(value):
    own = backend()
    state = own.get_value_state(N)
    with own.batch(pa.array(["a"])) as batch:
        enter(own, batch, 0)
        with pytest.raises(FormatError, match="does not fit its type"):
            state.update(value)
        assert state.value() is None


def test_a_damaged_value_is_refused_when_it_is_read():
    own = backend()
    state = own.get_value_state(N)
    own.set_current_key("a")
    state.table.group(own.current_key_group)[own.current_key + b"\0"] = b"\1\2\3"

    def read():
        with own.batch(pa.array(["b", "a"])) as batch:
            enter(own, batch, 0)
            state.value()

    with pytest.raises(FormatError):
        read()


def test_keys_that_do_not_belong_here_are_refused():
    own = HashMapKeyedStateBackend(KeyedState(KeyGroupRange(0, 0), 128), Types.STRING)

    def open_batch(keys):
        with own.batch(keys):
            raise AssertionError

    with pytest.raises(ConfigError, match="came to the subtask of key groups"):
        open_batch(pa.array([f"key {at}" for at in range(40)]))
    with pytest.raises(ConfigError, match="A key is null"):
        open_batch(pa.array([None], pa.string()))


def test_a_key_cannot_be_set_while_a_batch_applies():
    own = backend()

    def set_key():
        with own.batch(pa.array(["a"])):
            own.set_current_key("b")

    with pytest.raises(InvariantViolation, match="while a batch"):
        set_key()
    own.set_current_key("b")
    assert own.get_current_key() == "b"


@pytest.mark.parametrize("declared", [Types.FLOAT, Types.STRING, Types.BOOLEAN], ids=str)
def test_other_values_are_held_as_bytes(declared):
    assert form_of(declared).exact is None
    assert form_of(Types.LONG).exact is int


def test_texts_are_stored_at_the_end_of_the_batch():
    own = backend()
    state = own.get_value_state(ValueStateDescriptor("text", Types.STRING, default_value="none"))
    with own.batch(pa.array(["a", "b", "a"])) as batch:
        for row in range(3):
            enter(own, batch, row)
            state.update(f"{state.value()} {row}")
        assert not any(state.table.groups.values())
    assert [stored(own, state, each) for each in "abc"] == ["none 0 2", "none 1", "none"]


def test_a_list_that_is_changed_in_place_is_not_the_state():
    own = backend()
    state = own.get_value_state(ValueStateDescriptor("numbers", Types.LIST(Types.LONG)))
    with own.batch(pa.array(["a"])) as batch:
        enter(own, batch, 0)
        value = [1]
        state.update(value)
        value.append(2)
        state.value().append(3)
        assert state.value() == [1]
    assert stored(own, state, "a") == [1]


@pytest.mark.parametrize("bytes_held", [0, 30, 1000])
def test_values_that_are_too_large_are_not_held(monkeypatch, bytes_held):
    monkeypatch.setattr("dstl_core.state.held.held_values.MOST_BYTES", bytes_held)
    own = backend()
    state = own.get_value_state(ValueStateDescriptor("text", Types.STRING))
    keys = [f"key {at}" for at in range(5)]
    for _ in range(2):
        with own.batch(pa.array(keys * 3)) as batch:
            for row in range(15):
                enter(own, batch, row)
                state.update((state.value() or "") + f"{row:02}")
    for at, key in enumerate(keys):
        once = f"{at:02}{at + 5:02}{at + 10:02}"
        assert stored(own, state, key) == once + once


def test_an_expired_value_is_not_seen_in_a_batch():
    clock = ManualClock()
    own = HashMapKeyedStateBackend(KeyedState(KeyGroupRange(0, 15), 16), Types.STRING, clock=clock)
    ttl = StateTtlConfig(1000, cleanup_incrementally=3)
    state = own.get_value_state(N.enable_time_to_live(ttl))
    own.set_current_key("old")
    state.update(1)
    clock.advance(600)
    with own.batch(pa.array(["old", "new", "old"])) as batch:
        enter(own, batch, 1)
        state.update(2)
        clock.advance(600)
        enter(own, batch, 0)
        assert state.value() is None
        enter(own, batch, 1)
        assert state.value() == 2
    assert [stored(own, state, each) for each in ("old", "new")] == [None, 2]
    assert sum(map(len, state.table.groups.values())) == 1


class Log:
    """What a backend logs, in order, by scope."""

    takes_every_update = False

    def __init__(self):
        self.changes = {}

    def logged(self, meta, key_group, operation, scope, operands):
        self.changes.setdefault(scope, []).append((operation.name, operands))

    def logged_batch(self, meta, operation, key_groups, scopes, operands):
        for key_group, scope, operand in zip(key_groups, scopes, operands, strict=True):
            self.logged(meta, key_group, operation, scope, operand)


@pytest.mark.parametrize("bytes_held", [0, 200, 1 << 20])
@pytest.mark.parametrize("declared", [Types.LONG, Types.STRING], ids=str)
def test_elements_are_added_at_the_end_of_the_batch(monkeypatch, declared, bytes_held):
    monkeypatch.setattr("dstl_core.state.held.added_elements.MOST_BYTES", bytes_held)
    own = backend()
    own.logger = log = Log()
    state = own.get_list_state(ListStateDescriptor("list", declared))
    value = int if declared == Types.LONG else str
    own.set_current_key("a")
    state.add(value(0))
    with own.batch(pa.array(["a", "b", "a", "c", "b"])) as batch:
        for row in range(5):
            enter(own, batch, row)
            state.add(value(row + 1))
    seen = {}
    for key in "abc":
        own.set_current_key(key)
        seen[key] = state.get()
    assert seen == {
        "a": [value(0), value(1), value(3)],
        "b": [value(2), value(5)],
        "c": [value(4)],
    }
    assert all(name == "ADD_ELEMENT" for each in log.changes.values() for name, _ in each)
    assert sorted(map(len, log.changes.values())) == [1, 2, 3]


def test_the_log_of_a_list_has_the_order_of_the_accesses():
    own = backend()
    own.logger = log = Log()
    state = own.get_list_state(ListStateDescriptor("list", Types.BYTE))
    with own.batch(pa.array(["a"])) as batch:
        enter(own, batch, 0)
        state.add(1)
        assert state.get() == [1]
        state.add(2)
        state.add_all([3, 4])
        state.add(5)
        state.update([6])
        state.add(7)
        with pytest.raises(ConfigError, match="A null cannot be added"):
            state.add(None)
        with pytest.raises(FormatError, match="does not fit its type"):
            state.add(128)
        state.clear()
        state.add(8)
        state.add(9)
    own.set_current_key("a")
    assert state.get() == [8, 9]
    [changes] = log.changes.values()
    assert [name for name, _ in changes] == [
        "ADD",
        "ADD",
        "ADD",
        "SET",
        "CLEAR",
        "ADD_ELEMENT",
        "ADD_ELEMENT",
    ]
