"""Decides whether a job's type can restore state of another type, by Flink's schema evolution.

A type is compatible only if Flink restores it and every value keeps its meaning. If Flink restores
it without an error but may read other values, the verdict is unknown or incompatible.

Source: ``TypeSerializerSnapshot.resolveSchemaCompatibility`` and its implementations for POJOs,
enums, rows, Kryo and the composites of Flink 2.2.1; restores in Flink 1.20.5, 2.2.1 and 2.3.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import product

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
    TupleSerializer,
    UnknownSerializer,
)
from dstl_core.codec.serializers.arrays import GenericArraySerializer
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer, ValueClassSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlAwareSerializer
from dstl_core.codec.serializers.structs import EnumSerializer, NullableSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.display import cut_text
from dstl_core.errors import ConfigError
from dstl_core.state.tables.avro_evolution import can_read_avro
from dstl_core.state.tables.convertible import OPAQUE, outer_of, parts_of, unconvertible_type
from dstl_core.state.tables.same_bytes import same_bytes


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

FlinkVersion = tuple[int, int]
FLINK_VERSIONS: tuple[FlinkVersion, ...] = ((1, 20), (2, 0), (2, 1), (2, 2), (2, 3))
"""The versions with known rules."""


def parse_flink_version(text: str) -> FlinkVersion:
    """Parses a version of Flink, e.g. ``2.2`` or ``2.2.1``.

    Raises:
        ConfigError: The rules of the version are not known.
    """
    for version in FLINK_VERSIONS:
        if text.split(".")[:2] == [str(part) for part in version]:
            return version
    known = ", ".join(map(version_text, FLINK_VERSIONS))
    raise ConfigError(f"The version of Flink is wrong: expected one of {known}, got {text!r}.")


def version_text(version: FlinkVersion) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True, slots=True)
class Rules:
    """Flink versions, which affect a verdict in addition to the types.

    Attributes:
        to: The version of Flink that restores; None for the newest.
        stored_line: Major version of the Flink that wrote the values, 1 or 2; None if no file
            records it. Flink 1 writes values with Kryo 2, Flink 2 with Kryo 5.
        has_classes: Whether the job that restores has Java classes. They may have changed where
            snapshots are equal. A job of dstl has none: its types are all that it knows.
    """

    to: FlinkVersion | None = None
    stored_line: int | None = 2
    has_classes: bool = True

    @property
    def version(self) -> FlinkVersion:
        return self.to or FLINK_VERSIONS[-1]


NEWEST = Rules()
WITHOUT_CLASSES = Rules(has_classes=False)
"""The rules of a restore by dstl."""


def compatibility_of(
    stored: AnySerializer, wanted: AnySerializer, rules: Rules = NEWEST
) -> Compatibility:
    """Flink's decision for a job that declares ``wanted`` for state of type ``stored``."""
    resolved = _resolved(stored, wanted, rules)
    if (
        rules.has_classes
        or resolved.verdict > Verdict.AFTER_MIGRATION
        or same_bytes(stored, wanted)
    ):
        return resolved
    if (name := unconvertible_type(stored, wanted)) is not None:
        return Compatibility(
            Verdict.UNKNOWN, f"values of {name} are not readable, so they cannot be rewritten"
        )
    return resolved


def _resolved(stored: AnySerializer, wanted: AnySerializer, rules: Rules) -> Compatibility:
    if stored == wanted and not any(_hides_changes(part, rules) for part in parts_of(stored)):
        return _SAME
    if isinstance(stored, TtlAwareSerializer):
        return _resolved(stored.inner, wanted, rules)
    if isinstance(wanted, TtlAwareSerializer):
        return _resolved(stored, wanted.inner, rules)
    if isinstance(stored, TtlSerializer) != isinstance(wanted, TtlSerializer):
        return _time_to_live(stored, wanted, rules)
    if isinstance(stored, OPAQUE) and stored == wanted and not rules.has_classes:
        return _SAME
    is_scala = rules.has_classes and (_is_of_scala(stored) or _is_of_scala(wanted))
    if is_scala or isinstance(stored, UnknownSerializer) or isinstance(wanted, UnknownSerializer):
        return _unknown(stored, wanted, rules)
    if not _are_one_kind(stored, wanted):
        return _changed(stored, wanted)
    match stored, wanted:
        case KryoSerializer(), KryoSerializer():
            return _kryo(stored, wanted, rules)
        case ValueClassSerializer(), ValueClassSerializer():
            return _value_class(stored, wanted)
        case AvroSerializer(), AvroSerializer():
            return _SAME if stored == wanted else _avro(stored, wanted)
        case PojoSerializer(), PojoSerializer():
            return _pojo(stored, wanted, rules)
        case EnumSerializer(), EnumSerializer():
            return _enum(stored, wanted)
        case RowDataSerializer(), RowDataSerializer() if stored.types != wanted.types:
            return _sql_row(stored, wanted)
    return _nested(stored, wanted, rules)


def _hides_changes(part: AnySerializer, rules: Rules) -> bool:
    """Whether equal types may have different values."""
    if isinstance(part, PojoSerializer):
        return bool(part.others)  # they do not count in comparisons of types
    return rules.has_classes and (isinstance(part, OPAQUE) or _is_of_scala(part))


def _are_one_kind(stored: AnySerializer, wanted: AnySerializer) -> bool:
    # A jar makes subclasses of these two.
    return type(stored) is type(wanted) or any(
        isinstance(stored, kind) and isinstance(wanted, kind)
        for kind in (PojoSerializer, KryoSerializer)
    )


def compatibility_of_state(
    stored: AnySerializer, wanted: AnySerializer, *, is_map: bool, rules: Rules = NEWEST
) -> Compatibility:
    """Like ``compatibility_of``, for the whole value of a state.

    The user keys of map state never migrate, since RocksDB stores them in the keys of its records
    (``RocksDBKeyedStateBackend.checkMapStateKeySchemaCompatibility``).
    """
    if is_map and isinstance(stored, MapSerializer) and isinstance(wanted, MapSerializer):
        key = compatibility_of(stored.key, wanted.key, rules)
        if key.verdict is Verdict.AFTER_MIGRATION:
            return Compatibility(
                Verdict.INCOMPATIBLE, f"the user keys of map state cannot migrate: {key.reason}"
            )
    return compatibility_of(stored, wanted, rules)


def columns_that_may_swap(serializer: AnySerializer) -> str | None:
    """The type that several columns of a SQL row have, if its snapshot has no names of columns.

    Flink considers the row unchanged when such columns swap places.
    """
    for part in parts_of(serializer):
        if isinstance(part, RowDataSerializer) and part.names is None:
            for kind, count in Counter(map(str, part.types)).items():
                if count > 1:
                    return kind
    return None


# ------------------------------------------------------------------------- classes of the job

_OF_SCALA = ("org.apache.flink.api.scala.", "org.apache.flink.table.api.typeutils.")
_VALUES_OF_JAVA = frozenset(
    [
        f"java.time.{name}"
        for name in (
            "Duration",
            "LocalDate",
            "LocalDateTime",
            "LocalTime",
            "MonthDay",
            "OffsetDateTime",
            "Period",
            "Year",
            "YearMonth",
            "ZonedDateTime",
            "ZoneOffset",
        )
    ]
    + [
        f"java.util.{name}"
        for name in (
            "BitSet",
            "Currency",
            "Locale",
            "OptionalDouble",
            "OptionalInt",
            "OptionalLong",
            "UUID",
        )
    ]
    + [f"java.util.concurrent.atomic.Atomic{each}" for each in ("Boolean", "Integer", "Long")]
    + ["java.net.URI"]
)
"""Java classes that contain no objects of other classes."""


def _is_of_scala(serializer: AnySerializer) -> bool:
    return _class_of(serializer).startswith(_OF_SCALA)


def _class_of(serializer: AnySerializer) -> str:
    if isinstance(serializer, UnknownSerializer):
        return serializer.unknown_class
    return serializer.snapshot_class


def _unknown(stored: AnySerializer, wanted: AnySerializer, rules: Rules) -> Compatibility:
    if _is_of_scala(stored) and rules.version >= (2, 0):
        return Compatibility(
            Verdict.INCOMPATIBLE, f"Flink 2.0 removed {_class_of(stored)}, of Scala's API"
        )
    return Compatibility(
        Verdict.UNKNOWN, f"only the job's own classes can compare {stored} with {wanted}"
    )


def _kryo(stored: KryoSerializer, wanted: KryoSerializer, rules: Rules) -> Compatibility:
    name = stored.java_class
    if name != wanted.java_class:
        return _changed(stored, wanted)
    to = rules.version[0]
    if rules.stored_line not in (None, to):
        advice = "; convert the savepoint (dstl upgrade)" if to == 2 else ""
        return Compatibility(
            Verdict.INCOMPATIBLE,
            f"Flink {rules.stored_line} wrote {name} with another Kryo than Flink {to} reads: "
            f"reading a value fails, or gives another value without an error{advice}",
        )
    missing = {entry.name for entry in stored.maps[0]} - {entry.name for entry in wanted.maps[0]}
    if missing:
        text = ", ".join(sorted(missing))
        return Compatibility(Verdict.INCOMPATIBLE, f"Kryo registrations are missing: {text}")
    if rules.stored_line is None:
        return Compatibility(
            Verdict.UNKNOWN,
            f"no file tells whether Kryo of Flink 1 or of Flink 2 wrote the values of {name}",
        )
    if name not in _VALUES_OF_JAVA:
        return Compatibility(
            Verdict.UNKNOWN,
            f"Kryo stores no field names: if a class inside {name} has changed, Flink reads other "
            f"values without an error",
        )
    return _SAME


def _value_class(stored: ValueClassSerializer, wanted: ValueClassSerializer) -> Compatibility:
    if stored != wanted:
        return _changed(stored, wanted)
    return Compatibility(
        Verdict.UNKNOWN, f"{stored.java_class} writes itself: only its code tells what changed"
    )


# ------------------------------------------------------------------------------ types of Flink


def _time_to_live(stored: AnySerializer, wanted: AnySerializer, rules: Rules) -> Compatibility:
    """Flink 2.2 adds a time to live to values on restore, or removes it.

    It takes every serializer of a list or map for that of list or map state, whose elements have
    the time to live, so it refuses a value that is a list or a map as a whole.
    """
    is_stored = isinstance(stored, TtlSerializer)
    plain = stored if not isinstance(stored, TtlSerializer) else wanted
    inner = _resolved(
        stored.value if isinstance(stored, TtlSerializer) else stored,
        wanted.value if isinstance(wanted, TtlSerializer) else wanted,
        rules,
    )
    what = "a time to live is removed" if is_stored else "a time to live is added"
    verdict = Verdict.AFTER_MIGRATION
    if rules.version < (2, 0):
        verdict, what = Verdict.INCOMPATIBLE, f"{what}, which Flink before 2.0 refuses"
    elif type(plain) in (ListSerializer, MapSerializer):
        verdict, what = (
            Verdict.INCOMPATIBLE,
            f"{what}, which Flink refuses for a value of type {plain.type_name}",
        )
    elif rules.version < (2, 2):
        verdict, what = (
            Verdict.UNKNOWN,
            f"{what}, which not every backend of Flink before 2.2 takes",
        )
    return _worst([inner, Compatibility(verdict, what)])


def _sql_row(stored: RowDataSerializer, wanted: RowDataSerializer) -> Compatibility:
    """Flink compares logical types with their length, precision and nullability."""
    old, new = stored.types, wanted.types
    if len(old) != len(new):
        what = f"the row had {len(old)} columns and has {len(new)}"
    else:
        at = next(
            place for place, pair in enumerate(zip(old, new, strict=True)) if len({*pair}) > 1
        )
        what = f"column {at} of the row changed from {old[at]} to {new[at]}"
    return Compatibility(Verdict.INCOMPATIBLE, what)


def _avro(stored: AvroSerializer, wanted: AvroSerializer) -> Compatibility:
    if can_read_avro(stored, wanted):
        return Compatibility(Verdict.AFTER_MIGRATION, "the Avro schema changed")
    return Compatibility(
        Verdict.INCOMPATIBLE, f"the Avro schema of {wanted.java_class} cannot read the stored one"
    )


def _changed(stored: AnySerializer, wanted: AnySerializer) -> Compatibility:
    was, now = cut_text(stored.type_name), cut_text(wanted.type_name)
    return Compatibility(Verdict.INCOMPATIBLE, f"the type changed from {was} to {now}")


def _nested(stored: AnySerializer, wanted: AnySerializer, rules: Rules) -> Compatibility:
    if not stored.nested or len(stored.nested) != len(wanted.nested):
        return _SAME if stored == wanted else _changed(stored, wanted)
    verdicts = [_resolved(*pair, rules) for pair in zip(stored.nested, wanted.nested, strict=True)]
    inner = [
        Compatibility(part.verdict, f"in {stored.type_name}: {part.reason}")
        for part in verdicts
        if part.verdict is not Verdict.COMPATIBLE_AS_IS
    ]
    if outer_of(stored) != outer_of(wanted):
        is_known = isinstance(stored, _OUTER_NEVER_CHANGES)
        inner.append(
            Compatibility(
                Verdict.INCOMPATIBLE if is_known else Verdict.UNKNOWN,
                f"{stored.type_name} differs in what its snapshot says beside its parts",
            )
        )
    return _worst(inner)


_OUTER_NEVER_CHANGES = (GenericArraySerializer, NullableSerializer, TupleSerializer)
"""Flink refuses another class of an array or tuple, and another padding."""


def _pojo(stored: PojoSerializer, wanted: PojoSerializer, rules: Rules) -> Compatibility:
    if stored.pojo_class != wanted.pojo_class:
        return _changed(stored, wanted)
    old = {name: serializer for name, _, serializer in stored.fields}
    new = {name: serializer for name, _, serializer in wanted.fields}
    verdicts = _by_name("field", old, new, rules)
    verdicts += _by_name("subclass", _subclasses(stored), _subclasses(wanted), rules)
    for name, other in product(sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())):
        if old[name] == new[other]:
            verdicts.append(
                Compatibility(
                    Verdict.UNKNOWN,
                    f"field {name!r} is gone and {other!r} of the same type is new: if it was "
                    f"renamed, Flink loses its values without an error",
                )
            )
    for names, what in (
        (new.keys() - old.keys(), "new fields get their default"),
        (old.keys() - new.keys(), "removed fields are dropped"),
    ):
        if names:
            text = ", ".join(sorted(names))
            verdicts.append(Compatibility(Verdict.AFTER_MIGRATION, f"{what}: {text}"))
    return _worst(verdicts)


def _subclasses(serializer: PojoSerializer) -> dict[str, AnySerializer | None]:
    entries = serializer.registered + serializer.others
    return {name: each for name, _, each in entries}


def _by_name(
    what: str,
    old: dict[str, AnySerializer | None],
    new: dict[str, AnySerializer | None],
    rules: Rules,
) -> list[Compatibility]:
    """Compares the fields or subclasses that both types have."""
    verdicts = []
    for name in sorted(old.keys() & new.keys()):
        was, now = old[name], new[name]
        if was is None or now is None:
            verdicts.append(
                Compatibility(Verdict.UNKNOWN, f"the type of {what} {name!r} is unknown")
            )
            continue
        inner = _resolved(was, now, rules)
        if inner.verdict is not Verdict.COMPATIBLE_AS_IS:
            verdicts.append(Compatibility(inner.verdict, f"{what} {name!r}: {inner.reason}"))
    return verdicts


def _enum(stored: EnumSerializer, wanted: EnumSerializer) -> Compatibility:
    if stored.enum_class != wanted.enum_class:
        return _changed(stored, wanted)
    missing = [each for each in stored.constants if each not in wanted.constants]
    if missing:
        return Compatibility(
            Verdict.INCOMPATIBLE, f"{stored.enum_class} lost constants: {', '.join(missing)}"
        )
    return _SAME  # Flink keeps the stored order and appends new constants


def _worst(parts: Iterable[Compatibility]) -> Compatibility:
    return max(parts, key=lambda part: part.verdict, default=_SAME)
