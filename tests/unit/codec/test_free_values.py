"""Values that take no bytes: a few bytes announce any number of them, in each of many values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.data_io import MAX_FREE_VALUES, DataInput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.base import AnySerializer
from dstl_core.codec.serializers.collections import ListSerializer
from dstl_core.codec.serializers.scala import ScalaCaseClassSerializer
from dstl_core.errors import FormatError
from tests.property.file_damage import memory_limit
from tests.unit.codec.java_bytes import i32

LISTS = 4_000
NOTHING = ScalaCaseClassSerializer("s.Nothing", ())
NULLS = AvroSerializer("a.A", '{"type":"array","items":"null"}')


def kryo_lists(count: int) -> tuple[AnySerializer, bytes]:
    """A list of values of Kryo 5, each a list of 65,536 nulls, which takes 7 bytes."""
    name = "java.util.ArrayList"
    registered = registered_classes([name])
    classes = KryoClasses(Dialect.KRYO_5, ClassLayouts(JobClasses()))
    [number] = [at for at, registered_name in registered.items() if registered_name == name]
    # Class, a new object, the count plus 1 with the flag for one class, and no class.
    nulls = bytes((number + 2, 1, 0xC1, 0x80, 0x08, 0))
    serializer = ReadableKryoSerializer(name, ((), (), ()), classes, registered)
    value = serializer.deserialize(DataInput(nulls))
    assert value is not None
    assert value.content is not None
    assert value.content.value == [None] * 65_536
    return ListSerializer(serializer), i32(count) + nulls * count


def scala_lists() -> tuple[AnySerializer, bytes]:
    """Each list of objects without fields claims as many as bytes follow."""
    body = b"".join(i32(4 * (LISTS - at - 1)) for at in range(LISTS))
    return ListSerializer(ListSerializer(NOTHING)), i32(LISTS) + body


def avro_lists() -> tuple[AnySerializer, bytes]:
    """Each array of nulls takes 3 bytes, and has as many as a block may have."""
    return ListSerializer(NULLS), i32(LISTS) + b"\x88\x27\x00" * LISTS


@pytest.mark.parametrize(
    "made", [lambda: kryo_lists(LISTS), scala_lists, avro_lists], ids=["kryo", "scala", "avro"]
)
def test_many_values_have_a_limit_together(made: Callable[[], tuple[AnySerializer, bytes]]) -> None:
    serializer, raw = made()
    assert len(raw) < 32 << 10
    data = DataInput(raw)
    data.count_free(MAX_FREE_VALUES)  # Those that one value may have are used up.
    # Without the limit, the lists of each kind take gigabytes.
    with memory_limit(512 << 20), pytest.raises(FormatError, match="Too many values take no bytes"):
        serializer.deserialize(data)


def test_as_many_as_the_bytes_of_an_input_are_always_read() -> None:
    """A state of a million keys with such a value is no attack."""
    serializer = ListSerializer(NOTHING)
    assert len(serializer.deserialize(DataInput(i32(5_000) + bytes(5_000)))) == 5_000
    data = DataInput(bytes(MAX_FREE_VALUES))
    for _ in range(9):
        data.count_free(MAX_FREE_VALUES)
    with pytest.raises(FormatError, match="got 37748737"):
        data.count_free(1)
    assert NULLS.deserialize(DataInput(b"\x88\x27" + b"\x00" + bytes(5_000))) == [None] * 5_000
