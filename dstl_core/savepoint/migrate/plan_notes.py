"""What a person should know before a migration is applied, and state that no rule can carry."""

from __future__ import annotations

from collections.abc import Iterator

from dstl_core.errors import UNREADABLE
from dstl_core.savepoint.connectors.known_states import READER_STATE
from dstl_core.savepoint.migrate.migration_plan import Plan
from dstl_core.savepoint.read.snapshot import OperatorSnapshot


def plan_notes(plan: Plan) -> list[str]:
    """The notes of a plan: sources that start anew, fewer subtasks, a template that holds state."""
    return [*_sources(plan), *_fewer_subtasks(plan), *_full_template(plan)]


def state_without_a_carrier(plan: Plan) -> list[str]:
    """Problems: state of a source coordinator, and raw operator state, which have no names."""
    return list(_without_a_carrier(plan))


def _without_a_carrier(plan: Plan) -> Iterator[str]:
    for operator in plan.operators:
        for source in operator.sources[1:]:
            raw = any(subtask.raw_operator_state for subtask in source.state.subtasks)
            if raw or source.state.coordinator_state is not None:
                yield (
                    f"operator {source.label} has raw operator state or the state of a "
                    f"coordinator, which no other operator can take: name it first in from: of "
                    f"{operator.label}"
                )
        count = plan.max_parallelisms.get(operator.target.operator_id, 0)
        for subtask in operator.sources[0].state.subtasks if operator.sources else ():
            if subtask.index >= count and subtask.raw_operator_state:
                yield (
                    f"operator {operator.label} has raw operator state in subtask {subtask.index}, "
                    f"which is gone with max_parallelism {count}: give a larger one"
                )


def _sources(plan: Plan) -> Iterator[str]:
    for operator in plan.dropped:
        if _is_source(operator):
            yield (
                f"OPERATOR {operator.label} IS A SOURCE and its positions go: a source of the new "
                f"job reads everything again, or from its start option, unless it gets them by "
                f"from: {operator.label}"
            )
    for step in plan.operators:
        if step.starts_empty and _is_source(step.target):
            yield (
                f"OPERATOR {step.label} IS A SOURCE and starts empty: it reads everything, or from "
                f"its start option"
            )


def _is_source(operator: OperatorSnapshot) -> bool:
    return any(each.name == READER_STATE for each in operator.operator_states)


def _fewer_subtasks(plan: Plan) -> Iterator[str]:
    for operator in plan.operators:
        parallelism = max((source.parallelism for source in operator.sources), default=1)
        count = plan.max_parallelisms.get(operator.target.operator_id, parallelism)
        if parallelism > count:
            yield (
                f"operator {operator.label} had parallelism {parallelism} and has {count} key "
                f"{'group' if count == 1 else 'groups'} now: start the new job with a parallelism "
                f"of at most {count}"
            )


def _full_template(plan: Plan) -> Iterator[str]:
    for operator in () if plan.template is None else plan.template.operators:
        names = [info.name for info in operator.states if _has_rows(operator, info.name)]
        if names:
            yield (
                f"the template has entries in {operator.label} ({', '.join(names)}): a template is "
                f"read for its types only, so they are not in the result"
            )


def _has_rows(operator: OperatorSnapshot, name: str) -> bool:
    """Whether a state has an entry, as far as columns tell."""
    try:
        return any(batch.num_rows for batch in operator.flat(name).read())
    except UNREADABLE:
        return False  # a type without columns, or text that Arrow does not have
