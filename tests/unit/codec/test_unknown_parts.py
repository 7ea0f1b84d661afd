"""A type of an unknown class may hold types that are known: all other states are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, Types, UnknownSerializer
from dstl_core.codec.serializers.base import write_composite_header, write_nested
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.optional_map import OptionalEntry
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
    read_keyed_header,
    write_keyed_header,
)

USER = Types.POJO("p.User", color=Types.ENUM("p.Color", "RED", "BLUE"), name=Types.STRING)
REGISTERED = OptionalEntry("p.Thing", b"\0\7p.Thing", None)
KNOWN: list[AnySerializer] = [
    Types.STRING,
    Types.LONG,
    USER,
    Types.MAP(Types.STRING, USER),
    Types.OBJECT_ARRAY("p.User", USER),
    KryoSerializer("java.lang.Throwable", ((), (), ())),
    KryoSerializer("p.Thing", ((REGISTERED,), (), ())),
]
VALUE, LIST, MAP = KeyedStateType.VALUE, KeyedStateType.LIST, KeyedStateType.MAP


@st.composite
def unknown_types(draw: st.DrawFn) -> UnknownSerializer:
    """A composite as Flink writes it, with a text of its own before its parts."""
    out = DataOutput()
    write_composite_header(out, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        out.write_utf("p.Case")
    parts = draw(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=4))
    write_nested(out, parts)
    return UnknownSerializer("p.scala.CaseSerializerSnapshot", 3, out.to_bytes())


@st.composite
def states(draw: st.DrawFn, name: str) -> StateMetaInfoSnapshot:
    serializer = draw(st.one_of(st.sampled_from(KNOWN), unknown_types()))
    kind = draw(st.sampled_from([VALUE, LIST, MAP]))
    value = {
        VALUE: serializer,
        LIST: Types.LIST(serializer),
        MAP: Types.MAP(Types.STRING, serializer),
    }[kind]
    return StateMetaInfoSnapshot.key_value(name, kind, value)


@pytest.mark.slow
@given(st.tuples(*(states(name) for name in ("first", "second", "third"))))
def test_a_header_is_read_as_it_was_written(
    stored_states: tuple[StateMetaInfoSnapshot, ...],
) -> None:
    header = KeyedBackendHeader(Types.STRING, stored_states)
    out = DataOutput()
    write_keyed_header(out, header)
    assert read_keyed_header(DataInput(out.to_bytes()), BUILT_IN) == header
