"""What Flink does with the savepoint as it is: the error of each operator, or its silence.

Source: restores of changed jobs in Flink 2.2.1, with the hashmap and the RocksDB backend.
"""

from __future__ import annotations

from collections.abc import Mapping

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.restores.job_match import (
    JobDescription,
    OperatorFate,
    StateFate,
    match_job,
    rules_of,
)
from dstl_core.state.tables.compatibility import Verdict

_NOT_FOUND = (
    "IllegalStateException, cannot map the state of operator {label} to the new program; with "
    "--allowNonRestoredState it drops the state without an error"
)


def flink_outcomes(old: Snapshot, new: Snapshot) -> Mapping[OperatorID, str]:
    """What Flink would say about the operators of a savepoint that the new job restores unchanged.

    Args:
        old: The savepoint.
        new: A savepoint of the new job.

    Returns:
        A text for each operator that Flink refuses, or whose state it ignores. An operator without
        a text restores; if columns of one type swapped, its values are wrong without an error.

    Raises:
        FormatError: A savepoint is damaged.
    """
    theirs = {each.operator_id: each for each in new.operators}
    by_label = {each.label: each for each in old.operators}
    outcomes = {}
    for fate in match_job(old, JobDescription.from_snapshot(new), rules_of(old, new)).operators:
        operator = by_label.get(fate.operator)
        if operator is None or not fate.size:
            continue
        if fate.fate == "dropped":
            outcomes[operator.operator_id] = _NOT_FOUND.format(label=operator.operator_id.hex)
        elif (text := _matched(fate, operator, theirs[operator.operator_id])) is not None:
            outcomes[operator.operator_id] = text
    return outcomes


def _matched(fate: OperatorFate, old: OperatorSnapshot, new: OperatorSnapshot) -> str | None:
    missing = sorted(_classes(old) - _classes(new))
    if missing:
        return f"IOException, could not find class {missing[0]!r} in classpath, unless it is there"
    if any(each.startswith("key: ") for each in fate.problems):
        return "StateMigrationException, new key serializer"
    for state in fate.states:
        if state.fate == "matched" and state.compatibility.verdict is Verdict.INCOMPATIBLE:
            return _refused(state, old, new)
    ignored = [each.name for each in fate.states if each.fate == "dropped"]
    if ignored:
        return f"nothing: it restores, and ignores state {', '.join(map(repr, ignored))}"
    return None


def _refused(state: StateFate, old: OperatorSnapshot, new: OperatorSnapshot) -> str:
    was, now = old.state_info(state.name), new.state_info(state.name)
    if was.kind != now.kind:
        return (
            f"IllegalStateException, incompatible key/value state types: was "
            f"[{was.kind.upper()}], registered with [{now.kind.upper()}]"
        )
    return "StateMigrationException, new state serializer"


def _classes(operator: OperatorSnapshot) -> set[str]:
    """The POJO classes in the headers of an operator."""
    classes: set[str] = set()
    key = operator.key_type
    types = [] if key is None else [key.serializer]
    for info in operator.states + operator.operator_states:
        types += [each for _, each in info.meta.as_key_value().serializers]
    for serializer in types:
        _add_classes(serializer, classes)
    return classes


def _add_classes(serializer: AnySerializer, classes: set[str]) -> None:
    if isinstance(serializer, PojoSerializer):
        classes.add(serializer.pojo_class)
    for inner in serializer.nested:
        _add_classes(inner, classes)
