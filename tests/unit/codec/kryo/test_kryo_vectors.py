"""Values by the real Kryo serializers of both lines of Flink."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    KryoValue,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.kryo.type_changes import TypeChanges
from dstl_core.codec.serializers import deserialize_exactly
from dstl_core.errors import FormatError, UnreadableValueError
from tests.golden_files import GOLDEN

FOLDER = GOLDEN / "kryo-vectors"
FILES = {Dialect.KRYO_2: "flink-1.20.5.jsonl", Dialect.KRYO_5: "flink-2.2.1.jsonl"}
Key = tuple[str, str]


def vectors(dialect: Dialect) -> dict[Key, dict[str, Any]]:
    lines = (FOLDER / FILES[dialect]).read_text().splitlines()
    by_name = {(line["name"], line["serializer"]): line for line in map(json.loads, lines)}
    # Kryo refuses three of the values itself: a record, a constant as declared type.
    return {key: line for key, line in by_name.items() if "hex" in line}


VECTORS = {dialect: vectors(dialect) for dialect in Dialect}

# What the walk that printed the vectors shows, and what ``dump`` shows instead.
SHOWN: dict[Any, Any] = {
    1700000000000: "2023-11-14T22:13:20Z",
    1000: "1970-01-01T00:00:01Z",
    "5 UTC": "1970-01-01T00:00:00.005Z[UTC]",
    "/127.0.0.1:80": "localhost:80",
}


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    if isinstance(value, str) and value.startswith("sun.util.calendar.ZoneInfo"):
        return "UTC"
    return SHOWN.get(value, value) if not isinstance(value, bool | float) else value


@pytest.fixture(scope="module")
def layouts() -> Iterator[ClassLayouts]:
    with (FOLDER / "vec.jar").open("rb") as jar:
        yield ClassLayouts(JobClasses([JarFile("vec.jar", jar)]))


def serializer(layouts: ClassLayouts, dialect: Dialect, declared: str) -> ReadableKryoSerializer:
    return ReadableKryoSerializer(
        declared, ((), (), ()), KryoClasses(dialect, layouts), registered_classes([declared])
    )


def test_there_are_vectors_of_both_lines() -> None:
    assert {dialect: len(found) for dialect, found in VECTORS.items()} == {
        Dialect.KRYO_2: 253,
        Dialect.KRYO_5: 255,
    }


@pytest.mark.parametrize("dialect", Dialect)
def test_every_value_is_read_to_its_last_byte(layouts: ClassLayouts, dialect: Dialect) -> None:
    for (name, declared), line in VECTORS[dialect].items():
        own = serializer(layouts, dialect, declared)
        value = deserialize_exactly(own, bytes.fromhex(line["hex"]))
        assert isinstance(value, KryoValue)
        text = own.to_text(value)
        if isinstance(text, dict):
            text.pop("@class", None)
        if name == "ex":
            assert text["$class"] == "vec.V$Ex"  # Java's own serialization: named
            continue
        expected = shown(line["value"])
        if name == "dup":
            expected["vec.V$Open.name"] = "o"  # the field that a subclass hides is shown, too
        if name == "outer" and dialect is Dialect.KRYO_5:
            del expected["in"]["this$0"]  # Kryo 5 does not store it
        assert text == expected, (name, declared)


@pytest.mark.parametrize("dialect", Dialect)
def test_every_value_becomes_the_bytes_that_kryo_5_writes(
    layouts: ClassLayouts, dialect: Dialect
) -> None:
    for key, line in VECTORS[dialect].items():
        own = serializer(layouts, dialect, key[1])
        value = deserialize_exactly(own, bytes.fromhex(line["hex"]))
        theirs = VECTORS[Dialect.KRYO_5][key]
        if not theirs["roundtrip"].startswith("fails"):
            assert own.write_new(value).hex() == theirs["hex"], key


@pytest.mark.parametrize("dialect", Dialect)
def test_values_that_kryo_5_cannot_read_become_others_or_are_refused(
    layouts: ClassLayouts, dialect: Dialect
) -> None:
    names = set()
    for key, line in VECTORS[dialect].items():
        if not VECTORS[Dialect.KRYO_5][key]["roundtrip"].startswith("fails"):
            continue
        names.add(key[0])
        own = serializer(layouts, dialect, key[1])
        value = deserialize_exactly(own, bytes.fromhex(line["hex"]))
        if key[0] in ("colls", "enummap"):
            with pytest.raises(UnreadableValueError, match=r"values of class java\.util\.EnumMap"):
                own.write_new(value)
            continue
        written = own.write_new(value)
        assert b"Unmodifiable" not in written
        assert b"Synchronized" not in written
        again = deserialize_exactly(
            serializer(layouts, Dialect.KRYO_5, "java.lang.Object"), written
        )
        assert own.to_text(again) == own.to_text(value)
    assert names == {"colls", "enummap", "unmodlist", "unmodmap", "synclist"}


def test_without_the_jar_the_class_is_named_and_the_jdk_is_read() -> None:
    layouts = ClassLayouts(JobClasses())
    refused = 0
    for (name, declared), line in VECTORS[Dialect.KRYO_2].items():
        own = serializer(layouts, Dialect.KRYO_2, declared)
        raw = bytes.fromhex(line["hex"])
        if b"vec.V$" in raw or declared.startswith(("vec.", "[Lvec.")):
            with pytest.raises(UnreadableValueError, match=r"vec\.V\$.*\(jars\)"):
                deserialize_exactly(own, raw)
            refused += 1
        else:
            assert deserialize_exactly(own, raw) is not None, name
    assert refused > 40


@pytest.mark.parametrize("dialect", Dialect)
def test_damage_raises_format_errors_only(layouts: ClassLayouts, dialect: Dialect) -> None:
    random_ = random.Random(20)
    for (_, declared), line in VECTORS[dialect].items():
        own = serializer(layouts, dialect, declared)
        raw = bytes.fromhex(line["hex"])
        for _ in range(12):
            damaged = bytearray(raw)
            damaged[random_.randrange(len(raw))] ^= 1 << random_.randrange(8)
            cut = damaged[: random_.randrange(len(raw) + 1)]
            for broken in (damaged, cut):
                try:
                    value = own.deserialize(DataInput(bytes(broken)))
                    json.dumps(own.to_text(value))
                except FormatError:
                    continue


@pytest.mark.parametrize("dialect", Dialect)
def test_a_value_that_repeats_itself_is_bounded(dialect: Dialect) -> None:
    """Forty lists, each of which has the next one twice: 2**40 elements as text."""
    level = bytes.fromhex("0100") + b"java.util.ArrayLis\xf4" + b"\x01"
    two = b"\x02" if dialect is Dialect.KRYO_2 else b"\x03"
    raw = bytearray(level + two)
    for _ in range(40):
        raw += b"\x01\x00\x01" + two
    raw += b"\x00\x00"
    for number in range(40, 0, -1):
        raw += b"\x01\x00" + bytes([number + 2])
    own = serializer(ClassLayouts(JobClasses()), dialect, "java.lang.Object")
    with pytest.raises(UnreadableValueError, match="more than 4194304 objects"):
        own.deserialize(DataInput(bytes(raw)))


def test_a_value_that_nests_too_deeply_is_refused() -> None:
    raw = (
        bytes.fromhex("0100") + b"java.util.ArrayLis\xf4" + b"\x01\x01" + b"\x01\x00\x01\x01" * 500
    )
    own = serializer(ClassLayouts(JobClasses()), Dialect.KRYO_2, "java.lang.Object")
    with pytest.raises(UnreadableValueError, match="deeper than 120 levels"):
        own.deserialize(DataInput(raw))


def test_a_serializer_of_the_job_is_named(layouts: ClassLayouts) -> None:
    own = layouts.with_custom({"vec.V$Leaf": "vec.LeafSerializer"})
    line = VECTORS[Dialect.KRYO_2]["leaf", "java.lang.Object"]
    with pytest.raises(UnreadableValueError, match=r"serializer of its own \(vec.LeafSerializer\)"):
        deserialize_exactly(
            serializer(own, Dialect.KRYO_2, "java.lang.Object"), bytes.fromhex(line["hex"])
        )


def test_a_state_of_enum_maps_is_blocked(layouts: ClassLayouts) -> None:
    old = serializer(layouts, Dialect.KRYO_2, "java.util.EnumMap")
    types = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts)))
    with pytest.raises(UnreadableValueError, match=r"values of class java\.util\.EnumMap"):
        types.of(old, None)


def test_bytes_behind_the_layout_of_the_classes_are_unreadable_not_damage(
    layouts: ClassLayouts,
) -> None:
    """The jar may have another version of the class than the writer."""
    line = VECTORS[Dialect.KRYO_2]["leaf", "java.lang.Object"]
    own = serializer(layouts, Dialect.KRYO_2, "java.lang.Object")
    with pytest.raises(UnreadableValueError, match="1 bytes more than the layout of its classes"):
        deserialize_exactly(own, bytes.fromhex(line["hex"]) + b"\0")
