"""Changes of POJOs that headers of savepoints do not show, and on which Flink fails."""

from __future__ import annotations

from collections.abc import Iterator

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.errors import ConfigError
from dstl_core.savepoint.check.compatibility import Compatibility, Verdict
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

_NOTHING = Compatibility(Verdict.COMPATIBLE_AS_IS)


def parts_of(serializer: AnySerializer) -> Iterator[AnySerializer]:
    """A type and all types inside it."""
    yield serializer
    for each in serializer.nested:
        yield from parts_of(each)


def holds(serializer: AnySerializer, *kinds: type) -> bool:
    """Whether a type is of such a kind, or has such a type inside."""
    return any(isinstance(each, kinds) for each in parts_of(serializer))


def check_loaded_without_jars(snapshot: Snapshot) -> None:
    """Raises ConfigError for a snapshot whose values are read with classes of a job."""
    if not snapshot.kryo.layouts.classes.is_empty:
        raise ConfigError(
            "The snapshot was loaded with jars, which may be those of another version of the job; "
            "load it without (jars)."
        )


def fields_that_are_gone(
    stored: AnySerializer, wanted: AnySerializer, classes: JobClasses
) -> Compatibility:
    """What becomes of a field that a POJO type has no more.

    If its class still has the field, static or transient, Flink 2.2.1 fails: "a present field
    should have its associated new field serializer available". Without the class it is unknown.
    """
    found = [_NOTHING]
    for each in parts_of(stored):
        if not isinstance(each, PojoSerializer):
            continue
        now = _field_names(wanted, each.pojo_class)
        gone = [] if now is None else sorted({name for name, _, _ in each.fields} - now)
        if not gone:
            continue
        own = classes.get(each.pojo_class)
        if own is None:
            reason = (
                f"field {gone[0]!r} of {each.pojo_class} is gone: if the class still has it, "
                f"static or transient, Flink fails; give the jar of the new job (--jar)"
            )
            found.append(Compatibility(Verdict.UNKNOWN, reason))
            continue
        chain = [own, *classes.parents(own)]
        members = {member.name for every in chain for member in every.fields}
        left = [name for name in gone if name in members]
        if left:
            reason = (
                f"field {left[0]!r} of {each.pojo_class} is static or transient now, on which "
                f"Flink fails; remove or rename it"
            )
            found.append(Compatibility(Verdict.INCOMPATIBLE, reason))
    return max(found, key=lambda each: each.verdict)


def _field_names(serializer: AnySerializer, pojo_class: str) -> set[str] | None:
    """The fields of a POJO inside a type; None if it is not there."""
    for part in parts_of(serializer):
        if isinstance(part, PojoSerializer) and part.pojo_class == pojo_class:
            return {name for name, _, _ in part.fields}
    return None


def values_of_subclasses(operator: OperatorSnapshot, info: StateInfo) -> Compatibility:
    """Whether a state has values of subclasses that no header lists. It reads states with POJOs.

    Flink reads such values by the subclass as it is now. The snapshot is loaded without jars.
    """
    if not any(holds(each, PojoSerializer) for _, each in info.meta.serializers):
        return _NOTHING
    reader = EntryReader(operator, info.name)
    for _ in reader:
        if reader.unreadable:
            break
    if not reader.unreadable:
        return _NOTHING
    return Compatibility(
        Verdict.UNKNOWN,
        "values are of a subclass that the savepoint does not describe: if it changed, Flink fails "
        "or reads other values",
    )
