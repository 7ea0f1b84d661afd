"""Which runs work on a pipeline, by their leases and by Dagster's instance."""

import dagster as dg

from dstl_core.checkpoint.store.pipeline_store import Lease, PipelineStore
from dstl_core.clock import SystemClock

UNKNOWN_RUN_TTL_MS = 24 * 3_600_000
"""Time for which a lease counts if this Dagster instance does not know its run."""


def refuse_beside_runs(instance: dg.DagsterInstance, store: PipelineStore, run_id: str) -> None:
    """Raises Failure if another run than this one works on the pipeline."""
    others = [working for working in working_runs(instance, store) if working != run_id]
    if others:
        raise dg.Failure(
            f"Run {others[0]} is at work on the pipeline, and this one would take it over; launch "
            f"it after that run, or let a retry policy try it again."
        )


def working_runs(instance: dg.DagsterInstance, store: PipelineStore) -> list[str]:
    """The runs that hold a lease on a pipeline and may still work on it."""
    return [lease.run_id for lease in store.leases() if _may_work(instance, lease)]


def _may_work(instance: dg.DagsterInstance, lease: Lease) -> bool:
    run = instance.get_run_by_id(lease.run_id)
    if run is None:  # of another instance, or deleted
        return SystemClock().now_ms() - lease.since_ms < UNKNOWN_RUN_TTL_MS
    return not run.is_finished
