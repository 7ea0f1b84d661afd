"""Messages are read as Google's own library reads them, by the same descriptor sets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.protobuf.descriptors import Messages, read_descriptor_sets
from dstl_core.codec.protobuf.message_text import MAX_DEPTH, UNKNOWN, message_text
from dstl_core.codec.serializers.collections import text_key
from dstl_core.errors import ConfigError, FormatError
from tests.golden_files import GOLDEN

SHOP = (GOLDEN / "proto-jobs" / "shop.desc").read_bytes()
WITHOUT_IMPORTS = (GOLDEN / "proto-jobs" / "shop-noimports.desc").read_bytes()
FieldProto = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "bool": st.booleans(),
    "string": st.text(),
    "bytes": st.binary(),
    "uint32": st.integers(0, 2**32 - 1),
    "sfixed32": st.integers(-(2**31), 2**31 - 1),
    "sfixed64": st.integers(-(2**63), 2**63 - 1),
    "sint32": st.integers(-(2**31), 2**31 - 1),
    "sint64": st.integers(-(2**63), 2**63 - 1),
}


def everything(syntax: str) -> Any:
    """A file with a field of each type: single, optional, repeated, as key and value of maps."""
    file = descriptor_pb2.FileDescriptorProto(name=f"a/all_{syntax}.proto", package="all." + syntax)
    file.syntax = syntax
    colour = file.enum_type.add(name="Colour")
    for number, name in ((0, "NONE"), (-3, "NEGATIVE"), (7, "RED")):
        colour.value.add(name=name, number=number)
    all_types = file.message_type.add(name="All")
    number = 0
    for at, (kind, _) in enumerate([*SCALARS.items(), ("enum", None), ("message", None)]):
        for form in ("one", "maybe", "many"):
            number += 1
            label = FieldProto.LABEL_REPEATED if form == "many" else FieldProto.LABEL_OPTIONAL
            field = all_types.field.add(
                name=f"{form}_{kind}",
                number=number * 3,
                label=label,
                type=getattr(FieldProto, f"TYPE_{kind.upper()}"),
            )
            if kind in ("enum", "message"):
                name = "Colour" if kind == "enum" else "All"
                field.type_name = f".all.{syntax}.{name}"
            if form == "maybe" and syntax == "proto3":
                field.oneof_index = len(all_types.oneof_decl)
                field.proto3_optional = True
                all_types.oneof_decl.add(name=f"_maybe_{kind}")
            if form == "many" and at % 2:
                field.options.packed = kind not in ("string", "bytes", "message")
    entry = all_types.nested_type.add(name="ByTextEntry")
    entry.options.map_entry = True
    optional = FieldProto.LABEL_OPTIONAL
    entry.field.add(name="key", number=1, label=optional, type=FieldProto.TYPE_STRING)
    entry.field.add(name="value", number=2, label=optional, type=FieldProto.TYPE_SINT32)
    by_text = all_types.field.add(name="by_text", number=900, type=FieldProto.TYPE_MESSAGE)
    by_text.label, by_text.type_name = FieldProto.LABEL_REPEATED, f".all.{syntax}.All.ByTextEntry"
    return file


POOL = descriptor_pool.DescriptorPool()
FILES = {syntax: everything(syntax) for syntax in ("proto2", "proto3")}
for file_descriptor in FILES.values():
    POOL.Add(file_descriptor)
CLASSES = {
    syntax: message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"all.{syntax}.All"))
    for syntax in FILES
}


def known(*files: Any) -> Messages:
    raw = descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()
    return read_descriptor_sets({"all.desc": raw})


MESSAGES = known(*FILES.values())


def judge(message: Any) -> Any:
    """The text form by Google's library alone."""
    values = {}
    for field, value in message.ListFields():
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            pairs = [[key, value[key]] for key in value]
            values[field.name] = sorted(pairs, key=lambda pair: text_key(pair[0]))
        elif field.is_repeated:
            values[field.name] = [judged(field, item) for item in value]
        else:
            values[field.name] = judged(field, value)
    return values


def judged(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return judge(value)
    if field.enum_type is not None:
        constant = field.enum_type.values_by_number.get(value)
        return value if constant is None else constant.name
    return value.hex() if isinstance(value, bytes) else value


@st.composite
def messages(draw: st.DrawFn, syntax: str, depth: int = 0) -> Any:
    message = CLASSES[syntax]()
    for kind, values in SCALARS.items():
        for form in ("one", "maybe"):
            if draw(st.booleans()):
                setattr(message, f"{form}_{kind}", draw(values))
        getattr(message, f"many_{kind}").extend(draw(st.lists(values, max_size=3)))
    numbers = st.sampled_from([0, -3, 7])
    message.many_enum.extend(draw(st.lists(numbers, max_size=2)))
    if draw(st.booleans()):
        message.one_enum = draw(numbers)
    for key, value in draw(
        st.dictionaries(st.text(max_size=3), SCALARS["sint32"], max_size=3)
    ).items():
        message.by_text[key] = value
    if depth < 2 and draw(st.booleans()):
        message.one_message.CopyFrom(draw(messages(syntax, depth + 1)))
        message.many_message.add().CopyFrom(draw(messages(syntax, depth + 1)))
    return message


@given(
    st.sampled_from(sorted(FILES)).flatmap(
        lambda syntax: st.tuples(st.just(syntax), messages(syntax))
    )
)
def test_random_messages_are_read_as_googles_library_reads_them(drawn: tuple[str, Any]) -> None:
    syntax, message = drawn
    raw = message.SerializeToString()
    text = message_text(MESSAGES, MESSAGES.messages[f"all.{syntax}.All"], raw)
    assert text == judge(message)
    json.dumps(text)


@settings(max_examples=20)
@given(messages("proto3"), messages("proto3"))
def test_messages_behind_each_other_are_merged(one: Any, two: Any) -> None:
    raw = one.SerializeToString() + two.SerializeToString()
    merged = CLASSES["proto3"].FromString(raw)
    assert message_text(MESSAGES, MESSAGES.messages["all.proto3.All"], raw) == judge(merged)


def text(hex_digits: str, name: str = "shop.Line") -> Any:
    shop = read_descriptor_sets({"shop.desc": SHOP})
    return message_text(shop, shop.messages[name], bytes.fromhex(hex_digits))


def test_unknown_fields_and_constants_are_shown() -> None:
    assert text("0a0161" + "5007" + "5a026869") == {
        "sku": "a",
        UNKNOWN: {"10": ["7"], "11": ["6869"]},
    }
    assert text("2809", "shop.Order") == {"status": 9}


def test_a_field_of_another_wire_type_is_unknown_as_in_googles_library() -> None:
    assert text("0807") == {UNKNOWN: {"1": ["7"]}}


@pytest.mark.parametrize(
    "raw",
    [
        "0a05",
        "0a0561",
        "08",
        "08ffffffffffffffffffffff01",
        "00",
        "0f",
        "0a01ff",
        "1901020304",
        "0b0c",
        "a2010a" * 3,
    ],
)
def test_wrong_bytes_are_refused(raw: str) -> None:
    with pytest.raises(FormatError):
        text(raw, "shop.Order" if raw.startswith("a2") else "shop.Line")


def test_depth_is_bounded() -> None:
    shop = read_descriptor_sets({"shop.desc": SHOP})
    raw = b""
    for _ in range(MAX_DEPTH + 2):
        size = len(raw)
        head = bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size])
        raw = b"\xa2\x01" + head + raw
    with pytest.raises(FormatError, match="nests more than"):
        message_text(shop, shop.messages["shop.Order"], raw)


def test_any_byte_changed_is_a_message_or_an_error() -> None:
    shop = read_descriptor_sets({"shop.desc": SHOP})
    raw = bytes.fromhex(
        "08c3c8afa025120663c3bc2d31301a120a05736b752d3010ffffffffffffffffff0122060a027430100a22060a"
        "027431100928013100000000000004403a020aff4207636172642d31305209088ae2cfaa0610904e5a0d0af6ff"
        "ffffffffffffff01ac02611a32547698badcfe"
    )
    for at in range(len(raw)):
        for change in (
            raw[:at],
            *(raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :] for bit in (1, 4, 0x80, 0xFF)),
        ):
            try:
                json.dumps(message_text(shop, shop.messages["shop.Order"], change))
            except FormatError:
                pass


# ---------------------------------------------------------------------------- descriptor sets


def test_a_set_without_imports_names_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"lacks google\.protobuf\.Timestamp.*include_imports"):
        read_descriptor_sets({"shop.desc": WITHOUT_IMPORTS})


@pytest.mark.parametrize(
    "raw", [b"", b"syntax = 'proto3';", SHOP[:50], SHOP[1:], b"\x0a\x02\x22\x05"]
)
def test_a_file_that_is_no_set_is_one_sentence(raw: bytes) -> None:
    with pytest.raises(ConfigError, match=r"x\.desc is no descriptor set"):
        read_descriptor_sets({"x.desc": raw})


def test_any_byte_changed_in_a_set_is_a_set_or_one_error() -> None:
    for at in range(len(SHOP)):
        for change in (
            SHOP[:at],
            *(SHOP[:at] + bytes([SHOP[at] ^ bit]) + SHOP[at + 1 :] for bit in (1, 0x20, 0xFF)),
        ):
            try:
                read_descriptor_sets({"x.desc": change})
            except ConfigError:
                pass


def test_an_entry_of_a_map_that_is_no_pair_is_refused() -> None:
    """protoc makes none; a message with such a map would have no key, or would hold itself."""
    for change in ("number", "label"):
        file = everything("proto3")
        [entry] = file.message_type[0].nested_type
        if change == "number":
            entry.field[1].number = 3
        else:
            entry.field[1].label = FieldProto.LABEL_REPEATED
        with pytest.raises(ConfigError, match="ByTextEntry of the descriptor set is no key with"):
            known(file)


def test_two_fields_of_one_name_are_refused() -> None:
    """A struct of them could not be made."""
    file = everything("proto3")
    file.message_type[0].field.add(name="by_text", number=901, type=FieldProto.TYPE_STRING)
    with pytest.raises(ConfigError, match=r"Two fields of all\.proto3\.All .* have one name"):
        known(file)


def test_a_field_that_takes_an_enum_for_a_message_lacks_the_message() -> None:
    file = everything("proto3")
    file.message_type[0].field.add(
        name="wrong", number=901, type=FieldProto.TYPE_MESSAGE, type_name=".all.proto3.Colour"
    )
    with pytest.raises(
        ConfigError, match=r"lacks all\.proto3\.Colour, which all\.proto3\.All\.wrong"
    ):
        known(file)


@pytest.mark.parametrize(
    ("options", "path", "java_class"),
    [
        ({}, "a/my_shop.proto", "p.MyShop$Outer$Inner"),
        ({"java_package": "j.k"}, "shop.proto", "j.k.Shop$Outer$Inner"),
        ({"java_outer_classname": "All"}, "shop.proto", "p.All$Outer$Inner"),
        ({"java_multiple_files": True}, "shop.proto", "p.Outer$Inner"),
        ({}, "outer.proto", "p.OuterOuterClass$Outer$Inner"),
    ],
)
def test_java_classes_are_those_of_protoc(
    options: dict[str, Any], path: str, java_class: str
) -> None:
    file = descriptor_pb2.FileDescriptorProto(name=path, package="p", syntax="proto3")
    for name, value in options.items():
        setattr(file.options, name, value)
    file.message_type.add(name="Outer").nested_type.add(name="Inner")
    message = known(file).of_java_class(java_class)
    assert message is not None
    assert message.name == "p.Outer.Inner"
