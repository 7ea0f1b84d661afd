"""Values whose decimals were declared, for texts: with as many digits after the point."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TupleSerializer,
)
from dstl_core.codec.serializers.numbers import BigDecSerializer
from dstl_core.codec.serializers.structs import Row, RowSerializer
from dstl_core.model.checkpoint import DeclaredDecimals


def declared_value(serializer: AnySerializer, value: Any, decimals: DeclaredDecimals | None) -> Any:
    """A value with its decimals in their declared scale; a number that does not fit stays as it is.

    Args:
        serializer: The stored type.
        value: A value of it.
        decimals: What was declared of it; None if nothing was.
    """
    if value is None or decimals is None:
        return value
    if isinstance(serializer, RowSerializer) and isinstance(decimals, Mapping):
        fields = [
            declared_value(kind, item, decimals.get(f"f{at}"))
            for at, (kind, item) in enumerate(zip(serializer.fields, value.fields, strict=True))
        ]
        return Row(value.kind, tuple(fields))
    if isinstance(serializer, TupleSerializer) and isinstance(decimals, Mapping):
        return tuple(
            declared_value(kind, item, decimals.get(f"f{at}"))
            for at, (kind, item) in enumerate(zip(serializer.fields, value, strict=True))
        )
    if isinstance(serializer, MapSerializer) and isinstance(decimals, Mapping):
        of_key, of_value = decimals.get("key"), decimals.get("value")
        return [
            (
                declared_value(serializer.key, key, of_key),
                declared_value(serializer.value, item, of_value),
            )
            for key, item in value
        ]
    if isinstance(serializer, ListSerializer):
        return [declared_value(serializer.element, each, decimals) for each in value]
    if isinstance(decimals, Mapping):
        return value
    if isinstance(serializer, BigDecSerializer):
        return _scaled(value, *decimals)
    return value


def _scaled(value: BigDecimal, digits: int, scale: int) -> BigDecimal:
    missing = scale - value.scale
    # A stored scale is any number of 32 bits, so it is bounded before the power is taken.
    if not 0 <= missing <= digits:
        return value
    unscaled = value.unscaled * 10**missing
    return BigDecimal(unscaled, scale) if abs(unscaled) < 10**digits else value
