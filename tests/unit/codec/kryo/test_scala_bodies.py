"""Classes of Scala in Kryo as chill stores them. The bytes are those of Flink 1.20.5, by hand."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest

from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.kryo.scala_bodies import SCALA_BODIES
from dstl_core.codec.serializers.base import deserialize_exactly
from dstl_core.errors import FormatError, UnreadableValueError
from tests.golden_files import GOLDEN

JAR = (GOLDEN / "scala-jobs" / "adt" / "job.jar").read_bytes()


def serializer(
    java_class: str = "java.lang.Object", dialect: Dialect = Dialect.KRYO_2
) -> ReadableKryoSerializer:
    layouts = ClassLayouts(JobClasses([JarFile("job.jar", io.BytesIO(JAR))]))
    classes = KryoClasses(dialect, layouts)
    return ReadableKryoSerializer(
        java_class, ((), (), ()), classes, registered_classes([java_class])
    )


def name(text: str, number: int = 0) -> str:
    """A class by its name, for the first time."""
    raw = text.encode()
    return f"01{number:02x}" + (raw[:-1] + bytes([raw[-1] | 0x80])).hex()


IMMUTABLE = "scala.collection.immutable."
VALUES: list[tuple[str, str, Any]] = [
    ("none", name("scala.None$") + "01", []),
    ("some", "11" + "01" + "0202", [1]),
    ("left", "12" + "01" + "0206", {"left": 3}),
    ("right", "13" + "01" + "0206", {"right": 3}),
    ("tuple", "27" + "01" + "03018261" + "0204", ["a", 2]),
    ("list", name(IMMUTABLE + "$colon$colon") + "01" + "02" + "0202" + "03018261", [1, "a"]),
    ("nil", name(IMMUTABLE + "Nil$") + "01" + "00", []),
    ("vector", "14" + "01" + "02" + "0202" + "0204", [1, 2]),
    ("set", "16" + "01" + "02" + "03018262" + "03018261", ["a", "b"]),
    ("map", "1a" + "01" + "01" + "2701" + "0301826b" + "0202", [["k", 1]]),
    ("range", "1f" + "01" + "0a000a0a0202", [1, 2, 3, 4, 5]),
    ("pair of numbers", "42" + "01" + "00000001" + "0000000000000002", [1, 2]),
    ("pair of booleans", name("scala.Tuple2$mcZI$sp") + "01" + "0001" + "0002", [True, 1]),
    ("bit set", name(IMMUTABLE + "BitSet$BitSet1") + "01" + "02" + "05" + "0104", [1, 5]),
    ("constant", name("scala.Enumeration$Val") + "01" + name("a.Color$", 1) + "01" + "00000007",
     {"enumeration": "a.Color$", "id": 7}),
    ("success", name("scala.util.Success") + "01" + "0206", {"success": 3}),
    ("array", name("scala.collection.mutable.WrappedArray$ofInt") + "01" + "010201"
     + name("[I", 1) + "01" + "03" + "0204", [1, 2]),
    ("symbol", "48" + "01" + "73b0", "'s0"),
    ("object", name("adt.Empty$") + "01", "adt.Empty$"),
    ("case class", name("adt.Circle") + "01" + "3ff0000000000000",
     {"@class": "adt.Circle", "r": 1.0}),
    ("sorted set", name(IMMUTABLE + "TreeSet") + "01" + "02" + name("scala.math.Ordering$Int$", 1)
     + "01" + "0206" + "0204", [3, 2]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "raw", "text"), VALUES, ids=[case for case, *_ in VALUES])
def test_values_have_the_bytes_of_chill(case: str, raw: str, text: Any) -> None:
    own = serializer()
    assert own.to_text(deserialize_exactly(own, bytes.fromhex(raw))) == text


@pytest.mark.parametrize(
    ("java_class", "raw", "text"),
    [
        ("scala.math.BigDecimal",
         "5701" + name("java.math.BigDecimal") + "01" + "0200" + "04" + "9ea483d50b" + "01440107",
         "0.00"),
        ("scala.math.BigInt", "5701" + name("java.math.BigInteger") + "01" + "0207", "7"),
    ],
)  # fmt: skip
def test_numbers_of_scala_are_their_digits(java_class: str, raw: str, text: str) -> None:
    own = serializer(java_class)
    assert own.to_text(deserialize_exactly(own, bytes.fromhex(raw))) == text


def leaves(text: Any) -> list[str]:
    """What a value holds: numbers, texts and booleans, as Scala writes them."""
    match text:
        case None:
            return []
        case dict():
            return [leaf for each in text.values() for leaf in leaves(each)]
        case list():
            return [leaf for each in text for leaf in leaves(each)]
        case bool():
            return [str(text).lower()]
    return [str(text)]


RANGES = {"range": [1, 2, 3, 4], "rangeBy": [1, 3, 5, 7]}
CONSTANTS = {
    name: {"enumeration": "vec.Color$", "id": number}
    for name, number in (("enum", 1), ("enum7", 7))
}
TOLD: dict[str, Any] = RANGES | CONSTANTS
TOLD["enums"] = [{"enumeration": "vec.Color$", "id": number} for number in (0, 7, 0)]
TOLD["regex"] = "a.b"


def test_values_hold_what_scala_reads_of_the_same_bytes() -> None:
    lines = (GOLDEN / "chill-vectors" / "values.tsv").read_text().splitlines()
    own = serializer()
    for line in lines:
        case, _, raw, of_scala = line.split("\t")
        text = own.to_text(deserialize_exactly(own, bytes.fromhex(raw)))
        if case in TOLD:
            assert text == TOLD[case]
            continue
        held = re.findall(r"-?\b(?:\d+(?:\.\d+)?|[a-z]+)\b", of_scala)
        assert (case, sorted(leaves(text))) == (case, sorted(held))
    assert len(lines) > 100


@pytest.mark.parametrize(("case", "raw", "text"), VALUES, ids=[case for case, *_ in VALUES])
def test_no_value_of_scala_is_written_for_flink_2(case: str, raw: str, text: Any) -> None:
    own = serializer()
    value = deserialize_exactly(own, bytes.fromhex(raw))
    if case == "case class":
        assert own.write_new(value)
        return
    with pytest.raises(UnreadableValueError, match=r"Flink 2\.x has no serializer for it"):
        own.write_new(value)


def test_kryo_of_flink_2_has_no_class_of_scala() -> None:
    own = serializer(dialect=Dialect.KRYO_5)
    for raw in (VALUES[0][1], VALUES[1][1]):
        with pytest.raises(UnreadableValueError):
            deserialize_exactly(own, bytes.fromhex(raw))


def test_a_long_range_is_no_large_list() -> None:
    raw = "1f01" + "feffffff0f" + "00" + "feffffff0f" + "feffffff0f" + "02" + "02"
    with pytest.raises(FormatError):
        deserialize_exactly(serializer(), bytes.fromhex(raw))


def test_a_range_of_step_zero_is_wrong_bytes() -> None:
    with pytest.raises(FormatError):
        deserialize_exactly(serializer(), bytes.fromhex("1f010a000a0a0200"))


@pytest.mark.parametrize("item", ["0202", "00", "1101" + "0202"])
def test_a_map_without_a_pair_is_wrong_bytes(item: str) -> None:
    with pytest.raises(UnreadableValueError, match="holds no pair"):
        deserialize_exactly(serializer(), bytes.fromhex("1a" + "01" + "01" + item))


def test_any_byte_changed_is_a_value_or_an_error() -> None:
    own = serializer()
    tried = 0
    for _, text, _ in VALUES:
        raw = bytes.fromhex(text)
        for at in range(len(raw)):
            for change in (
                raw[:at],
                *(
                    raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :]
                    for bit in (1, 2, 0x40, 0x80, 0xFF)
                ),
            ):
                tried += 1
                try:
                    value = own.deserialize(DataInput(change))
                except FormatError:
                    continue
                json.dumps(own.to_text(value))
    assert tried > 1000


def test_each_class_is_named_by_its_body() -> None:
    assert {key: body.class_name for key, body in SCALA_BODIES.items()} == {
        key: key for key in SCALA_BODIES
    }
