"""Changes of timers and lists, replayed in batches and one by one."""

import pytest

from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.codec.change_payload import StateChangeOperation, data_change, metadata_change
from dstl_core.codec.serializers import (
    BUILT_IN,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import FormatError
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import InMemoryChangelogStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.restore import changelog
from dstl_core.state.restore.changelog_tables import TableReplay
from dstl_core.state.tables.descriptor import ListStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.store import HEAP
from tests.kernel_sizes import kernels_from

ADD, REMOVE = StateChangeOperation.ADD_ELEMENT, StateChangeOperation.REMOVE_ELEMENT
RANGE = KeyGroupRange(0, 5)
TIMERS = StateMetaInfoSnapshot.priority_queue(
    "timers", TimerSerializer(Types.LONG, VoidNamespaceSerializer())
)


def timer(time, key):
    """The bytes of a timer: the time with a flipped sign, the key, the void namespace."""
    return (time + (1 << 63)).to_bytes(8, "big") + key.to_bytes(8, "big") + b"\0"


def counted(*timers):
    return len(timers).to_bytes(4, "big") + b"".join(timers)


def replayed(*changes, meta=TIMERS):
    """The entries of each key group after some changes."""
    state = KeyedState(RANGE, 6, HEAP)
    state.key_serializer = Types.LONG
    records = [(META_KEY_GROUP, metadata_change(0, meta))]
    records += [(group, data_change(operation, 0, body)) for group, operation, body in changes]
    log = InMemoryChangelogStateHandle(tuple(records), RANGE, 0, len(records), "log")
    reader = StateChangelogHandleReader(lambda *_: b"")
    changelog.apply_changelog(state, log, reader, BUILT_IN, {})
    [table] = state.tables.values()
    return {group: dict(entries) for group, entries in table.groups.items() if entries}


@pytest.fixture(params=[0, 1 << 30], ids=["in batches", "one by one"])
def way(request, monkeypatch):
    kernels_from(monkeypatch, request.param)


def test_the_last_change_of_a_timer_holds(way):
    one, two, three = (timer(5, key) for key in (1, 2, 3))
    changes = (
        (3, ADD, counted(one, two)),
        (4, ADD, counted(one)),
        (3, REMOVE, one),
        (3, REMOVE, three),
        (4, REMOVE, one),
        (4, ADD, counted(one)),
        (5, ADD, counted()),
        (3, ADD, counted(two)),
    )
    assert replayed(*changes) == {3: {two: None}, 4: {one: None}}


@pytest.fixture
def only_in_batches(monkeypatch):
    def never(*_):
        raise AssertionError("one by one")

    monkeypatch.setattr(TableReplay, "_one_by_one", never)
    kernels_from(monkeypatch, 0)


def test_timers_are_replayed_in_batches(only_in_batches):
    assert replayed((3, ADD, counted(timer(-1, 7))), (3, REMOVE, timer(-1, 8))) == {
        3: {timer(-1, 7): None}
    }


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (ADD, counted(timer(5, 1)) + b"x"),
        (ADD, (2).to_bytes(4, "big") + timer(5, 1)),
        (ADD, (-1 & 0xFFFFFFFF).to_bytes(4, "big")),
        (ADD, b"\0\0\0"),
        (REMOVE, timer(5, 1) + b"x"),
        (REMOVE, timer(5, 1)[:-1]),
        (StateChangeOperation.CLEAR, b""),
    ],
)
def test_a_damaged_change_is_refused(way, operation, body):
    with pytest.raises(FormatError):
        replayed((3, ADD, counted(timer(4, 1))), (3, operation, body))


LISTS = ListStateDescriptor("list", Types.INT).meta_info(VoidNamespaceSerializer())


def scope(key):
    return key.to_bytes(8, "big") + b"\0"


def ints(*values):
    return len(values).to_bytes(4, "big") + b"".join(each.to_bytes(4, "big") for each in values)


@pytest.mark.parametrize("least", [0, 1 << 30], ids=["in batches", "one by one"])
def test_lists_are_added_to_and_replaced_in_the_order_of_the_log(monkeypatch, least):
    if least == 0:
        monkeypatch.setattr(TableReplay, "_one_by_one", None)
    kernels_from(monkeypatch, least)
    one, two, three, four = (scope(key) for key in (1, 2, 3, 4))
    add, whole = StateChangeOperation.ADD, StateChangeOperation.SET
    changes = (
        (3, ADD, one + (7).to_bytes(4, "big")),
        (3, ADD, two + (8).to_bytes(4, "big")),
        (3, add, one + ints(9, 10)),
        (3, whole, two + ints(11, 12)),
        (3, ADD, two + (13).to_bytes(4, "big")),
        (4, ADD, three + (14).to_bytes(4, "big")),
        (4, whole, three + ints()),
        (4, ADD, four + (15).to_bytes(4, "big")),
        (4, StateChangeOperation.CLEAR, four),
        (4, StateChangeOperation.SET_INTERNAL, four + ints(16)),
        (5, add, one + ints()),
    )
    joined = {
        key: b",".join(each.to_bytes(4, "big") for each in values)
        for key, values in ((1, (7, 9, 10)), (2, (11, 12, 13)), (4, (16,)))
    }
    assert replayed(*changes, meta=LISTS) == {
        3: {one: joined[1], two: joined[2]},
        4: {four: joined[4]},
    }
