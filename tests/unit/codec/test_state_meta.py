from __future__ import annotations

import pytest

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import (
    BUILT_IN,
    SnapshotContext,
    TimerSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import (
    MAX_STATES,
    BackendStateType,
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
    read_keyed_header,
    read_state_meta,
    write_keyed_header,
    write_state_meta,
)
from dstl_core.errors import FormatError, UnknownSerializerError, UnsupportedVersionError
from tests.unit.codec.java_bytes import i16, i32, utf

BASE = "org.apache.flink.api.common.typeutils.base."
LONG = i32(2) + utf(BASE + "LongSerializer$LongSerializerSnapshot") + i32(3)


def written(state: StateMetaInfoSnapshot) -> bytes:
    out = DataOutput()
    write_state_meta(out, state)
    return out.to_bytes()


@pytest.mark.parametrize(
    "state",
    [
        StateMetaInfoSnapshot.key_value("v", KeyedStateType.VALUE, Types.LONG),
        StateMetaInfoSnapshot.key_value("l", KeyedStateType.LIST, Types.LIST(Types.STRING)),
        StateMetaInfoSnapshot.priority_queue(
            "_timer_state/event_t", TimerSerializer(Types.STRING, VoidNamespaceSerializer())
        ),
        # What Flink writes in another order stays in that order.
        StateMetaInfoSnapshot(
            "日本\0",
            BackendStateType.OPERATOR,
            (("b", "2"), ("a", "1")),
            (("Z", Types.LONG), ("A", Types.STRING)),
        ),
    ],
    ids=lambda state: state.name,
)
def test_a_description_round_trips_in_its_own_order(state: StateMetaInfoSnapshot) -> None:
    data = DataInput(written(state))
    assert read_state_meta(data, SnapshotContext(BUILT_IN)) == state
    assert data.remaining == 0


def test_kinds_and_texts_are_flinks() -> None:
    assert {kind.name: kind.value for kind in BackendStateType} == {
        "KEY_VALUE": 0,
        "OPERATOR": 1,
        "BROADCAST": 2,
        "PRIORITY_QUEUE": 3,
        "KEY_VALUE_V2": 4,
    }
    raw = utf("s") + i32(0, 1) + utf("KEYED_STATE_TYPE") + utf("REDUCING") + i32(0)
    assert (
        read_state_meta(DataInput(raw), SnapshotContext(BUILT_IN)).keyed_state_type
        is KeyedStateType.REDUCING
    )


def test_a_state_without_a_kind_is_unknown() -> None:
    raw = utf("s") + i32(0, 0, 0)
    assert (
        read_state_meta(DataInput(raw), SnapshotContext(BUILT_IN)).keyed_state_type
        is KeyedStateType.UNKNOWN
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (utf("s") + i32(5), "expected 0..4, got 5"),
        (utf("s") + i32(-1), "expected 0..4, got -1"),
        (utf("s") + i32(0, -1), "options"),
        (utf("s") + i32(0, 2**31 - 1), "options"),
        (utf("s") + i32(0, 0, 2**31 - 1), "serializers"),
        (utf("s") + i32(0, 0, 1) + utf("V") + i32(3) + LONG, "serializer snapshot version"),
    ],
)
def test_damaged_descriptions(raw: bytes, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        read_state_meta(DataInput(raw), SnapshotContext(BUILT_IN))


def test_an_unknown_kind_of_keyed_state_names_those_that_there_are() -> None:
    raw = utf("s") + i32(0, 1) + utf("KEYED_STATE_TYPE") + utf("BAG") + i32(0)
    with pytest.raises(FormatError, match=r"'s' is unknown: expected VALUE, .*got BAG"):
        _ = read_state_meta(DataInput(raw), SnapshotContext(BUILT_IN)).keyed_state_type


def test_a_missing_serializer_names_those_that_there_are() -> None:
    raw = utf("s") + i32(0, 0, 1) + utf("OTHER") + LONG
    with pytest.raises(FormatError, match=r"no VALUE_SERIALIZER: .*got OTHER"):
        _ = read_state_meta(DataInput(raw), SnapshotContext(BUILT_IN)).value_serializer


@pytest.mark.parametrize("version", [0, 3, 5, 7])
def test_other_backend_versions_are_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"expected 6, got {version}"):
        read_keyed_header(DataInput(i32(version) + b"\0" + LONG + i16(0)), BUILT_IN)


def test_a_negative_number_of_states() -> None:
    with pytest.raises(FormatError, match="number of states is negative"):
        read_keyed_header(DataInput(i32(6) + b"\0" + LONG + i16(-1)), BUILT_IN)


def test_a_state_stands_once_in_a_header() -> None:
    state = written(StateMetaInfoSnapshot.key_value("v", KeyedStateType.VALUE, Types.LONG))
    raw = i32(6) + b"\0" + LONG
    assert len(read_keyed_header(DataInput(raw + i16(1) + state), BUILT_IN).states) == 1
    with pytest.raises(FormatError, match="describes a state twice: got v"):
        read_keyed_header(DataInput(raw + i16(2) + state + state), BUILT_IN)


def test_the_compressed_flag() -> None:
    for flag, expected in ((0, False), (1, True)):
        header = read_keyed_header(DataInput(i32(6) + bytes((flag,)) + LONG + i16(0)), BUILT_IN)
        assert header == KeyedBackendHeader(Types.LONG, (), expected)


def test_an_unknown_serializer_names_its_class() -> None:
    raw = i32(6) + b"\0" + i32(2) + utf("com.example.Snapshot") + i32(1)
    with pytest.raises(UnknownSerializerError, match=r"com\.example\.Snapshot"):
        read_keyed_header(DataInput(raw), BUILT_IN)


def test_too_many_states_are_refused_before_anything_is_written() -> None:
    state = StateMetaInfoSnapshot.key_value("v", KeyedStateType.VALUE, Types.LONG)
    out = DataOutput()
    with pytest.raises(FormatError, match=f"expected <= {MAX_STATES}, got {MAX_STATES + 1}"):
        write_keyed_header(out, KeyedBackendHeader(Types.LONG, (state,) * (MAX_STATES + 1)))
    assert out.position == 0
