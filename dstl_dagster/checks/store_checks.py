"""Asset checks that every pipeline has, of its checkpoint. None of them needs Spark."""

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import dagster as dg

from dstl_core.errors import DAMAGED, ConfigError
from dstl_dagster.checks.snapshot_check import ERROR, WARN, lines_of
from dstl_dagster.checks.verify_check import verify
from dstl_dagster.pipelines.drift import CHECKED_COMMITS, Drift
from dstl_dagster.pipelines.leases import working_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.windows import Windows
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.sources import checkpoint_of

ResultOf = Callable[
    [StatefulPipeline, dg.AssetCheckExecutionContext, DstlStorageResource], dg.AssetCheckResult
]
"""A check of a pipeline."""


def build_pipeline_checks(
    pipeline: StatefulPipeline,
    *,
    max_log_ratio: float = 2.0,
    partitions_def: dg.TimeWindowPartitionsDefinition | None = None,
) -> list[dg.AssetChecksDefinition]:
    """The checks of a pipeline's checkpoint; none of them needs Spark.

    ``committed`` and ``verified`` are errors; ``committed`` blocks downstream assets. The others
    are warnings: the size of the log, files of killed runs, commits that the event log lacks, and
    windows that were left out.

    They are one step of a run, since a step may be a process. A check that raises an error does not
    stop the others.

    Args:
        pipeline: The pipeline.
        max_log_ratio: Largest log against the full state.
        partitions_def: Its windows, for the check ``no_gaps``.
    """
    key = pipeline.key("checkpoint")
    of_checks: dict[str, ResultOf] = {
        "verified": _verified,
        "log_size": partial(_log_size, max_log_ratio),
        "no_leftovers": _no_leftovers,
        "reported": _reported,
    }
    if partitions_def is not None:
        of_checks["no_gaps"] = partial(_no_gaps, partitions_def)
    of_checks["committed"] = _committed

    @dg.multi_asset_check(
        name=pipeline.python_name("checks"),
        specs=[
            dg.AssetCheckSpec(
                name, asset=key, description=_about(check), blocking=check is _committed
            )
            for name, check in of_checks.items()
        ],
        can_subset=True,
    )
    def checks(
        context: dg.AssetCheckExecutionContext, storage: DstlStorageResource
    ) -> Iterator[dg.AssetCheckResult]:
        keys = {selected.name: selected.asset_key for selected in context.selected_asset_check_keys}
        seen = pipeline.as_run(context)
        errors = []
        for name, check in of_checks.items():
            if name not in keys:
                continue
            try:
                result = check(seen, context, storage)
            except Exception as error:
                errors.append(error)
            else:
                yield result._replace(asset_key=keys[name], check_name=name)
        if errors:
            raise errors[0]

    return [checks]


def _about(check: Any) -> str:
    return inspect.cleandoc(getattr(check, "func", check).__doc__)


def _committed(
    pipeline: StatefulPipeline,
    context: dg.AssetCheckExecutionContext,
    storage: DstlStorageResource,
) -> dg.AssetCheckResult:
    """The latest commit's metadata is what was committed; ids and parents of the last hundred
    commits follow each other.
    """
    store = pipeline.store(storage)
    history = store.recent(CHECKED_COMMITS)
    problems = [
        f"checkpoint {commit.checkpoint_id} has parent {commit.parent}, not {before.checkpoint_id}"
        for before, commit in pairwise(history)
        if commit.parent != before.checkpoint_id or commit.checkpoint_id <= before.checkpoint_id
    ]
    try:
        store.metadata_of(store.require_latest())
    except DAMAGED as error:
        problems.append(str(error))
    return dg.AssetCheckResult(
        passed=not problems,
        severity=ERROR,
        metadata={"commits": len(history), "problems": lines_of(problems)},
    )


def _verified(
    pipeline: StatefulPipeline, context: dg.AssetCheckExecutionContext, storage: DstlStorageResource
) -> dg.AssetCheckResult:
    """Every file of the latest checkpoint is there and decodes. Each key is in its key group."""
    return verify(checkpoint_of(pipeline), storage)


def _log_size(
    max_log_ratio: float,
    pipeline: StatefulPipeline,
    context: dg.AssetCheckExecutionContext,
    storage: DstlStorageResource,
) -> dg.AssetCheckResult:
    """The changelog is small, or not too large against the full state."""
    size = pipeline.store(storage).size()
    is_large = size.has_large_log(max_log_ratio, least=pipeline.small_log_bytes)
    return dg.AssetCheckResult(
        passed=not is_large,
        severity=WARN,
        metadata={"log_bytes": size.log, "state_bytes": size.materialized},
    )


def _no_leftovers(
    pipeline: StatefulPipeline,
    context: dg.AssetCheckExecutionContext,
    storage: DstlStorageResource,
) -> dg.AssetCheckResult:
    """No run was killed without a reset since, and no file is unreferenced."""
    store = pipeline.store(storage)
    working = working_runs(context.instance, store)
    dead = len(store.leases()) - len(working)
    # The files of a running epoch are not named yet.
    orphans = [] if working else store.orphans()
    return dg.AssetCheckResult(
        passed=dead == 0 and not orphans,
        severity=WARN,
        metadata={"killed_runs": dead, "orphans": len(orphans), "at_work": len(working)},
    )


def _no_gaps(
    partitions_def: dg.TimeWindowPartitionsDefinition,
    pipeline: StatefulPipeline,
    context: dg.AssetCheckExecutionContext,
    storage: DstlStorageResource,
) -> dg.AssetCheckResult:
    """The latest state holds every window up to the last committed one, as far as the last
    hundred commits tell.
    """
    windows = Windows(pipeline.name, pipeline.store(storage), partitions_def)
    try:
        missing = windows.read().missing(CHECKED_COMMITS)
    except ConfigError as error:
        return dg.AssetCheckResult(passed=False, severity=WARN, metadata={"problem": str(error)})
    return dg.AssetCheckResult(
        passed=not missing,
        severity=WARN,
        metadata={"windows_missing": len(missing), "shown": lines_of(missing)},
    )


def _reported(
    pipeline: StatefulPipeline,
    context: dg.AssetCheckExecutionContext,
    storage: DstlStorageResource,
) -> dg.AssetCheckResult:
    """Dagster's event log shows the last hundred commits of windows that the state stands on,
    each with its version, and last a commit of the pipeline.
    """
    store = pipeline.store(storage)
    drift = Drift.of(context.instance, pipeline, store)
    problems = [f"{each.shown} is not shown" for each in drift.unreported]
    if drift.foreign is not None:
        problems.append(f"{drift.foreign} is shown and is no commit")
    return dg.AssetCheckResult(
        passed=not problems,
        severity=WARN,
        metadata={
            "reported": drift.last or "nothing",
            "unreported": len(drift.unreported),
            "problems": lines_of(problems),
        },
    )
