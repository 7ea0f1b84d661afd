"""Kernels make of values of Scala what single objects become, or leave them to these."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dstl_core.codec.kryo.out_of_scala import OutOfScala
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import AnySerializer, Types, serialize_to_bytes
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.dates import LocalDate
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.scala import (
    Option,
    ScalaCaseClassSerializer,
    ScalaEitherSerializer,
    ScalaOptionSerializer,
)
from dstl_core.codec.serializers.structs import Either
from dstl_core.errors import FormatError
from tests.unit.codec.columnar.test_kryo_converter import Converter, agree, damaged
from tests.unit.codec.kryo.test_out_of_scala import (
    BECOMES,
    LINE,
    NO_CLASSES,
    STAYS,
    TIER,
    TRY,
    collection,
)


def converter_of(old: AnySerializer, new: AnySerializer) -> Converter:
    return Converter(old, new, classes=NO_CLASSES)


@pytest.mark.parametrize(("old", "new", "value", "expected"), BECOMES, ids=str)
def test_a_type_becomes(old: AnySerializer, new: AnySerializer, value: Any, expected: Any) -> None:
    [made] = converter_of(old, new).converted([serialize_to_bytes(old, value)])
    is_left = old == TRY or (isinstance(old, ScalaCaseClassSerializer) and old.scala_class == "c.C")
    if made is None:
        assert is_left  # a Try; None in a row
    else:
        assert made == serialize_to_bytes(new, expected)


@pytest.mark.parametrize(("old", "new", "value", "raw"), STAYS, ids=str)
def test_a_type_has_the_form_of_flink_scala_api(
    old: AnySerializer, new: AnySerializer, value: Any, raw: str
) -> None:
    if isinstance(old, KryoSerializer):
        return  # its values are left
    stored = serialize_to_bytes(old, value)
    assert converter_of(old, new).converted([stored]) in ([bytes.fromhex(raw)], [None])


# ------------------------------------------------------------------------------ random types


def leaf(chance: random.Random) -> tuple[AnySerializer, AnySerializer, Callable[[], Any]]:
    """A type, what it becomes, and what makes its values."""
    kinds: list[tuple[AnySerializer, AnySerializer, Callable[[], Any]]] = [
        (Types.LONG, Types.LONG, lambda: chance.randrange(1 << 40)),
        (Types.STRING, Types.STRING, lambda: chance.choice(["", "é", "text", None])),
        (Types.BIG_INT, Types.BIG_INT, lambda: chance.choice([None, 1, -(10**20)])),
        (Types.LOCAL_DATE, Types.LOCAL_DATE, lambda: chance.choice([None, LocalDate(2024, 2, 29)])),
        (TIER, Types.STRING, lambda: chance.choice(["Free", "Gold"])),
        (LINE, Types.POJO("s.Line", count=Types.LONG, sku=Types.STRING), lambda: ("a", 5)),
    ]
    return chance.choice(kinds)


def grown(
    chance: random.Random, depth: int
) -> tuple[AnySerializer, AnySerializer, Callable[[], Any]]:
    if depth == 0:
        return leaf(chance)
    kind = chance.randrange(8)
    old, new, make = grown(chance, depth - 1)
    other, new_other, make_other = grown(chance, depth - 1)
    count = chance.randrange(3)

    def some(one: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [one() for _ in range(count)]

    if kind == 0:
        option = ScalaOptionSerializer(old)
        return option, new, lambda: chance.choice([Option(False, None), Option(True, make())])
    if kind == 1:
        names = chance.sample(["z", "a", "m"], 2)
        pojo = Types.POJO("s.C", **dict(sorted(zip(names, (new, new_other), strict=True))))
        case = ScalaCaseClassSerializer("s.C", (old, other), tuple(names))
        return case, pojo, lambda: (make(), make_other())
    if kind == 2:
        pair = ScalaCaseClassSerializer("scala.Tuple2", (old, other))
        return pair, Types.TUPLE(new, new_other), lambda: (make(), make_other())
    if kind == 3:
        return collection("List", old), Types.LIST(new), some(make)
    if kind == 4:
        return collection("Vector", old), GenericArraySerializer("x.X", new), some(make)
    if kind == 5:
        pair = ScalaCaseClassSerializer("scala.Tuple2", (old, other))
        entries = some(lambda: (make(), make_other()))
        return collection("Map", pair), Types.MAP(new, new_other), entries
    if kind == 6:
        pair = ScalaCaseClassSerializer("scala.Tuple2", (old, other))
        return pair, Types.ROW(new, new_other), lambda: (make(), make_other())
    either = ScalaEitherSerializer(old, other)
    sides = [lambda: Either(True, make()), lambda: Either(False, make_other())]
    return either, Types.EITHER(new, new_other), lambda: chance.choice(sides)()


def random_cases(seed: int) -> Iterator[tuple[AnySerializer, TypeChange, list[bytes]]]:
    chance = random.Random(seed)
    for number in range(120):
        old, new, make = grown(chance, 1 + number % 3)
        try:
            change = TypeChange(new, OutOfScala(NO_CLASSES).of(old, new), classes=NO_CLASSES)
            stored = [serialize_to_bytes(old, make()) for _ in range(4)]
        except (FormatError, TypeError):
            continue  # an Option of an Option; a null where the old type has none
        values = [each for each in stored if each]
        if values:
            yield old, change, values


def test_random_types_agree_with_single_objects() -> None:
    known = total = 0
    for number, (old, change, values) in enumerate(random_cases(5)):
        converter = converter_of(old, change.new)
        known += agree(old, change, values, converter)
        total += len(values)
        agree(old, change, damaged(values, 20, number), converter)
    assert total > 200
    assert known > 0.5 * total
