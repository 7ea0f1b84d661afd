"""Computes what an aggregate would have, had the pipeline declared it from its first input on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from dstl_core.aggregates.aggregate import Aggregate, Kept
from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import InputFacts
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, InputChangedError
from dstl_core.job.coordination.definitions import BACKFILLED_NOTE
from dstl_core.job.coordination.engine import Engine
from dstl_core.job.coordination.same_input import difference
from dstl_core.job.spec.operators import INPUT, AggregateOperator, Operator
from dstl_core.job.spec.read_columns import ALL_COLUMNS, ReadColumns

_LOG = logging.getLogger(__name__)
Batches = Callable[[Any], Any]
"""The rows of an input that was committed, by its id."""


class JobBeside(Protocol):
    """What applies the inputs again: a job of the operators, in a folder of its own."""

    def run(self, rows: Any, input_id: str | int) -> Any: ...

    def latest_path(self) -> str: ...


@dataclass(frozen=True)
class Recomputed:
    """State in which aggregates have the values of all inputs.

    Args:
        path: The checkpoint that has it.
        keys_gained: Keys that had no value in any state before, by uid of the operator.
    """

    path: str
    keys_gained: Mapping[str, int]


@dataclass(frozen=True)
class Recomputation:
    """Applies inputs again to some aggregates, while others keep their states.

    Args:
        engine: Looks at the rows.
        beside: Starts the job, from its folder, its operators and a state.
        batches: The rows of each input; None if nobody has named them.
    """

    engine: Engine
    beside: Callable[[str, Sequence[Operator], str], JobBeside]
    batches: Batches | None = None

    def run(
        self,
        operators: Iterable[Operator],
        names: Mapping[str, Collection[str]],
        inputs: Sequence[InputFacts],
        savepoint: str,
        folder: str,
    ) -> Recomputed:
        """Applies inputs in their order.

        Args:
            operators: The operators of the job.
            names: The aggregates to compute, which have no state, by uid of the operator.
            inputs: The inputs, oldest first.
            savepoint: The state.
            folder: Where it writes.

        Raises:
            ConfigError: Nobody has named the rows.
            InputChangedError: The rows of an input are not those that were committed.
        """
        if self.batches is None:
            raise ConfigError(
                f"A backfill applies {len(inputs)} inputs again, and nothing gives their rows: "
                f"pass batches, a function of the id of an input."
            )
        parts = [
            _reading(operator, names[operator.uid])
            for operator in operators
            if isinstance(operator, AggregateOperator) and operator.uid in names
        ]
        job = self.beside(folder, parts, savepoint)
        gained = dict.fromkeys(names, 0)
        shown = ", ".join(name for of_operator in names.values() for name in of_operator)
        for number, facts in enumerate(inputs, 1):
            rows = self._rows_of(facts, parts, self.batches)
            commit = job.run(rows, facts.id).checkpoint
            for uid in gained:
                gained[uid] += commit.facts.operators[uid].keys_gained
            _LOG.info(
                "applied input %r again to %s, %d of %d", facts.id, shown, number, len(inputs)
            )
        return Recomputed(job.latest_path(), gained)

    def _rows_of(
        self, facts: InputFacts, operators: Sequence[AggregateOperator], batches: Batches
    ) -> Any:
        """The rows of an input, which are those that were committed."""
        reads = ALL_COLUMNS
        if facts.columns is not None:
            needed = {column for operator in operators for column in operator.columns}
            reads = ReadColumns(frozenset({*facts.columns, *needed}), takes_others=False)
        rows = self.engine.batch_of(
            batches(facts.id), f"The batch of the input {facts.id!r}", reads
        )
        text = difference(facts, rows, reads, self.engine)
        if text is not None:
            raise InputChangedError(
                f"The input {facts.id!r} has other rows or columns than those that were committed: "
                f"{text}; run it again with rewind=True first, or let the aggregate begin empty."
            )
        return rows


def _reading(operator: AggregateOperator, names: Collection[str]) -> AggregateOperator:
    """An operator of which only some aggregates read rows."""
    return replace(
        operator,
        aggregates={
            name: aggregate if name in names else Untouched(aggregate)
            for name, aggregate in operator.items
        },
        output=False,
    )


def check_backfill(operators: Iterable[Operator], names: Iterable[str]) -> None:
    """Raises ConfigError if a name is no aggregate that inputs can be applied to again."""
    declared: dict[str, list[AggregateOperator]] = {}
    for operator in operators:
        if isinstance(operator, AggregateOperator):
            for name in operator.aggregates:
                declared.setdefault(name, []).append(operator)
    for name in names:
        if name not in declared:
            raise ConfigError(
                f"The name {name!r} cannot be backfilled: expected an aggregate of the job, one of "
                f"{', '.join(declared) or 'none'}."
            )
        for operator in declared[name]:
            if operator.window is not None or operator.source != INPUT:
                why = "has windows" if operator.window is not None else "reads another operator"
                raise ConfigError(
                    f"The aggregate {name!r} cannot be backfilled: the operator {operator.uid!r} "
                    f"{why}; run the changed pipeline under another name."
                )


@dataclass(frozen=True)
class PastInputs:
    """The inputs that led to the state of a commit.

    Args:
        line: The lineage of the latest commit, newest first. It is read as often as needed.
        parent: The commit.
        pipeline: The name of the pipeline, for errors.
    """

    line: Sequence[CompletedCheckpoint]
    parent: CompletedCheckpoint
    pipeline: str

    def _commits(self) -> Iterator[CompletedCheckpoint]:
        return dropwhile(lambda commit: commit != self.parent, self.line)

    def have_reached(self, uid: str, name: str, definition: str) -> bool:
        """Whether the state of an aggregate is made of all of them."""
        for commit in self._commits():
            facts = commit.facts
            if name in facts.notes.get(BACKFILLED_NOTE, {}).get(uid, ()):
                return True
            if facts.kind == "start" and facts.source is None:
                return True
            known = facts.definitions.get(uid, {}).get(name)
            if facts.kind in ("start", "epoch", "migration") and known != definition:
                return False
        return True

    def all(self) -> list[InputFacts]:
        """All of them, oldest first.

        Raises:
            ConfigError: The pipeline began with state of a savepoint, which has no inputs.
        """
        inputs: list[InputFacts] = []
        first = self.parent
        for commit in self._commits():
            first = commit
            if commit.facts.input is not None:
                inputs.append(commit.facts.input)
        if first.facts.source is not None:
            raise ConfigError(
                f"An aggregate of {self.pipeline!r} cannot be backfilled: the pipeline started "
                f"from the savepoint {first.facts.source.savepoint}, and the rows in its state are "
                f"not among the inputs; let the aggregate begin empty."
            )
        return inputs[::-1]


@dataclass(frozen=True)
class Untouched(Aggregate):
    """Has the states of another aggregate, reads no column, and keeps what it has while others of
    its operator read rows.

    Args:
        of: The other aggregate.
    """

    of: Aggregate
    column: str | None = None

    def __post_init__(self) -> None:
        """Does nothing: the other aggregate is checked."""

    @property
    def definition(self) -> str:
        return self.of.definition

    @property
    def kept(self) -> tuple[Kept, ...]:
        return self.of.kept

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return UntouchedMerge(self.of.merge(uid, name, kinds))


class UntouchedMerge(Merge):
    """Keeps the states of another merge.

    Args:
        of: The other merge.
    """

    parts: ClassVar = ("untouched",)

    def __init__(self, of: Merge) -> None:
        states = {state.name[len(of.name) :]: state.serializer for state in of.states}
        super().__init__(of.uid, of.name, states)

    @property
    def always(self) -> Sequence[int]:
        return ()

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        return [pa.nulls(rows.keys, pa.bool_())]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        return held

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return [pa.nulls(keys, pa.bool_())]
