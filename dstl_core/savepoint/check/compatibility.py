"""Decides whether a job's type can restore state of another type, by Flink's schema evolution.

Source: ``TypeSerializerSnapshot.resolveSchemaCompatibility`` and its implementations for POJOs,
enums, rows and the composites of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from dstl_core.codec.serializers import (
    AnySerializer,
    MapSerializer,
    TtlSerializer,
    UnknownSerializer,
)
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlAwareSerializer
from dstl_core.codec.serializers.structs import EnumSerializer
from dstl_core.state.tables.avro_evolution import can_read_avro


class Verdict(IntEnum):
    """The verdicts, from best to worst."""

    COMPATIBLE_AS_IS = 0
    AFTER_MIGRATION = 1
    UNKNOWN = 2
    INCOMPATIBLE = 3


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A verdict and its reason, which names the place inside the type."""

    verdict: Verdict
    reason: str = ""


_SAME = Compatibility(Verdict.COMPATIBLE_AS_IS)


def compatibility_of(stored: AnySerializer, wanted: AnySerializer) -> Compatibility:
    """Flink's decision for a job that declares ``wanted`` for state of type ``stored``."""
    if stored == wanted:
        return _SAME
    if isinstance(stored, TtlAwareSerializer):
        return compatibility_of(stored.inner, wanted)
    if isinstance(wanted, TtlAwareSerializer):
        return compatibility_of(stored, wanted.inner)
    if isinstance(stored, TtlSerializer) != isinstance(wanted, TtlSerializer):
        return _time_to_live(stored, wanted)
    opaque = (UnknownSerializer, KryoSerializer)
    if isinstance(stored, opaque) or isinstance(wanted, opaque):
        return Compatibility(
            Verdict.UNKNOWN, f"only the job's own classes can compare {stored} with {wanted}"
        )
    if type(stored) is not type(wanted):
        return _changed(stored, wanted)
    if isinstance(stored, AvroSerializer) and isinstance(wanted, AvroSerializer):
        return _avro(stored, wanted)
    if isinstance(stored, PojoSerializer) and isinstance(wanted, PojoSerializer):
        return _pojo(stored, wanted)
    if isinstance(stored, EnumSerializer) and isinstance(wanted, EnumSerializer):
        return _enum(stored, wanted)
    return _nested(stored, wanted)


def compatibility_of_state(
    stored: AnySerializer, wanted: AnySerializer, *, is_map: bool
) -> Compatibility:
    """Like ``compatibility_of``, for the whole value of a state.

    The user keys of map state never migrate, since RocksDB stores them in the keys of its records
    (``RocksDBKeyedStateBackend.checkMapStateKeySchemaCompatibility``).
    """
    if is_map and isinstance(stored, MapSerializer) and isinstance(wanted, MapSerializer):
        key = compatibility_of(stored.key, wanted.key)
        if key.verdict is Verdict.AFTER_MIGRATION:
            return Compatibility(
                Verdict.INCOMPATIBLE, f"the user keys of map state cannot migrate: {key.reason}"
            )
    return compatibility_of(stored, wanted)


def _time_to_live(stored: AnySerializer, wanted: AnySerializer) -> Compatibility:
    """Flink 2.2 adds a time to live to values on restore, or removes it."""
    is_stored = isinstance(stored, TtlSerializer)
    inner = compatibility_of(
        stored.value if isinstance(stored, TtlSerializer) else stored,
        wanted.value if isinstance(wanted, TtlSerializer) else wanted,
    )
    what = "a time to live is removed" if is_stored else "a time to live is added"
    return _worst([inner, Compatibility(Verdict.AFTER_MIGRATION, what)])


def _avro(stored: AvroSerializer, wanted: AvroSerializer) -> Compatibility:
    if can_read_avro(stored, wanted):
        return Compatibility(Verdict.AFTER_MIGRATION, "the Avro schema changed")
    return Compatibility(
        Verdict.INCOMPATIBLE, f"the Avro schema of {wanted.java_class} cannot read the stored one"
    )


def _changed(stored: AnySerializer, wanted: AnySerializer) -> Compatibility:
    return Compatibility(
        Verdict.INCOMPATIBLE, f"the type changed from {stored.type_name} to {wanted.type_name}"
    )


def _nested(stored: AnySerializer, wanted: AnySerializer) -> Compatibility:
    if not stored.nested or len(stored.nested) != len(wanted.nested):
        return _changed(stored, wanted)
    return _worst(
        Compatibility(found.verdict, f"in {stored.type_name}: {found.reason}")
        for found in map(compatibility_of, stored.nested, wanted.nested)
        if found.verdict is not Verdict.COMPATIBLE_AS_IS
    )


def _pojo(stored: PojoSerializer, wanted: PojoSerializer) -> Compatibility:
    if stored.pojo_class != wanted.pojo_class:
        return _changed(stored, wanted)
    old = {name: serializer for name, _, serializer in stored.fields}
    new = {name: serializer for name, _, serializer in wanted.fields}
    found = []
    for name in old.keys() & new.keys():
        was, now = old[name], new[name]
        if was is None or now is None:
            found.append(Compatibility(Verdict.UNKNOWN, f"the type of field {name!r} is unknown"))
            continue
        inner = compatibility_of(was, now)
        if inner.verdict is not Verdict.COMPATIBLE_AS_IS:
            found.append(Compatibility(inner.verdict, f"field {name!r}: {inner.reason}"))
    for names, what in (
        (new.keys() - old.keys(), "new fields get their default"),
        (old.keys() - new.keys(), "removed fields are dropped"),
    ):
        if names:
            text = ", ".join(sorted(names))
            found.append(Compatibility(Verdict.AFTER_MIGRATION, f"{what}: {text}"))
    return _worst(found)


def _enum(stored: EnumSerializer, wanted: EnumSerializer) -> Compatibility:
    if stored.enum_class != wanted.enum_class:
        return _changed(stored, wanted)
    missing = [each for each in stored.constants if each not in wanted.constants]
    if missing:
        return Compatibility(
            Verdict.INCOMPATIBLE, f"{stored.enum_class} lost constants: {', '.join(missing)}"
        )
    return _SAME  # Flink keeps the stored order and appends new constants


def _worst(found: Iterable[Compatibility]) -> Compatibility:
    return max(found, key=lambda each: each.verdict, default=_SAME)
