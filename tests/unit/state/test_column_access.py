"""State by column: what the same accesses one by one would do, on both backends, in log and all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, Types
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ColumnValueError, ConfigError, FormatError
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange, assign_to_key_group
from dstl_core.state.backends.backend import KeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend, ValueLogging
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
)
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.ttl import StateTtlConfig, StateVisibility, UpdateType
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock
from tests.unit.state.test_backend import contents

COUNT = ValueStateDescriptor("count", Types.LONG)
TEXT = ValueStateDescriptor("text", Types.STRING)
NAMES = ListStateDescriptor("names", Types.STRING)
ALL = KeyGroupRange(0, 127)


@pytest.fixture(params=["hashmap", "rocksdb"])
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes empty backends of one kind."""
    kind = (
        HashMapStateBackend()
        if request.param == "hashmap"
        else EmbeddedRocksDBStateBackend(
            local_dir=str(tmp_path / "db"), cache_bytes=1 << 20, write_buffer_bytes=1 << 20
        )
    )
    made = []

    def make(
        key: AnySerializer = Types.STRING,
        groups: KeyGroupRange = ALL,
        clock: ManualClock | None = None,
    ) -> KeyedStateBackend:
        folder = Location.parse(tmp_path)
        resolver = HandleResolver(open_file_io(folder), folder)
        made.append(
            kind.create_keyed_state_backend(
                KeyedStateBackendParameters(key, 128, groups, (), resolver, clock or ManualClock())
            )
        )
        return made[-1]

    yield make
    for backend in made:
        backend.close()


def key_group(key: str) -> int:
    return assign_to_key_group(Types.STRING.java_hash(key), 128)


def by_row(backend: KeyedStateBackend, descriptor: Any, pairs: list[tuple[Any, Any]]) -> None:
    state: Any = backend.get_value_state(descriptor)
    for key, value in pairs:
        backend.set_current_key(key)
        state.update(value)


# ----------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (Types.STRING, ["", "a", "b", "\u00e9\u4e16", "a much longer key than all the others"]),
        (Types.LONG, [0, -1, 7, 1 << 40]),
        (Types.INT, [0, -1, 7, 1 << 30]),
    ],
    ids=["string", "long", "int"],
)
def test_a_batch_is_its_accesses_one_by_one(
    backends: Any, key_type: AnySerializer, keys: list[Any]
) -> None:
    random = Random(1)
    columns, rows = backends(key_type), backends(key_type)
    counts, texts = columns.get_value_columns(COUNT), columns.get_value_columns(TEXT)
    for _ in range(30):
        chosen = random.choices(keys, k=random.randrange(8))
        numbers = [random.choice([None, 0, -5, 1 << 50]) for _ in chosen]
        words = [None if each is None else str(each) for each in numbers]
        counts.put(pa.array(chosen, counts.key_type), pa.array(numbers, pa.int64()))
        texts.put(pa.array(chosen, counts.key_type), pa.array(words, pa.string()))
        by_row(rows, COUNT, list(zip(chosen, numbers, strict=True)))
        by_row(rows, TEXT, list(zip(chosen, words, strict=True)))
        assert contents(columns.state) == contents(rows.state)
        asked = random.choices(keys, k=6)
        together = counts.get(pa.array(asked, counts.key_type)).to_pylist()
        one: Any = rows.get_value_state(COUNT)
        for key, value in zip(asked, together, strict=True):
            rows.set_current_key(key)
            assert one.value() == value
    assert contents(columns.state)


def test_columns_of_many_forms_are_taken(backends: Any) -> None:
    counts = backends(Types.LONG).get_value_columns(COUNT)
    assert (counts.key_type, counts.value_type) == (pa.int64(), pa.int64())
    counts.put(pa.chunked_array([[1], [2, 3]]), pa.chunked_array([[10, 20], [30]]))
    counts.put(pa.array([0, 4, 5, 0], pa.int32())[1:3], pa.array([0, 40, 50], pa.int16())[1:])
    asked = pa.array([5, 9, 1, 1, 3], pa.int64())
    assert counts.get(asked).to_pylist() == [50, None, 10, 10, 30]
    assert counts.get(asked[:0]).to_pylist() == []
    counts.put(asked[:0], asked[:0])
    assert counts.get(pa.array([9, 8])).to_pylist() == [None, None]


def test_a_batch_that_does_not_fit_changes_nothing(backends: Any) -> None:
    own = backends(Types.STRING, KeyGroupRange(0, 63))
    counts = own.get_value_columns(COUNT)
    names = own.get_list_columns(NAMES)
    elsewhere = pa.array(["a", "b", "c", "d", "e"])
    here = pa.array([each for each in elsewhere.to_pylist() if key_group(each) < 64][:1])
    for keys, problem in (
        (elsewhere, r"A key of key group \d+ came to the subtask of key groups .*\(row \d of 5\)"),
        (pa.array(["a", None]), "A key is null"),
    ):
        with pytest.raises(ConfigError, match=problem):
            counts.put(keys, pa.nulls(len(keys), pa.int64()))
        with pytest.raises(ConfigError, match=problem):
            counts.get(keys)
        with pytest.raises(ConfigError, match=problem):
            names.add(keys, pa.array(["x"] * len(keys)))
    with pytest.raises(ConfigError, match="differ in length: 1 keys, 2 values"):
        counts.put(here, pa.array([1, 2]))
    with pytest.raises(ConfigError, match="differ in length: 1 keys, 2 elements"):
        names.add(here, pa.array(["x", "y"]))
    with pytest.raises(ColumnValueError, match="expected int64, got string"):
        counts.put(here, pa.array(["no number"]))
    assert contents(own.state) == {}


def test_keys_of_another_type_are_refused(backends: Any) -> None:
    counts = backends(Types.LONG).get_value_columns(COUNT)
    with pytest.raises(ColumnValueError, match="expected int64, got string"):
        counts.get(pa.array(["a"]))


def test_a_damaged_value_is_named(backends: Any) -> None:
    own = backends(Types.STRING)
    counts = own.get_value_columns(COUNT)
    counts.put(pa.array(["a", "b"]), pa.array([1, 2]))
    table = own.get_value_state(COUNT).table
    table.group(key_group("b"))[b"\x02b\0"] = b"\0\1"
    with pytest.raises(FormatError, match="A value of state 'count' is damaged"):
        counts.get(pa.array(["a", "b"]))


# ------------------------------------------------------------------------------ time to live


def test_values_expire_as_they_do_one_by_one(backends: Any) -> None:
    clock = ManualClock()
    ttl = StateTtlConfig(100, cleanup_incrementally=0)
    own = backends(Types.STRING, clock=clock)
    counts = own.get_value_columns(ValueStateDescriptor("count", Types.LONG, ttl=ttl))
    counts.put(pa.array(["a", "b"]), pa.array([1, 2]))
    clock.advance(60)
    counts.put(pa.array(["b", "c"]), pa.array([3, 4]))
    assert counts.get(pa.array(["a", "b", "c"])).to_pylist() == [1, 3, 4]
    clock.advance(60)
    assert counts.get(pa.array(["a", "b", "c"])).to_pylist() == [None, 3, 4]
    assert own.num_key_value_state_entries() == 2
    clock.advance(60)
    assert counts.get(pa.array(["a", "b", "c"])).to_pylist() == [None, None, None]
    assert own.num_key_value_state_entries() == 0


def test_reading_renews_and_the_expired_is_seen_once_where_it_is_so_configured(
    backends: Any,
) -> None:
    clock = ManualClock()
    ttl = StateTtlConfig(
        100,
        UpdateType.ON_READ_AND_WRITE,
        StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP,
        cleanup_incrementally=0,
    )
    counts = backends(Types.STRING, clock=clock).get_value_columns(
        ValueStateDescriptor("count", Types.LONG, ttl=ttl)
    )
    counts.put(pa.array(["a", "b"]), pa.array([1, 2]))
    clock.advance(60)
    assert counts.get(pa.array(["a"])).to_pylist() == [1]
    clock.advance(60)
    assert counts.get(pa.array(["a", "b"])).to_pylist() == [1, 2]
    assert counts.get(pa.array(["a", "b"])).to_pylist() == [1, None]


# ------------------------------------------------------------------------------------ lists


def test_elements_are_added_in_the_order_of_the_rows(backends: Any) -> None:
    own = backends(Types.STRING)
    names = own.get_list_columns(NAMES)
    assert names.element_type == pa.string()
    names.add(pa.array(["a", "b", "a"]), pa.array(["1", "2", "3"]))
    names.add(pa.array(["a", "c"]), pa.array(["4", ""]))
    with pytest.raises(ConfigError, match="null cannot be added to the list state 'names'"):
        names.add(pa.array(["b", "c"]), pa.array(["5", None]))
    assert contents(own.state) == {
        ("names", "a"): ["1", "3", "4"],
        ("names", "b"): ["2"],
        ("names", "c"): [""],
    }
    state = own.get_list_state(NAMES)
    own.set_current_key("a")
    assert state.get() == ["1", "3", "4"]


def test_elements_expire_by_themselves(backends: Any) -> None:
    clock = ManualClock()
    ttl = StateTtlConfig(100)
    descriptor = ListStateDescriptor("names", Types.STRING, ttl=ttl)
    own = backends(Types.STRING, clock=clock)
    names = own.get_list_columns(descriptor)
    names.add(pa.array(["a"]), pa.array(["old"]))
    clock.advance(60)
    names.add(pa.array(["a"]), pa.array(["new"]))
    clock.advance(60)
    own.set_current_key("a")
    assert own.get_list_state(descriptor).get() == ["new"]


# --------------------------------------------------------------------------------- changelog


@pytest.mark.slow
@pytest.mark.parametrize("logging", ValueLogging)
@pytest.mark.parametrize("keys", [5, 25_000])
def test_the_log_of_columns_restores_what_they_did(
    backends: Any, logging: ValueLogging, keys: int, tmp_path: Path
) -> None:
    own = backends(Types.LONG)
    storage = FsStateChangelogStorage(
        JobID.for_name("job"), ChangelogOptions.of(base_path=str(tmp_path))
    )
    log = ChangelogKeyedStateBackend(
        own, storage.create_writer("operator", ALL), value_logging=logging
    )
    counts = own.get_value_columns(COUNT)
    names = own.get_list_columns(NAMES)
    every = pa.array(range(keys), pa.int64())
    counts.put(every, every)
    counts.put(every[:3], pa.array([None, 70, None], pa.int64()))
    names.add(pa.array([1, 2, 1]), pa.array(["x", "y", "z"]))
    counts.put(pa.array([4, 4]), pa.array([1, None], pa.int64()))
    handle = log.snapshot(1)
    folder = Location.parse(tmp_path)
    restored = restore_keyed_state(
        [handle], ALL, 128, HandleResolver(open_file_io(folder), folder), BUILT_IN
    )
    expected: dict[Any, Any] = {("count", key): key for key in range(keys)}
    expected[("count", 1)] = 70
    for gone in (0, 2, 4):
        del expected[("count", gone)]
    expected |= {("names", 1): ["x", "z"], ("names", 2): ["y"]}
    assert contents(own.state) == contents(restored) == expected
    assert isinstance(handle, ChangelogStateBackendHandle)
    assert log.changed_scopes == {key.to_bytes(8, "big") + b"\0" for key in range(keys)}
    updates = keys + 3 + 1 if logging is ValueLogging.EVERY else keys
    assert log.changes == updates + 3
    log.close()
    storage.close()
