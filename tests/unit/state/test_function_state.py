"""State for functions that read or bootstrap it: registered first, and unchanged by reading."""

from __future__ import annotations

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import NoSuchStateError, RestoreError, SavepointError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.function_state import StateAccess
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.testing.manual import ManualClock

PLAIN = ValueStateDescriptor("count", Types.LONG)
FRESH = PLAIN.enable_time_to_live(StateTtlConfig(1000))


def written(descriptor: ValueStateDescriptor) -> KeyedState:
    """A key with the count 7, written at time 0."""
    state = KeyedState(KeyGroupRange(0, 127), 128)
    access = StateAccess(state, Types.STRING, ManualClock(0))
    count = access.get_value_state(descriptor)
    access.close_registration()
    access.set_current_key("a")
    count.update(7)
    return state


def reading(state: KeyedState) -> StateAccess:
    """Long after everything has expired."""
    access = StateAccess(state, Types.STRING, ManualClock(10**9), only_existing=True)
    access.set_current_key("a")
    return access


@pytest.mark.parametrize("stored", [PLAIN, FRESH])
@pytest.mark.parametrize("read", [PLAIN, FRESH])
def test_a_reader_sees_what_has_expired_whether_it_declares_a_time_to_live_or_not(
    stored: ValueStateDescriptor, read: ValueStateDescriptor
) -> None:
    access = reading(written(stored))
    assert access.get_value_state(read).value() == 7
    [table] = access.registered_tables()
    assert sum(map(len, table.groups.values())) == 1


def test_a_reader_is_told_what_it_cannot_read() -> None:
    access = reading(written(PLAIN))
    with pytest.raises(NoSuchStateError, match="no state 'counts'; there are: 'count'"):
        access.get_value_state(ValueStateDescriptor("counts", Types.LONG))
    with pytest.raises(RestoreError, match=r"expected VALUE of Long .*, got VALUE of String"):
        access.get_value_state(ValueStateDescriptor("count", Types.STRING))
    with pytest.raises(RestoreError, match=r"expected VALUE of Long .*, got LIST of List<Long>"):
        access.get_list_state(ListStateDescriptor("count", Types.LONG))


def test_state_is_registered_before_the_first_key() -> None:
    access = StateAccess(KeyedState(KeyGroupRange(0, 127), 128), Types.STRING)
    access.get_value_state(PLAIN)
    access.close_registration()
    with pytest.raises(SavepointError, match=r"'late' was not registered in open; .*: 'count'"):
        access.get_value_state(ValueStateDescriptor("late", Types.LONG))
