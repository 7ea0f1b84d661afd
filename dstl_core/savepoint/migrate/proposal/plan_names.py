"""What compiled plans add to a declared migration: names of columns, and questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dstl_core.cached_property import cached_property
from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import Column, Expression, OfOneValue
from dstl_core.savepoint.migrate.declaration import Migration, OperatorRule, StateRule
from dstl_core.savepoint.migrate.old_states import OldStates
from dstl_core.savepoint.migrate.proposal.matching import PlannedOperator, usable_plans
from dstl_core.savepoint.migrate.proposal.named_columns import added_columns, forgotten_changes
from dstl_core.savepoint.migrate.proposal.plan_columns import PlanColumns
from dstl_core.savepoint.migrate.proposal.proposal import propose
from dstl_core.savepoint.migrate.proposal.proposal_file import load_plans
from dstl_core.savepoint.migrate.proposal.sql_state import OperatorColumns, StateColumn
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.tables.compatibility import columns_that_may_swap


class PlanNames:
    """The names of columns in the savepoints of a migration.

    Args:
        migration: The declaration. Without plans in it there are no names.
        source: The savepoint of the old job.
        template: A savepoint of the new job; None if there is none.

    Raises:
        ConfigError: A plan is damaged, or only one is given.
        StateFileNotFoundError: A plan is missing.
    """

    def __init__(self, migration: Migration, source: Snapshot, template: Snapshot | None) -> None:
        self._migration = migration
        self._source, self._template = source, template
        self._old_states = OldStates(source)
        self._plans = None if template is None else load_plans(migration)
        columns: Sequence[PlanColumns | None] = (None, None)
        if self._plans is not None and template is not None:
            columns, _ = usable_plans(self._plans, (source, template))
        self._old_plan, self._new_plan = columns

    def resolved(self) -> Migration:
        """The declaration with places instead of names: ``f2`` for ``amount``, ``columns`` for
        ``add``.

        Raises:
            ConfigError: A name in ``add`` is not new, or no plan explains the state.
        """
        operators = {
            label: self._operator(label, rule) for label, rule in self._migration.operators.items()
        }
        return replace(self._migration, operators=operators)

    @cached_property
    def problems(self) -> list[str]:
        """What the plans say and the declaration does not: moved columns and crossed ids."""
        if self._plans is None or self._template is None:
            return []
        proposal = propose(self._source, self._template, plans=self._plans)
        return list(forgotten_changes(self._migration, proposal, self._template))

    @cached_property
    def notes(self) -> list[str]:
        """Where columns of one type may have changed places, and nothing could notice."""
        notes = []
        for operator in () if self._template is None else self._template.operators:
            columns = self.of_new(operator)
            known = set() if columns is None else {*columns.rows, *columns.map_keys}
            for info in operator.states:
                kind = columns_that_may_swap(info.meta.as_key_value().value_serializer)
                if kind is not None and info.name not in known and not info.kind.endswith("timer"):
                    notes.append(
                        f"{operator.label}/{info.name}: several columns are {kind}: types equal, "
                        f"Flink cannot notice a mistake here"
                    )
        return notes

    def of_new(self, operator: OperatorSnapshot) -> OperatorColumns | None:
        """The names of the columns of an operator of the new job; None if no plan has them."""
        return PlannedOperator(operator, self._new_plan).columns

    def _of_old(self, operator: OperatorSnapshot) -> OperatorColumns | None:
        return PlannedOperator(operator, self._old_plan).columns

    def _operator(self, label: str, rule: OperatorRule) -> OperatorRule:
        if self._template is None:
            for name, state in rule.states.items():
                _refuse_add(state, f"operators.{label}.states.{name}")
            return rule
        target = self._template[label]
        if rule.from_ is None:
            olds = [each for each in self._source.operators if _is_same(each, target)]
        else:
            olds = [self._source[each] for each in rule.from_ if each != "???"]
        old = self._of_old(olds[0]) if len(olds) == 1 else None
        states = {
            name: self._state(f"operators.{label}.states.{name}", name, state, (olds, target))
            for name, state in rule.states.items()
        }
        key = rule.key
        if isinstance(key, tuple) and old is not None and old.key is not None:
            key = tuple(_placed(each, old.key) for each in key)
        return replace(rule, states=states, key=key)

    def _state(
        self,
        where: str,
        name: str,
        rule: StateRule,
        operators: tuple[list[OperatorSnapshot], OperatorSnapshot],
    ) -> StateRule:
        sources, target = operators
        places = self._old_states.places(name, rule, sources)
        old = self._of_old(places[0].operator) if len(places) == 1 else None
        source = places[0].state or "" if places else name
        rows = None if old is None else old.rows.get(source)
        keys = None if old is None else old.map_keys.get(source)
        if rule.add:
            new = self.of_new(target)
            theirs = None if new is None else new.rows.get(name)
            if rows is None or theirs is None:
                _refuse_add(rule, where)
            else:
                columns_of_row = added_columns(rows, theirs, rule.add, f"{where}.add")
                columns = tuple(
                    Column((f"f{column}",)) if isinstance(column, int) else column
                    for column in columns_of_row
                )
                return replace(rule, columns=columns, add={})
        map_key = rule.map_key
        if isinstance(map_key, tuple) and keys is not None:
            map_key = tuple(_placed(each, keys) for each in map_key)
        columns_ = rule.columns
        if columns_ is not None and rows is not None:
            columns_ = tuple(_placed(each, rows) for each in columns_)
        return replace(rule, columns=columns_, map_key=map_key)


def _refuse_add(rule: StateRule, where: str) -> None:
    if rule.add:
        raise ConfigError(
            f"{where}.add names aggregates, and no compiled plan explains this state: give plans "
            f"of both jobs, or columns instead."
        )


def _is_same(one: OperatorSnapshot, other: OperatorSnapshot) -> bool:
    return one.operator_id == other.operator_id


def _placed(expression: Expression, row: Sequence[StateColumn]) -> Expression:
    match expression:
        case Column():
            places: Mapping[str, int] = _places(row)
            name, *rest = expression.path
            if name in places:
                return Column((f"f{places[name]}", *rest))
            return expression
        case OfOneValue():
            return replace(expression, of=_placed(expression.of, row))
    return expression


def _places(row: Sequence[StateColumn]) -> dict[str, int]:
    """The place of each name that is there once. Names of places and roots stay what they are."""
    names = [each.name for each in row]
    kept = {f"f{at}" for at in range(len(row))} | {"key", "value", "map_key"}
    return {
        name: at for at, name in enumerate(names) if names.count(name) == 1 and name not in kept
    }
