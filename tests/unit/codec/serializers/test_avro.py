"""Schemas of Avro in serializer snapshots are foreign text."""

from __future__ import annotations

import pytest

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.errors import FormatError

DAMAGED = {
    '{"type":"array"}': "array lacks the type of its items",
    '{"type":"map"}': "map lacks the type of its values",
    '{"type":"record","name":"A"}': "record lacks its fields",
    '{"type":"record","fields":3}': "record lacks its fields",
    '{"type":"record","fields":[3]}': "record lacks its fields",
    '{"type":"record","fields":[{"name":"a"}]}': "record lacks its fields",
    '{"type":"record","fields":[{"type":"int"}]}': "record lacks its fields",
    '["null",{"type":"record","fields":[{"type":"int","name":1}]}]': "record lacks its fields",
    '{"type":"enum"}': "enum lacks its symbols",
    '{"type":"enum","symbols":3}': "enum lacks its symbols",
    '{"type":"enum","symbols":{"a":1}}': "enum lacks its symbols",
    '{"type":"fixed"}': "fixed type of Avro lacks its size",
    '{"type":"fixed","size":"x"}': "fixed type of Avro lacks its size",
    '{"type":"fixed","size":-1}': "fixed type of Avro lacks its size",
    '{"type":"fixed","size":1e400}': "fixed type of Avro lacks its size",
    '{"type":"array","items":{"type":"map"}}': "map lacks the type of its values",
    "[" * 100 + "]" * 100: "nested too deeply",
    "{": "not JSON",
}


@pytest.mark.parametrize("schema", DAMAGED)
def test_a_schema_without_its_parts_is_refused_when_it_is_read(schema: str) -> None:
    with pytest.raises(FormatError, match=DAMAGED[schema]):
        AvroSerializer("a.A", schema)


@pytest.mark.parametrize("schema", ["3", "null", "[]", '"A"', '{"type":3}', "{}", "true"])
def test_a_type_that_avro_does_not_have_is_refused_with_its_first_value(schema: str) -> None:
    with pytest.raises(FormatError, match=r"unknown type|out of bounds"):
        AvroSerializer("a.A", schema).deserialize(DataInput(bytes(16)))
