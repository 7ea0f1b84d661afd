"""The verbs of a pipeline as ops, for graphs of your own: reset, materialize, savepoint, bootstrap,
rewrite. ``protocol_ops`` has persist and confirm.

The launchpad shows the options of each op. An op takes ``name``, so that two of a kind fit in one
repository. A savepoint goes from op to op as its path.
"""

from collections.abc import Callable
from typing import Any, cast

import dagster as dg
from pydantic import Field

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.leases import refuse_beside_runs, working_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.engines import engine_of, units_of
from dstl_dagster.resources.savepoint_resource import SavepointResource
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.translator import SPARK


class ResetConfig(dg.Config):
    """The options of a reset."""

    dead_runs: list[str] = Field(
        default=[],
        description="Ids of runs that count as dead, although Dagster takes them for working.",
    )


class MaterializeConfig(dg.Config):
    """The options of a materialization, with which the log is truncated."""

    above_log_ratio: float = Field(
        default=0.0, ge=0, description="Do it only if the log is larger than this part of the base."
    )
    above_log_bytes: int = Field(
        default=0, ge=0, description="Do it only if the log has more bytes than this."
    )


class SavepointConfig(dg.Config):
    """The options of a savepoint."""

    place: str | None = Field(
        default=None,
        description="Its name in the storage, or its path; by default <pipeline>-<checkpoint>, "
        "with -drained behind it if event time is ended.",
    )
    stop: bool = Field(default=False, description="Stop the pipeline: no run until it is resumed.")
    drain: bool = Field(default=False, description="With stop: fire all event-time timers first.")


class BootstrapConfig(dg.Config):
    """The options of a bootstrap."""

    place: str = Field(description="Name of the savepoint in the storage, or its path.")


class RewriteConfig(dg.Config):
    """The options of a rewrite."""

    out: str = Field(description="Name of the copy in the storage, or its path.")
    rename: dict[str, str] = Field(default={}, description="Uid of an operator to its new uid.")
    remove: list[str] = Field(default=[], description="Uids of operators to leave out.")
    max_parallelism: int | None = Field(default=None, description="New number of key groups.")
    files: str | None = Field(
        default=None,
        description="What becomes of state that does not change: canonical, copy or share. By "
        "default canonical; with native form, copy of a savepoint and share of a checkpoint.",
    )
    format: str = Field(
        default="canonical",
        description="The form of keyed state that is written: canonical, or native for RocksDB.",
    )
    allow_roots: list[str] = Field(
        default=[], description="Further folders from which files of the source may be read."
    )
    relocate: dict[str, str] = Field(
        default={}, description="Old root to new root of files of the source that were moved."
    )
    erase_keys: dict[str, str] = Field(
        default={}, description="Uid of an operator to a file with keys that go, one on each line."
    )
    where: dict[str, str] = Field(
        default={}, description="OP/STATE to the condition of the entries that stay."
    )
    drop_expired: dict[str, str] = Field(
        default={}, description="OP/STATE to its time to live, e.g. 7 d: expired values go."
    )


def build_reset_op(pipeline: StatefulPipeline, *, name: str | None = None) -> dg.OpDefinition:
    """Builds an op that takes the pipeline over from dead runs, and deletes their files.

    It touches nothing while another run works. It needs no Spark. Its output is the number of files
    that it deleted.

    Args:
        pipeline: The pipeline.
        name: Name of the op; by default ``<pipeline>_reset_op``.
    """
    check_options("build_reset_op", build_reset_op, locals())

    @dg.op(name=name or pipeline.python_name("reset_op"), tags=pipeline.run_tags)
    def reset(
        context: dg.OpExecutionContext, config: ResetConfig, storage: DstlStorageResource
    ) -> int:
        store = pipeline.store(storage)
        working = set(working_runs(context.instance, store)) - set(config.dead_runs)
        owner = f"reset by Dagster run {context.run.run_id}"
        done = store.reset(owner, lambda run_id: run_id in working)
        if done.busy:
            context.log.info(f"nothing was touched: {', '.join(done.busy)} work on the pipeline")
            return 0
        context.log.info(
            f"swept {len(done.swept_runs)} runs, {len(done.deleted)} files, "
            f"{done.deleted_bytes:,} bytes"
        )
        context.log_event(
            dg.AssetObservation(
                pipeline.as_run(context).key("checkpoint"),
                metadata={
                    "dstl/swept_runs": ", ".join(done.swept_runs) or "none",
                    "dstl/orphans_deleted": len(done.deleted),
                    "dstl/orphan_bytes_deleted": done.deleted_bytes,
                },
            )
        )
        return len(done.deleted)

    return reset


def build_materialize_op(pipeline: StatefulPipeline, *, name: str | None = None) -> dg.OpDefinition:
    """Builds an op that writes the full state as a new base, and so truncates the log.

    It does nothing if there is no log, or a smaller one than the launchpad asks for. It fails while
    another run works on the pipeline. Its output is the number of bytes of log that it cut.

    Args:
        pipeline: The pipeline.
        name: Name of the op; by default ``<pipeline>_materialize_op``.
    """
    check_options("build_materialize_op", build_materialize_op, locals())

    @dg.op(
        name=name or pipeline.python_name("materialize_op"),
        tags=pipeline.run_tags,
        required_resource_keys={"storage", pipeline.engine},
    )
    def materialize(context: dg.OpExecutionContext, config: MaterializeConfig) -> int:
        storage, run_id = context.resources.storage, context.run.run_id
        store = _begun(context, pipeline)
        before = store.size()
        least = config.above_log_bytes + 1
        if not before.has_large_log(config.above_log_ratio, least=least):
            context.log.info(f"the log of {before.log:,} bytes is not larger than asked for")
            return 0
        with (
            no_retry_of_permanent_errors(),
            store.lease(run_id),
            engine_of(_engine(context, pipeline), "dstl", run_id, "materialize") as session,
        ):
            pipeline.open(session, storage).materialize()
        cut: int = before.log - store.size().log
        context.log.info(f"materialized: {cut:,} bytes of log are cut")
        return cut

    return materialize


def build_savepoint_op(pipeline: StatefulPipeline, *, name: str | None = None) -> dg.OpDefinition:
    """Builds an op that writes the latest checkpoint as a savepoint, and may stop the pipeline.

    Its output is the path of the savepoint. A retry finds what the attempt before wrote.

    Args:
        pipeline: The pipeline.
        name: Name of the op; by default ``<pipeline>_savepoint_op``.
    """
    check_options("build_savepoint_op", build_savepoint_op, locals())

    @dg.op(
        name=name or pipeline.python_name("savepoint_op"),
        tags=pipeline.run_tags,
        required_resource_keys={"storage", pipeline.engine},
    )
    def savepoint(context: dg.OpExecutionContext, config: SavepointConfig) -> str:
        if config.drain and not config.stop:
            raise dg.Failure(
                "drain ends event time for good, so it is part of a stop: give stop as well, or "
                "leave out drain.",
                allow_retries=False,
            )
        storage, run_id = context.resources.storage, context.run.run_id
        store = _begun(context, pipeline) if config.stop else pipeline.store(storage)
        with (
            no_retry_of_permanent_errors(),
            engine_of(_engine(context, pipeline), "dstl", run_id, "savepoint") as session,
        ):
            job = pipeline.open(session, storage)
            default = _savepoint_name(pipeline, store, is_drained=config.drain)
            path = storage.path_of(config.place or default)
            if not config.stop:
                return job.savepoint(path)
            with store.lease(run_id):
                return job.stop_with_savepoint(path, drain=config.drain)

    return savepoint


def build_bootstrap_op(
    name: str, write: Callable[[Any, str], Any], *, engine: str = SPARK
) -> dg.OpDefinition:
    """Builds an op that writes a savepoint in bulk. A savepoint that is there already stays.

    Its output is the path of the savepoint.

    Args:
        name: Name of the op.
        write: Takes a session and the path; writes the savepoint there.
        engine: Name of the resource that has the session.
    """
    check_options("build_bootstrap_op", build_bootstrap_op, locals())

    @dg.op(name=name, required_resource_keys={"storage", engine})
    def bootstrap(context: dg.OpExecutionContext, config: BootstrapConfig) -> str:
        storage, runs = context.resources.storage, getattr(context.resources, engine)
        resource = SavepointResource(storage=storage)
        path: str = storage.path_of(config.place)
        with no_retry_of_permanent_errors():
            if resource.find(config.place) is None:
                with engine_of(runs, "dstl", context.run.run_id, name) as session:
                    write(session, path)
            resource.load(config.place)
        return path

    return bootstrap


def build_rewrite_op(name: str, *, engine: str | None = None) -> dg.OpDefinition:
    """Builds an op that writes an edited copy of a savepoint.

    Its input ``source`` is the path of the savepoint: the output of another op, or a value in the
    launchpad. Its output is the path of the copy. A copy that is there already stays.

    Args:
        name: Name of the op.
        engine: Key of the resource whose Spark session reads and writes keyed state; by default
            the process of the run does.
    """
    check_options("build_rewrite_op", build_rewrite_op, locals())

    @dg.op(name=name, required_resource_keys={"storage", *([] if engine is None else [engine])})
    def rewrite(context: dg.OpExecutionContext, config: RewriteConfig, source: str) -> str:
        storage = context.resources.storage
        with no_retry_of_permanent_errors(), units_of(context, engine, name) as jobs:
            resource = SavepointResource(
                storage=storage, allow_roots=config.allow_roots, relocate=config.relocate
            )
            copy = resource.rewrite(
                source,
                config.out,
                rename=config.rename,
                remove=config.remove,
                max_parallelism=config.max_parallelism,
                files=cast(Files | None, config.files),
                format=cast(KeyedForm, config.format),
                erase_keys=config.erase_keys,
                where=config.where,
                drop_expired=config.drop_expired,
                jobs=jobs,
            )
        notes = {} if copy.file.sidecar is None else copy.file.sidecar.notes
        for operator, counts in notes.get("purged", {}).items():
            context.log.info(f"entries gone from {operator}, and none is left: {counts}")
        return str(copy.folder)

    return rewrite


def _begun(context: dg.OpExecutionContext, pipeline: StatefulPipeline) -> PipelineStore:
    """The store of the pipeline, for an op that takes the pipeline over."""
    store = pipeline.store(context.resources.storage)
    context.instance.add_run_tags(context.run.run_id, pipeline.run_tags)
    refuse_beside_runs(context.instance, store, context.run.run_id)
    return store


def _savepoint_name(pipeline: StatefulPipeline, store: PipelineStore, *, is_drained: bool) -> str:
    """The same name for each attempt. The drain makes a checkpoint of its own, so this savepoint is
    another one than that of the checkpoint before.
    """
    latest = store.require_latest()
    if not is_drained:
        return f"{pipeline.name}-{latest.checkpoint_id}"
    is_done = latest.facts.kind == "drain"
    before = latest.facts.restored_from if is_done else latest.checkpoint_id
    return f"{pipeline.name}-{before}-drained"


def _engine(context: dg.OpExecutionContext, pipeline: StatefulPipeline) -> Any:
    return getattr(context.resources, pipeline.engine)
