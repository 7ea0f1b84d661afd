"""Migrates stored values when a program declares another type, by Flink's compatibility rules.

Source: ``TypeSerializerSchemaCompatibility``, ``PojoSerializerSnapshot``,
``CompositeTypeSerializerSnapshot``, ``TtlAwareSerializerSnapshot`` and
``HeapKeyedStateBackend#tryRegisterStateTable`` of Flink 2.2.1. Keys and namespaces never migrate.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from dstl_core.clock import Clock
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
    TupleSerializer,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.codec.serializers.primitives import (
    BooleanSerializer,
    ByteSerializer,
    DoubleSerializer,
    FloatSerializer,
    IntSerializer,
    LongSerializer,
    ShortSerializer,
)
from dstl_core.codec.serializers.runtime import TtlAwareSerializer, TtlValue
from dstl_core.codec.state_meta import (
    NAMESPACE_SERIALIZER,
    BackendStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import RestoreError, StateMigrationError
from dstl_core.state.tables.avro_evolution import adapt_avro, can_read_avro
from dstl_core.state.tables.keyed_state import KeyedState, describe_state, state_key, types_of
from dstl_core.state.tables.state_table import ListTable, MapTable, StateTable, join_elements
from dstl_core.state.tables.table_factory import create_table


class Compatibility(IntEnum):
    """Whether a new serializer can read the values of an old one: at once, migrated, or not."""

    AS_IS = 0
    AFTER_MIGRATION = 1
    INCOMPATIBLE = 2


_ZEROS: dict[type[AnySerializer], Any] = {
    BooleanSerializer: False,
    ByteSerializer: 0,
    ShortSerializer: 0,
    IntSerializer: 0,
    LongSerializer: 0,
    FloatSerializer: 0.0,
    DoubleSerializer: 0.0,
}


def resolve_schema_compatibility(old: AnySerializer, new: AnySerializer) -> Compatibility:
    """The compatibility of a new serializer with the values of an old one."""
    if isinstance(old, TtlAwareSerializer):
        return resolve_schema_compatibility(old.inner, new)
    if isinstance(new, TtlAwareSerializer):
        return resolve_schema_compatibility(old, new.inner)
    if old == new:
        return Compatibility.AS_IS
    if isinstance(old, TtlSerializer) != isinstance(new, TtlSerializer):
        plain = resolve_schema_compatibility(_without_ttl(old), _without_ttl(new))
        return max(plain, Compatibility.AFTER_MIGRATION)
    match old, new:
        case PojoSerializer(), PojoSerializer():
            return _resolve_pojo(old, new)
        case AvroSerializer(), AvroSerializer():
            readable = can_read_avro(old, new)
            return Compatibility.AFTER_MIGRATION if readable else Compatibility.INCOMPATIBLE
        case (
            (ListSerializer(), ListSerializer())
            | (MapSerializer(), MapSerializer())
            | (TupleSerializer(), TupleSerializer())
            | (TtlSerializer(), TtlSerializer())
        ) if type(old) is type(new) and len(old.nested) == len(new.nested):
            return max(map(resolve_schema_compatibility, old.nested, new.nested))
        case _:
            return Compatibility.INCOMPATIBLE


def _without_ttl(serializer: AnySerializer) -> AnySerializer:
    return serializer.value if isinstance(serializer, TtlSerializer) else serializer


def _resolve_pojo(old: PojoSerializer, new: PojoSerializer) -> Compatibility:
    """Compares two POJO types. Fields may be added and removed; types of fields may not change."""
    if old.pojo_class != new.pojo_class or old.registered != new.registered:
        return Compatibility.INCOMPATIBLE
    before = {name: serializer for name, _, serializer in old.fields}
    after = {name: serializer for name, _, serializer in new.fields}
    result = Compatibility.AS_IS if list(before) == list(after) else Compatibility.AFTER_MIGRATION
    for name in before.keys() & after.keys():
        left, right = before[name], after[name]
        if left is None or right is None:
            return Compatibility.INCOMPATIBLE
        result = max(result, resolve_schema_compatibility(left, right))
    return result


def convert(old: AnySerializer, new: AnySerializer, value: Any, now_ms: int) -> Any:
    """Converts a value of an old serializer to a compatible new serializer.

    ``now_ms`` is the time of last access for a value that gets a time to live.
    """
    if isinstance(old, TtlAwareSerializer):
        return convert(old.inner, new, value, now_ms)
    if isinstance(new, TtlAwareSerializer):
        return convert(old, new.inner, value, now_ms)
    if old == new or value is None:
        return value
    if isinstance(old, TtlSerializer) != isinstance(new, TtlSerializer):
        if isinstance(old, TtlSerializer):
            return convert(old.value, new, value.value, now_ms)
        return TtlValue(now_ms, convert(old, _without_ttl(new), value, now_ms))
    match old, new:
        case PojoSerializer(), PojoSerializer():
            return _convert_pojo(old, new, value, now_ms)
        case AvroSerializer(), AvroSerializer():
            return adapt_avro(old, new, value)
        case TtlSerializer(), TtlSerializer():
            return TtlValue(value.last_access, convert(old.value, new.value, value.value, now_ms))
        case ListSerializer(), ListSerializer():
            return [convert(old.element, new.element, each, now_ms) for each in value]
        case MapSerializer(), MapSerializer():
            return [
                (convert(old.key, new.key, k, now_ms), convert(old.value, new.value, v, now_ms))
                for k, v in value
            ]
        case _:
            return tuple(
                convert(a, b, each, now_ms)
                for a, b, each in zip(old.nested, new.nested, value, strict=True)
            )


def _convert_pojo(old: PojoSerializer, new: PojoSerializer, value: Pojo, now_ms: int) -> Pojo:
    before = {name: serializer for name, _, serializer in old.fields}
    fields = {}
    for name, _, serializer in new.fields:
        previous = before.get(name)
        if serializer is not None and previous is not None:
            fields[name] = convert(previous, serializer, value.fields[name], now_ms)
        else:
            # The default of a Java field of primitive type. A snapshot does not show whether the
            # field is boxed.
            fields[name] = _ZEROS.get(type(serializer)) if serializer is not None else None
    return Pojo(value.class_name, fields)


# ------------------------------------------------------------------------------- registering


def register_table(
    state: KeyedState, meta: StateMetaInfoSnapshot, key_serializer: AnySerializer, clock: Clock
) -> tuple[StateTable[Any], bool]:
    """Returns the table of a declared state; migrates its values if their type has changed.

    Returns:
        The table, and whether it was migrated.

    Raises:
        StateMigrationError: The values cannot be converted to the new type.
        RestoreError: The type of the key, the kind or the namespace differs.
    """
    found = state.tables.get(state_key(meta))
    if found is None or types_of(found.meta) == types_of(meta):
        return state.table(meta, key_serializer), False
    old, new = found.meta, meta
    if (
        old.backend_state_type is not BackendStateType.KEY_VALUE
        or dict(old.options) != dict(new.options)
        or old.serializer(NAMESPACE_SERIALIZER) != new.serializer(NAMESPACE_SERIALIZER)
        or (key_serializer != state.key_serializer)
    ):
        raise RestoreError(_difference(old, new))
    if isinstance(found, MapTable):
        declared = new.value_serializer
        if isinstance(declared, MapSerializer) and declared.key != found.serializer.key:
            raise StateMigrationError(f"{_difference(old, new)} User keys never migrate.")
    compatibility = resolve_schema_compatibility(old.value_serializer, new.value_serializer)
    if compatibility is Compatibility.INCOMPATIBLE:
        raise StateMigrationError(_difference(old, new))
    if compatibility is Compatibility.AS_IS:
        found.meta = new
        return found, False
    return _migrate(state, found, new, clock.now_ms()), True


def _difference(old: StateMetaInfoSnapshot, new: StateMetaInfoSnapshot) -> str:
    return (
        f"State {new.name!r} has another type: expected {describe_state(old)} (from the restored "
        f"state), got {describe_state(new)}."
    )


def _migrate(
    state: KeyedState, table: StateTable[Any], meta: StateMetaInfoSnapshot, now_ms: int
) -> StateTable[Any]:
    """Rewrites every value of a state with its new type."""
    migrated = create_table(meta, table.codec.key_serializer, state.prefix_bytes, state.store)
    old, new = table.meta.value_serializer, meta.value_serializer
    for key_group, group in table.groups.items():
        target = migrated.group(key_group)
        for scope in list(group):
            target[scope] = _migrated_entry(table, old, new, group[scope], now_ms)
        group.clear()
    state.tables[state_key(meta)] = migrated
    return migrated


def _migrated_entry(
    table: StateTable[Any], old: AnySerializer, new: AnySerializer, stored: Any, now_ms: int
) -> Any:
    def rewrite(before: AnySerializer, after: AnySerializer, raw: bytes) -> bytes:
        value = deserialize_exactly(before, raw)
        return serialize_to_bytes(after, convert(before, after, value, now_ms))

    match table, old, new:
        case ListTable(), ListSerializer(), ListSerializer():
            parts = table.split_elements(stored)
            return join_elements([rewrite(old.element, new.element, part) for part in parts])
        case MapTable(), MapSerializer(), MapSerializer():
            return {
                key: value[:1]
                if DataInput(value).read_bool()
                else b"\0" + rewrite(old.value, new.value, value[1:])
                for key, value in stored.items()
            }
        case _:
            return rewrite(old, new, stored)
