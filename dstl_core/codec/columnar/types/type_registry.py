"""Maps Flink types to layouts, with options where a type has several columnar forms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.types.layouts import Layout, Opaque, Repeated
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, NotInColumnsError


@dataclass(frozen=True)
class ColumnOptions:
    """Columnar forms of types that have several.

    Args:
        strings: ``error``: text columns; a lone surrogate raises. ``utf16``: binary columns, which
            hold every string as big-endian UTF-16, or as the UTF-8 bytes of SQL strings.
        maps: ``map``: Arrow maps; a null key raises. ``entries``: lists of structs.
        timestamps: ``micros``: timestamps in microseconds; a value with a finer fraction raises.
            ``exact``: structs of seconds and nanos for types with values that microseconds cannot
            hold.
        row_kinds: ``error``: a row that is not an insertion (+I) raises. ``column``: rows have a
            field ``$row_kind``.
        unreadable: ``error``: a value that only a Java class can read raises. ``null``: it becomes
            null.
        decimals: ``declared``: Java's decimals have the type that the job of the snapshot has
            declared, if the snapshot says so. ``exact``: they are structs of unscaled bytes and
            scale, as they are stored.
    """

    strings: Literal["error", "utf16"] = "error"
    maps: Literal["map", "entries"] = "map"
    timestamps: Literal["micros", "exact"] = "micros"
    row_kinds: Literal["error", "column"] = "error"
    unreadable: Literal["error", "null"] = "error"
    decimals: Literal["declared", "exact"] = "declared"

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            known, got = get_args(hint), getattr(self, name)
            if got not in known:
                raise ConfigError(f"{name} is wrong: expected {' or '.join(known)}, got {got!r}.")


DEFAULT_OPTIONS = ColumnOptions()
EXACT_OPTIONS = ColumnOptions("utf16", "entries", "exact", "column", decimals="exact")
"""Columns that hold every value of Flink: reading and writing returns the same bytes."""


def no_layout(serializer: AnySerializer) -> NotInColumnsError:
    return NotInColumnsError(
        f"Values of type {serializer.type_name} have no columnar form.",
        type_name=serializer.type_name,
    )


Make = Callable[[Any, ColumnOptions], Layout]
_MAKERS: dict[type[AnySerializer], Make] = {}
Maker = TypeVar("Maker", bound=Make)


def layout_of(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """Creates a layout of a type.

    Raises:
        NotInColumnsError: The type, or a nested type, has no columnar form.
    """
    make = _MAKERS.get(type(serializer))
    if make is None:
        raise no_layout(serializer)
    return make(serializer, options)


def bounded_layout(serializer: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """The layout of a type whose values are bounded by something else.

    A type without a columnar form is kept as bytes.
    """
    try:
        return layout_of(serializer, options)
    except NotInColumnsError:
        return Opaque(serializer.opaque_class)


def list_state_layout(element: AnySerializer, options: ColumnOptions = DEFAULT_OPTIONS) -> Layout:
    """The layout of a list state's stored value: elements with a comma between them, no count.

    Raises:
        NotInColumnsError: The type of the elements has no columnar form.
    """
    return Repeated(layout_of(element, options), max(1, element.length), i.DELIMITED)


def layout_for(*serializers: type[AnySerializer]) -> Callable[[Maker], Maker]:
    """Registers a function that creates the layouts of these types."""

    def register(make: Maker) -> Maker:
        for serializer in serializers:
            _MAKERS[serializer] = make
        return make

    return register
