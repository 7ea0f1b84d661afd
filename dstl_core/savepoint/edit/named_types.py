"""Types that a person names for an upgrade, since neither the savepoint nor the jars show them.

A name is that of a state (``STATE`` or ``OPERATOR/STATE``), or of a field of a POJO
(``CLASS.FIELD``). The type of a state is that of its value; of list state that of an element, and
of map state ``Map<KEY, VALUE>``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.classfile.source_types import parse_source_type
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.errors import ConfigError


class NamedTypes:
    """The types by name.

    Args:
        given: Types as text, by name.

    Raises:
        ConfigError: A type is malformed.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._types = {name: parse_source_type(text) for name, text in given.items()}

    def of_state(self, operator: str, state: str) -> tuple[JavaType | None, ...]:
        """The arguments of the state's descriptor; none if the state is not named."""
        found = self._types.get(f"{operator}/{state}", self._types.get(state))
        return () if found is None else (found,)

    @property
    def fields(self) -> Mapping[str, JavaType]:
        """Types by ``CLASS.FIELD``."""
        return self._types

    def check(
        self, states: Iterable[tuple[str, str, Iterable[AnySerializer]]], classes: JobClasses
    ) -> None:
        """Checks that each name is that of a state, or of a field in one of their types.

        Args:
            states: Operator, name and types of each state.
            classes: Of the job.

        Raises:
            ConfigError: A name is of neither.
        """
        known: set[str] = set()
        for operator, state, types in states if self._types else ():
            known |= {state, f"{operator}/{state}"}
            for each in types:
                known.update(_fields_of(each))
        for name in self._types:
            if name not in known and not _is_field(name, classes):
                raise ConfigError(
                    f"A type is given for {name!r}, which is not there: expected a state (STATE "
                    f"or OPERATOR/STATE) or a field of a POJO (CLASS.FIELD); the plan shows names "
                    f"(types, --type)."
                )


def _is_field(name: str, classes: JobClasses) -> bool:
    owner, _, field = name.rpartition(".")
    found = classes.get(owner)
    chain = [] if found is None else [found, *classes.parents(found)]
    return any(member.name == field for each in chain for member in each.fields)


def _fields_of(found: AnySerializer) -> Iterator[str]:
    if isinstance(found, PojoSerializer):
        for name, _, _ in found.fields:
            yield f"{found.pojo_class}.{name}"
    for each in found.nested:
        yield from _fields_of(each)
