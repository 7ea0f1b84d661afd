"""Structs of messages have a bound, whatever messages hold each other."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from dstl_core.codec.protobuf.descriptors import Messages, read_descriptor_sets
from dstl_core.savepoint.columns.message_columns import MAX_FIELDS, MessageColumns


def messages_of(edges: dict[int, list[int]]) -> Messages:
    """Message ``a.M1`` has a field for each message of ``edges[1]``, or one number."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    for name, inside in edges.items():
        message = file.message_type.add(name=f"M{name}")
        for number, other in enumerate(inside, 1):
            message.field.add(
                name=f"f{number}", number=number, type=11, label=1
            ).type_name = f".a.M{other}"
        if not inside:
            message.field.add(name="x", number=1, type=5, label=1)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    return read_descriptor_sets({"a.desc": files.SerializeToString()})


@pytest.mark.parametrize(
    "edges",
    [
        {name: list(range(20)) for name in range(20)},
        {name: [name + 1] * 2 if name < 60 else [] for name in range(61)},
    ],
    ids=["all hold each other", "two of each in the one before"],
)
def test_a_message_with_too_many_fields_is_a_text(edges: dict[int, list[int]]) -> None:
    messages = messages_of(edges)
    columns = MessageColumns(messages, messages.messages["a.M0"])
    assert columns.type == pa.string()
    text = {"f1": {"f2": {}}}
    assert [json.loads(each) for each in columns.array([text]).to_pylist()] == [text]


def test_a_struct_has_as_many_fields_as_it_may() -> None:
    """The fields of all levels count: 50 + 50 * 99 + 50 * 99 of them are a struct."""
    for inner, is_struct in ((99, True), (100, False)):
        edges = {0: [1] * 50, 1: [2] * inner, 2: []}
        messages = messages_of(edges)
        columns = MessageColumns(messages, messages.messages["a.M0"])
        fields = 50 + 50 * inner + 50 * inner
        assert pa.types.is_struct(columns.type) is (fields <= MAX_FIELDS) is is_struct
