"""Proposes the rule of one state: what stays, what converts without loss, what needs a decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_core.codec.serializers import AnySerializer, MapSerializer, TtlSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer, primitive_default
from dstl_core.codec.serializers.runtime import TtlAwareSerializer
from dstl_core.codec.serializers.table_state import ExternalSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.savepoint.migrate.proposal.column_rules import DECIDE, RowRule, row_rule
from dstl_core.savepoint.migrate.proposal.sql_state import (
    OperatorColumns,
    StateColumn,
    row_of_map_key,
    row_of_value,
)
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.state.tables.sql_widening import cast, scalar_widens, sql_name


@dataclass
class ProposedRule:
    """The proposed rule of a state, in the form of the declaration.

    Attributes:
        rule: Empty if the state stays as it is.
        notes: Facts and choices for a person.
        classes: Old Java class to new one, for the whole operator.
        fields: New Java class to the rules of its fields.
        may_swap: A type that several columns have, when no plan tells whether they swapped.
    """

    rule: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    classes: dict[str, str] = field(default_factory=dict)
    fields: dict[str, dict[str, Any]] = field(default_factory=dict)
    may_swap: str | None = None


def state_rule(
    old: StateInfo,
    new: StateInfo,
    old_columns: OperatorColumns | None = None,
    new_columns: OperatorColumns | None = None,
) -> ProposedRule:
    """Proposes the rule by which a new state gets the values of an old one."""
    proposal = ProposedRule()
    # Plans that cannot name the columns of an aggregate still tell whether its calls changed.
    has_plans = old_columns is not None and new_columns is not None
    explained = has_plans and _calls(old_columns) != _calls(new_columns)
    if old.name != new.name:
        proposal.rule["from"] = old.name
    if old.kind != new.kind:
        _kind(proposal, old, new)
        return proposal
    before = old.meta.as_key_value().value_serializer
    after = new.meta.as_key_value().value_serializer
    named = (_rows(old_columns, old), _rows(new_columns, new))
    keys = (_map_keys(old_columns, old), _map_keys(new_columns, new))
    if new.kind == "map" and isinstance(before, MapSerializer) and isinstance(after, MapSerializer):
        _map_key(proposal, old, new, keys)
        before, after = before.value, after.value
    rows = row_of_value(old), row_of_value(new)
    _value(proposal, (before, after), rows, named, is_explained=explained)
    return proposal


def _calls(columns: OperatorColumns | None) -> Sequence[str]:
    return () if columns is None else columns.calls


def _rows(columns: OperatorColumns | None, info: StateInfo) -> Sequence[StateColumn] | None:
    return None if columns is None else columns.rows.get(info.name)


def _map_keys(columns: OperatorColumns | None, info: StateInfo) -> Sequence[StateColumn] | None:
    return None if columns is None else columns.map_keys.get(info.name)


def _kind(proposal: ProposedRule, old: StateInfo, new: StateInfo) -> None:
    proposal.rule["kind"] = new.kind
    proposal.notes.append(f"{old.kind} {old.type} -> {new.kind} {new.type}")
    if (old.kind, new.kind) == ("value", "map"):
        proposal.notes.append("map_key: the user key under which the old value goes, e.g. 'EUR'")
        proposal.rule |= {"map_key": DECIDE, "value": "value"}
    elif (old.kind, new.kind) == ("value", "list"):
        proposal.rule["value"] = "value"
    else:
        proposal.rule["value"] = DECIDE


def _map_key(
    proposal: ProposedRule,
    old: StateInfo,
    new: StateInfo,
    named: tuple[Sequence[StateColumn] | None, Sequence[StateColumn] | None],
) -> None:
    rows = row_of_map_key(old), row_of_map_key(new)
    if rows[0] is not None and rows[1] is not None:
        rule = row_rule(rows[0].types, rows[1].types, *named)
        _add_row(proposal, "map_key", rule, rows)
        if len(set(rule.columns)) < len(rows[0].types) or rule.lost:
            proposal.rule["on_collision"] = "sum" if _is_count(new) else DECIDE
            proposal.notes.append("rows that become equal are one entry: sum adds their counts")
        return
    one, other = (_plain(each) for each in (_key_of(old), _key_of(new)))
    if one != other:
        _scalar(proposal, "map_key", one, other)


def _key_of(info: StateInfo) -> AnySerializer:
    value = info.meta.as_key_value().value_serializer
    assert isinstance(value, MapSerializer)  # its kind says so
    return value.key


def _is_count(info: StateInfo) -> bool:
    value = info.meta.as_key_value().value_serializer
    return isinstance(value, MapSerializer) and sql_name(_plain(value.value)) == "INT"


def _add_row(
    proposal: ProposedRule,
    place: str,
    rule: RowRule,
    rows: tuple[RowDataSerializer | None, RowDataSerializer | None],
) -> None:
    proposal.notes += rule.notes
    proposal.may_swap = proposal.may_swap or rule.may_swap
    if not rule.is_same:
        proposal.rule[place] = rule.columns
    elif rows[0] != rows[1]:
        proposal.notes.append("only the types in the header change")


def _value(
    proposal: ProposedRule,
    types: tuple[AnySerializer, AnySerializer],
    rows: tuple[RowDataSerializer | None, RowDataSerializer | None],
    named: tuple[Sequence[StateColumn] | None, Sequence[StateColumn] | None],
    *,
    is_explained: bool,
) -> None:
    before, after = map(_plain, types)
    if _frame(before) != _frame(after):
        if not (before.nested or after.nested):
            _scalar(proposal, "value", before, after)
            return
        proposal.notes.append(f"the value changes from {before.type_name} to {after.type_name}")
        proposal.rule["value"] = DECIDE
        return
    if rows[0] is not None and rows[1] is not None:
        rule = row_rule(rows[0].types, rows[1].types, *named, is_explained=is_explained)
        _add_row(proposal, "columns", rule, rows)
    for one, other in zip(_pojos(before), _pojos(after), strict=True):
        _pojo(proposal, one, other)


def _scalar(
    proposal: ProposedRule, place: str, before: AnySerializer, after: AnySerializer
) -> None:
    name = sql_name(after)
    if name is not None and scalar_widens(before, after):
        proposal.notes.append(f"{before.type_name} -> {after.type_name} loses nothing")
        proposal.rule[place] = cast(place, name)
        return
    advice = "" if name is None else f"; {cast(place, name)} stops at a value that does not fit"
    proposal.notes.append(f"{place}: {before.type_name} -> {after.type_name}{advice}")
    proposal.rule[place] = DECIDE


def _plain(serializer: AnySerializer) -> AnySerializer:
    """A type without time to live, which Flink 2.2 adds and removes by itself."""
    while True:
        match serializer:
            case TtlAwareSerializer() | ExternalSerializer():
                serializer = serializer.inner
            case TtlSerializer():
                serializer = serializer.value
            case _:
                return serializer


def _frame(serializer: AnySerializer) -> object:
    """A type without what a rule for its row or its POJO changes."""
    serializer = _plain(serializer)
    match serializer:
        case RowDataSerializer():
            return "row"
        case PojoSerializer():
            return "pojo"
    if not serializer.nested:
        return serializer
    return (type(serializer), tuple(map(_frame, serializer.nested)))


def _pojos(serializer: AnySerializer) -> Iterator[PojoSerializer]:
    serializer = _plain(serializer)
    if isinstance(serializer, PojoSerializer):
        yield serializer
    elif not isinstance(serializer, RowDataSerializer):
        for inner in serializer.nested:
            yield from _pojos(inner)


# ----------------------------------------------------------------------------------------- POJOs


def _pojo(proposal: ProposedRule, before: PojoSerializer, after: PojoSerializer) -> None:
    old = {name: kind for name, _, kind in before.fields}
    new = {name: kind for name, _, kind in after.fields}
    if before.pojo_class != after.pojo_class:
        shared = old.keys() & new.keys()
        if old.keys() == new.keys() or (shared and len(shared) * 2 > max(len(old), len(new))):
            proposal.classes[before.pojo_class] = after.pojo_class
            proposal.notes.append(
                f"class {before.pojo_class} is {after.pojo_class}: the fields have the same names"
            )
        else:
            proposal.classes[before.pojo_class] = DECIDE
            proposal.notes.append(f"the new job has class {after.pojo_class}")
    rules: dict[str, Any] = {}
    gone = {name: kind for name, kind in old.items() if name not in new}
    for name, kind in new.items():
        if name in old:
            _field(proposal, rules, name, (old[name], kind))
            continue
        similar = [each for each, was in gone.items() if was == kind]
        if similar:
            rules[name] = {"from": DECIDE}
            proposal.notes.append(
                f"field {name!r} is new, and {', '.join(map(repr, similar))} of the same type is "
                f"gone: if it was renamed, name the old field, else Flink would lose its values"
            )
        else:
            proposal.notes.append(f"field {name!r} is new: it is {_default_text(kind)}")
    unnamed = [
        name
        for name in gone
        if not any(gone[name] == kind for each, kind in new.items() if each not in old)
    ]
    if unnamed:
        proposal.notes.append(f"lost: field {', '.join(map(repr, unnamed))}")
    if rules:
        proposal.fields[after.pojo_class] = rules


def _field(
    proposal: ProposedRule,
    rules: dict[str, Any],
    name: str,
    kinds: tuple[AnySerializer | None, AnySerializer | None],
) -> None:
    before, after = kinds
    if before is None or after is None or before == after:
        return
    change = f"field {name!r}: {before.type_name} -> {after.type_name}"
    if scalar_widens(before, after):
        proposal.notes.append(f"{change} loses nothing")
    else:
        proposal.notes.append(f"{change}: from: {name} stops at a value that does not fit")
        rules[name] = {"from": DECIDE}


def merge_rule(state: StateInfo, columns: Mapping[str, Sequence[StateColumn]]) -> list[str] | str:
    """How the values of two keys that become one are put together: a rule for each buffer."""
    row = columns.get(state.name)
    if state.kind != "value" or row is None or any(each.merge is None for each in row):
        return DECIDE
    return [each.merge for each in row if each.merge is not None]


def _default_text(kind: AnySerializer | None) -> str:
    """The value of a new field as Java writes it."""
    default = None if kind is None else primitive_default(kind)
    if default is None:
        return "null"
    if isinstance(default, str):
        return "'\\0'"
    return str(default).lower()
