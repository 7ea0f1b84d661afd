"""The output of all keys, computed from the state of a checkpoint."""

from __future__ import annotations

import pyarrow as pa

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.columnar.types.type_registry import ColumnOptions
from dstl_core.errors import InvariantViolation
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.job.spec.output_types import as_stored, stored_arrow_schema
from dstl_core.operators.aggregate_function import AggregateMerge
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.columns.state_columns import KEY_COLUMN

_AS_STORED = ColumnOptions(decimals="exact")


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
