"""A queue of timers has the timers that a plain set has, one by one and many at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dstl_core.codec.serializers import Types, VoidNamespaceSerializer
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    KeyedStateBackendParameters,
    StateBackend,
)
from dstl_core.state.backends.timers import MAX_WATERMARK, TimerQueue, timer_bytes
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock

KEYS = st.integers(-3, 6)
TIMES = st.sampled_from([-(1 << 63), -5, -1, 0, 1, 2, 3, 70, (1 << 63) - 1])
TIMERS = st.lists(st.tuples(KEYS, TIMES), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), TIMERS),
        st.tuples(st.just("register new"), TIMERS),
        st.tuples(st.just("delete many"), TIMERS),
        st.tuples(st.just("take"), TIMES),
        st.tuples(st.just("take some"), TIMES),
        st.tuples(st.just("fire"), TIMES),
    ),
    max_size=12,
)


@pytest.fixture(scope="module", params=["hashmap", "rocksdb"])
def backend(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Any]:
    path: Path = tmp_path_factory.mktemp("queues")
    kind: StateBackend = HashMapStateBackend()
    if request.param == "rocksdb":
        kind = EmbeddedRocksDBStateBackend(str(path), cache_bytes=1 << 20)
    resolver = HandleResolver(open_file_io(Location.parse(path)), Location.parse(path))
    made = kind.create_keyed_state_backend(
        KeyedStateBackendParameters(
            Types.LONG, 128, KeyGroupRange(0, 127), (), resolver, ManualClock()
        )
    )
    yield made
    made.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_queue_has_the_timers_of_a_set(backend: Any, steps: list[tuple[str, Any]]) -> None:
    queue = TimerQueue(backend, "q", VoidNamespaceSerializer())
    queue.take_due_bytes(MAX_WATERMARK, 1000)
    expected: set[tuple[int, int]] = set()

    def place(key: int) -> tuple[int, bytes]:
        backend.set_current_key(key)
        return backend.current_key_group, backend.current_key + b"\0"

    def raw(timers: set[tuple[int, int]]) -> tuple[list[int], list[bytes]]:
        places = [place(key) for key, _ in timers]
        times = [time for _, time in timers]
        return [group for group, _ in places], timer_bytes(times, [name for _, name in places])

    for step, given_ in steps:
        match step:
            case "register":
                for key, time in given_:
                    backend.set_current_key(key)
                    queue.register(None, time)
                expected |= set(given_)
            case "register new":
                queue.register_new(*raw(set(given_) - expected))
                expected |= set(given_)
            case "delete many":
                queue.delete_many(*raw(set(given_)))
                expected -= set(given_)
            case "fire":
                fired = [(timer.key, timer.timestamp) for timer in queue.take_due(given_)]
                due = {each for each in expected if each[1] <= given_}
                assert sorted(fired) == sorted(due)
                assert [time for _, time in fired] == sorted(time for _, time in due)
                expected -= due
            case _:
                due = {each for each in expected if each[1] <= given_}
                most = 1000 if step == "take" else 2
                groups, elements = queue.take_due_bytes(given_, most)
                wanted = dict(zip(raw(due)[1], due, strict=True))
                taken = [wanted[each] for each in elements]
                assert [place(key)[0] for key, _ in taken] == groups
                assert len(set(taken)) == len(taken) >= min(len(due), most)
                for key in {key for key, _ in taken}:
                    times = [time for each, time in taken if each == key]
                    left = [time for each, time in due - set(taken) if each == key]
                    assert all(max(times) <= time for time in left)
                expected -= set(taken)
                if step == "take":
                    assert not due - set(taken)
        assert len(queue) == len(expected)
