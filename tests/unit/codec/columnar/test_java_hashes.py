"""Hashes of columns, and of values, are those of Java: ``Hashes.java`` made them with Flink."""

import json

import pyarrow as pa
import pytest

from dstl_core.codec.columnar.keyed.java_hashes import java_hashes
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import DEFAULT_OPTIONS, EXACT_OPTIONS, layout_of
from dstl_core.codec.declared_type import parse_type
from dstl_core.codec.serializers import Types, deserialize_exactly
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.value_classes import (
    BooleanValueSerializer,
    ByteValueSerializer,
    CharValueSerializer,
    DoubleValueSerializer,
    FloatValueSerializer,
    IntValueSerializer,
    LongValueSerializer,
    ShortValueSerializer,
    StringValueSerializer,
)
from dstl_core.state.columns.element_columns import decode_elements
from tests.golden_files import GOLDEN

KEYS = json.loads((GOLDEN / "java-hashes" / "flink-2.2.1.json").read_bytes())
VALUE_CLASSES = (
    *(BooleanValueSerializer(), ByteValueSerializer(), ShortValueSerializer()),
    *(CharValueSerializer(), IntValueSerializer(), LongValueSerializer()),
    *(FloatValueSerializer(), DoubleValueSerializer(), StringValueSerializer()),
)
TIMES = (Types.INSTANT, Types.LOCAL_DATE, Types.LOCAL_TIME, Types.LOCAL_DATE_TIME)
NUMBERS = (Types.BOOLEAN, Types.BYTE, Types.SHORT, Types.INT, Types.FLOAT, Types.DOUBLE)
LISTS = (
    *(Types.LIST(Types.STRING), GenericArraySerializer("java.lang.String", Types.STRING)),
    *(Types.MAP(Types.STRING, Types.LONG), Types.LIST(Types.LIST(Types.INT))),
)
KINDS = {
    "row<row kind>": Types.ROW(Types.STRING),
    "row<plain>": Types.ROW(*NUMBERS, Types.CHAR),
    "row<times>": Types.ROW(*TIMES, Types.BIG_DEC, Types.BIG_INT),
    "row<lists>": Types.ROW(*LISTS),
    **{kind.type_name: kind for kind in VALUE_CLASSES},
}
NOT_BY_DEFAULT = ("row<row kind>", "java.sql.timestamp")
"""Keys that the default form of columns does not have."""


@pytest.mark.parametrize("name", KEYS)
def test_hashes_and_key_groups(name):
    kind = KINDS.get(name) or parse_type(name)
    raw = [bytes.fromhex(text) for text, _, _ in KEYS[name]]
    hashes = [java_hash for _, java_hash, _ in KEYS[name]]
    by_value = [kind.java_hash(deserialize_exactly(kind, each)) & 0xFFFFFFFF for each in raw]
    assert by_value == [java_hash & 0xFFFFFFFF for java_hash in hashes]
    for options in (EXACT_OPTIONS, DEFAULT_OPTIONS):
        keys, failure = decode_elements(layout_of(kind, options), raw)
        if options is DEFAULT_OPTIONS and name in NOT_BY_DEFAULT:
            assert failure is not None
            continue
        assert java_hashes(keys, kind, options).tolist() == hashes
        assert java_hashes(keys[1:], kind, options).tolist() == hashes[1:]
        groups = [group for _, _, group in KEYS[name]]
        assert key_groups_of(keys, kind, 32768, options).tolist() == groups


def test_nulls_have_the_hash_zero():
    kind = Types.ROW(Types.TUPLE(Types.LONG, Types.BIG_DEC), Types.STRING)
    keys = pa.array([None, {"f0": None, "f1": "a"}, None], layout_of(kind).arrow_type)
    in_java = (31 + 0) * 31 + 31 + ord("a")
    assert java_hashes(keys, kind, DEFAULT_OPTIONS).tolist() == [0, in_java, 0]
    assert java_hashes(keys[:0], kind, DEFAULT_OPTIONS).tolist() == []
