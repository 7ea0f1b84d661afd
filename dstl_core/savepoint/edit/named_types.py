"""Types that a person names for an upgrade, since neither the savepoint nor the jars show them.

A name is that of a state (``STATE`` or ``OP/STATE``), or of a field of a POJO (``CLASS.FIELD``).
The type of a state is that of its value; of list state that of an element, and of map state
``Map<KEY, VALUE>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.classfile.source_types import OF_FLINK, parse_source_type
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.type_changes import COLLECTIONS
from dstl_core.codec.serializers import AnySerializer, ListSerializer, TtlSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ConfigError
from dstl_core.savepoint.edit.types_of_new_job import has_scala
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import OperatorOrState, SnapshotNames, ValuesOfStates

_OPTION = "A type (types, --type)"
_FORM = "STATE, OP/STATE, or CLASS.FIELD for a field of a POJO"


class NamedTypes:
    """The types by name.

    Args:
        snapshot: The snapshot with the states.
        named: Types as text, by name.

    Raises:
        ConfigError: A type is malformed; or a name is ambiguous, of nothing, given twice, or of
            states that say their types themselves.
    """

    def __init__(self, snapshot: Snapshot, named: Mapping[str, str]) -> None:
        self.fields: dict[str, JavaType] = {}
        """Types by ``CLASS.FIELD``."""
        names = SnapshotNames(snapshot)
        self._of_states = ValuesOfStates[JavaType](names, _OPTION, _FORM)
        fields = set(_fields_in(snapshot)) if named else set()
        for name, text in named.items():
            java_type = parse_source_type(text, _OPTION)
            if name in fields or _is_field(name, snapshot.kryo.layouts.classes):
                if names.is_state(name):
                    raise ConfigError(
                        f"{_OPTION} is ambiguous: {name!r} is a state and a field of a POJO; give "
                        f"the jar that shows what the field holds (--jar)."
                    )
                self.fields[name] = java_type
                continue
            self._of_states.put(name, java_type)
            _check_taken(name, text, java_type, names.states(_OPTION, name, _FORM))

    def of_state(self, operator: OperatorSnapshot, state: str) -> tuple[JavaType | None, ...]:
        """The arguments of the state's descriptor; none if the state is not named. ``OP/STATE``
        goes before ``STATE``.
        """
        state_type = self._of_states.get(operator.operator_id, state)
        return () if state_type is None else (state_type,)


def _check_taken(
    name: str, text: str, java_type: JavaType, places: Sequence[OperatorOrState]
) -> None:
    infos = [
        (place, info)
        for place in places
        for info in place.operator.states + place.operator.operator_states
        if info.name == place.state
    ]
    if not any(_takes(info.meta, java_type) for _, info in infos):
        states = ", ".join(
            f"{place.operator.label}/{info.name} is {info.kind} of {info.type}"
            for place, info in infos
        )
        raise ConfigError(
            f"{_OPTION} does not fit: got {name}={text}, but {states}, which says its type itself; "
            f"leave it out, or name another state ({_FORM})."
        )


def _takes(meta: StateMetaInfoSnapshot, java_type: JavaType) -> bool:
    """Whether a state needs a person's word about its type, and may have this one."""
    if has_scala(meta):
        return True
    value = meta.value_serializer
    while isinstance(value, ListSerializer | TtlSerializer):
        [value] = value.nested
    if isinstance(value, ReadableKryoSerializer):
        of_messages = value.classes.layouts.message(value.java_class) is not None
        stored, named = value.java_class, OF_FLINK.get(java_type.name, java_type.name)
        collections = {stored, named} & {*COLLECTIONS}  # the plan says whether they are the same
        is_same = stored.replace("$", ".") == named.replace("$", ".")
        return bool(of_messages or collections or is_same)
    return any(_holds_kryo_outside_pojos(serializer) for _, serializer in meta.serializers)


def _holds_kryo_outside_pojos(serializer: AnySerializer) -> bool:
    """Whether a type has values of Kryo that are no fields of POJOs, which have own names."""
    if isinstance(serializer, PojoSerializer):
        return False
    return isinstance(serializer, KryoSerializer) or any(
        map(_holds_kryo_outside_pojos, serializer.nested)
    )


def _fields_in(snapshot: Snapshot) -> Iterator[str]:
    """The fields of POJOs in the types of all states."""
    for operator in snapshot.operators:
        for info in operator.states + operator.operator_states:
            for _, serializer in info.meta.serializers:
                yield from _fields_of(serializer)


def _is_field(name: str, classes: JobClasses) -> bool:
    owner, _, field = name.rpartition(".")
    class_file = classes.get(owner)
    chain = [] if class_file is None else [class_file, *classes.parents(class_file)]
    return any(member.name == field for each in chain for member in each.fields)


def _fields_of(serializer: AnySerializer) -> Iterator[str]:
    if isinstance(serializer, PojoSerializer):
        for name, _, _ in serializer.fields:
            yield f"{serializer.pojo_class}.{name}"
    for inner in serializer.nested:
        yield from _fields_of(inner)
