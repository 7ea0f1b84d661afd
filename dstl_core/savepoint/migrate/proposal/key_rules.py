"""Proposes the rule of an operator's key."""

from __future__ import annotations

from dataclasses import dataclass, field

from dstl_core.savepoint.migrate.proposal.column_rules import DECIDE, Expression, row_rule
from dstl_core.savepoint.migrate.proposal.matching import PlannedOperator
from dstl_core.savepoint.migrate.proposal.sql_state import row_in
from dstl_core.state.tables.compatibility import columns_that_may_swap
from dstl_core.state.tables.sql_widening import cast, scalar_widens, sql_name


@dataclass
class KeyRule:
    """The proposed rule of a key.

    Attributes:
        expression: For a SQL key a list with an expression for each column; None if the key stays
            as it is, or only widens.
        notes: Facts and choices for a person.
        merges: Whether keys may become equal.
        may_swap: A type that several columns have, when no plan tells whether they swapped.
    """

    expression: list[Expression] | str | None = None
    notes: list[str] = field(default_factory=list)
    merges: bool = False
    may_swap: str | None = None


def key_rule(old: PlannedOperator, new: PlannedOperator) -> KeyRule:
    """Proposes where the key of an operator comes from."""
    key = KeyRule()
    was, now = old.operator.key_type, new.operator.key_type
    if was is None or now is None:
        return key
    before, after = row_in(was.serializer), row_in(now.serializer)
    if before is None or after is None:
        if was.serializer != now.serializer:
            _scalar_key(key, old, new)
        return key
    ours = None if old.columns is None else old.columns.key
    theirs = None if new.columns is None else new.columns.key
    rule = row_rule(before.types, after.types, ours, theirs)
    # A new column of a key has one value for all old keys, which only a person knows.
    columns: list[Expression] = [DECIDE if each is None else each for each in rule.columns]
    key.merges = len({*columns}) < len(before.types) or bool(rule.lost)
    if ours is None or theirs is None:
        key.may_swap = columns_that_may_swap(after)
    if rule.is_same:
        if before != after:
            key.notes.append(f"key: {before.type_name} -> {after.type_name}, same values")
        return key
    by_place = [
        str(column).startswith(f"cast(f{at},") or column == f"f{at}"
        for at, column in enumerate(columns)
    ]
    if all(by_place) and len(columns) == len(before.types):
        key.notes.append(f"key: {before.type_name} -> {after.type_name} loses nothing")
        return key
    key.expression = columns
    key.notes += [f"key: {each}" for each in rule.notes if not each.endswith("old rows")]
    if None in rule.columns:
        key.notes.append("key: a new column gets one value for all old keys: a constant")
    return key


def _scalar_key(rule: KeyRule, old: PlannedOperator, new: PlannedOperator) -> None:
    was, now = old.operator.key_type, new.operator.key_type
    assert was is not None and now is not None
    before, after = was.serializer, now.serializer
    text = f"key: {before.type_name} -> {after.type_name}"
    target = sql_name(after)
    if scalar_widens(before, after):
        rule.notes.append(f"{text} loses nothing")
    elif target is not None:
        rule.expression = DECIDE
        rule.notes.append(f"{text}: {cast('key', target)} stops at a key that does not fit")
    else:
        rule.expression = DECIDE
        rule.notes.append(text)
