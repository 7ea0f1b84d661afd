"""Kernels give the bytes that the conversion of single objects gives, or leave a value to it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.columnar.kryo import section_converter
from dstl_core.codec.columnar.kryo.section_converter import Framing, SectionConverter, SectionRule
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_canonical import read_section, write_section
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import UNREADABLE_IN_KRYO_5, Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.kryo.type_changes import TypeChange, TypeChanges
from dstl_core.codec.serializers import AnySerializer, deserialize_exactly, serialize_to_bytes
from dstl_core.codec.serializers.names import Types
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import FormatError
from dstl_core.savepoint.edit.upgrade import CONVERT, SavepointUpgrade
from tests.golden_files import GOLDEN, JDK_TYPES
from tests.kryo_upgrades import ValueUpgrade
from tests.unit.codec.kryo.test_kryo_classes import cases as kryo_classes
from tests.unit.savepoint.test_jdk_jobs import JOBS as OF_THE_JDK
from tests.unit.savepoint.test_job_values import JOBS, savepoint

VECTORS = GOLDEN / "kryo-vectors"
Case = tuple[AnySerializer, AnySerializer, list[bytes]]


def expected(old: AnySerializer, change: TypeChange, stored: bytes) -> bytes:
    assert change.convert is not None
    return serialize_to_bytes(change.new, change.convert(deserialize_exactly(old, stored)))


class Converter:
    """Converts values as the records of a section; ``left`` are those that kernels do not know."""

    def __init__(
        self,
        old: AnySerializer,
        new: AnySerializer,
        framing: Framing = Framing.VALUE,
        build: Any = section_converter,
        classes: JobClasses | None = None,
    ) -> None:
        self.left: list[bytes] = []
        rule = build.SectionRule(0, (old, new), build.Framing(framing), classes=classes)
        self._sections = build.SectionConverter([rule], self._leave)

    def _leave(self, state: int, key: bytes, stored: bytes) -> tuple[bytes, bytes]:
        assert state == 0
        self.left.append(stored)
        return key, LEFT

    def converted(self, values: list[bytes]) -> list[bytes | None]:
        section = write_section([(0, [(b"\0key", each) for each in values])])
        converted = self._sections.converted(section)
        assert converted is not None
        assert converted[1] == {0: len(values)}
        records = list(read_section(DataInput(converted[0]), 1))
        assert {each.key for each in records} == {b"\0key"}
        return [None if each.value == LEFT else each.value for each in records]


LEFT = b"left to the conversion of single objects"


def changes(jobs: list[Path]) -> Iterator[tuple[str, AnySerializer, TypeChange, list[bytes]]]:
    """The values of jobs that become others."""
    for job in jobs:
        source = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
        upgrade = SavepointUpgrade(source, types=JDK_TYPES.get(job.name))
        for operator in source.operators:
            for info in operator.states:
                step, conversion = upgrade._step(operator, info)
                if step.action != CONVERT or conversion is None:
                    continue
                old, values = stored_values(operator, info.name)
                yield f"{job.name} {info.name}", old, conversion.value, values


def stored_values(operator: Any, state: str) -> tuple[AnySerializer, list[bytes]]:
    stored: list[bytes] = []
    for handle in operator.keyed_handles:
        restored = operator.restore([handle], handle.key_group_range)
        for table in restored.tables.values():
            if table.meta.name != state:
                continue
            old = table.meta.value_serializer
            for key_group in handle.key_group_range:
                records = [value for _, value in table.records(key_group)]
                match table.meta.keyed_state_type:
                    case KeyedStateType.MAP:
                        stored += [each[1:] for each in records if each[0] == 0]
                        inner = old.nested[1]
                    case KeyedStateType.LIST:
                        inner = old.nested[0]
                        stored += [part for each in records for part in elements(inner, each)]
                    case _:
                        stored += records
                        inner = old
    return inner, stored


def elements(inner: AnySerializer, stored: bytes) -> Iterator[bytes]:
    data = DataInput(stored)
    while data.remaining:
        yield data.read_value(inner)
        if data.remaining:
            data.read_u8("delimiter")


CHANGES = list(changes(JOBS))
ONE_BY_ONE = {"misc box", "misc kind", "moments locale"}
"""States of which kernels leave values to the conversion of single objects."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case[0])
def test_values_of_real_jobs(case: tuple[str, AnySerializer, TypeChange, list[bytes]]) -> None:
    _, old, change, values = case
    assert values
    truth = [expected(old, change, each) for each in values]
    assert Converter(old, change.new).converted(values) == truth


@pytest.mark.slow
def test_values_of_jobs_with_classes_of_the_jdk() -> None:
    left = set()
    small = [job for job in OF_THE_JDK if job.name not in ("heap", "many")]
    for name, old, change, values in changes(small):
        for value, converted in zip(
            values, Converter(old, change.new).converted(values), strict=True
        ):
            if converted is None:
                left.add(name)
            else:
                assert converted == expected(old, change, value), name
    assert left == ONE_BY_ONE


@pytest.mark.slow
def test_framings_of_stored_values() -> None:
    [(_, old, change, values)] = [each for each in CHANGES if each[0] == "orders order"]
    truth = [expected(old, change, each) for each in values]
    lists = Converter(old, change.new, Framing.ELEMENTS)
    assert lists.converted([b",".join(values), values[0], b""]) == [
        b",".join(truth),
        truth[0],
        None,
    ]
    maps = Converter(old, change.new, Framing.MAP_VALUE)
    stored = [b"\0" + values[0], b"\1", b"\1rest", b"", b"\0"]
    assert maps.converted(stored) == [b"\0" + truth[0], b"\1", b"\1rest", b"", None]


@pytest.mark.slow
def test_buffers_grow_with_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that are shared are written twice, so the output outgrows the input by far."""
    layouts = ClassLayouts(JobClasses())
    old = kryo(layouts, "java.util.List")
    declared = JavaType("java.util.List", (JavaType("java.lang.String"),))
    change = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts))).of(old, declared)
    text = b"\x03\x01" + b"x" * 4000 + b"\xf9"
    # An ArrayList of one text, and 20,000 references to it.
    shared = b"\x01\x00java.util.ArrayLis\xf4\x01\xa1\x9c\x01" + text + b"\x03\x03" * 20_000
    values = [shared, b"\x01\x00java.util.ArrayLis\xf4\x01\x01" + text]
    truth = [expected(old, change, each) for each in values]
    assert len(truth[0]) > 80_000_000
    assert Converter(old, change.new).converted(values) == truth
    monkeypatch.setattr(section_converter, "_MOST_TAPE_BYTES", 1 << 16)
    assert Converter(old, change.new).converted(values) == [None, truth[1]]


def kryo(layouts: ClassLayouts, declared: str) -> ReadableKryoSerializer:
    return ReadableKryoSerializer(
        declared,
        ((), (), ()),
        KryoClasses(Dialect.KRYO_2, layouts),
        registered_classes([declared]),
    )


def vector_cases() -> Iterator[tuple[AnySerializer, TypeChange, bytes]]:
    with (VECTORS / "vec.jar").open("rb") as jar:
        layouts = ClassLayouts(JobClasses([JarFile("vec.jar", jar)]))
        types = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts)))
        for line in map(json.loads, (VECTORS / "flink-1.20.5.jsonl").read_text().splitlines()):
            if "hex" in line and line["serializer"] not in UNREADABLE_IN_KRYO_5:
                old = kryo(layouts, line["serializer"])
                declared = JavaType(line["serializer"])
                yield old, types.of(old, declared), bytes.fromhex(line["hex"])


@pytest.mark.slow
def test_vectors_of_real_kryo() -> None:
    known = total = 0
    for old, change, stored in vector_cases():
        total += 1
        [converted] = Converter(old, change.new).converted([stored])
        if converted is not None:
            assert converted == expected(old, change, stored), old.type_name
            known += 1
    assert known >= 222  # the others are classes, calendars, exceptions and other rare ones
    assert total == 252


def damaged(values: list[bytes], count: int, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    damaged_values = []
    for _ in range(count):
        raw = bytearray(chance.choice(values))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(raw))
            kind = chance.randrange(4)
            if kind == 0:
                raw[at] = chance.randrange(256)
            elif kind == 1:
                raw[at] ^= 1 << chance.randrange(8)
            elif kind == 2 and len(raw) > 1:
                del raw[at:]
            else:
                raw[at:at] = raw[at : at + chance.randint(1, 9)]
            if not raw:
                raw = bytearray(b"\0")
        damaged_values.append(bytes(raw))
    return damaged_values


def agree(old: AnySerializer, change: TypeChange, values: list[bytes], converter: Any) -> int:
    known = 0
    for stored, converted in zip(values, converter.converted(values), strict=True):
        try:
            truth = expected(old, change, stored)
        except (FormatError, TypeError):
            truth = None
        if converted is not None:
            assert converted == truth, stored
            known += 1
    return known


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: case[0])
def test_damaged_values_are_left_alone_or_agree(
    case: tuple[str, AnySerializer, TypeChange, list[bytes]],
) -> None:
    _, old, change, values = case
    agree(old, change, damaged(values, 300, 7), Converter(old, change.new))


@pytest.mark.slow
def test_damaged_vectors() -> None:
    for number, (old, change, stored) in enumerate(vector_cases()):
        agree(old, change, damaged([stored], 30, number), Converter(old, change.new))


def test_values_of_random_classes() -> None:
    upgrade = ValueUpgrade(GOLDEN / "kryo-classes" / "job.jar")
    known = total = 0
    for name, snapshot, value, _, upgraded in kryo_classes():
        old, change = upgrade.change(snapshot)
        [converted] = Converter(old, change.new).converted([value])
        assert converted in (None, upgraded), name
        total, known = total + 1, known + (converted is not None)
    assert known > 0.9 * total


def test_sections_keep_drop_and_convert_states() -> None:
    [(_, old, change, values)] = [each for each in CHANGES if each[0] == "orders order"]
    truth = [expected(old, change, each) for each in values]
    kept = [(b"\0a", b"1"), (b"\0b", b"")]
    runs = [(0, kept), (1, kept), (2, [(b"\0k", each) for each in values])]
    section = write_section(runs)
    rules = [SectionRule(None), SectionRule(0), SectionRule(1, (old, change.new))]
    converter = SectionConverter(rules, lambda *record: pytest.fail("a value was odd"))
    new = write_section([(0, kept), (1, [(b"\0k", each) for each in truth])])
    assert converter.converted(section) == (new, {2: len(values)})
    assert converter.converted(write_section(runs[:1])) == (b"", {})
    assert converter.converted(b"\xff\xff") == (b"", {})
    for at in range(len(section) - 1):
        assert converter.converted(section[:at]) is None  # read record by record, which raises
    # Flink never writes two runs of one state; record by record they become one.
    assert converter.converted(section[:-2] + section) is not None
    assert converter.converted(write_section(runs[1:2])[:-2] * 2 + b"\xff\xff") is None
    assert converter.converted(section.replace(b"\0\2", b"\0\3", 1)) is None


def test_a_null_of_a_class_that_is_not_known_is_left_alone() -> None:
    """The class has no name that dstl knows; single objects say so, null or not."""
    layouts = ClassLayouts(JobClasses())
    old = kryo(layouts, "java.util.List")
    declared = JavaType("java.util.List", (JavaType("java.lang.String"),))
    change = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts))).of(old, declared)
    stored = b"\x01\x00java.util.ArrayLis\xf4\x01\x01\x01\x01java.util.ArrayLhs\xf4\x00"
    with pytest.raises(FormatError, match="ArrayLhst"):
        expected(old, change, stored)
    assert Converter(old, change.new).converted([stored]) == [None]


def test_subclasses_are_told_by_tag_and_by_name() -> None:
    layouts = ClassLayouts(JobClasses())
    date = OptionalSnapshot("date", None, kryo(layouts, "java.time.LocalDate"))
    number = OptionalSnapshot("number", None, Types.LONG)
    tagged = PojoSerializer("a.Tagged", (date, number))
    other = PojoSerializer("a.Other", (date,))
    old = PojoSerializer(
        "a.Base",
        (date,),
        (OptionalSnapshot("a.Tagged", None, tagged), OptionalSnapshot("a.Lost", None, None)),
        (OptionalSnapshot("a.Tagged", None, tagged), OptionalSnapshot("a.Other", None, other)),
    )
    change = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts))).of(old, None)
    fields = b"\x02\x00W\x01\x00\x02\x00\n\xca\x1f"
    name = b"\x04\x00\x07a.Other"
    known = [fields, b"\x08\x00" + fields + b"\x00" + bytes(8), name + fields, b"\x01"]
    truth = [expected(old, change, each) for each in known]
    assert Converter(old, change.new).converted(known) == truth
    # By its name a class with a tag gets its tag; what follows a tag may be null, or unknown.
    by_name = b"\x04\x00\x08a.Tagged" + fields + b"\x00" + bytes(8)
    assert expected(old, change, by_name)[:2] == b"\x08\x00"
    left = [by_name, b"\x08\x00\x01", b"\x08\x01" + fields, b"\x08\x02" + fields, name, b"\x0a"]
    assert Converter(old, change.new).converted(left) == [None] * len(left)
