"""Each type of Scala's API becomes what it is in Java; what has no counterpart is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect, KryoObject
from dstl_core.codec.kryo.kryo_serializer import KryoClasses, KryoValue
from dstl_core.codec.kryo.out_of_scala import OutOfScala
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.base import deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.libraries.flink_scala_api import (
    CaseClassSerializer,
    CollectionSerializer,
    CoproductSerializer,
    FlinkScalaEitherSerializer,
    MappedSerializer,
    OptionSerializer,
    ScalaMapSerializer,
    UnitSerializer,
)
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.codec.serializers.primitives import VoidSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer, TtlValue
from dstl_core.codec.serializers.scala import (
    Option,
    ScalaCaseClassSerializer,
    ScalaCollectionSerializer,
    ScalaEitherSerializer,
    ScalaEnumSerializer,
    ScalaOptionSerializer,
    ScalaTrySerializer,
    ScalaUnitSerializer,
)
from dstl_core.codec.serializers.structs import Either, Row
from dstl_core.errors import UnreadableValueError

NO_CLASSES = JobClasses()
KRYO = FlinkTypes(KryoClasses(Dialect.KRYO_2, ClassLayouts(NO_CLASSES))).kryo


def collection(name: str, element: AnySerializer) -> ScalaCollectionSerializer:
    return ScalaCollectionSerializer(f"implicitly[CanBuildFrom[{name}[A], A, {name}[A]]]", element)


PAIR = ScalaCaseClassSerializer("scala.Tuple2", (Types.STRING, Types.LONG))
LINE = ScalaCaseClassSerializer("shop.Line", (Types.STRING, Types.LONG), ("sku", "count"))
JAVA_LINE = Types.POJO("shop.Line", count=Types.LONG, sku=Types.STRING, note=Types.STRING)
MAYBE = ScalaOptionSerializer(Types.LONG)
TIER = ScalaEnumSerializer("shop.Tier$", (("Free", 0), ("Gold", 10)))
TRY = ScalaTrySerializer(Types.LONG, KRYO("java.lang.Throwable"))
NONE, SOME = Option(False, None), Option(True, 7)

BECOMES: list[tuple[AnySerializer, AnySerializer, Any, Any]] = [
    (PAIR, Types.TUPLE(Types.STRING, Types.LONG), ("a", 1), ("a", 1)),
    (PAIR, Types.ROW(Types.STRING, Types.LONG), ("a", 1), Row(0, ("a", 1))),
    (LINE, Types.TUPLE(Types.STRING, Types.LONG), ("a", 1), ("a", 1)),
    (LINE, JAVA_LINE, ("a", 1), Pojo("shop.Line", {"sku": "a", "count": 1, "note": None})),
    (MAYBE, Types.NULLABLE(Types.LONG), NONE, None),
    (MAYBE, Types.LONG, SOME, 7),
    (ScalaOptionSerializer(Types.STRING), Types.STRING, NONE, None),
    (
        ScalaCaseClassSerializer("c.C", (MAYBE,), ("m",)),
        Types.POJO("c.C", m=Types.LONG),
        (NONE,),
        Pojo("c.C", {"m": None}),
    ),
    (
        ScalaCaseClassSerializer("c.C", (MAYBE, PAIR)),
        Types.ROW(Types.LONG, Types.TUPLE(Types.STRING, Types.LONG)),
        (NONE, ("a", 1)),
        Row(0, (None, ("a", 1))),
    ),
    (
        ScalaEitherSerializer(Types.INT, PAIR),
        Types.EITHER(Types.INT, Types.TUPLE(Types.STRING, Types.LONG)),
        Either(False, ("a", 1)),
        Either(False, ("a", 1)),
    ),
    (TRY, Types.LONG, Either(True, 7), 7),
    (TRY, Types.EITHER(Types.STRING, Types.LONG), Either(True, 7), Either(False, 7)),
    (TIER, Types.STRING, "Gold", "Gold"),
    (TIER, Types.INT, "Gold", 10),
    (TIER, Types.ENUM("shop.Level", "GOLD", "FREE"), "Gold", "GOLD"),
    (TIER, Types.ENUM("shop.Level", "Gold", "GOLD", "Free"), "Gold", "Gold"),
    (ScalaUnitSerializer(), VoidSerializer(), None, None),
    (collection("List", PAIR), Types.LIST(Types.ROW(Types.STRING, Types.LONG)), [], []),
    (
        collection("List", LINE),
        Types.NULLABLE(Types.LIST(Types.NULLABLE(JAVA_LINE))),
        [("a", 1), None],
        [Pojo("shop.Line", {"sku": "a", "count": 1, "note": None}), None],
    ),
    (collection("Set", Types.LONG), Types.SET(Types.LONG), [1, None], [1, None]),
    (collection("Set", Types.LONG), Types.LIST(Types.LONG), [1, 2], [1, 2]),
    (
        collection("Map", ScalaCaseClassSerializer("scala.Tuple2", (Types.STRING, MAYBE))),
        Types.MAP(Types.STRING, Types.LONG),
        [("a", NONE), ("b", SOME)],
        [("a", None), ("b", 7)],
    ),
    (
        collection("Vector", MAYBE),
        GenericArraySerializer("java.lang.Long", Types.LONG),
        [NONE, SOME],
        [None, 7],
    ),
    (
        GenericArraySerializer("shop.Line", LINE),
        Types.LIST(JAVA_LINE),
        [("a", 1)],
        [Pojo("shop.Line", {"sku": "a", "count": 1, "note": None})],
    ),
    (Types.STRING_ARRAY, Types.LIST(Types.STRING), ["a", None], ["a", None]),
    (
        Types.MAP(Types.STRING, PAIR),
        Types.MAP(Types.STRING, Types.TUPLE(Types.STRING, Types.LONG)),
        [("k", ("a", 1)), ("l", None)],
        [("k", ("a", 1)), ("l", None)],
    ),
    (
        TtlSerializer(PAIR),
        TtlSerializer(Types.TUPLE(Types.STRING, Types.LONG)),
        TtlValue(5, ("a", 1)),
        TtlValue(5, ("a", 1)),
    ),
    (
        Types.POJO("c.C", m=MAYBE),
        Types.POJO("c.D", m=Types.LONG, n=Types.INT),
        Pojo("c.C", {"m": SOME}),
        Pojo("c.D", {"m": 7, "n": 0}),
    ),
]


@pytest.mark.parametrize(("old", "new", "value", "expected"), BECOMES, ids=str)
def test_a_type_becomes(old: AnySerializer, new: AnySerializer, value: Any, expected: Any) -> None:
    made = OutOfScala(NO_CLASSES).of(old, new)(value)
    assert made == expected
    assert deserialize_exactly(new, serialize_to_bytes(new, made)) == expected


def test_numbers_and_symbols_of_scala_in_kryo() -> None:
    of = OutOfScala(NO_CLASSES).of
    number = KryoValue(KryoObject("scala.math.BigDecimal", {"text": "-1.50"}), b"")
    assert of(KRYO("scala.math.BigDecimal"), Types.BIG_DEC)(number) == BigDecimal(-150, 2)
    large = KryoValue(KryoObject("scala.math.BigInt", {"text": "-7"}), b"")
    assert of(KRYO("scala.math.BigInt"), Types.BIG_INT)(large) == -7
    symbol = KryoValue(KryoObject("scala.Symbol", "s0"), b"")
    assert of(KRYO("scala.Symbol"), Types.STRING)(symbol) == "s0"


# ---------------------------------------------------------- the same job with flink-scala-api

X = "org.apache.flinkx.api.serializer."
X_PAIR = CaseClassSerializer("scala.Tuple2", (Types.STRING, Types.LONG))
X_P = CaseClassSerializer("fsa.P", (Types.INT, OptionSerializer(Types.STRING)))
P = ScalaCaseClassSerializer("fsa.P", (Types.INT, ScalaOptionSerializer(Types.STRING)))


def x_collection(name: str, element: AnySerializer) -> CollectionSerializer:
    return CollectionSerializer(f"{X}{name}Serializer", "java.lang.Object", element)


STAYS: list[tuple[AnySerializer, AnySerializer, Any, str]] = [
    # The library wrote these bytes of P(7, Some("ab")) and List(P(1, None)).
    (P, X_P, (7, Option(True, "ab")), "0000000200000007 01036162"),
    (P, X_P, (7, Option(False, None)), "0000000200000007 00"),
    (
        collection("List", P),
        x_collection("List", X_P),
        [(1, Option(False, None))],
        "0000000100000002 00000001 00",
    ),
    (PAIR, X_PAIR, ("a", 1), "00000002 0261 0000000000000001"),
    (
        LINE,
        CaseClassSerializer("shop.Line", (Types.STRING, Types.LONG, Types.INT)),
        ("a", 1),
        "00000002 0261 0000000000000001",
    ),
    (MAYBE, OptionSerializer(Types.LONG), SOME, "01 0000000000000007"),
    (
        ScalaOptionSerializer(MAYBE),
        OptionSerializer(OptionSerializer(Types.LONG)),
        Option(True, NONE),
        "01 00",
    ),
    (
        ScalaEitherSerializer(Types.STRING, PAIR),
        FlinkScalaEitherSerializer(Types.STRING, X_PAIR),
        Either(False, ("a", 1)),
        "00 00000002 0261 0000000000000001",
    ),
    (
        collection("Set", Types.INT),
        x_collection("Set", Types.INT),
        [1, 2],
        "00000002 00000001 00000002",
    ),
    (
        collection("Vector", PAIR),
        x_collection("Vector", X_PAIR),
        [None],
        "00000001 80000000",  # null has no fields here, since a text has no fixed length
    ),
    (
        collection("Map", PAIR),
        ScalaMapSerializer(Types.STRING, Types.LONG),
        [("a", 1)],
        "00000001 0261 0000000000000001",
    ),
    (ScalaUnitSerializer(), UnitSerializer(), None, ""),
    (
        TtlSerializer(PAIR),
        TtlSerializer(X_PAIR),
        TtlValue(5, ("a", 1)),
        "0000000000000005 00000002 0261 0000000000000001",
    ),
]


@pytest.mark.parametrize(("old", "new", "value", "raw"), STAYS, ids=str)
def test_a_type_has_the_form_of_flink_scala_api(
    old: AnySerializer, new: AnySerializer, value: Any, raw: str
) -> None:
    convert = OutOfScala(NO_CLASSES).of(old, new)
    assert serialize_to_bytes(new, convert(value)) == bytes.fromhex(raw)


NO_PLACE: list[tuple[AnySerializer, AnySerializer, str]] = [
    (LINE, CaseClassSerializer("shop.Line", (Types.STRING,)), "they have 2 and 1 fields"),
    (
        PAIR,
        CaseClassSerializer("scala.Tuple3", (Types.STRING, Types.LONG, Types.INT)),
        "they have 2 and 3",
    ),
    (
        LINE,
        CaseClassSerializer("shop.Line", (Types.STRING, Types.INT)),
        "Long does not become Integer",
    ),
    (collection("List", Types.LONG), x_collection("Set", Types.LONG), "a set holds nothing twice"),
    (TIER, CaseClassSerializer("shop.Tier", ()), "does not become shop.Tier"),
    (KRYO("shop.Shape"), CoproductSerializer((), ()), "Kryo<shop.Shape> does not become"),
    (TRY, FlinkScalaEitherSerializer(Types.LONG, Types.STRING), "does not become"),
    (Types.LONG, MappedSerializer("x.UuidMapper", Types.LONG), "does not become"),
]


@pytest.mark.parametrize(("old", "new", "reason"), NO_PLACE, ids=str)
def test_what_flink_scala_api_has_no_place_for_is_refused(
    old: AnySerializer, new: AnySerializer, reason: str
) -> None:
    with pytest.raises(UnreadableValueError) as refused:
        OutOfScala(NO_CLASSES).of(old, new)
    assert reason in str(refused.value)


REFUSED: list[tuple[AnySerializer, AnySerializer, str]] = [
    (PAIR, Types.TUPLE(Types.STRING), "they have 2 and 1 fields"),
    (PAIR, Types.TUPLE(Types.STRING, Types.INT), "Long does not become Integer"),
    (LINE, Types.POJO("s.Line", sku=Types.STRING), "s.Line has no field count; it has: sku"),
    (
        ScalaCaseClassSerializer("shop.Line", (Types.STRING, Types.LONG)),
        JAVA_LINE,
        "names of the fields of case class shop.Line are not known",
    ),
    (
        ScalaOptionSerializer(MAYBE),
        Types.NULLABLE(Types.LONG),
        "a null says nothing of the Option inside",
    ),
    (TIER, Types.ENUM("shop.Level", "GOLD"), "it has no constant Free, but: GOLD"),
    (TIER, Types.LONG, "does not become Long"),
    (collection("List", Types.LONG), Types.SET(Types.LONG), "a set holds nothing twice"),
    (collection("List", PAIR), Types.MAP(Types.STRING, Types.LONG), "does not become Map"),
    (KRYO("shop.Shape"), JAVA_LINE, "Kryo<shop.Shape> does not become"),
    (LINE, KRYO("shop.Line"), "does not become Kryo<shop.Line>"),
]


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED, ids=str)
def test_what_has_no_counterpart_is_refused(
    old: AnySerializer, new: AnySerializer, reason: str
) -> None:
    with pytest.raises(UnreadableValueError) as refused:
        OutOfScala(NO_CLASSES).of(old, new)
    assert reason in str(refused.value)


WITHOUT_FORM: list[tuple[AnySerializer, AnySerializer, Any, str]] = [
    (MAYBE, Types.LONG, NONE, "A None has no form in Long"),
    (collection("List", Types.LONG), Types.LIST(Types.LONG), [None], "A null has no form in Long"),
]


@pytest.mark.parametrize(("old", "new", "value", "reason"), WITHOUT_FORM, ids=str)
def test_a_value_without_a_form_is_refused(
    old: AnySerializer, new: AnySerializer, value: Any, reason: str
) -> None:
    convert = OutOfScala(NO_CLASSES).of(old, new)
    with pytest.raises(UnreadableValueError, match=reason):
        convert(value)
