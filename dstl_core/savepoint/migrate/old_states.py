"""Where the old state of a rule is: in the operator's own sources, or in another operator."""

from __future__ import annotations

from collections.abc import Sequence

from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import StateRule
from dstl_core.savepoint.migrate.migration_plan import OperatorMigration
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import OperatorOrState, SnapshotNames


class OldStates:
    """Finds the states of the old job that rules name.

    Args:
        source: The savepoint of the old job.
    """

    def __init__(self, source: Snapshot) -> None:
        self._names = SnapshotNames(source)

    def places(
        self, name: str, rule: StateRule | None, sources: Sequence[OperatorSnapshot]
    ) -> list[OperatorOrState]:
        """Where the old state may be: without ``from`` in every source, under the name that it has
        in the new job. Otherwise ``from`` is ``STATE`` of the sources, or ``OP/STATE``.

        Args:
            name: The name in the new job.
            rule: The rule of the state.
            sources: The old operators of the new operator.

        Raises:
            ConfigError: ``from`` is ambiguous.
        """
        if rule is None or rule.from_ is None:
            return [OperatorOrState(operator, name) for operator in sources]
        return self._names.states_among("from", rule.from_, sources)


def stored_at(places: Sequence[OperatorOrState]) -> StateInfo | None:
    """The first state that is stored at one of some places."""
    for place in places:
        operator = place.operator.with_timer_queues
        for info in operator.states + operator.operator_states:
            if info.name == place.state:
                return info
    return None


def missing_state(
    plan: OperatorMigration, places: Sequence[OperatorOrState], name: str
) -> ConfigError:
    """The error for a name of no old state. It lists the states of the old operator."""
    sources = [each.operator for each in places] or plan.sources
    known = ", ".join(info.name for op in sources for info in op.states + op.operator_states)
    return ConfigError(
        f"State {(places[0].state if places else name)!r} is not in the old operator of "
        f"{plan.label!r}; it has: {known or 'none'}."
    )
