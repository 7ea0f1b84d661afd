"""Random pairs of types: one of an old job, one of its next version, and a value of the old one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from dstl_core.codec.serializers import AnySerializer, TtlSerializer, Types
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.codec.serializers.structs import Either, EnumSerializer, Row

Typed = tuple[AnySerializer, AnySerializer, Any]
"""The old type, the new type, a value of the old one."""
PLAIN: list[tuple[AnySerializer, Any]] = [
    (Types.STRING, "s"),
    (Types.LONG, 1 << 40),
    (Types.INT, 7),
    (Types.CHAR, "c"),
    (Types.DOUBLE, 0.5),
    (Types.BOOLEAN, True),
    (Types.BIG_INT, 5),
    (Types.BYTES, b"ab"),
]
CONSTANTS = ("RED", "GREEN", "BLUE")
USER, SUB = "p.User", "p.Sub"


@st.composite
def pairs_of_types(draw: st.DrawFn, depth: int = 2) -> Typed:
    """Most often the same type with a change at one place, or none."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(_leaves())
    kind = draw(
        st.sampled_from(
            ["list", "set", "map", "array", "nullable", "either", "tuple", "row", "ttl", "other"]
        )
    )
    old, new, value = draw(pairs_of_types(depth - 1))
    second = draw(pairs_of_types(depth - 1))
    match kind:
        case "list":
            return Types.LIST(old), Types.LIST(new), [value]
        case "set":
            return Types.SET(old), Types.SET(new), [value]
        case "map":
            return (
                Types.MAP(second[0], old),
                Types.MAP(second[1], new),
                [(second[2], value)],
            )
        case "array":
            name = draw(st.sampled_from(["p.A", "p.A", "p.A", "p.B"]))
            return Types.OBJECT_ARRAY("p.A", old), Types.OBJECT_ARRAY(name, new), [value, None]
        case "nullable":
            return Types.NULLABLE(old), Types.NULLABLE(new), draw(st.sampled_from([value, None]))
        case "either":
            is_left = draw(st.booleans())
            return (
                Types.EITHER(old, second[0]),
                Types.EITHER(new, second[1]),
                Either(is_left, value if is_left else second[2]),
            )
        case "tuple":
            return (
                Types.TUPLE(old, second[0]),
                Types.TUPLE(new, second[1]),
                (value, second[2]),
            )
        case "row":
            return (
                Types.ROW(old, second[0]),
                Types.ROW(new, second[1]),
                Row(0, (value, None)),
            )
        case "ttl" if depth == 2 and not isinstance(old, TtlSerializer):
            return draw(
                st.sampled_from(
                    [
                        (TtlSerializer(old), TtlSerializer(new), TtlValue(3, value)),
                        (old, TtlSerializer(new), value),
                        (TtlSerializer(old), new, TtlValue(3, value)),
                    ]
                )
            )
    return old, second[1], value


@st.composite
def _leaves(draw: st.DrawFn) -> Typed:
    kind = draw(st.sampled_from(["plain", "enum", "pojo", "pojo", "pojo"]))
    if kind == "plain":
        serializer, value = draw(st.sampled_from(PLAIN))
        return serializer, serializer, value
    return draw(_enums() if kind == "enum" else _pojos())


@st.composite
def _enums(draw: st.DrawFn) -> tuple[EnumSerializer, EnumSerializer, str]:
    old = list(CONSTANTS[: draw(st.integers(1, 3))])
    new = draw(
        st.sampled_from(
            [old, [*old, "PINK"], ["PINK", *old], old[::-1], [*old[1:], "PINK"], old[:1]]
        )
    )
    value = draw(st.sampled_from(old))
    return Types.ENUM("p.Color", *old), Types.ENUM("p.Color", *new), value


@st.composite
def _pojos(draw: st.DrawFn) -> tuple[PojoSerializer, PojoSerializer, Pojo]:
    old: dict[str, AnySerializer] = {}
    value: dict[str, Any] = {}
    new: dict[str, AnySerializer] = {}
    for name in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        serializer, sample = draw(st.sampled_from(PLAIN))
        old[name] = new[name] = serializer
        value[name] = draw(st.sampled_from([sample, None]))
    if draw(st.booleans()):
        old["color"], new["color"], value["color"] = draw(_enums())
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([*sorted(new), "x", "y"]))
        if draw(st.booleans()):
            new[name] = draw(st.sampled_from(PLAIN))[0]
        elif len(new) > 1:
            new.pop(name, None)
    subclasses = st.sampled_from([(), (), ("Sub",), ("Sub", "Other"), ("Other", "Sub")])
    stored, wanted = draw(subclasses), draw(subclasses)
    before = _with_subclasses(Types.POJO(USER, **old), stored)
    after = _with_subclasses(Types.POJO(USER, **new), wanted)
    name = draw(st.sampled_from([USER, *(f"p.{each}" for each in stored)]))
    return before, after, Pojo(name, value)


def _with_subclasses(serializer: PojoSerializer, names: tuple[str, ...]) -> PojoSerializer:
    registered = tuple(
        OptionalSnapshot(f"p.{name}", None, replace(serializer, pojo_class=f"p.{name}"))
        for name in names
    )
    return replace(serializer, registered=registered)
