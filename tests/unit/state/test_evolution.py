from __future__ import annotations

import json
from typing import Any

import pytest

from dstl_core.codec.serializers import AnySerializer, TtlSerializer, Types
from dstl_core.codec.serializers.avro import AvroBranch, AvroSerializer
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.errors import RestoreError, StateMigrationError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.tables.compatibility import Verdict, compatibility_of
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.evolution import convert
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.testing import ManualClock


def pojo(**fields: AnySerializer) -> PojoSerializer:
    return PojoSerializer(
        "com.example.User",
        tuple(OptionalSnapshot(name, "com.example.User", fields[name]) for name in sorted(fields)),
    )


def avro(*fields: dict[str, Any]) -> AvroSerializer:
    schema = {"type": "record", "name": "User", "fields": list(fields)}
    return AvroSerializer("com.example.User", json.dumps(schema))


NAME = {"name": "name", "type": "string"}
AGE = {"name": "age", "type": "int"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Types.LONG, Types.LONG, Verdict.COMPATIBLE_AS_IS),
        (Types.LONG, Types.INT, Verdict.INCOMPATIBLE),
        (pojo(a=Types.LONG), pojo(a=Types.LONG, b=Types.STRING), Verdict.AFTER_MIGRATION),
        (pojo(a=Types.LONG, b=Types.STRING), pojo(b=Types.STRING), Verdict.AFTER_MIGRATION),
        (pojo(a=Types.LONG), pojo(a=Types.STRING), Verdict.INCOMPATIBLE),
        (Types.LONG, TtlSerializer(Types.LONG), Verdict.AFTER_MIGRATION),
        (TtlSerializer(Types.LONG), Types.STRING, Verdict.INCOMPATIBLE),
        (avro(NAME), avro(NAME, AGE | {"default": 7}), Verdict.AFTER_MIGRATION),
        (avro(NAME), avro(NAME, AGE), Verdict.INCOMPATIBLE),
        (avro(NAME, AGE), avro(NAME, AGE | {"type": "long"}), Verdict.AFTER_MIGRATION),
        (avro(NAME, AGE | {"type": "long"}), avro(NAME, AGE), Verdict.INCOMPATIBLE),
    ],
)
def test_rules(old: AnySerializer, new: AnySerializer, expected: Verdict) -> None:
    assert compatibility_of(old, new).verdict is expected


def test_values_are_converted() -> None:
    user = Pojo("com.example.User", {"a": 5, "gone": "x"})
    old, new = (
        pojo(a=Types.LONG, gone=Types.STRING),
        pojo(a=Types.LONG, n=Types.INT, c=Types.CHAR, s=Types.STRING),
    )
    assert convert(old, new, user, 0).fields == {"a": 5, "n": 0, "c": "\0", "s": None}
    assert convert(Types.LONG, TtlSerializer(Types.LONG), 5, 99) == TtlValue(99, 5)
    assert convert(TtlSerializer(Types.LONG), Types.LONG, TtlValue(99, 5), 0) == 5
    wide = avro(NAME | {"type": ["null", "string"]}, AGE | {"type": "double", "default": 0.0})
    assert convert(avro(NAME, AGE), wide, {"name": "x", "age": 3}, 0) == {
        "name": AvroBranch(1, "x"),
        "age": 3.0,
    }


def backend() -> HashMapKeyedStateBackend:
    state = KeyedState(KeyGroupRange(0, 127), 128)
    keyed = HashMapKeyedStateBackend(state, Types.STRING, clock=ManualClock())
    keyed.set_current_key("a")
    return keyed


def test_stored_values_migrate() -> None:
    keyed = backend()
    get = keyed.get_or_create_keyed_state
    void = keyed.get_value_state(ValueStateDescriptor("other", Types.LONG))._table.meta
    namespace = void.namespace_serializer
    old, new = pojo(a=Types.LONG), pojo(a=Types.LONG, b=Types.STRING)
    one, two = (Pojo("com.example.User", {"a": n}) for n in (1, 2))
    keyed.get_value_state(ValueStateDescriptor("v", old)).update(one)
    keyed.get_list_state(ListStateDescriptor("l", old)).add_all([one, two])
    pairs: Any = get(namespace, MapStateDescriptor("m", Types.STRING, old))
    pairs.put("x", one)
    pairs.put("null", None)

    assert keyed.get_value_state(ValueStateDescriptor("v", new)).value().fields == {
        "a": 1,
        "b": None,
    }
    listed = keyed.get_list_state(ListStateDescriptor("l", new)).get()
    assert [each.fields["a"] for each in listed] == [1, 2]
    pairs = get(namespace, MapStateDescriptor("m", Types.STRING, new))
    assert pairs.get("x").fields == {"a": 1, "b": None}
    assert pairs.contains("null")
    with pytest.raises(StateMigrationError, match="the type changed from String to Long"):
        get(namespace, MapStateDescriptor("m", Types.LONG, new))
    with pytest.raises(RestoreError, match="another type: expected VALUE"):
        keyed.get_list_state(ListStateDescriptor("v", new))


def test_a_time_to_live_can_be_switched_on_and_off() -> None:
    keyed = backend()
    plain = ValueStateDescriptor("n", Types.LONG)
    keyed.get_value_state(plain).update(5)
    assert keyed.get_value_state(plain.enable_time_to_live(StateTtlConfig(100))).value() == 5
    assert keyed.get_value_state(plain).value() == 5


def test_operator_state_keeps_its_mode_and_type() -> None:
    operator_state = DefaultOperatorStateBackend()
    operator_state.get_list_state(ListStateDescriptor("s", Types.LONG)).add(1)
    with pytest.raises(RestoreError, match="Incompatible state assignment modes"):
        operator_state.get_union_list_state(ListStateDescriptor("s", Types.LONG))
    with pytest.raises(StateMigrationError, match=r"expected Long .* got String"):
        operator_state.get_list_state(ListStateDescriptor("s", Types.STRING))
