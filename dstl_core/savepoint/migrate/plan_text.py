"""The plan of a migration for people, and as one object."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dstl_core.errors import UNREADABLE
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.expressions.expression import Expression, is_constant
from dstl_core.savepoint.expressions.typed_values import fields_of, kind_of, name_of
from dstl_core.savepoint.expressions.value_conversion import Conversion
from dstl_core.savepoint.migrate.migration_plan import (
    EMPTY,
    SAME,
    OperatorMigration,
    Plan,
    StatePlan,
)
from dstl_core.savepoint.migrate.proposal.flink_outcome import flink_outcomes
from dstl_core.savepoint.migrate.proposal.plan_names import PlanNames
from dstl_core.savepoint.migrate.proposal.sql_state import OperatorColumns, StateColumn
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.state.columns.state_columns import KEY_COLUMN

_WIDTH = 78


def lines_of(plan: Plan, names: PlanNames) -> list[str]:
    """The plan as text, with the names of columns where compiled plans have them."""
    return list(_lines(plan, names))


def _lines(plan: Plan, names: PlanNames) -> Iterator[str]:
    kept = [each for each in plan.operators if each.sources]
    changed = sum(each.is_changed for each in kept)
    empty = len(plan.operators) - len(kept)
    jobs = f"{_base(str(plan.source.folder))} -> {_target_name(plan)}"
    yield (
        f"{jobs}   {len(kept)} operators kept, {changed} changed, "
        f"{len(plan.dropped)} dropped, {empty} {'starts' if empty == 1 else 'start'} empty"
    )
    outcomes = {} if plan.template is None else flink_outcomes(plan.source, plan.template)
    for operator in plan.operators:
        if operator.is_changed or operator.starts_empty or operator.dropped:
            yield from _operator(operator, outcomes, names.of_new(operator.target))
    lost = [
        f"state {info.name} of {op.label}"
        for operator_plan in plan.operators
        for op, info in operator_plan.dropped
    ]
    lost += [f"operator {each.label}, {each.state.state_size} bytes" for each in plan.dropped]
    lost += [line for each in plan.operators for line in _lost_columns(each)]
    yield from (f"note: {each}" for each in plan.notes)
    for problem in plan.problems:
        yield f"decide: {problem}"
    yield "nothing is lost." if not lost else f"lost: {'; '.join(lost)}."


def _operator(
    plan: OperatorMigration, outcomes: Mapping[OperatorID, str], names: OperatorColumns | None
) -> Iterator[str]:
    name = f"  ({plan.target.name})" if plan.target.name else ""
    head = f"{plan.label}{name}"
    if plan.starts_empty:
        yield f"{head}  starts empty"
        return
    froms = [each.label for each in plan.sources]
    if froms != [plan.label]:
        head += f"  from {', '.join(froms)}"
    yield f"{head:{_WIDTH}}{keys_of(plan)}".rstrip()
    if plan.key_type is not None:
        yield f"  key        {_key_text(plan)}"
    for state in plan.states:
        yield from _state(state, names)
    for source in plan.sources:
        if source.operator_id in outcomes:
            yield f"  without the migration Flink would say: {outcomes[source.operator_id]}"


def _key_text(plan: OperatorMigration) -> str:
    assert plan.key_type is not None
    old = next(each.key_type for each in plan.sources if each.key_type is not None)
    if old.serializer == plan.key_type:
        base = _type_text(plan.key_type)
    else:
        base = f"{_type_text(old.serializer)} -> {_type_text(plan.key_type)}"
    if plan.key is None:
        return f"{base}   same, key groups kept"
    return f"{base}   {_source_text(plan.key)}; key groups anew"


def _type_text(serializer: Any) -> str:
    fields = fields_of(kind_of(serializer))
    if fields is not None and all(name[:1] == "f" for name, _ in fields):
        return ", ".join(name_of(kind) for _, kind in fields)
    return name_of(kind_of(serializer))


def _source_text(conversion: Conversion) -> str:
    if conversion.row is not None:
        return f"[{', '.join(map(str, conversion.row))}]"
    return "cast without loss" if conversion.whole is None else str(conversion.whole)


def _state(state: StatePlan, names: OperatorColumns | None) -> Iterator[str]:
    new = state.new
    if state.action == EMPTY:
        if not new.kind.endswith("timer"):
            yield f"  {new.name:10} {new.kind}  {new.type}   starts empty"
        return
    assert state.old is not None
    renamed = "" if state.old.name == new.name else f" <- {state.old.name}"
    types = new.type if state.old.type == new.type else f"{state.old.type} -> {new.type}"
    kind = new.kind if state.old.kind == new.kind else f"{state.old.kind} -> {new.kind}"
    merge = "" if state.merge is None else f"   merge: {_merge_text(state)}"
    if new.kind.endswith("timer") and state.action == SAME:
        return
    yield f"  {new.name + renamed:10} {kind}  {types}   {state.action}{merge}"
    if state.map_key is not None:
        known = None if names is None else names.map_keys.get(new.name)
        yield from _columns(state.map_key, "map_key ", known)
    if state.value is not None:
        known = None if names is None else names.rows.get(new.name)
        yield from _columns(state.value, "", known)


def _merge_text(state: StatePlan) -> str:
    return state.merge if isinstance(state.merge, str) else ", ".join(state.merge or ())


def _columns(
    conversion: Conversion, mark: str, names: Sequence[StateColumn] | None
) -> Iterator[str]:
    if conversion.row is None:
        if conversion.whole is not None:
            yield f"             {mark or 'value '}<- {conversion.whole}"
        return
    known = [] if names is None or len(names) != len(conversion.row) else [n.name for n in names]
    width = max(map(len, known), default=0)
    for at, expression in enumerate(conversion.row):
        name = f"{known[at]:{width}}   " if known else ""
        line = f"             {mark}f{at} <- {expression!s:6} {name}{_meaning(expression, at)}"
        yield line.rstrip()


def _meaning(expression: Expression, at: int) -> str:
    if is_constant(expression):
        return "new: from now on only"
    return "same" if str(expression) == f"f{at}" else ""


def _lost_columns(plan: OperatorMigration) -> Iterator[str]:
    """Columns of old rows that no new column uses."""
    for state in plan.states:
        for conversion in (state.value, state.map_key):
            if conversion is None or conversion.row is None:
                continue
            used = " ".join(map(str, conversion.row))
            fields = fields_of(kind_of(conversion.old)) or []
            gone = [name for name, _ in fields if name not in _words(used)]
            if gone:
                yield f"columns {', '.join(gone)} of {plan.label}/{state.new.name}"


def _words(text: str) -> set[str]:
    return set(text.replace("(", " ").replace(")", " ").replace(",", " ").replace(".", " ").split())


def _base(path: str) -> str:
    return os.path.basename(path.rstrip("/"))


def _target_name(plan: Plan) -> str:
    return "the new job" if plan.template is None else _base(str(plan.template.folder))


def keys_of(plan: OperatorMigration) -> str:
    """How many keys the old operators have, or how many entries."""
    if not any(each.keyed_handles for each in plan.sources):
        return ""
    try:
        return f"{sum(_keys(each) for each in plan.sources if each.keyed_handles)} keys"
    except UNREADABLE:
        return ""


def _keys(operator: OperatorSnapshot) -> int:
    reader = operator.keyed(columns=(KEY_COLUMN,))
    return sum(batch.num_rows for batch in reader.read())


def json_of(plan: Plan) -> dict[str, Any]:
    """The plan as one object of plain values."""
    outcomes = {} if plan.template is None else flink_outcomes(plan.source, plan.template)
    return {
        "source": str(plan.source.folder),
        "template": None if plan.template is None else str(plan.template.folder),
        "ready": not plan.problems,
        "problems": plan.problems,
        "notes": plan.notes,
        "dropped_operators": [each.label for each in plan.dropped],
        "operators": [_operator_json(each, outcomes) for each in plan.operators],
    }


def _operator_json(plan: OperatorMigration, outcomes: Mapping[OperatorID, str]) -> dict[str, Any]:
    said = [outcomes[each.operator_id] for each in plan.sources if each.operator_id in outcomes]
    return {
        "operator": plan.label,
        "from": [each.label for each in plan.sources],
        "changed": plan.is_changed,
        "starts_empty": plan.starts_empty,
        "key": None if plan.key_type is None or not plan.sources else _key_text(plan),
        "key_groups_kept": plan.key is None,
        "flink": said[0] if said else None,
        "dropped": [info.name for _, info in plan.dropped],
        "states": [
            {
                "state": state.new.name,
                "from": None if state.old is None else state.old.name,
                "kind": state.new.kind,
                "old_type": None if state.old is None else state.old.type,
                "type": state.new.type,
                "action": state.action,
                "columns": None
                if state.value is None or state.value.row is None
                else [str(column) for column in state.value.row],
                "value": None
                if state.value is None or state.value.whole is None
                else str(state.value.whole),
                "merge": state.merge,
            }
            for state in plan.states
        ],
    }
