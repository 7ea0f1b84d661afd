"""A small batch on one machine: one Spark task applies it to all subtasks, without a shuffle.

``docs/decisions/0064-small-batches.md`` says when, and why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from dstl_core.job.rows.joined_batches import together
from dstl_core.job.rows.placement import Placement, spooled
from dstl_core.job.spec.fingerprint import FINGERPRINT_COLUMN
from dstl_core.job.spec.input_checks import needed_columns
from dstl_core.job.spec.job_spec import EpochSpec, TaskSpec
from dstl_core.job.spec.operators import AggregateOperator, Operator
from dstl_core.job.spec.row_hashes import RowHash
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.job.task.subtask import run_epoch_subtask
from dstl_core.spark.engine.session import of_attempt
from dstl_core.spark.job.inputs import with_hash

SMALL_BYTES = 4 << 20
"""The bytes that Spark expects of a batch which one task applies."""
_READS = {"LogicalRelation", "DataSourceV2ScanRelation", "LocalRelation", "Project", "Filter"}
"""Parts of a plan that read rows and choose among them."""
_MEMORY = 256 << 20
"""The bytes of rows that stay in memory, if Spark expected fewer than there are."""


@dataclass(frozen=True)
class ApplyRows:
    """Runs in the one task: applies the rows to the subtasks that own their keys.

    Args:
        task: The operator.
        epoch: The epoch.
        columns: The columns that the subtasks get.
        row_hash: Hashes rows; None: they have a column of hashes.
        threads: Subtasks that run at a time.
    """

    task: TaskSpec
    epoch: EpochSpec
    columns: Sequence[str]
    row_hash: RowHash | None
    threads: int
    label = "apply rows to all subtasks"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        operator, job = self.task.operator, self.task.job
        placement = Placement(
            operator.key_by, operator.key_type, job.parallelism, job.max_parallelism
        )
        sent = map(self._sent, together(batches))
        rows = spooled(sent, FINGERPRINT_COLUMN, placement, _MEMORY)

        def run(subtask: int) -> SubtaskReport:
            return run_epoch_subtask(
                deepcopy(self.task), self.epoch, subtask, rows[subtask].batches()
            )

        with ThreadPoolExecutor(self.threads, "dstl-task") as pool:
            for report in pool.map(run, sorted(rows)):
                yield of_attempt(report).to_batch()

    def _sent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.row_hash is None:
            return batch
        hashes = self.row_hash.of(batch)
        return batch.select(list(self.columns)).append_column(FINGERPRINT_COLUMN, hashes)


def applied_by_one_task(
    rows: DataFrame, operator: Operator, order_by: Sequence[str], task: TaskSpec, epoch: EpochSpec
) -> tuple[DataFrame, ApplyRows] | None:
    """Rows in one partition, and what applies them; None if each subtask has a task of its own.

    Only declared aggregates without windows are applied so: their state is in files that all
    workers of a machine map, and no code of a user runs. A batch that is more than read, such as a
    join or the result of a function, may cost more than its rows: it keeps its partitions.

    Args:
        rows: The rows.
        operator: The operator that reads them.
        order_by: The columns that order the rows of a key.
        task: The operator as its tasks get it.
        epoch: The epoch.
    """
    is_columnar = isinstance(operator, AggregateOperator) and operator.window is None
    if not is_columnar or order_by or is_remote():
        return None
    context = rows.sparkSession.sparkContext
    if not re.match(r"local(\[|$)", context.master or ""):
        return None
    plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # Spark shows it nowhere else
    if not _only_reads(plan) or int(plan.stats().sizeInBytes()) > SMALL_BYTES:
        return None
    needed = needed_columns(operator, order_by)
    names = [name for name in rows.columns if needed is None or name in needed]
    hashed, row_hash = with_hash(rows, names)
    threads = min(task.job.parallelism, context.defaultParallelism)
    return hashed.coalesce(1), ApplyRows(task, epoch, names, row_hash, threads)


def _only_reads(plan: Any) -> bool:
    """Whether a plan only reads rows, chooses some and computes columns."""
    children = plan.children()
    inputs = [children.apply(at) for at in range(children.size())]
    return plan.nodeName() in _READS and all(map(_only_reads, inputs))
