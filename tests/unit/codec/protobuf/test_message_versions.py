"""A message of one version has the same values in another one, as Google's library reads both."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.protobuf.descriptors import Messages, read_descriptor_sets
from dstl_core.codec.protobuf.message_versions import MAX_DEPTH, message_recoder
from dstl_core.errors import ConfigError, FormatError

FieldProto = descriptor_pb2.FieldDescriptorProto
I32 = st.integers(-(2**31), 2**31 - 1)
VERSION_1 = [
    ("id", 1, "int32", "optional"),
    ("delta", 2, "sint64", "optional"),
    ("name", 3, "string", "optional"),
    ("codes", 4, "int32", "repeated"),
    ("inner", 5, "Self", "optional"),
    ("gone", 6, "float", "optional"),
    ("size", 7, "fixed32", "optional"),
    ("ratio", 8, "float", "optional"),
    ("flag", 9, "bool", "optional"),
    ("many", 10, "Self", "repeated"),
]
VERSION_2 = [
    ("number", 1, "sint64", "optional"),
    ("change", 2, "int64", "optional"),
    ("title", 3, "bytes", "optional"),
    ("numbers", 4, "sint32", "repeated"),
    ("part", 5, "Self", "optional"),
    ("size", 7, "uint64", "optional"),
    ("ratio", 8, "double", "optional"),
    ("state", 9, "int32", "optional"),
    ("parts", 10, "Self", "repeated"),
    ("added", 11, "string", "optional"),
]


def file_of(fields: Any) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    message = file.message_type.add(name="M")
    for name, number, kind, label in fields:
        field = message.field.add(name=name, number=number)
        field.label = getattr(FieldProto, f"LABEL_{label.upper()}")
        if kind == "Self":
            field.type, field.type_name = FieldProto.TYPE_MESSAGE, ".a.M"
        else:
            field.type = getattr(FieldProto, f"TYPE_{kind.upper()}")
    return file


def both(fields: Any) -> tuple[Any, Messages]:
    """Google's class of a message, and what dstl knows of it."""
    file = file_of(fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    raw = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    cls = message_factory.GetMessageClass(pool.FindMessageTypeByName("a.M"))
    return cls, read_descriptor_sets({"a.desc": raw})


ONE, OLD = both(VERSION_1)
TWO, NEW = both(VERSION_2)


def recode(raw: bytes, old: Messages = OLD, new: Messages = NEW) -> bytes:
    return message_recoder((old, old.messages["a.M"]), (new, new.messages["a.M"]))(raw)


@st.composite
def messages(draw: st.DrawFn, depth: int = 0) -> Any:
    message = ONE(
        id=draw(I32),
        delta=draw(st.integers(-(2**63), 2**63 - 1)),
        name=draw(st.text(max_size=5)),
        codes=draw(st.lists(I32, max_size=4)),
        gone=draw(st.floats(width=32, allow_nan=False)),
        size=draw(st.integers(0, 2**32 - 1)),
        ratio=draw(st.floats(width=32)),
        flag=draw(st.booleans()),
    )
    if depth < 2 and draw(st.booleans()):
        message.inner.CopyFrom(draw(messages(depth + 1)))
        message.many.append(draw(messages(depth + 1)))
    return message


def is_same(one: Any, two: Any) -> bool:
    return (
        (one.id, one.delta, one.name.encode(), list(one.codes), one.size, int(one.flag))
        == (two.number, two.change, two.title, list(two.numbers), two.size, two.state)
        and (one.ratio == two.ratio or (one.ratio != one.ratio and two.ratio != two.ratio))
        and one.HasField("inner") == two.HasField("part")
        and (not one.HasField("inner") or is_same(one.inner, two.part))
        and len(one.many) == len(two.parts)
        and all(map(is_same, one.many, two.parts))
    )


@given(messages())
def test_a_message_has_its_values_under_other_names_and_types(message: Any) -> None:
    raw = message.SerializeToString()
    recoded = recode(raw)
    assert is_same(message, TWO.FromString(recoded))
    # What the new version does not know is still there: the way back gives all of it.
    back = ONE.FromString(recode(recoded, NEW, OLD))
    assert back.SerializeToString(deterministic=True) == message.SerializeToString(
        deterministic=True
    )


def test_what_neither_version_knows_keeps_its_bytes() -> None:
    unknown = bytes.fromhex("f80105" + "fa010161" + "fd0101020304" + "f9010102030405060708")
    assert recode(unknown) == unknown
    assert recode(bytes.fromhex("0a0161")) == bytes.fromhex("0a0161"), "of another wire type"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("a", 1, "int32", "optional"), ("a", 1, "string", "optional")),
        (("a", 1, "int32", "optional"), ("a", 1, "double", "optional")),
        (("a", 1, "double", "optional"), ("a", 1, "int64", "optional")),
        (("a", 1, "Self", "optional"), ("a", 1, "bytes", "optional")),
        (("a", 1, "int32", "repeated"), ("a", 1, "int32", "optional")),
    ],
)
def test_types_that_do_not_become_each_other_are_refused(before: Any, after: Any) -> None:
    with pytest.raises(ConfigError, match=r"Field 1 of a\.M \(a\) .* a of a\.M: .* fractions"):
        recode(b"", both([before])[1], both([after])[1])


@pytest.mark.parametrize(
    ("old", "new", "raw"),
    [
        ("int64", "int32", "088080808008"),  # 2 ** 31
        ("int32", "uint32", "08ffffffffffffffffff01"),  # -1
        ("int32", "bool", "0802"),
        ("double", "float", "099a9999999999b93f"),  # 0.1
        ("double", "float", "099c7500883ce4377e"),  # 1e300
        ("bytes", "string", "0a01ff"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(old: str, new: str, raw: str) -> None:
    versions = [both([("a", 1, each, "optional")])[1] for each in (old, new)]
    with pytest.raises(FormatError, match=r"field a"):
        recode(bytes.fromhex(raw), *versions)


def test_depth_is_bounded() -> None:
    raw = b""
    for _ in range(MAX_DEPTH + 2):
        size = len(raw)
        head = bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size])
        raw = b"\x2a" + head + raw
    with pytest.raises(FormatError, match="nests more than"):
        recode(raw)


def test_any_byte_changed_is_a_message_or_an_error() -> None:
    whole = ONE(id=-5, delta=9, name="ü", codes=[1, -1], size=3, ratio=0.5, flag=True)
    whole.inner.id = 7
    raw = whole.SerializeToString()
    for at in range(len(raw)):
        for change in (raw[:at], raw[:at] + bytes([raw[at] ^ 0x81]) + raw[at + 1 :]):
            try:
                recode(change)
            except FormatError:
                pass
