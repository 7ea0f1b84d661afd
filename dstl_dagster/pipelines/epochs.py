"""The whole checkpoint protocol in one op: restore, apply, log, persist, commit, or reset.

A retry, a second run and a re-materialization all go the same way: what is committed runs nothing
and reports the version that was recorded. The commit log is authoritative; Dagster's event log
mirrors it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dstl_core.errors import ConfigError, InputChangedError
from dstl_dagster.pipelines.epoch_metadata import EpochMetadata, epoch_keys
from dstl_dagster.pipelines.epoch_report import EpochReport, Events
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.windows import (
    ALLOW_GAP_TAG,
    REWIND_TAG,
    TRUE,
    CommittedWindows,
    Windows,
)
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from dstl_core.spark.job.result import EpochResult
    from dstl_core.spark.job.stateful_job import StatefulJob
    from dstl_dagster.resources.spark_resource import DstlSparkResource
    from dstl_dagster.resources.upload_resource import UploadSchedulerResource

Batch = Callable[["SparkSession", str], "DataFrame"]

REWOUND_UNTIL_TAG = "dstl/rewound-until"
"""The last window that a run has to run again after it went back."""


class EpochConfig(dg.Config):
    """What a run of epochs can be told in the launchpad."""

    rewind_to: str | None = Field(
        default=None,
        description="Partition key of a window. The run goes back to before it, and runs it and "
        "all windows after it that were committed again, e.g. 2026-01-02.",
    )
    allow_gap: bool = Field(
        default=False,
        description="Whether the run may leave out the windows between the last committed one "
        "and its own.",
    )


def run_epochs(
    context: dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    batch: Batch,
    *,
    storage: DstlStorageResource,
    spark: DstlSparkResource,
    uploads: UploadSchedulerResource | None = None,
) -> Events:
    """Runs one epoch for each window of this run, in order, and reports each as it commits.

    Args:
        context: Of the op that ``dstl_assets`` made.
        pipeline: The pipeline.
        batch: The rows of one partition key.
        storage: Where the state lies.
        spark: The session.
        uploads: How changes are uploaded; the job's own way by default.

    Raises:
        dagster.Failure: Not retried: another run took over, the input of a committed window
            changed, a window leaves others out, the state cannot be restored.
    """
    run_id = context.run.run_id
    store = pipeline.store(storage)
    context.instance.add_run_tags(run_id, pipeline.run_tags)
    with (
        no_retry_of_permanent_errors(),
        store.lease(run_id),
        spark.tagged("dstl", run_id, pipeline.name) as session,
    ):
        options = uploads.changelog_options() if uploads is not None else None
        job = pipeline.open(session, storage, options)
        if pipeline.starts_from is not None:
            job.start(storage.path_of(pipeline.starts_from))
        partitions = context.assets_def.partitions_def
        windows = Windows(pipeline.name, context.op_def.name, time_windows(partitions), store)
        plan = EpochPlan.of(context, windows)
        metadata = EpochMetadata(pipeline, store, run_id, first_upstream(context, pipeline))
        report = EpochReport(context, metadata, plan.keys)
        for number, key in enumerate(plan.keys, 1):
            rewind = plan.rewind and number == 1
            committed = windows.read()
            committed.check(key, allow_gap=plan.allow_gap, rewind=rewind)
            order_by = pipeline.order_by or None
            result = _run_window(job, committed, batch(session, key), key, order_by, rewind=rewind)
            if rewind:
                mark_rewound(context.instance, run_id, key, plan.keys[-1])
            context.log.info(f"window {number} of {len(plan.keys)}: {result}")
            yield from report.epoch(key, result.checkpoint, result.committed_before)
            materialize_if_large(context, pipeline, job)
    yield from report.outputs()


def _run_window(
    job: StatefulJob,
    committed: CommittedWindows,
    rows: DataFrame,
    key: str,
    order_by: Sequence[str] | None,
    *,
    rewind: bool,
) -> EpochResult:
    input_id, notes = committed.input_id(key), committed.notes(key)
    try:
        return job.run(rows, input_id, order_by, rewind=rewind, notes=notes)
    except InputChangedError as error:
        if committed.commit_of(key) is None:
            raise
        message = f"{error} In Dagster, {committed.way_back(key)}"
        raise InputChangedError(message) from error


def time_windows(
    partitions: dg.PartitionsDefinition[Any] | None,
) -> dg.TimeWindowPartitionsDefinition:
    """The definition of the windows of an op.

    Raises:
        ConfigError: The partitions are no time windows.
    """
    if isinstance(partitions, dg.TimeWindowPartitionsDefinition):
        return partitions
    raise ConfigError(
        f"Epochs run by time windows: expected a TimeWindowPartitionsDefinition, got "
        f"{type(partitions).__name__}; make the assets with dstl_assets."
    )


@dataclass(frozen=True)
class EpochPlan:
    """The windows of a run, in order; ``rewind`` says that state goes back to before the first."""

    keys: Sequence[str]
    rewind: bool
    allow_gap: bool

    @classmethod
    def of(cls, context: dg.AssetExecutionContext, windows: Windows) -> EpochPlan:
        """What the partitions, tags and configuration of a run ask for.

        Raises:
            ConfigError: There is no such window to go back to.
        """
        config: Mapping[str, Any] = context.op_execution_context.op_config or {}
        tags = _tags_now(context)
        allow_gap = bool(config.get("allow_gap")) or tags.get(ALLOW_GAP_TAG) == TRUE
        keys = windows.in_order(context.partition_keys)
        target = config.get("rewind_to")
        if target is None and (tags.get(REWIND_TAG) == TRUE or REWOUND_UNTIL_TAG in tags):
            target = keys[0]
        if target is None:
            return cls(keys, False, allow_gap)
        done = REWOUND_UNTIL_TAG in tags
        until = [*keys, tags[REWOUND_UNTIL_TAG]] if done else keys
        again = windows.read().from_on(target, until)
        if not again or again[0] != target:
            raise ConfigError(
                f"The run cannot go back to {target!r}: expected a window of pipeline "
                f"{windows.pipeline!r} that is not after those of the run, {keys[0]!r} to "
                f"{keys[-1]!r}."
            )
        return cls(again, not done, allow_gap)


def _tags_now(context: dg.AssetExecutionContext) -> Mapping[str, str]:
    """The tags of the run, with those that an attempt before this one has set."""
    run = context.instance.get_run_by_id(context.run.run_id)
    return context.run.tags if run is None else run.tags


def mark_rewound(instance: dg.DagsterInstance, run_id: str, key: str, until: str) -> None:
    """A run goes back once: a retry of it, or a run like it, goes on from there."""
    tags = {REWIND_TAG: f"done, to before {key}", REWOUND_UNTIL_TAG: until}
    instance.add_run_tags(run_id, tags)


def materialize_if_large(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    pipeline: StatefulPipeline,
    job: StatefulJob,
) -> None:
    """Folds the log into the base where the pipeline's ``materialize_at_ratio`` asks for it."""
    if pipeline.materialize_at_ratio is None:
        return
    size = job.state_size()
    is_small = size.log < pipeline.small_log_bytes
    if not is_small and size.log_ratio > pipeline.materialize_at_ratio:
        job.materialize()
        context.log.info(
            f"materialized: the log had {size.log:,} bytes on {size.materialized:,} of state"
        )


def first_upstream(
    context: dg.AssetExecutionContext, pipeline: StatefulPipeline
) -> dg.AssetKey | None:
    """The first asset that the state is made of."""
    own = set(epoch_keys(pipeline))
    for spec in context.assets_def.specs:
        if spec.key == pipeline.key("state"):
            others = [each.asset_key for each in spec.deps if each.asset_key not in own]
            return others[0] if others else None
    return None
