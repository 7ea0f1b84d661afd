"""Uses the names of compiled plans in a declared migration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration, OperatorRule, StateRule
from dstl_core.savepoint.migrate.proposal.column_rules import DECIDE
from dstl_core.savepoint.migrate.proposal.proposal import Proposal
from dstl_core.savepoint.migrate.proposal.proposal_text import flow
from dstl_core.savepoint.migrate.proposal.sql_state import StateColumn
from dstl_core.savepoint.read.snapshot import Snapshot

Start = TypeVar("Start")


def added_columns(
    old: Sequence[StateColumn],
    new: Sequence[StateColumn],
    added: Mapping[str, Start],
    where: str,
) -> list[int | Start]:
    """The columns of a row to which aggregates are added by name.

    Args:
        old: The columns of the old row.
        new: The columns of the new row.
        added: ``COUNT(tag)`` to its start value. An aggregate with several columns has the same
            start value in each.
        where: The place of ``added`` in the declaration, for errors.

    Returns:
        For each new column the place of the old one, or its start value.

    Raises:
        ConfigError: A name is no new column, or a new column has neither an old one nor a name.
    """
    places: dict[str, list[int]] = {}
    for at, column in enumerate(old):
        places.setdefault(column.meaning, []).append(at)
    columns: list[int | Start] = []
    unused = dict.fromkeys(added)
    for column in new:
        same = places.get(column.meaning)
        if same:
            columns.append(same.pop(0))
            continue
        name = next((each for each in added if column.name in (each, *_parts(each))), None)
        if name is None:
            raise ConfigError(
                f"{where} lacks {column.name!r}, which the old row does not have; add it with a "
                f"start value."
            )
        unused.pop(name, None)
        columns.append(added[name])
    for name in unused:
        missing = [each.name for each in new if all(each.meaning != one.meaning for one in old)]
        raise ConfigError(
            f"{where} names {name!r}, which is not new; the new columns are: "
            f"{', '.join(missing) or 'none'}."
        )
    return columns


def _parts(name: str) -> tuple[str, ...]:
    return tuple(f"{part} of {name}" for part in ("sum", "count", "delimiter"))


def forgotten_changes(migration: Migration, proposal: Proposal, new: Snapshot) -> Iterator[str]:
    """What the compiled plans say and a declaration does not: moved columns, and crossed ids.

    The types are equal in these cases, so nothing else notices them.

    Args:
        migration: The declaration.
        proposal: The proposal for the same savepoints, with plans.
        new: The savepoint of the new job.

    Raises:
        NoSuchOperatorError: The declaration names an operator that the new job does not have.
    """
    declared = {new[name].label: rule for name, rule in migration.operators.items()}
    for operator in proposal.operators:
        label = operator.label.removeprefix("hash:")
        rule = declared.get(label, OperatorRule())
        source = operator.rules.get("from")
        if rule.from_ is None and source is not None and label not in migration.start_empty:
            may = ", ".join(operator.notes[:1])
            yield (
                f"operators.{operator.label} has no from, and the plans say that another operator "
                f"of the old job did this ({may}); add from: {flow(source)}, or from: "
                f"{operator.label} if it did not"
            )
        for state, proposed in operator.rules.get("states", {}).items():
            yield from _forgotten(f"operators.{operator.label}", state, proposed, rule)


def _forgotten(
    where: str, state: str, proposed: Mapping[str, object], rule: OperatorRule
) -> Iterator[str]:
    state_rule = rule.states.get(state, StateRule())
    if proposed.get("from") not in (None, DECIDE) and state_rule.from_ is None:
        yield (
            f"{where}.states.{state} has no from, and the plans say that it was "
            f"{proposed['from']}; add from: {proposed['from']}, or from: {state} if it was not"
        )
    is_named = {
        "columns": state_rule.columns is not None or state_rule.value is not None or state_rule.add,
        "map_key": state_rule.map_key is not None,
    }
    for name, is_given in is_named.items():
        columns = proposed.get(name)
        if not is_given and isinstance(columns, list) and not _in_place(columns):
            yield (
                f"{where}.states.{state} has no {name}, and the plans say that columns changed; "
                f"add {name}: {flow(columns)}"
            )


def _in_place(columns: Sequence[object]) -> bool:
    """Whether every column stays in its place, perhaps with a cast."""
    return all(
        column == f"f{at}" or str(column).startswith(f"cast(f{at},")
        for at, column in enumerate(columns)
    )
