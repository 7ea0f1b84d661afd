from __future__ import annotations

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.context import KeyedStateStore
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig, StateVisibility, UpdateType
from dstl_core.testing import ManualClock

TTL = StateTtlConfig(100, cleanup_incrementally=0)
READ = StateTtlConfig(100, UpdateType.ON_READ_AND_WRITE, cleanup_incrementally=0)
SEEN = StateTtlConfig(
    100,
    state_visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP,
    cleanup_incrementally=0,
)


class Job:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.backend = HashMapKeyedStateBackend(
            KeyedState(KeyGroupRange(0, 127), 128), Types.STRING, clock=self.clock
        )
        self.backend.set_current_key("a")
        self.store = KeyedStateStore(self.backend)


def test_a_value_expires_after_its_last_write() -> None:
    job = Job()
    state = job.store.get_state(ValueStateDescriptor("n", Types.LONG).enable_time_to_live(TTL))
    state.update(1)
    job.clock.advance(99)
    assert state.value() == 1
    job.clock.advance(1)
    assert state.value() is None
    assert job.backend.num_key_value_state_entries() == 0


def test_reading_keeps_a_value_alive_if_it_counts() -> None:
    job = Job()
    state = job.store.get_state(ValueStateDescriptor("n", Types.LONG, ttl=READ))
    state.update(1)
    for _ in range(3):
        job.clock.advance(99)
        assert state.value() == 1


def test_an_expired_value_may_be_seen_once() -> None:
    job = Job()
    state = job.store.get_state(ValueStateDescriptor("n", Types.LONG, ttl=SEEN))
    state.update(1)
    job.clock.advance(500)
    assert state.value() == 1
    assert state.value() is None


def test_each_element_of_a_list_and_a_map_expires_by_itself() -> None:
    job = Job()
    names = job.store.get_list_state(ListStateDescriptor("l", Types.STRING, ttl=TTL))
    pairs = job.store.get_map_state(MapStateDescriptor("m", Types.STRING, Types.LONG, ttl=TTL))
    names.add("old")
    pairs.put("old", 1)
    job.clock.advance(60)
    names.add("new")
    pairs.put("new", 2)
    job.clock.advance(60)
    assert names.get() == ["new"]
    assert dict(pairs.items()) == {"new": 2}
    assert not pairs.contains("old")
    job.clock.advance(60)
    assert names.get() == []
    assert pairs.is_empty()


def test_a_reduction_starts_anew_after_expiry() -> None:
    job = Job()
    total = job.store.get_reducing_state(
        ReducingStateDescriptor("r", lambda a, b: a + b, Types.LONG, ttl=TTL)
    )
    total.add(5)
    total.add(6)
    assert total.get() == 11
    job.clock.advance(100)
    total.add(1)
    assert total.get() == 1


@pytest.mark.parametrize("in_background", [True, False])
def test_cleaning_goes_round_with_every_access(in_background: bool) -> None:
    job = Job()
    ttl = StateTtlConfig(100, cleanup_incrementally=3)
    if not in_background:
        ttl = ttl.without_cleanup_in_background()
    state = job.store.get_state(ValueStateDescriptor("n", Types.LONG, ttl=ttl))
    for number in range(30):
        job.backend.set_current_key(f"key-{number}")
        state.update(number)
    job.clock.advance(100)
    job.backend.set_current_key("alive")
    for _ in range(30):
        state.update(0)
    expired = set() if in_background else {f"key-{number}" for number in range(30)}
    assert set(job.backend.get_keys("n")) == {"alive", *expired}


def test_full_snapshots_leave_out_what_has_expired() -> None:
    job = Job()
    full = StateTtlConfig(100, cleanup_full_snapshot=True, cleanup_incrementally=0)
    state = job.store.get_state(ValueStateDescriptor("n", Types.LONG, ttl=full))
    names = job.store.get_list_state(ListStateDescriptor("l", Types.STRING, ttl=full))
    state.update(1)
    names.add("old")
    job.clock.advance(50)
    names.add("new")
    job.clock.advance(50)
    captured = job.backend.state.capture(job.backend.expired_filter())
    kept, _ = captured.write_canonical()
    everything, _ = job.backend.state.capture().write_canonical()
    assert b"new" in kept
    assert b"old" not in kept
    assert b"old" in everything


def test_a_time_to_live_is_positive() -> None:
    with pytest.raises(ConfigError, match="must be more than 0 ms, got 0"):
        StateTtlConfig(0)


@pytest.mark.parametrize("wrong", [{"ttl_ms": "1 day"}, {"ttl_ms": 1.5}, {"ttl_ms": True}])
def test_a_time_to_live_that_is_no_number_is_refused(wrong):
    with pytest.raises(ConfigError, match="A time to live is wrong: expected whole milliseconds"):
        StateTtlConfig(**wrong)


def test_a_descriptor_takes_a_time_to_live_and_a_function_only():
    with pytest.raises(ConfigError, match=r"state 'n' is wrong: expected a StateTtlConfig"):
        ValueStateDescriptor("n", "bigint", ttl=5)
    with pytest.raises(
        ConfigError, match=r"The reduce_function of state 'n' is wrong: .* got 'max'"
    ):
        ReducingStateDescriptor("n", "max", "bigint")
