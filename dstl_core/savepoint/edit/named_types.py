"""Types that a person names for an upgrade, since neither the savepoint nor the jars show them.

A name is that of a state (``STATE`` or ``OP/STATE``), or of a field of a POJO (``CLASS.FIELD``).
The type of a state is that of its value; of list state that of an element, and of map state
``Map<KEY, VALUE>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.classfile.source_types import parse_source_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.errors import ConfigError
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames, ValuesOfStates

_OPTION = "A type (types, --type)"
_FORM = "STATE, OP/STATE, or CLASS.FIELD for a field of a POJO"


class NamedTypes:
    """The types by name.

    Args:
        snapshot: The snapshot with the states.
        named: Types as text, by name.

    Raises:
        ConfigError: A type is malformed; or a name is ambiguous, of nothing, or given twice.
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

    def of_state(self, operator: OperatorSnapshot, state: str) -> tuple[JavaType | None, ...]:
        """The arguments of the state's descriptor; none if the state is not named. ``OP/STATE``
        goes before ``STATE``.
        """
        state_type = self._of_states.get(operator.operator_id, state)
        return () if state_type is None else (state_type,)


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
