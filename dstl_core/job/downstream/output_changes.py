"""What changed in an output between two commits.

An epoch stores the new row of each key that it changed. So the last row of a key in the lineage of
a commit is its row then. After a rewind a key goes back to its last row before the undone epochs,
unless an epoch since has given it another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.columnar.types.type_registry import ColumnOptions
from dstl_core.errors import ConfigError, InvariantViolation
from dstl_core.job.downstream.output_source import CHANGE, CHECKPOINT, INSERTED, OutputSource
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.operators.aggregate_function import AggregateMerge
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.columns.state_columns import KEY_COLUMN

ChangeKind = Literal["insert", "update", "delete", "upsert"]
CHANGE_KINDS: Sequence[str] = get_args(ChangeKind)
INSERT, UPDATE, DELETE, UPSERT = CHANGE_KINDS
_AT = "dstl_row"

_AS_STORED = ColumnOptions(decimals="exact")


@dataclass(frozen=True)
class OutputChanges:
    """What changed in an output between a reader's position and the latest commit.

    Args:
        between: The commits.
        rows: With keys, a row per key that changed: ``change`` and the columns of the output, which
            are null but for the key of a ``delete``. The kind ``upsert`` is an insert or an update,
            where the output does not say which: that of windows, and of functions. Without keys,
            the rows of the applied epochs and their ``dstl_checkpoint``. None if there is none.
        whole: Whether these are all rows of the output, which replace those of the reader.
    """

    between: CommitsBetween
    rows: pa.Table | None
    whole: bool

    @property
    def counts(self) -> dict[str, int]:
        """How many rows there are of each kind."""
        if self.rows is None:
            return {}
        if CHECKPOINT in self.rows.column_names:
            return {INSERT: self.rows.num_rows}
        kinds = pc.value_counts(self.rows.column(CHANGE)).to_pylist()
        return {each["values"]: each["counts"] for each in kinds}


class OutputGapError(ConfigError):
    """The stored output of epochs is not all that changed."""


def changes_since(source: OutputSource, position: int | None) -> OutputChanges:
    """What changed in an output since a position.

    Args:
        source: The output.
        position: The checkpoint id that the reader stands at; None if it has read nothing.

    Raises:
        ConfigError: The pipeline has no such commit, or the output of some epochs is not stored.
        CheckpointError: The pipeline has no commit yet.
    """
    source.store.require_latest()
    commits = list(source.store.commits())
    between = CommitsBetween.since(commits, position)
    begun = position
    if has_erased(between.applied):
        begun, between = None, CommitsBetween.since(commits, None)
    why = source.missing([*between.undone, *between.applied], between.shared)
    if not source.keys:
        try:
            return _rows_since(source, between)
        except OutputGapError:
            if begun == position:
                raise
            # What is stored gives only the rows since; the table keeps those of erased keys.
            return _rows_since(source, CommitsBetween.since(commits, position))
    if why is None:
        try:
            return OutputChanges(between, _changed(source, between), begun is None)
        except OutputGapError as error:
            why = str(error)
    if source.operator is None:
        raise _gap(source, why)
    rows = rows_of_state(source.store, source.operator, between.until)
    return OutputChanges(between, _with_change(rows, [INSERT] * rows.num_rows), True)


def _gap(source: OutputSource, why: str) -> OutputGapError:
    return OutputGapError(
        f"The output {source.name!r} of pipeline {source.store.name!r} is not stored for all that "
        f"changed: {why}; give a new table if a rewind has undone it, or run these inputs again "
        f"with the output (rewind=True), or keep the output of more epochs (num_retained_outputs)."
    )


# ------------------------------------------------------------------------------------ rows


def _rows_since(source: OutputSource, between: CommitsBetween) -> OutputChanges:
    """All rows of the applied epochs. Those of undone ones go by their checkpoint."""
    for commit in between.applied:
        epochs = source.missing([commit])
        if epochs is not None and commit.facts.kind in ("epoch", "drain"):
            raise _gap(source, epochs)
    rows = source.read(between.applied)
    return OutputChanges(between, None if rows is None else rows.drop_columns([INSERTED]), False)


# ------------------------------------------------------------------------------------ keys


def _changed(source: OutputSource, between: CommitsBetween) -> pa.Table | None:
    """The changes of keys, from the stored output alone.

    Raises:
        OutputGapError: A row of before the undone epochs is not stored.
    """
    undone, applied = source.read(between.undone), source.read(between.applied)
    tables = [each for each in (undone, applied) if each is not None]
    if not tables:
        return None
    rows = pa.concat_tables(tables, promote_options="default")
    first, last = _ends_of_keys(rows, source.keys)
    split = 0 if undone is None else undone.num_rows
    # Whether the shared state has a key says its first row since: a new key, or one that was there.
    new_key = rows.column(INSERTED).take(pa.array(first))
    unseen = pc.fill_null(new_key, False).to_numpy()
    is_known = new_key.is_valid().to_numpy()
    if not between.shared and (is_known & ~unseen).any():
        raise OutputGapError("keys had state before the first stored output")
    in_undone, in_applied = first < split, last >= split
    kinds = np.where(
        in_undone | (is_known & ~unseen), UPDATE, np.where(is_known, INSERT, UPSERT)
    ).astype(object)
    parts = [_with_change(rows.take(pa.array(last[in_applied])), kinds[in_applied])]
    inserted = last[~in_applied & unseen]
    back = last[~in_applied & ~unseen]
    if len(back):
        keys = rows.take(pa.array(back)).select(list(source.keys))
        rows_before = _rows_before(source, between.shared, keys)
        parts.append(_with_change(rows_before, [UPDATE] * rows_before.num_rows))
        lost = without(keys, rows_before, source.keys)
        had_state = keys.filter(pa.array(is_known[~in_applied & ~unseen]))
        if without(had_state, rows_before, source.keys).num_rows:
            raise OutputGapError("the rows before the undone epochs are not stored")
        parts.append(_with_change(lost, [DELETE] * lost.num_rows))
    if len(inserted):
        deleted = rows.take(pa.array(inserted)).select(list(source.keys))
        parts.append(_with_change(deleted, [DELETE] * deleted.num_rows))
    return pa.concat_tables(parts, promote_options="default")


def _with_change(rows: pa.Table, kinds: Iterable[str]) -> pa.Table:
    """Rows with the kind of their change first, without the columns of stored rows."""
    bookkeeping = [each for each in (CHECKPOINT, INSERTED) if each in rows.column_names]
    return rows.drop_columns(bookkeeping).add_column(0, CHANGE, pa.array(list(kinds), pa.string()))


def _ends_of_keys(
    rows: pa.Table, keys: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The numbers of the first and of the last row of each key."""
    numbered = rows.select(list(keys)).append_column(_AT, pa.array(np.arange(rows.num_rows)))
    ends = numbered.group_by(list(keys)).aggregate([(_AT, "min"), (_AT, "max")])
    first, last = (ends.column(f"{_AT}_{end}").to_numpy() for end in ("min", "max"))
    return first, last


def _rows_before(
    source: OutputSource, shared: Sequence[CompletedCheckpoint], keys: pa.Table
) -> pa.Table:
    """The last rows of keys in commits, newest first; keys without one are left out.

    Raises:
        OutputGapError: The output of a commit that may have a row is not stored.
    """
    names, parts = list(source.keys), []
    for commit in shared:
        if not keys.num_rows:
            break
        why = source.missing([commit])
        if why is not None:
            raise OutputGapError(why)
        rows = source.read([commit])
        if rows is None:
            continue
        _, last = _ends_of_keys(rows, names)
        rows = rows.take(pa.array(last))
        mine = _joined(rows, keys, names, "left semi")
        parts.append(mine)
        keys = without(keys, mine, names)
    return pa.concat_tables(chain([keys.schema.empty_table()], parts), promote_options="default")


def without(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows whose key no other row has, in their order."""
    return _joined(rows, others, names, "left anti")


def _joined(rows: pa.Table, others: pa.Table, names: Sequence[str], how: str) -> pa.Table:
    """A join of keys alone, since Arrow joins no lists and structs, not even beside the key."""
    names = list(names)
    numbered = rows.select(names).append_column(_AT, pa.array(np.arange(rows.num_rows)))
    at = numbered.join(others.select(names), names, join_type=how).column(_AT)
    return rows.take(at.sort())


@dataclass(frozen=True)
class CommitsBetween:
    """The commits between the position of a reader and the latest one.

    Args:
        until: The latest commit.
        shared: Commits that both stand on, newest first; none for a reader without a position.
        undone: Commits that the reader has seen and a rewind undid, oldest first.
        applied: Commits that the reader lacks, oldest first.
    """

    until: CompletedCheckpoint
    shared: Sequence[CompletedCheckpoint]
    undone: Sequence[CompletedCheckpoint]
    applied: Sequence[CompletedCheckpoint]

    @classmethod
    def since(cls, commits: Iterable[CompletedCheckpoint], position: int | None) -> CommitsBetween:
        """Reads the log.

        Args:
            commits: All commits, newest first; at least one.
            position: The checkpoint id that the reader stands at; None if it has read nothing.

        Raises:
            ConfigError: The log has no such commit.
        """
        read = list(commits)
        line = list(lineage(read))
        if position is None:
            return cls(line[0], (), (), line[::-1])
        older = [each for each in read if each.checkpoint_id <= position]
        if not older or older[0].checkpoint_id != position:
            raise ConfigError(
                f"The table stands at checkpoint {position}, which the pipeline does not have: "
                f"another pipeline of the same name filled it, or the pipeline began anew; give a "
                f"new table."
            )
        held = list(lineage(older))
        latest_ids = {each.checkpoint_id for each in line}
        common = next((each.checkpoint_id for each in held if each.checkpoint_id in latest_ids), 0)
        return cls(
            line[0],
            [each for each in line if each.checkpoint_id <= common],
            [each for each in held if each.checkpoint_id > common][::-1],
            [each for each in line if each.checkpoint_id > common][::-1],
        )

    @property
    def common(self) -> int:
        """Id of the newest commit that both stand on; 0 if there is none."""
        return self.shared[0].checkpoint_id if self.shared else 0


def has_erased(commits: Iterable[CompletedCheckpoint]) -> bool:
    """Whether keys were erased, so that a reader has rows that are stored no longer."""
    return any(commit.facts.kind == "erasure" for commit in commits)


def rows_of_state(
    store: PipelineStore, operator: AggregateOperator, commit: CompletedCheckpoint
) -> pa.Table:
    """A row for each key, as the operator would give it in an epoch that changes all keys.

    Args:
        store: The folder of the pipeline.
        operator: Declared aggregates without windows, with output.
        commit: The commit whose state it is.
    """
    function, schema = operator.function, operator.output_schema
    if not isinstance(function, AggregateMerge) or schema is None:
        raise InvariantViolation("only aggregates with output give rows of their state")
    reader = Snapshot.load(store.path_of(commit))[f"uid:{operator.uid}"].keyed(types=_AS_STORED)
    rows = []
    for batch in reader.read():
        states = pa.RecordBatch.from_arrays(
            [
                batch.column(state.name).cast(kind)
                if state.name in batch.schema.names
                else pa.nulls(batch.num_rows, kind)
                for merge in function.merges
                for state, kind in zip(merge.states, merge.types, strict=True)
            ],
            names=[state.name for state in function.states],
        )
        output = function.output_of_changes(batch.column(KEY_COLUMN), states)
        if output is not None:
            rows.append(output.cast(schema))
    stored = stored_arrow_schema(schema)
    return as_stored(pa.Table.from_batches(rows, schema), stored)
