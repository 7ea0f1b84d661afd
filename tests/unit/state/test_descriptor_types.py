"""Descriptors without a type get one before the state is used."""

from __future__ import annotations

import pytest

from dstl_core.codec.serializers import ListSerializer, MapSerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.state.tables.descriptor import (
    AggregatingStateDescriptor,
    FoldingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)

UNSET = [
    (ValueStateDescriptor("s", None), Types.LONG),
    (ReducingStateDescriptor("s", max, None), Types.LONG),
    (AggregatingStateDescriptor("s", None, None), Types.LONG),  # type: ignore[arg-type]
    (FoldingStateDescriptor("s", 0, max, None), Types.LONG),
    (ListStateDescriptor("s", None), ListSerializer(Types.LONG)),
]


@pytest.mark.parametrize(
    ("descriptor", "expected"), UNSET, ids=lambda descriptor: type(descriptor).__name__
)
def test_a_missing_type_is_set(descriptor: StateDescriptor, expected: object) -> None:
    assert not descriptor.is_serializer_initialized
    with pytest.raises(ConfigError, match=r"has no \w*type; .*initialize_serializer_unless_set"):
        descriptor.meta_info()
    complete = descriptor.initialize_serializer_unless_set(Types.LONG)
    assert complete.is_serializer_initialized
    assert complete.serializer == expected
    assert complete.initialize_serializer_unless_set("string") == complete


def test_missing_types_are_set_and_others_stay() -> None:
    descriptor = MapStateDescriptor("s", Types.STRING, None)
    complete = descriptor.initialize_serializer_unless_set(Types.INT, Types.DOUBLE)
    assert complete.serializer == MapSerializer(Types.STRING, Types.DOUBLE)
    with pytest.raises(ConfigError, match=r"expected 2 \(key_type, value_type\), got 1"):
        descriptor.initialize_serializer_unless_set(Types.INT)
