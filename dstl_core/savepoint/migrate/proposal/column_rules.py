"""Proposes where the columns of a row come from: an old column, a cast, a start value or ``???``.

A proposal never guesses. What could be meant in two ways is ``???``, with the choices in a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dstl_core.codec.logical_types import LogicalType
from dstl_core.savepoint.migrate.proposal.sql_state import StateColumn
from dstl_core.state.tables.sql_widening import cast, widens

DECIDE = "???"
"""Stands where a person has to decide; ``apply`` refuses it."""

Expression = str | int | None


@dataclass
class RowRule:
    """Where the columns of a new row come from.

    Attributes:
        columns: An expression for each new column, over ``f0``, ``f1``, .. of the old row.
        notes: Facts and choices for a person, one each.
        lost: Old columns that no new column uses.
        is_same: Whether rows and types stay as they are.
        may_swap: A type that several columns have, when nothing tells whether they swapped.
    """

    columns: list[Expression]
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    is_same: bool = False
    may_swap: str | None = None


def row_rule(
    old_types: Sequence[LogicalType],
    new_types: Sequence[LogicalType],
    old: Sequence[StateColumn] | None,
    new: Sequence[StateColumn] | None,
    *,
    is_explained: bool = False,
) -> RowRule:
    """Proposes a rule for a row.

    A row without names keeps its columns by position.

    Args:
        old_types: The types of the old row.
        new_types: The types of the new row.
        old: The columns of the old row; None if nothing names them.
        new: The columns of the new row; None if nothing names them.
        is_explained: Whether plans were expected to name the columns. What they cannot name is not
            taken by its position.
    """
    if old is None or new is None:
        rule = _by_position(old_types, new_types)
        if is_explained:
            types = ", ".join(f"f{at} {kind}" for at, kind in enumerate(old_types))
            rule = RowRule(
                [DECIDE] * len(new_types),
                [f"the plans do not explain these columns; the old ones are {types}"],
            )
        return rule
    places = _by_meaning(old, new)
    used = {*places}
    unused = [at for at in range(len(old)) if at not in used]
    rule = RowRule([])
    for at, column in enumerate(new):
        source = places[at]
        if source is not None:
            rule.columns.append(_moved(rule, source, old_types[source], new_types[at], column.name))
        else:
            rule.columns.append(_new(rule, column, new_types[at], old, old_types, unused))
    if DECIDE not in rule.columns:
        rule.lost = [f"f{at} ({old[at].name})" for at in unused]
    _finish(rule, old_types, new_types)
    return rule


def _by_meaning(old: Sequence[StateColumn], new: Sequence[StateColumn]) -> list[int | None]:
    """The old place of each new column. Equal columns keep their order."""
    free: dict[str, list[int]] = {}
    for at, column in enumerate(old):
        free.setdefault(column.meaning, []).append(at)
    return [places.pop(0) if (places := free.get(each.meaning)) else None for each in new]


def _moved(rule: RowRule, at: int, old: LogicalType, new: LogicalType, name: str) -> Expression:
    if old == new:
        return f"f{at}"
    if widens(old, new):
        if str(old).removesuffix(" NOT NULL") == str(new).removesuffix(" NOT NULL"):
            return f"f{at}"
        rule.notes.append(f"f{at} ({name}): {old} -> {new} loses nothing")
        return cast(f"f{at}", new)
    rule.notes.append(
        f"f{at} ({name}): {old} -> {new} may lose values; "
        f"{cast(f'f{at}', new)} stops at such a value"
    )
    return DECIDE


def _new(
    rule: RowRule,
    column: StateColumn,
    kind: LogicalType,
    old: Sequence[StateColumn],
    old_types: Sequence[LogicalType],
    unused: Sequence[int],
) -> Expression:
    similar = [at for at in unused if _may_be(old[at], column)]
    if similar:
        names = ", ".join(f"f{at} ({old[at].name}, {old_types[at]})" for at in similar)
        rule.notes.append(
            f"{column.name} ({kind}) is new, and the new row has no {names}: if it was renamed, "
            f"name the old column, else give a start value"
        )
        return DECIDE
    of_sets = column.start == "empty()" and any(_is_set(old[at]) for at in unused)
    if column.is_buffer and column.start is not None and not of_sets:
        rule.notes.append(f"{column.name} is new: it counts from now on only")
        return _STARTS[column.start]
    if column.is_buffer:
        rule.notes.append(
            f"{column.name} ({kind}) is new, and the old state does not have the values that it "
            f"needs"
        )
        return DECIDE
    if not kind.nullable or "(" in column.meaning:
        rule.notes.append(f"{column.name} ({kind}) is new: give its value for the old rows")
        return DECIDE
    rule.notes.append(f"{column.name} is new: null in the old rows")
    return None


_STARTS: dict[str, Expression] = {"0": 0, "null": None, "empty()": "empty()"}


def _is_set(column: StateColumn) -> bool:
    """Whether a column is of the distinct values of calls; other calls may share it now."""
    return column.start == "empty()"


def _may_be(old: StateColumn, new: StateColumn) -> bool:
    """Whether a column that is gone may be a new one under another name."""
    if old.is_buffer != new.is_buffer:
        return False
    return not new.is_buffer or old.meaning.partition("(")[0] == new.meaning.partition("(")[0]


def _by_position(old: Sequence[LogicalType], new: Sequence[LogicalType]) -> RowRule:
    rule = RowRule([])
    for at, kind in enumerate(new):
        if at < len(old):
            rule.columns.append(_moved(rule, at, old[at], kind, "by position"))
        else:
            rule.columns.append(DECIDE)
            rule.notes.append(f"column {at} ({kind}) is new: give its value for the old rows")
    if len(old) > len(new):
        # Any of the columns may be the one that is gone.
        rule.columns = [DECIDE] * len(new)
        types = ", ".join(f"f{at} {kind}" for at, kind in enumerate(old))
        rule.notes = [f"{len(old) - len(new)} columns are gone; the old ones are {types}"]
    kept = [each for each in rule.columns if each != DECIDE]
    if len(kept) > 1:
        texts = [str(each).removesuffix(" NOT NULL") for each in new]
        rule.may_swap = next((each for each in texts if texts.count(each) > 1), None)
    _finish(rule, old, new)
    return rule


def _finish(rule: RowRule, old: Sequence[LogicalType], new: Sequence[LogicalType]) -> None:
    rule.is_same = rule.columns == [f"f{at}" for at in range(len(old))] and len(old) == len(new)
    if rule.lost:
        rule.notes.append(f"lost: {', '.join(rule.lost)}")
