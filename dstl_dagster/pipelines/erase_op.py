"""Keys go from all that a pipeline keeps, and a check says that they did not come back.

Keys are in files alone: neither the configuration of a run nor its log or metadata shows one.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from dstl_core.job.erasure.erasure import KeyTraces, PipelineKeys
from dstl_core.savepoint.read.snapshot_names import lines_of_file
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.leases import refuse_beside_runs, working_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource


class EraseConfig(dg.Config):
    """The options of an erasure."""

    keys: dict[str, str] = Field(
        description="Uid of an operator to a file with keys that go, one on each line."
    )
    output_columns: dict[str, list[str]] = Field(
        default={},
        description="Uid of an operator to the columns of its stored output that have the key.",
    )
    drop_outputs: bool = Field(
        default=False, description="Leave out all rows of stored output without such a column."
    )
    savepoints: list[str] = Field(
        default=[], description="Savepoints of the pipeline: names in the storage, or paths."
    )
    local_copies: str | None = Field(
        default=None, description="Folder of local copies of state, if it is not the usual one."
    )


def build_erase_op(pipeline: StatefulPipeline, *, name: str | None = None) -> dg.OpDefinition:
    """Builds an op that erases keys from all that the pipeline keeps: state, logs, stored output,
    local copies of this machine, and savepoints that are named.

    It needs no engine. It fails while another run works on the pipeline, and if something of a key
    is left; a retry does what is left. Its output is the number of keys that it looked for.

    Args:
        pipeline: The pipeline.
        name: Name of the op; by default ``<pipeline>_erase_op``.
    """
    check_options("build_erase_op", build_erase_op, locals())

    @dg.op(name=name or pipeline.python_name("erase_op"), tags=pipeline.run_tags)
    def erase(
        context: dg.OpExecutionContext, config: EraseConfig, storage: DstlStorageResource
    ) -> int:
        store, run_id = pipeline.store(storage), context.run.run_id
        context.instance.add_run_tags(run_id, pipeline.run_tags)
        refuse_beside_runs(context.instance, store, run_id)
        with no_retry_of_permanent_errors(), store.lease(run_id):
            every = PipelineKeys(
                str(store.layout.root),
                _keys_in(config.keys),
                config.output_columns,
                config.drop_outputs,
                [storage.path_of(place) for place in config.savepoints],
                config.local_copies,
            )

            def is_alive(other: str) -> bool:
                return other != run_id and other in working_runs(context.instance, store)

            done = every.erase(is_alive)
        metadata = _metadata(done.traces) | {
            "dstl/checkpoint_id": done.checkpoint or "none",
            "dstl/subtasks_written": done.subtasks,
            "dstl/output_files_written": done.files,
            "dstl/files_of_dead_runs_deleted": done.swept,
            "dstl/local_copies_deleted": done.copies,
        }
        context.log_event(dg.AssetObservation(pipeline.key("checkpoint"), metadata=metadata))
        context.log.info("none of the keys is left")
        return sum(done.traces.keys.values())

    return erase


def build_erased_check(
    pipeline: StatefulPipeline,
    keys: Mapping[str, str | os.PathLike[str]],
    *,
    output_columns: Mapping[str, list[str]] | None = None,
    name: str = "erased",
) -> dg.AssetChecksDefinition:
    """Builds a check of the pipeline's checkpoint: nothing of some keys is in its state, in earlier
    checkpoints, or in its stored output. Input that has them would bring them back.

    It needs no engine. It reads the key groups of the keys, and the logs.

    Args:
        pipeline: The pipeline.
        keys: Uid of an operator to a file of keys, one on each line, that is read by each check.
        output_columns: The columns of stored output that have the key, by uid of the operator.
        name: Name of the check.
    """
    check_options("build_erased_check", build_erased_check, locals())

    @dg.asset_check(
        asset=pipeline.key("checkpoint"),
        name=name,
        description="Nothing is left of keys that were erased.",
    )
    def check(storage: DstlStorageResource) -> dg.AssetCheckResult:
        folder = str(pipeline.store(storage).layout.root)
        traces = PipelineKeys(folder, _keys_in(keys), output_columns or {}).find()
        return dg.AssetCheckResult(passed=traces.is_nothing, metadata=_metadata(traces))

    return check


def _keys_in(files: Mapping[str, str | os.PathLike[str]]) -> dict[str, list[str]]:
    return {uid: lines_of_file("keys", os.fspath(file), "key") for uid, file in files.items()}


def _metadata(traces: KeyTraces) -> dict[str, Any]:
    entries = [
        f"{count:,} of {uid}/{state}"
        for uid, counts in traces.entries.items()
        for state, count in counts.items()
    ]
    rows = [f"{count:,} of {output}" for output, count in traces.rows.items()]
    return {
        "dstl/keys": sum(traces.keys.values()),
        "dstl/entries": _shown(entries),
        "dstl/records_in_files": sum(traces.records.values()),
        "dstl/earlier_checkpoints": _shown(list(traces.earlier)),
        "dstl/rows_of_output": _shown(rows),
        "dstl/savepoints": _shown(list(traces.savepoints)),
        "dstl/savepoints_not_looked_at": _shown(list(traces.unread)),
    }


def _shown(texts: Sequence[str]) -> str:
    return "; ".join(texts) or "none"
