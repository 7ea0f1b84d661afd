"""Changes of POJOs that headers of savepoints do not show, and on which Flink fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, layout_of
from dstl_core.codec.kryo.flink_types import JobPojoSerializer
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.errors import ColumnValueError, FormatError, NotInColumnsError
from dstl_core.savepoint.read.entries import KeyedEntry, OperatorStateEntry
from dstl_core.savepoint.read.entry_reader import EntryReader
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.tables.compatibility import Compatibility, Verdict
from dstl_core.state.tables.convertible import parts_of

_NOTHING = Compatibility(Verdict.COMPATIBLE_AS_IS)
_SUBCLASS = Compatibility(
    Verdict.UNKNOWN,
    "values are of a subclass that the savepoint does not describe: if it changed, Flink fails or "
    "reads other values",
)


def holds(serializer: AnySerializer, *kinds: type) -> bool:
    """Whether a type is of such a kind, or has such a type inside."""
    return any(isinstance(each, kinds) for each in parts_of(serializer))


def verdict_on_removed_fields(
    stored: AnySerializer, wanted: AnySerializer, classes: JobClasses
) -> Compatibility:
    """The verdict on fields that the new POJO lacks.

    If its class still has the field, static or transient, Flink 2.2.1 fails: "a present field
    should have its associated new field serializer available". Without the class it is unknown.
    """
    verdicts = [_NOTHING]
    for part in parts_of(stored):
        if not isinstance(part, PojoSerializer):
            continue
        now = _field_names(wanted, part.pojo_class)
        gone = [] if now is None else sorted({name for name, _, _ in part.fields} - now)
        if not gone:
            continue
        class_file = classes.get(part.pojo_class)
        if class_file is None:
            reason = (
                f"field {gone[0]!r} of {part.pojo_class} is gone: if the class still has it, "
                f"static or transient, Flink fails; give the jar of the new job (--jar)"
            )
            verdicts.append(Compatibility(Verdict.UNKNOWN, reason))
            continue
        chain = [class_file, *classes.parents(class_file)]
        members = {member.name for every in chain for member in every.fields}
        left = [name for name in gone if name in members]
        if left:
            reason = (
                f"field {left[0]!r} of {part.pojo_class} is static or transient now, on which "
                f"Flink fails; remove or rename it"
            )
            verdicts.append(Compatibility(Verdict.INCOMPATIBLE, reason))
    return max(verdicts, key=lambda compatibility: compatibility.verdict)


def _field_names(serializer: AnySerializer, pojo_class: str) -> set[str] | None:
    """The fields of a POJO inside a type; None if it is not there."""
    for part in parts_of(serializer):
        if isinstance(part, PojoSerializer) and part.pojo_class == pojo_class:
            return {name for name, _, _ in part.fields}
    return None


def values_of_subclasses(operator: OperatorSnapshot, info: StateInfo) -> Compatibility:
    """Whether a state has values of subclasses that no header lists. It reads states with POJOs.

    Flink reads such values with the current subclass. If the header lists every class, the check
    decodes by columns; otherwise value by value.
    """
    types = [each for _, each in info.meta.serializers]
    if not any(holds(each, PojoSerializer) for each in types) or _fits_columns(operator, info):
        return _NOTHING
    listed = {name for each in types for name in _listed(each)}
    # Without a jar of the old job such values are not readable.
    has_jar = any(holds(each, JobPojoSerializer) for each in types)
    reader = EntryReader(operator, info.name)
    for entry in reader:
        if reader.unreadable or (has_jar and not listed.issuperset(_pojos(entry))):
            return _SUBCLASS
    return _SUBCLASS if reader.unreadable else _NOTHING


def _fits_columns(operator: OperatorSnapshot, info: StateInfo) -> bool:
    """Whether kernels decode all values of a keyed state, none of them kept as its bytes."""
    if info.kind.startswith("op-"):
        return False
    try:
        for _, serializer in info.meta.serializers:
            layout_of(serializer, EXACT_OPTIONS)
        for _ in operator.flat(info.name, types=EXACT_OPTIONS).read():
            pass
    except (NotInColumnsError, ColumnValueError, FormatError):
        return False
    return True


def _listed(serializer: AnySerializer) -> Iterator[str]:
    """The classes of POJOs that a type describes."""
    for part in parts_of(serializer):
        if isinstance(part, PojoSerializer):
            yield part.pojo_class
            yield from (name for name, _, known in part.registered + part.others if known)


def _pojos(value: Any) -> Iterator[str]:
    if isinstance(value, Pojo):
        yield value.class_name
        inner: Iterable[Any] = value.fields.values()
    elif isinstance(value, KeyedEntry):
        inner = (value.key, value.value)
    elif isinstance(value, OperatorStateEntry):
        inner = (value.value,)
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif isinstance(value, dict):
        inner = [*value, *value.values()]
    else:
        return
    for serializer in inner:
        yield from _pojos(serializer)
