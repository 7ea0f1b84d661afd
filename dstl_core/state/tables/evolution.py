"""Migrates stored values when a program declares another type.

Whether it may is the decision of ``compatibility``. Keys and namespaces never migrate.

Source: ``HeapKeyedStateBackend#tryRegisterStateTable`` and ``PojoSerializer`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.collections import SetSerializer
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer, primitive_default
from dstl_core.codec.serializers.runtime import TtlAwareSerializer, TtlValue
from dstl_core.codec.serializers.structs import (
    Either,
    EitherSerializer,
    EnumSerializer,
    NullableSerializer,
    Row,
    RowSerializer,
    UnionSerializer,
)
from dstl_core.codec.serializers.table_state import LinkedListSerializer
from dstl_core.codec.state_meta import (
    NAMESPACE_SERIALIZER,
    BackendStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import InvariantViolation, RestoreError, StateMigrationError
from dstl_core.state.tables.avro_evolution import adapt_avro
from dstl_core.state.tables.compatibility import WITHOUT_CLASSES, Verdict, compatibility_of_state
from dstl_core.state.tables.convertible import with_parts
from dstl_core.state.tables.keyed_state import KeyedState, describe_state, state_key, types_of
from dstl_core.state.tables.same_bytes import same_bytes
from dstl_core.state.tables.state_table import ListTable, MapTable, StateTable, join_elements
from dstl_core.state.tables.table_factory import create_table


def _without_ttl(serializer: AnySerializer) -> AnySerializer:
    return serializer.value if isinstance(serializer, TtlSerializer) else serializer


def type_after(old: AnySerializer, new: AnySerializer) -> AnySerializer:
    """The type that state of an old type has once a job declares a compatible new one.

    Subclasses of a POJO that the job does not register any more stay known, as values of them are
    still there.
    """
    if isinstance(new, TtlSerializer):
        return replace(new, value=type_after(_without_ttl(old), new.value))
    if isinstance(old, TtlSerializer):
        return type_after(old.value, new)
    if isinstance(old, PojoSerializer) and isinstance(new, PojoSerializer):
        return _pojo_after(old, new)
    if type(old) is not type(new) or len(old.nested) != len(new.nested) or not new.nested:
        return new
    after = [type_after(*pair) for pair in zip(old.nested, new.nested, strict=True)]
    return with_parts(new, after)


def _pojo_after(old: PojoSerializer, new: PojoSerializer) -> PojoSerializer:
    known = {entry.name for entry in new.registered + new.others}
    kept = [entry for entry in old.registered + old.others if entry.name not in known]
    before = {entry.name: entry.serializer for entry in old.fields}
    fields = tuple(
        entry
        if entry.serializer is None or (stored := before.get(entry.name)) is None
        else entry._replace(serializer=type_after(stored, entry.serializer))
        for entry in new.fields
    )
    return replace(new, fields=fields, others=(*new.others, *kept))


def convert(old: AnySerializer, new: AnySerializer, value: Any, now_ms: int) -> Any:
    """Converts a value of an old serializer to a compatible new serializer.

    ``now_ms`` is the time of last access for a value that gets a time to live.
    """
    if isinstance(old, TtlAwareSerializer):
        return convert(old.inner, new, value, now_ms)
    if isinstance(new, TtlAwareSerializer):
        return convert(old, new.inner, value, now_ms)
    if isinstance(old, TtlSerializer) != isinstance(new, TtlSerializer):
        if isinstance(old, TtlSerializer):
            return convert(old.value, new, value.value, now_ms)
        return TtlValue(now_ms, convert(old, _without_ttl(new), value, now_ms))
    if value is None:
        return None
    if isinstance(old, PojoSerializer) and isinstance(new, PojoSerializer):
        return _convert_pojo(old, new, value, now_ms)
    return value if old == new else _convert_parts(old, new, value, now_ms)


def _convert_parts(old: AnySerializer, new: AnySerializer, value: Any, now_ms: int) -> Any:
    """Converts the parts of a value whose type is the same kind of composite as before."""
    match old, new:
        case AvroSerializer(), AvroSerializer():
            return adapt_avro(old, new, value)
        case EnumSerializer(), EnumSerializer():
            return value  # the name of a constant
        case TtlSerializer(), TtlSerializer():
            return TtlValue(value.last_access, convert(old.value, new.value, value.value, now_ms))
        case NullableSerializer(), NullableSerializer():
            return convert(old.inner, new.inner, value, now_ms)
        case MapSerializer(), MapSerializer():
            return [
                (convert(old.key, new.key, k, now_ms), convert(old.value, new.value, v, now_ms))
                for k, v in value
            ]
        case (EitherSerializer(), EitherSerializer()) | (UnionSerializer(), UnionSerializer()):
            at = 0 if value.is_left else 1
            return Either(
                value.is_left, convert(old.nested[at], new.nested[at], value.value, now_ms)
            )
        case RowSerializer(), RowSerializer():
            return Row(value.kind, _convert_each(old, new, value.fields, now_ms))
        case TupleSerializer(), TupleSerializer():
            return _convert_each(old, new, value, now_ms)
        case (
            (ListSerializer(), ListSerializer())
            | (SetSerializer(), SetSerializer())
            | (GenericArraySerializer(), GenericArraySerializer())
            | (LinkedListSerializer(), LinkedListSerializer())
        ):
            [before], [after] = old.nested, new.nested
            return [convert(before, after, item, now_ms) for item in value]
        case _:
            raise InvariantViolation(f"{old.type_name} has no conversion to {new.type_name}")


def _convert_each(
    old: AnySerializer, new: AnySerializer, items: Sequence[Any], now_ms: int
) -> tuple[Any, ...]:
    return tuple(
        convert(before, after, item, now_ms)
        for before, after, item in zip(old.nested, new.nested, items, strict=True)
    )


def _convert_pojo(old: PojoSerializer, new: PojoSerializer, value: Pojo, now_ms: int) -> Pojo:
    if value.class_name != old.pojo_class:
        before, after = (_subclass(each, value.class_name) for each in (old, new))
        converted: Pojo = convert(before, after, value, now_ms)
        return converted
    stored = {name: serializer for name, _, serializer in old.fields}
    fields = {}
    for name, _, serializer in new.fields:
        previous = stored.get(name)
        if serializer is not None and previous is not None:
            fields[name] = convert(previous, serializer, value.fields[name], now_ms)
        else:
            # A snapshot does not show whether the Java field is boxed. A boxed one takes the
            # default of a primitive one, too.
            fields[name] = None if serializer is None else primitive_default(serializer)
    return Pojo(value.class_name, fields)


def _subclass(serializer: PojoSerializer, name: str) -> AnySerializer:
    """The type of a subclass, which ``type_after`` keeps."""
    for entry in serializer.registered + serializer.others:
        if entry.name == name and entry.serializer is not None:
            return entry.serializer
    raise InvariantViolation(f"{name} is no known subclass of {serializer.pojo_class}")


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
    table = state.tables.get(state_key(meta))
    if table is None or types_of(table.meta) == types_of(meta):
        return state.table(meta, key_serializer), False
    old, new = table.meta, meta
    if (
        old.backend_state_type is not BackendStateType.KEY_VALUE
        or dict(old.options) != dict(new.options)
        or old.serializer(NAMESPACE_SERIALIZER) != new.serializer(NAMESPACE_SERIALIZER)
        or (key_serializer != state.key_serializer)
    ):
        raise RestoreError(_difference(old, new))
    stored, wanted = old.value_serializer, new.value_serializer
    resolved = compatibility_of_state(
        stored, wanted, is_map=isinstance(table, MapTable), rules=WITHOUT_CLASSES
    )
    if resolved.verdict > Verdict.AFTER_MIGRATION:
        raise StateMigrationError(f"{_difference(old, new)} Reason: {resolved.reason}.")
    after = type_after(stored, wanted)
    meta = new.with_value_serializer(after)
    if same_bytes(stored, after):
        table.meta = meta
        return table, False
    return _migrate(state, table, meta, clock.now_ms()), True


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

    def rewrite_key(before: AnySerializer, after: AnySerializer, raw: bytes) -> bytes:
        return raw if same_bytes(before, after) else rewrite(before, after, raw)

    match table, old, new:
        case ListTable(), ListSerializer(), ListSerializer():
            parts = table.split_elements(stored)
            return join_elements([rewrite(old.element, new.element, part) for part in parts])
        case MapTable(), MapSerializer(), MapSerializer():
            return {
                rewrite_key(old.key, new.key, key): value[:1]
                if DataInput(value).read_bool()
                else b"\0" + rewrite(old.value, new.value, value[1:])
                for key, value in stored.items()
            }
        case _:
            return rewrite(old, new, stored)
