"""Definitions of aggregates, which their state does not show.

A sum and a maximum are both a number. Continued as the other one, or of another column, the number
means nothing. State of one key column is state of other things under another one. So each epoch
records what its aggregates and its keys are, and the next one compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import dropwhile
from textwrap import shorten
from typing import TypeAlias

from dstl_core.aggregates.aggregate import Aggregate
from dstl_core.aggregates.column_checks import FLOATING
from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import WINDOW_CONTENTS
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.operators import AggregateOperator, Operator
from dstl_core.savepoint.read.snapshot import Snapshot

Definitions: TypeAlias = Mapping[str, Mapping[str, str]]
"""The definition of each aggregate, by uid of the operator and name of the aggregate, and under
``SELECTOR`` how its rows select their state."""
SELECTOR = ""
"""The name that no aggregate has."""
WINDOWED = ", window="
"""What the selector of an operator with windows has."""
DEFINITIONS_NOTE = "definitions"
"""The note beside a snapshot of a job; in the notes of a checkpoint it is a field of the facts."""
BACKFILLED_NOTE = "backfilled"
"""The note of a migration that has computed aggregates of all inputs: their names, by uid."""
CHANGES_NOTE = "changes"
"""The note of a migration that says what became of names."""
_SHOWN = 200
"""Characters of a definition that a message shows."""


def definitions_of(operators: Iterable[Operator]) -> dict[str, dict[str, str]]:
    """The definitions to record: by uid of the operator and name of the aggregate."""
    return {
        operator.uid: {
            SELECTOR: operator.selector,
            **{name: aggregate.definition for name, aggregate in _aggregates(operator)},
        }
        for operator in operators
        if operator.selector is not None
    }


def _aggregates(operator: Operator) -> list[tuple[str, Aggregate]]:
    return operator.items if isinstance(operator, AggregateOperator) else []


def of_aggregates(definitions: Definitions) -> Definitions:
    """Those of aggregates alone, of the operators that have some."""
    without = {
        uid: {name: text for name, text in texts.items() if name != SELECTOR}
        for uid, texts in definitions.items()
    }
    return {uid: texts for uid, texts in without.items() if texts}


def states_of(operators: Iterable[Operator]) -> dict[str, dict[str, str]]:
    """The name of the aggregate of each state, by uid of the operator and name of the state."""
    return {
        operator.uid: {
            state.name: name
            for (name, _), merge in zip(operator.items, operator.function.merges, strict=True)
            for state in merge.states
        }
        for operator in operators
        if isinstance(operator, AggregateOperator)
    }


def rules_of_keys(operators: Iterable[Operator]) -> dict[str, dict[str, str]]:
    """How the states of keys that become one merge, by uid of the operator and name of the state.

    Decimals are not among them, nor floats that are compared, since NaN is the largest one here.
    """
    rules: dict[str, dict[str, str]] = {}
    for operator in operators:
        if not isinstance(operator, AggregateOperator):
            continue
        of_operator = rules.setdefault(operator.uid, {})
        for (_, aggregate), merge in zip(operator.items, operator.function.merges, strict=True):
            for state in merge.states:
                is_unfit = state.serializer == Types.BIG_DEC or (
                    aggregate.of_keys != "sum" and state.serializer in FLOATING
                )
                if aggregate.of_keys is not None and not is_unfit:
                    of_operator[state.name] = aggregate.of_keys
    return rules


def recorded_definitions(
    line: Iterable[CompletedCheckpoint], parent: CompletedCheckpoint
) -> Definitions:
    """The definitions with which the state of a commit was written.

    They are those of the last epoch or migration up to the commit, or of the savepoint that the
    pipeline started from. The state of Flink, or of an earlier release, has none.

    Args:
        line: The lineage of the latest commit, newest first.
        parent: A commit in it.
    """
    for commit in dropwhile(lambda known: known.checkpoint_id != parent.checkpoint_id, line):
        if commit.facts.kind in ("start", "epoch", "migration"):
            return commit.facts.definitions
    return {}


def definitions_in(snapshot: Snapshot) -> Definitions:
    """The definitions beside a savepoint or checkpoint of a job; none for one of Flink."""
    notes = {} if snapshot.file.sidecar is None else snapshot.file.sidecar.notes
    recorded = notes.get(DEFINITIONS_NOTE)
    return {
        uid: {name: text for name, text in texts.items() if isinstance(text, str)}
        for uid, texts in (recorded.items() if isinstance(recorded, Mapping) else ())
        if isinstance(texts, Mapping)
    }


def continued_definitions(tasks: JobTasks, parent: CompletedCheckpoint) -> Definitions:
    """The definitions that the state of a commit can be continued with.

    They are the recorded ones, but for operators whose windows have all fired: those have no value
    left that another definition could mix.
    """
    recorded = tasks.coordinator.find(
        lambda commits: recorded_definitions(lineage(commits), parent)
    )
    defined = definitions_of(tasks.job.operators)
    return {
        uid: texts
        for uid, texts in recorded.items()
        if defined.get(uid, texts) == texts or not _have_all_fired(tasks.catalog(parent), uid)
    }


def _have_all_fired(snapshot: Snapshot, uid: str) -> bool:
    """Whether an operator has windows, and no entry in any state."""
    operator = snapshot[uid]
    states = [state.name for state in operator.states]
    return WINDOW_CONTENTS in states and not any(
        True for state in states for _ in operator.dump(state)
    )


def check_selectors(recorded: Definitions, defined: Definitions) -> None:
    """Raises ConfigError if rows of an operator would reach state of another key or window."""
    for uid, texts in defined.items():
        before, after = (each.get(SELECTOR) for each in (recorded.get(uid, {}), texts))
        if before is not None and before != after:
            raise ConfigError(
                f"The rows of operator {uid!r} would reach state that is not theirs: expected "
                f"{before}, got {after}; keep it until all its windows have fired, say "
                f"what becomes of keys (migrate(rekey=..)), or run the changed pipeline under "
                f"another name. A column that has a new name can get its "
                f"old one in the batch."
            )


def check_nothing_lost(recorded: Definitions, defined: Definitions) -> None:
    """Raises ConfigError if an operator no longer has an aggregate. The tasks of an epoch would not
    see it where no row of the batch reaches their keys.
    """
    kept = of_aggregates(defined)
    for uid, texts in of_aggregates(recorded).items():
        lost = [name for name in texts if uid in kept and name not in kept[uid]]
        if lost:
            raise ConfigError(
                f"The state of the aggregate {lost[0]!r} of operator {uid!r} would be lost: the "
                f"job has {', '.join(map(repr, kept[uid]))}; declare it too, or let "
                f"migrate(drop=[{lost[0]!r}]) or migrate(rename={{{lost[0]!r}: its new name}}) of "
                f"the job say what becomes of it."
            )


def check_definitions(recorded: Definitions, defined: Definitions, anew: str | None = None) -> None:
    """Raises ConfigError if rows would add to state that means something else.

    Args:
        recorded: The definitions of the state.
        defined: Those of the job.
        anew: What begins an aggregate anew, for the error; None: ``migrate`` of the job.
    """
    check_selectors(recorded, defined)
    for uid, texts in of_aggregates(defined).items():
        for name, text in texts.items():
            before = recorded.get(uid, {}).get(name, text)
            if before != text:
                ways = (
                    f"keep the definition, give the new aggregate another name, or begin it anew "
                    f"with {anew or f'migrate(start_empty=[{name!r}])'}"
                )
                if WINDOWED in defined[uid].get(SELECTOR, ""):
                    ways = (
                        "keep the definition until all windows have fired, or run the changed "
                        "pipeline under another name"
                    )
                raise ConfigError(
                    f"The aggregate {name!r} of operator {uid!r} was changed, and its state cannot "
                    f"be converted: expected {shorten(before, _SHOWN)}, got "
                    f"{shorten(text, _SHOWN)}; {ways}. A column that has a new name can get its "
                    f"old one in the batch."
                )
