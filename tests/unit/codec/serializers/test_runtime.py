from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    TtlSerializer,
    Types,
    VoidNamespaceSerializer,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.runtime import Timer, TtlValue
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer
from dstl_core.errors import FormatError

VOID = VoidNamespaceSerializer()
TIMER = TimerSerializer(Types.STRING, VOID)


@pytest.mark.parametrize(
    ("serializer", "value", "raw"),
    [
        (VOID, None, "00"),
        (TimeWindowSerializer(), TimeWindow(-1, 1000), "ffffffffffffffff 00000000000003e8"),
        # The sign of a timer's timestamp is flipped, so that bytes sort by time.
        (TIMER, Timer(1000, "k6", None), "80000000000003e8 036b36 00"),
        (TIMER, Timer(-1, "k6", None), "7fffffffffffffff 036b36 00"),
        (TIMER, Timer(0, "", None), "8000000000000000 01 00"),
        (TIMER, Timer(-(2**63), "", None), "0000000000000000 01 00"),
        (TIMER, Timer(2**63 - 1, "", None), "ffffffffffffffff 01 00"),
        (TIMER, Timer(4102444800020, "k6", None), "800003bb2cc3d814 036b36 00"),
        (TtlSerializer(Types.STRING), TtlValue(0x1A1FD17DBF7, "z"), "000001a1fd17dbf7 027a"),
    ],
)
def test_values(serializer: AnySerializer, value: Any, raw: str) -> None:
    assert serialize_to_bytes(serializer, value) == bytes.fromhex(raw)
    assert deserialize_exactly(serializer, bytes.fromhex(raw)) == value


def test_timers_sort_by_time() -> None:
    times = [2**63 - 1, 5, 0, -1, -5, -(2**63)]
    raw = [serialize_to_bytes(TIMER, Timer(each, "a", None)) for each in times]
    assert sorted(raw) == raw[::-1]


def test_void_namespace_has_length_0_but_one_byte() -> None:
    assert VOID.length == 0
    assert serialize_to_bytes(VOID, None) == b"\0"
    with pytest.raises(FormatError, match="not 0"):
        deserialize_exactly(VOID, b"\1")


@pytest.mark.parametrize(
    ("serializer", "value", "text"),
    [
        (VOID, None, None),
        (TimeWindowSerializer(), TimeWindow(0, 10), [0, 10]),
        (TIMER, Timer(7, "a", None), {"ts": 7, "key": "a", "ns": None}),
        (TtlSerializer(Types.LONG), TtlValue(5, 9), {"v": 9, "ts": 5}),
    ],
)
def test_text(serializer: AnySerializer, value: Any, text: Any) -> None:
    assert serializer.to_text(value) == text
