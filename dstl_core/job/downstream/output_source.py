"""The stored output of an operator, as a table behind it reads it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dstl_core.cached_property import cached_property
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.kept_outputs import KeptOutputs
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.job.downstream.stored_files import inserted_rows, output_files, read_rows
from dstl_core.job.spec.operators import AggregateOperator, Operator
from dstl_core.operators.aggregate_function import AggregateMerge
from dstl_core.operators.aggregated_windows import WINDOW_END, WINDOW_START

CHANGE = "change"
"""The column with the kind of a change."""
CHECKPOINT = "dstl_checkpoint"
"""The column with the checkpoint whose epoch gave a row."""
INSERTED = "dstl_inserted"
"""The column that says whether the key of a row had no state before; null if that is not known."""


@dataclass(frozen=True)
class OutputSource:
    """The output of one operator.

    Args:
        store: The folder of the pipeline.
        name: The name of the output: the uid of the operator, or ``<uid>.late``.
        keys: The columns of which a table has one row each; none if every row counts.
        operator: Makes the rows of all keys from state; None if only epochs give them.
    """

    store: PipelineStore
    name: str
    keys: tuple[str, ...] = ()
    operator: AggregateOperator | None = None

    @classmethod
    def of(cls, store: PipelineStore, operator: Operator, name: str) -> OutputSource:
        """An output of an operator: a row per key of declared aggregates, per key and window of
        windows of aggregates, and all rows of functions and late rows.
        """
        if name != operator.uid or not isinstance(operator, AggregateOperator):
            return cls(store, name)
        if isinstance(operator.function, AggregateMerge):
            return cls(store, name, (operator.key_by,), operator)
        return cls(store, name, (operator.key_by, WINDOW_START, WINDOW_END))

    def keyed_by(self, columns: str | Sequence[str]) -> OutputSource:
        """The same output with other keys; with its own if there are no columns."""
        keys = (columns,) if isinstance(columns, str) else tuple(columns)
        return self if keys in ((), self.keys) else replace(self, keys=keys, operator=None)

    def missing(
        self, commits: Iterable[CompletedCheckpoint], shared: Sequence[CompletedCheckpoint] = ()
    ) -> str | None:
        """Why the stored output of commits is not all that changed; None if it is.

        Args:
            commits: The commits.
            shared: Commits before them, newest first: the last epoch has to have the same columns.
        """
        before = next((each for each in shared if _has_columns(each)), None)
        columns: set[tuple[str, ...]] = set()
        for commit in [*([] if before is None else [before]), *commits]:
            facts, number = commit.facts, _named(commit)
            if facts.kind == "migration" and commit is not before:
                return f"{number} changed the state of all keys"
            if facts.kind == "start" and facts.source is not None:
                return f"{number} has the state of {facts.source.savepoint}"
            if not _has_columns(commit):
                continue
            if not facts.stores(self.name):
                return f"{number} stored no output"
            if facts.outputs is not None:
                columns.add(facts.outputs[self.name])
            if len(columns) > 1:
                return f"{number} gave other columns than the epochs before it"
            if commit is not before and not self.keeps(commit):
                return f"the output of {number} is no longer kept"
        return None

    def keeps(self, commit: CompletedCheckpoint) -> bool:
        """Whether the log keeps the output of a commit, if it gave any rows."""
        return not commit.facts.output_of(self.name)[1] or self._kept.keeps(commit.checkpoint_id)

    @cached_property
    def _kept(self) -> KeptOutputs:
        return KeptOutputs.of(self.store.commits())

    def read(self, commits: Iterable[CompletedCheckpoint]) -> pa.Table | None:
        """The rows that epochs gave, with the columns ``CHECKPOINT`` and ``INSERTED``.

        None if they gave none.

        Raises:
            ConfigError: A row lacks a key, a column cannot be merged, or epochs gave other types.
        """
        tables = []
        for commit in commits:
            for file in output_files(self.store, commit, self.name):
                rows, inserted = read_rows(file), inserted_rows(file)
                self._check_names(rows.column_names)
                known = (
                    pa.nulls(rows.num_rows, pa.bool_())
                    if inserted is None
                    else pa.array(np.arange(rows.num_rows) < inserted)
                )
                number = np.full(rows.num_rows, commit.checkpoint_id, np.int64)
                tables.append(
                    rows.append_column(CHECKPOINT, pa.array(number)).append_column(INSERTED, known)
                )
        if not tables:
            return None
        try:
            output = pa.concat_tables(tables, promote_options="default")
        except pa.ArrowTypeError as error:
            raise ConfigError(
                f"{self._where} has not the same types in all epochs ({error}); run the earlier "
                f"inputs again (rewind=True), into a new table."
            ) from error
        self._check_keys(output)
        return output

    @property
    def _where(self) -> str:
        return f"The output {self.name!r} of pipeline {self.store.name!r}"

    def _check_names(self, names: Sequence[str]) -> None:
        for name in (CHECKPOINT, INSERTED, *((CHANGE,) if self.keys else ())):
            if name in names:
                raise ConfigError(
                    f"{self._where} has a column {name!r}, a name that is reserved in changes; "
                    f"rename it."
                )

    def _check_keys(self, rows: pa.Table) -> None:
        where = self._where
        for name in self.keys:
            if name not in rows.column_names:
                raise ConfigError(
                    f"{where} has no column {name!r} to merge by; it has: "
                    f"{', '.join(rows.column_names[:-2])}."
                )
            if pa.types.is_nested(rows.column(name).type):
                raise ConfigError(
                    f"{where} cannot be merged by {name!r}, which is {rows.column(name).type}: "
                    f"expected a text, a number or a time; merge it by other columns."
                )
            if rows.column(name).null_count:
                raise ConfigError(
                    f"{where} has rows without {name!r}, which it is merged by; merge it by other "
                    f"columns."
                )
            if pa.types.is_floating(rows.column(name).type):
                numbers = rows.column(name).to_numpy()
                if (np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))).any():
                    raise ConfigError(
                        f"{where} has rows whose {name!r}, which it is merged by, is NaN or -0.0: "
                        f"tables do not agree on what equals these; merge it by other columns."
                    )


def _named(commit: CompletedCheckpoint) -> str:
    number = f"checkpoint {commit.checkpoint_id}"
    batch = commit.facts.input
    return number if batch is None else f"the epoch of input {batch.id!r} ({number})"


def _has_columns(commit: CompletedCheckpoint) -> bool:
    """Whether a commit records the columns of outputs."""
    return commit.facts.input is not None or commit.facts.kind in ("drain", "migration")
