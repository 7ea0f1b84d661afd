"""Which layout a Flink type has, and how types become columns where there is a choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from dstl_core.codec.columnar.types.layouts import Layout, Opaque
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, NotInColumnsError


@dataclass(frozen=True)
class ColumnOptions:
    """How types become columns where there is a choice.

    Args:
        strings: ``error``: text columns, and a lone surrogate is an error; ``utf16``: binary
            columns, which hold every string: big-endian UTF-16, or the UTF-8 bytes of SQL strings.
        maps: ``map``: Arrow maps, and a null key is an error; ``entries``: lists of structs.
        timestamps: ``micros``: timestamps in microseconds, and a value between two of them is an
            error; ``exact``: structs of seconds and nanos where microseconds do not hold all.
        row_kinds: ``error``: a row that is no insertion (+I) is an error; ``column``: rows have a
            field ``$row_kind``.
        unreadable: ``error``: a value that only a Java class can read is an error; ``null``: it is
            null.
    """

    strings: Literal["error", "utf16"] = "error"
    maps: Literal["map", "entries"] = "map"
    timestamps: Literal["micros", "exact"] = "micros"
    row_kinds: Literal["error", "column"] = "error"
    unreadable: Literal["error", "null"] = "error"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            known, got = get_args(hint), getattr(self, name)
            if got not in known:
                raise ConfigError(f"{name} is wrong: expected {' or '.join(known)}, got {got!r}.")


DEFAULT_OPTIONS = ColumnOptions()
EXACT_OPTIONS = ColumnOptions("utf16", "entries", "exact", "column")
"""Columns that hold whatever Flink does: reading and writing gives the same bytes."""


def no_layout(serializer: AnySerializer) -> NotInColumnsError:
    """The error of a type that has no columnar form."""
    return NotInColumnsError(
        f"Values of type {serializer.type_name} have no columnar form.",
        type_name=serializer.type_name,
    )


Make = Callable[[Any, ColumnOptions], Layout]
_MAKERS: dict[type[AnySerializer], Make] = {}
Maker = TypeVar("Maker", bound=Make)


def layout_of(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """A new layout of a type.

    Raises:
        NotInColumnsError: The type, or one inside it, has none.
    """
    make = _MAKERS.get(type(serializer))
    if make is None:
        raise no_layout(serializer)
    return make(serializer, options)


def bounded_layout(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """The layout of a type where something else says how long a value is: without a form of its
    own it is kept as bytes.
    """
    try:
        return layout_of(serializer, options)
    except NotInColumnsError:
        return Opaque(serializer.opaque_class)


def layout_for(*serializers: type[AnySerializer]) -> Callable[[Maker], Maker]:
    """Registers a function that makes the layout of some types."""

    def register(make: Maker) -> Maker:
        for each in serializers:
            _MAKERS[each] = make
        return make

    return register
