"""Sorted and mutable collections, enumerations of Scala 3, and times of flink-scala-api.

Each case has the bytes by hand, as the source of the library writes them.
"""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import BUILT_IN, SnapshotContext, Types
from dstl_core.codec.serializers.base import AnySerializer, deserialize_exactly
from dstl_core.codec.serializers.dates import LocalDate, LocalDateTime, LocalTime
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    PACKAGE,
    CaseClassSerializer,
    Chosen,
    CollectionSerializer,
)
from dstl_core.codec.serializers.libraries.flink_scala_types import (
    DurationSerializer,
    FiniteDurationSerializer,
    FlinkScalaNothingSerializer,
    MutableMapSerializer,
    MutableSortedMapSerializer,
    OffsetDateTimeSerializer,
    OptionOrderingSerializer,
    OrderingSerializer,
    ReverseOrderingSerializer,
    Scala3EnumSerializer,
    Scala3EnumValueSerializer,
    ScalaDuration,
    ScalaSortedMapSerializer,
    SortedItems,
    SortedSetSerializer,
    ZonedDateTimeSerializer,
    ZonedTime,
    ZoneIdSerializer,
    ZoneOffsetSerializer,
)
from dstl_core.errors import FormatError
from tests.unit.codec.serializers.test_libraries import check_snapshot, check_value

INTS = OrderingSerializer("DefaultIntOrdering")
DOWN = ReverseOrderingSerializer(INTS)
BY_FIELD = CaseClassSerializer("a.ByField", (Types.INT,))
"""An ordering of the job, which has a field."""
SORTED = SortedSetSerializer(PACKAGE + "SortedSetSerializer", "java.lang.Integer", Types.INT, DOWN)
OWN = SortedSetSerializer(PACKAGE + "SortedSetSerializer", "java.lang.Integer", Types.INT, BY_FIELD)
BUFFER = CollectionSerializer(PACKAGE + "MutableBufferSerializer", "java.lang.Integer", Types.INT)
RED, GREEN = (Scala3EnumValueSerializer("a.Color", name) for name in ("Red", "Green"))
PLAIN = Scala3EnumSerializer(("Red", "Green"), (RED, GREEN))
COLOR = Scala3EnumSerializer(
    ("Red", "Mix"), (RED, CaseClassSerializer("a.Color$Mix", (Types.INT,)))
)
LOCAL = LocalDateTime(LocalDate(2024, 2, 29), LocalTime(10, 30, 0, 0))
LEAP = "000007e8" + "021d" + "0a1e00" + "00000000"
NO_TIME = "80000000" + "8000" + "80" + "8000" + "80000000"
VALUES: list[tuple[AnySerializer, Any, str, Any]] = [
    (MutableMapSerializer(Types.STRING, Types.INT), [("b", 1), ("a", 2)],
     "00000002" + "0262" + "00000001" + "0261" + "00000002", [["a", 2], ["b", 1]]),
    (MutableMapSerializer(Types.STRING, Types.INT), None, "80000000", None),
    (BUFFER, [2, 1], "00000002" + "00000002" + "00000001", [2, 1]),
    (BUFFER, None, "80000000", None),
    (SORTED, SortedItems(None, [3, 2]), "00000002" + "00000003" + "00000002", [3, 2]),
    (SORTED, None, "80000000", None),
    (OWN, SortedItems((9,), [1]), "00000001" + "00000001" + "00000009" + "00000001", [1]),
    (ScalaSortedMapSerializer(Types.STRING, Types.INT, OrderingSerializer("DefaultStringOrdering")),
     SortedItems(None, [("a", 2), ("b", 1)]),
     "00000002" + "0261" + "00000002" + "0262" + "00000001", [["a", 2], ["b", 1]]),
    (MutableSortedMapSerializer(Types.INT, Types.INT, DOWN), SortedItems(None, [(2, 7)]),
     "00000001" + "00000002" + "00000007", [[2, 7]]),
    (MutableSortedMapSerializer(Types.INT, Types.INT, DOWN), None, "80000000", None),
    (OptionOrderingSerializer(INTS), None, "", None),
    (PLAIN, Chosen(1, None), "01", "Green"),
    (PLAIN, None, "80", None),
    (COLOR, Chosen(1, (5,)), "01" + "00000001" + "00000005", {"@class": "Mix", "_1": 5}),
    (COLOR, Chosen(0, None), "00", "Red"),
    (DurationSerializer(), ScalaDuration(0, 5, 3), "00" + "0000000000000005" + "00000003",
     "5 seconds"),
    (DurationSerializer(), ScalaDuration(1), "01", "Duration.Undefined"),
    (DurationSerializer(), ScalaDuration(2), "02", "Duration.Inf"),
    (DurationSerializer(), ScalaDuration(3), "03", "Duration.MinusInf"),
    (DurationSerializer(), None, "ff", None),
    (FiniteDurationSerializer(), ScalaDuration(0, 1, 6), "0000000000000001" + "00000006", "1 day"),
    (FiniteDurationSerializer(), ScalaDuration(0, -2, 0), "fffffffffffffffe" + "00000000",
     "-2 nanoseconds"),
    (ZoneIdSerializer(), "Asia/Tokyo", "0b" + b"Asia/Tokyo".hex(), "Asia/Tokyo"),
    (ZoneIdSerializer(), None, "00", None),
    (ZoneOffsetSerializer(), 0, "00000000", "Z"),
    (ZoneOffsetSerializer(), -19815, "ffffb299", "-05:30:15"),
    (ZoneOffsetSerializer(), None, "80000000", None),
    (OffsetDateTimeSerializer(), ZonedTime(LOCAL, 7200), LEAP + "00001c20",
     "2024-02-29T10:30+02:00"),
    (OffsetDateTimeSerializer(), None, NO_TIME + "80000000", None),
    (ZonedDateTimeSerializer(), ZonedTime(LOCAL, "Asia/Tokyo"),
     LEAP + "0b" + b"Asia/Tokyo".hex(), "2024-02-29T10:30[Asia/Tokyo]"),
    (ZonedDateTimeSerializer(), None, NO_TIME + "00", None),
]  # fmt: skip


@pytest.mark.parametrize(("serializer", "value", "raw", "text"), VALUES)
def test_values_have_the_bytes_of_the_library(
    serializer: AnySerializer, value: Any, raw: str, text: Any
) -> None:
    check_value(serializer, value, raw, text)


@pytest.mark.parametrize(
    "serializer", [*{each.type_name: each for each, *_ in VALUES}.values(),
                   FlinkScalaNothingSerializer()],
)  # fmt: skip
def test_a_snapshot_is_read_and_written_as_it_was(serializer: AnySerializer) -> None:
    check_snapshot(serializer)


def test_a_snapshot_of_a_sorted_set_names_its_ordering_behind_its_elements() -> None:
    """A collection's snapshot, then the ordering: each a class, a version and a payload."""

    def utf(text: str) -> bytes:
        return len(text).to_bytes(2, "big") + text.encode()

    def snapshot(name: str, version: int, payload: bytes = b"") -> bytes:
        return utf(name) + version.to_bytes(4, "big") + payload

    ints = "org.apache.flink.api.common.typeutils.base.IntSerializer$IntSerializerSnapshot"
    ordering = snapshot(PACKAGE + "DefaultIntOrderingSerializerSnapshot", 3)
    payload = utf(PACKAGE + "SortedSetSerializer") + utf("java.lang.Integer") + snapshot(ints, 3)
    payload += snapshot(PACKAGE + "ReverseOrderingSerializerSnapshot", 1, ordering)
    raw = snapshot(PACKAGE + "SortedCollectionSerializerSnapshot", 2, payload)
    assert SnapshotContext(BUILT_IN).read_snapshot(DataInput(raw)) == SORTED


@pytest.mark.parametrize(
    ("serializer", "raw"),
    [
        (PLAIN, "02"),
        (SORTED, "7fffffff"),
        (SORTED, "ffffffff"),
        (MutableMapSerializer(RED, GREEN), "7fffffff"),
        (ScalaSortedMapSerializer(RED, GREEN, INTS), "7fffffff"),
        (DurationSerializer(), "04"),
        (DurationSerializer(), "00" + "0000000000000005" + "00000007"),
        (ZoneOffsetSerializer(), "0000fd21"),
        (OffsetDateTimeSerializer(), LEAP + "80000000"),
        (ZonedDateTimeSerializer(), LEAP + "00"),
    ],
)
def test_wrong_values_are_refused(serializer: AnySerializer, raw: str) -> None:
    with pytest.raises(FormatError):
        deserialize_exactly(serializer, bytes.fromhex(raw))


def test_the_length_of_an_enum_is_what_the_library_says() -> None:
    """It decides on the form of composite keys, and leaves out the byte of the index."""
    assert (PLAIN.length, COLOR.length) == (0, -1)


def test_hashes_of_keys_are_those_of_java() -> None:
    """``ZoneOffset.ofHours(2).hashCode()`` is 7200; an OffsetDateTime mixes that of its time."""
    assert ZoneOffsetSerializer().java_hash(7200) == 7200
    local = Types.LOCAL_DATE_TIME.java_hash(LOCAL)
    assert OffsetDateTimeSerializer().java_hash(ZonedTime(LOCAL, 7200)) == local ^ 7200
