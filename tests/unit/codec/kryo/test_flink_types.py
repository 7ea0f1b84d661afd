"""Types that Flink derives from the classes of a jar."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from dstl_core.codec.classfile.class_file import Flag
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.declared_types import DescriptorTypes
from dstl_core.codec.kryo.flink_types import MAX_TYPE_PARTS, FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.errors import UnreadableValueError


def pojo_class(name: str, fields: dict[str, str]) -> bytes:
    """The class file of a POJO with public fields; names and descriptors as in the file."""
    texts = [name, "java/lang/Object", "<init>", "()V", *fields, *fields.values()]
    at = {text: number for number, text in enumerate(dict.fromkeys(texts), 3)}
    constants = [b"\x07" + struct.pack(">H", at[each]) for each in texts[:2]]
    constants += [b"\x01" + struct.pack(">H", len(each)) + each.encode() for each in at]
    members = [
        struct.pack(">4H", Flag.PUBLIC, at[field], at[descriptor], 0)
        for field, descriptor in fields.items()
    ]
    return b"".join(
        (
            struct.pack(">IHHH", 0xCAFEBABE, 0, 55, len(constants) + 1),
            *constants,
            struct.pack(">5H", Flag.PUBLIC, 1, 2, 0, len(members)),
            *members,
            struct.pack(">H4HH", 1, Flag.PUBLIC, at["<init>"], at["()V"], 0, 0),
        )
    )


def types_of(count: int) -> FlinkTypes:
    """Classes of two fields each; both are of the next class."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for number in range(count):
            inner = "I" if number + 1 == count else f"Lj/K{number + 1};"
            packed.writestr(
                f"j/K{number}.class", pojo_class(f"j/K{number}", {"a": inner, "b": inner})
            )
    classes = JobClasses([JarFile("job.jar", out)])
    return FlinkTypes(KryoClasses(Dialect.KRYO_5, ClassLayouts(classes)))


def test_a_type_repeats_a_class_for_every_field() -> None:
    pojo = types_of(3).of(JavaType("j.K0"))
    assert isinstance(pojo, PojoSerializer)
    first, second = pojo.nested
    assert first == second
    assert isinstance(first, PojoSerializer)
    assert first.pojo_class == "j.K1"


@pytest.mark.parametrize("count", [29, 120])
def test_a_type_of_any_size_is_refused_before_it_is_walked(count: int) -> None:
    """As a tree, 29 classes have 2**29 parts."""
    types = types_of(count)
    for _ in range(2):
        with pytest.raises(UnreadableValueError, match=f"at most {MAX_TYPE_PARTS}, got 131071"):
            types.of(JavaType("j.K0"))
    with pytest.raises(UnreadableValueError, match="too many parts"):
        DescriptorTypes(types).of_java(JavaType("j.K0"))
