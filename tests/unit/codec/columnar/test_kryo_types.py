"""Kernels of an upgrade copy what stays, and build the types that lists of Kryo become.

The conversion of single objects is the truth. Its bytes of each type are compared with real Flink's
elsewhere.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.columnar.kryo.section_converter import SectionConverter, SectionRule
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import StoredRecord, read_section, write_section
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.kryo.type_changes import TypeChange, TypeChanges
from dstl_core.codec.serializers import (
    AnySerializer,
    TtlSerializer,
    arrays,
    serialize_to_bytes,
    value_classes,
)
from dstl_core.codec.serializers.dates import (
    Instant,
    LocalDate,
    LocalDateTime,
    LocalTime,
    SqlTimestamp,
)
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.codec.serializers.structs import Either, Row, RowSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import DstlError, UnreadableValueError
from dstl_core.savepoint.edit.converted_values import Recoded, StateValues
from tests.unit.codec.columnar.test_kryo_converter import Converter, agree, damaged, kryo

DAY = b"W\x01\x00\x02\x00\n\xca\x1f"
"""A ``LocalDate`` in Kryo 2.24: what makes a value change at all."""
NEW_DAY = b"W\x01\xe5\x0f\n\x02"
TWO_DAYS = LocalDate(2024, 2, 29), LocalDate(-999_999_999, 12, 31)
NOON, LATE = LocalTime(12, 0, 0, 0), LocalTime(23, 59, 59, 999_999_999)

STAYING: list[tuple[AnySerializer, list[Any]]] = [
    (Types.LOCAL_DATE, [*TWO_DAYS, None]),
    (Types.LOCAL_TIME, [NOON, LATE, None]),
    (Types.LOCAL_DATE_TIME, [LocalDateTime(TWO_DAYS[0], LATE), None]),
    (Types.DATE, [0, -1, None]),
    (Types.SQL_DATE, [86_400_000, None]),
    (Types.SQL_TIMESTAMP, [SqlTimestamp(1, 1_000_000), None]),
    (Types.INSTANT, [Instant(-1, 999_999_999), None]),
    (Types.STRING_ARRAY, [["a", None, "", "éß"], []]),
    (arrays.BooleanPrimitiveArraySerializer(), [[True, False], []]),
    (Types.VOID, [None]),
    (value_classes.LongValueSerializer(), [-5]),
    (Types.EITHER(Types.STRING, Types.LONG), [Either(True, "x"), Either(False, 7)]),
    (Types.ROW(Types.STRING, Types.LONG), [Row(0, ("x", 7)), Row(3, (None, None))]),
    (RowSerializer(tuple([Types.LONG] * 9), False), [Row(0, (1, None) * 4 + (5,))]),
    (TtlSerializer(Types.BIG_DEC), [TtlValue(9, BigDecimal(10, 2)), TtlValue(9, None)]),
]


@pytest.fixture(scope="module")
def layouts() -> ClassLayouts:
    return ClassLayouts(JobClasses())


def change_of(layouts: ClassLayouts, old: AnySerializer, declared: JavaType | None) -> TypeChange:
    types = FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts))
    return TypeChanges(types).of(old, declared)


def test_types_that_stay_are_copied(layouts: ClassLayouts) -> None:
    for staying, values in STAYING:
        old = Types.TUPLE(kryo(layouts, "java.time.LocalDate"), staying, Types.BYTE)
        change = change_of(layouts, old, None)
        tails = [serialize_to_bytes(staying, value) + b"\x01" for value in values]
        converter = Converter(old, change.new)
        new = [NEW_DAY + tail for tail in tails]
        assert converter.converted([DAY + tail for tail in tails]) == new, staying.type_name
        agree(old, change, damaged([DAY + tail for tail in tails], 200, 3), converter)


def test_a_value_that_is_written_otherwise_is_left_alone(layouts: ClassLayouts) -> None:
    """Read and written anew it has other bytes, or it does not exist."""
    odd: list[tuple[AnySerializer, list[bytes]]] = [
        (Types.LOCAL_DATE, [b"\x80\0\0\0\0\0", b"\0\0\x07\xe7\2\x1d", b"\0\0\7\xe8\2\0"]),
        (Types.LOCAL_TIME, [b"\x80\x80\0\0\0\0\0", b"\x18\0\0\0\0\0\0", b"\0\0\0\x3b\x9a\xca\0"]),
        (Types.LOCAL_DATE_TIME, [b"\0\0\7\xe8\2\1\x80\x80\0\x80\0\0\0"]),
        (Types.SQL_TIMESTAMP, [b"\x80" + bytes(10) + b"\1"]),
        (Types.INSTANT, [b"\x80" + bytes(11)]),
        (Types.ROW(Types.STRING), [b"\1\3ab", b"\0\0"]),
        (arrays.BooleanPrimitiveArraySerializer(), [b"\0\0\0\1\2"]),
        (Types.VOID, [b"\1"]),
    ]
    for staying, stored in odd:
        old = Types.TUPLE(kryo(layouts, "java.time.LocalDate"), staying)
        change = change_of(layouts, old, None)
        left = Converter(old, change.new).converted([DAY + each for each in stored])
        assert left == [None] * len(stored), staying.type_name


def test_single_objects_keep_the_flag_of_a_nullable_value_of_kryo(layouts: ClassLayouts) -> None:
    old = Types.NULLABLE(kryo(layouts, "java.time.LocalDate"))
    change = change_of(layouts, old, None)
    recoded = Recoded(old, change)
    for stored, new in [(b"\0" + DAY, b"\0" + NEW_DAY), (b"\1", b"\1")]:
        assert recoded.of(stored) == recoded.next(DataInput(stored)) == new
        assert recoded.of_key(stored) == recoded.of_or_none(stored) == new
        assert Converter(old, change.new).converted([stored]) == [new]


def test_an_array_of_void_is_a_wrong_class(layouts: ClassLayouts) -> None:
    old = kryo(layouts, "java.lang.Object")
    change = change_of(layouts, old, None)
    stored = b"\1\0[" + bytes((ord("V") | 0x80,)) + b"\1\2\0"
    with pytest.raises(UnreadableValueError, match="got 'V'"):
        Recoded(old, change).of(stored)
    assert Converter(old, change.new).converted([stored]) == [None]


def test_null_behind_a_flag_is_left_alone(layouts: ClassLayouts) -> None:
    """Written anew, the flag says that it is null."""
    null = serialize_to_bytes(Types.LOCAL_DATE, None)
    inner = Types.TUPLE(kryo(layouts, "java.time.LocalDate"), Types.NULLABLE(Types.LOCAL_DATE))
    change = change_of(layouts, inner, None)
    stored = [DAY + b"\0" + null, DAY + b"\1", DAY + b"\0" + null[:2]]
    assert Converter(inner, change.new).converted(stored) == [None, NEW_DAY + b"\1", None]


# ---------------------------------------------------------------------- what lists of Kryo become


def named(name: str) -> bytes:
    """The first use of a class; the caller adds the number of the name before it."""
    return name[:-1].encode() + bytes((ord(name[-1]) | 0x80,))


def list_of(java_class: str, *bodies: bytes) -> bytes:
    """An ``ArrayList`` in Kryo 2.24 whose elements are of one class."""
    parts = [b"\x01\x00" + named("java.util.ArrayList") + b"\x01" + bytes((len(bodies),))]
    for at, body in enumerate(bodies):
        parts.append(b"\x01\x01" + (named(java_class) if at == 0 else b"") + b"\x01" + body)
    return b"".join(parts)


BUILT = [
    ("java.math.BigInteger", [b"\2\0", b"\2\1", b"\2\n", b"\2\xff", b"\3\1\0"]),
    ("java.math.BigDecimal", [b"\2\0\0", b"\2\x0b\4", b"\4\x7f\xff\xff\3", b"\2\n\2"]),
    ("java.sql.Date", [b"\0", b"\x80\x10"]),
    ("java.sql.Time", [b"\5"]),
    ("java.sql.Timestamp", [b"\xe8\7\xff\x93\xeb\xdc\3", b"\0\0"]),
    ("java.time.Instant", [b"\2\4", b"\0\1"]),
    ("[I", [b"\3\2\4", b"\1"]),
    ("[J", [b"\2\1"]),
    ("[B", [b"\3\xff\0", b"\1"]),
    ("[D", [b"\2\x3f\xf0\0\0\0\0\0\0"]),
    ("[Z", [b"\3\1\0"]),
    ("[C", [b"\2\0A"]),
    ("[Ljava.lang.String;", [b"\3\x01\x01\xe1\x00", b"\1"]),
]


def built(
    layouts: ClassLayouts, java_class: str, bodies: list[bytes]
) -> tuple[AnySerializer, TypeChange, list[bytes]]:
    old = kryo(layouts, "java.util.List")
    change = change_of(layouts, old, JavaType("java.util.List", (JavaType(java_class),)))
    values = [list_of(java_class, *bodies), list_of(java_class), list_of(java_class, bodies[0])]
    return old, change, values


@pytest.mark.parametrize(("java_class", "bodies"), BUILT, ids=[name for name, _ in BUILT])
def test_elements_of_lists_are_built(
    layouts: ClassLayouts, java_class: str, bodies: list[bytes]
) -> None:
    old, change, values = built(layouts, java_class, bodies)
    converter = Converter(old, change.new)
    assert agree(old, change, values, converter) == len(values)
    agree(old, change, damaged(values, 300, 5), converter)
    other = list_of("java.util.BitSet", b"\0")
    assert converter.converted([other]) == [None]


# ------------------------------------------------------------------------------- stored keys


def map_state(user_key: AnySerializer, value: AnySerializer) -> StateMetaInfoSnapshot:
    return StateMetaInfoSnapshot.key_value("byId", KeyedStateType.MAP, Types.MAP(user_key, value))


def test_user_keys_of_maps_are_converted(layouts: ClassLayouts) -> None:
    user_key = kryo(layouts, "java.util.UUID")
    change = change_of(layouts, user_key, None)
    same = TypeChange(Types.LONG)
    values = StateValues(map_state(user_key, Types.LONG), Types.STRING, same, change, 1)
    rule = values.rule(0)
    assert rule is not None
    assert rule.types is None
    left: list[bytes] = []

    def one(state: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        left.append(key)
        try:
            converted = values.converted(StoredRecord(state, key, value, 0))
        except DstlError:
            return b"?", b""
        assert converted is not None
        return converted

    converter = SectionConverter([rule], one)
    uuid = b"\x01\x00" + named("java.util.UUID") + b"\x01\x02\x03"
    scope = b"\5" + serialize_to_bytes(Types.STRING, "key") + b"\0"
    keys = [scope + uuid, scope + uuid[:-1] + b"\x04"]
    records = [(key, b"\0" + bytes(8)) for key in keys]
    truth = [values.converted(StoredRecord(0, key, value, 0)) for key, value in records]
    converted = converter.converted(write_section([(0, records)]))
    assert converted is not None
    assert not left
    assert [(each.key, each.value) for each in read_section(DataInput(converted[0]), 1)] == truth
    chance = random.Random(11)
    for _ in range(300):
        key = bytearray(chance.choice(keys))
        key[chance.randrange(1, len(key))] ^= 1 << chance.randrange(8)
        record = bytes(key), records[0][1]
        left.clear()
        converted = converter.converted(write_section([(0, [record])]))
        assert converted is not None
        if not left:
            [new] = read_section(DataInput(converted[0]), 1)
            assert (new.key, new.value) == values.converted(StoredRecord(0, *record, 0))


def test_keys_that_may_be_nan_are_left_to_single_objects(layouts: ClassLayouts) -> None:
    user_key = Types.TUPLE(kryo(layouts, "java.util.UUID"), Types.DOUBLE)
    change = change_of(layouts, user_key, None)
    same = TypeChange(Types.LONG)
    values = StateValues(map_state(user_key, Types.LONG), Types.STRING, same, change, 1)
    assert values.rule(3) == SectionRule(3, is_single=True)


def test_records_of_a_state_are_left_beside_others_that_kernels_know() -> None:
    def one(state: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        return key + b"!", value.upper()

    converter = SectionConverter([SectionRule(1, is_single=True), SectionRule(0)], one)
    few = [(b"\1a", b"x"), (b"\1b", b"")]
    converted = converter.converted(write_section([(0, few), (1, few)]))
    assert converted == (
        write_section([(1, [(b"\1a!", b"X"), (b"\1b!", b"")]), (0, few)]),
        {0: 2},
    )


def test_records_that_are_left_come_in_rows(layouts: ClassLayouts) -> None:
    """After many of them, kernels still convert those that they know."""
    old = Types.TUPLE(kryo(layouts, "java.time.LocalDate"), Types.VOID)
    new = change_of(layouts, old, None).new
    known, odd = DAY + b"\0", DAY + b"\1"
    left: list[bytes] = []

    def one(state: int, key: bytes, value: bytes) -> tuple[bytes, bytes]:
        left.append(value)
        return key, b"odd" if value == odd else NEW_DAY + b"\0"

    converter = SectionConverter([SectionRule(0, (old, new))], one)
    values = [*[odd] * 3, known, *[odd] * 1000, *[known] * 1000, odd]
    become = [b"odd" if value == odd else NEW_DAY + b"\0" for value in values]
    section = write_section([(0, [(b"\0k", value) for value in values])])
    truth = write_section([(0, [(b"\0k", value) for value in become])])
    assert converter.converted(section) == (truth, {0: len(values)})
    assert left.count(odd) == 1004
    assert left.count(known) < 300
    few = write_section([(0, [(b"\0k", odd)] * 40)])
    for size in range(1, 40):  # it is damaged where it ends too early, in a row of these too
        assert converter.converted(few[:-size]) is None


def test_many_elements_of_operator_state(layouts: ClassLayouts) -> None:
    old = kryo(layouts, "java.time.LocalDate")
    recoded = Recoded(old, change_of(layouts, old, None))
    days = [DAY, DAY[:-1] + b"\x2e"] * 3000
    assert recoded.of_all(days) == recoded.of_each(days)
    assert len(set(recoded.of_all(days))) == 2
    assert recoded.of_all([]) == []
    assert Recoded(old, None).of_all(days) == days
