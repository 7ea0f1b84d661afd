"""Assets behind the checkpoint: materialization, savepoints of all kinds, and the report.

Each is written once, under a name made of its source. So a retry finds what the attempt before
wrote, and reports the same data version.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.report.snapshot_report import report_snapshot
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_dagster import metadata as show
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.asset_decorator import DEFAULT_RETRIES
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.leases import refuse_beside_runs
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.state_profile import key_count
from dstl_dagster.resources.engines import engine_of, units_of
from dstl_dagster.resources.savepoint_resource import SavepointResource, version_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.edits import Rewrite
from dstl_dagster.snapshots.typed_source import (
    SnapshotSource,
    TypedSource,
    registry_of,
    resource_for,
)
from dstl_dagster.translator import DagsterDstlTranslator, DstlTranslatorData


def build_materialization_asset(
    pipeline: StatefulPipeline, *, pool: str | None = None
) -> dg.AssetsDefinition:
    """The full state as a new base. The log before it is released: the changelog is truncated.

    It does nothing if the latest checkpoint has no log. While another run is at work it fails, and
    its retries try again.
    """
    spec = pipeline.spec("materialization").replace_attributes(deps=[pipeline.key("checkpoint")])

    @dg.multi_asset(
        name=pipeline.python_name("materialization"),
        specs=[spec],
        retry_policy=DEFAULT_RETRIES,
        pool=pool,
        required_resource_keys={"storage", pipeline.engine},
    )
    def materialization(context: dg.AssetExecutionContext) -> Any:
        storage, runs = context.resources.storage, getattr(context.resources, pipeline.engine)
        store = pipeline.store(storage)
        run_id = context.run.run_id
        context.instance.add_run_tags(run_id, pipeline.run_tags)
        refuse_beside_runs(context.instance, store, run_id)
        before = store.size()
        with no_retry_of_permanent_errors():
            if before.log > 0:
                with store.lease(run_id), engine_of(runs, "dstl", run_id, "materialize") as session:
                    pipeline.open(session, storage).materialize()
            latest = store.require_latest()
            size = store.size()
        metadata = show.checkpoint_metadata(latest, store.path_of(latest), size)
        metadata["dstl/log_bytes_cut"] = before.log - size.log
        snapshot = Snapshot.load(store.path_of(latest), serializers=pipeline.registry)
        seen = pipeline.as_run(context)
        metadata |= show.state_columns(snapshot, pipeline.uid, seen.key("state"))
        metadata |= key_count(snapshot, latest, pipeline.uid)
        yield dg.AssetObservation(
            seen.key("changelog"),
            metadata={"dstl/log_bytes": size.log, "dstl/log_bytes_cut": before.log - size.log},
        )
        yield dg.MaterializeResult(
            metadata=metadata, data_version=dg.DataVersion(latest.data_version)
        )

    return materialization


def build_savepoint_asset(
    pipeline: StatefulPipeline,
    *,
    name: str = "savepoint",
    automation_condition: dg.AutomationCondition | None = None,
) -> dg.AssetsDefinition:
    """The latest checkpoint as a self-contained canonical savepoint."""
    spec = pipeline.spec("savepoint", name)
    spec = spec.replace_attributes(
        deps=[pipeline.key("materialization")],
        automation_condition=automation_condition or spec.automation_condition,
    )

    @dg.multi_asset(
        name=pipeline.python_name(name),
        specs=[spec],
        retry_policy=DEFAULT_RETRIES,
        required_resource_keys={"storage", pipeline.engine},
    )
    def savepoint(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        storage, runs = context.resources.storage, getattr(context.resources, pipeline.engine)
        run_id = context.run.run_id
        with no_retry_of_permanent_errors(), engine_of(runs, "dstl", run_id, name) as session:
            job = pipeline.open(session, storage)
            latest = pipeline.store(storage).require_latest()
            path = job.savepoint(storage.savepoint(savepoint_name(pipeline, latest.checkpoint_id)))
        context.instance.add_run_tags(run_id, {**pipeline.run_tags, "dstl/savepoint": path[-250:]})
        snapshot, seen = (
            Snapshot.load(path, serializers=pipeline.registry),
            pipeline.as_run(context),
        )
        return dg.MaterializeResult(
            metadata={
                **show.snapshot_metadata(snapshot),
                **show.state_columns(snapshot, pipeline.uid, seen.key("state")),
                **key_count(snapshot, latest, pipeline.uid),
                "dstl/checkpoint": latest.data_version,
                "dstl/run": dg.MetadataValue.dagster_run(run_id),
            },
            data_version=dg.DataVersion(version_of(snapshot)),
        )

    return savepoint


def savepoint_name(pipeline: StatefulPipeline, checkpoint_id: int) -> str:
    """Name of the savepoint of a checkpoint; the latest one is found by the commit log."""
    return f"{pipeline.name}-{checkpoint_id}"


def latest_savepoint(pipeline: StatefulPipeline, storage: DstlStorageResource) -> str:
    """Path of the savepoint of the latest checkpoint that has one.

    Raises:
        Failure: There is none.
    """
    for commit in pipeline.store(storage).commits():
        path = storage.savepoint(savepoint_name(pipeline, commit.checkpoint_id))
        try:
            return str(Snapshot.load(path, serializers=pipeline.registry).folder)
        except FileNotFoundError:
            continue
    raise dg.Failure(
        f"The pipeline {pipeline.name!r} has no savepoint yet; materialize it first.",
        allow_retries=False,
    )


def build_rewritten_asset(pipeline: StatefulPipeline, rewrite: Rewrite) -> dg.AssetsDefinition:
    """An edited copy of the pipeline's latest savepoint.

    Its folder is named after the source and the edit, so that another edit is another savepoint.
    A condition of the translator takes the place of that of the ``rewrite``.
    """
    spec = pipeline.spec("rewritten", rewrite.name)
    return rewritten_asset(
        spec.replace_attributes(
            deps=[pipeline.key("savepoint")],
            automation_condition=spec.automation_condition or rewrite.automation_condition,
        ),
        TypedSource(lambda storage: latest_savepoint(pipeline, storage), lambda: pipeline.registry),
        op_name=pipeline.python_name(rewrite.name),
        engine=rewrite.engine,
        **rewrite.edit(),
    )


def rewritten_asset(
    spec: dg.AssetSpec,
    source: SnapshotSource,
    *,
    op_name: str,
    engine: str | None = None,
    rename: Mapping[str, str] | None = None,
    remove: Sequence[str] = (),
    max_parallelism: int | None = None,
    files: Files | None = None,
    format: KeyedForm = "canonical",
) -> dg.AssetsDefinition:
    """An asset that is an edited copy of the snapshot that ``source`` finds. ``engine`` is the key
    of the resource whose Spark session reads and writes keyed state; by default the run does. The
    other arguments are those of ``SavepointResource.rewrite``.
    """
    edit = {
        "rename": dict(rename or {}),
        "remove": list(remove),
        "max_parallelism": max_parallelism,
        **_kept(files, format),
    }
    return _copy_asset(
        spec, source, SavepointResource.rewrite, edit, op_name=op_name, engine=engine
    )


def upgraded_asset(
    spec: dg.AssetSpec,
    source: SnapshotSource,
    *,
    op_name: str,
    engine: str | None = None,
    to: str = "2.2",
    jars: Sequence[str] = (),
    drop: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    template: str | None = None,
    new_jars: Sequence[str] = (),
    new_keys: Mapping[str, str] | None = None,
    files: Files | None = None,
    format: KeyedForm = "canonical",
) -> dg.AssetsDefinition:
    """An asset that is the snapshot of Flink 1.x that ``source`` finds, as Flink 2.x restores it.

    Args:
        spec: Of the asset.
        source: Finds the snapshot.
        op_name: Of the op.
        engine: As that of ``rewritten_asset``.
        to: The version of Flink that restores it.
        jars: Paths of the jars of the job that wrote it.
        drop: States to leave out, as ``state`` or ``operator/state``.
        types: Java types that the jars do not show, by state or by ``class.field``.
        template: A savepoint of the new job, whose types take the place of Scala's.
        new_jars: Jars of the new job, with classes that take the place of Scala's.
        new_keys: Java types of keys, in place of those of Scala, by operator.
        files: As for ``SavepointResource.rewrite``.
        format: As for ``SavepointResource.rewrite``.
    """
    edit = {
        "to": to,
        "jars": list(jars),
        "drop": list(drop),
        "types": dict(types or {}),
        "template": template,
        "new_jars": list(new_jars),
        "new_keys": dict(new_keys or {}),
        **_kept(files, format),
    }
    return _copy_asset(
        spec, source, SavepointResource.upgrade, edit, op_name=op_name, engine=engine
    )


def migrated_asset(
    spec: dg.AssetSpec,
    source: SnapshotSource,
    declaration: str | Mapping[str, Any],
    *,
    op_name: str,
    engine: str | None = None,
    files: Files | None = None,
    format: KeyedForm = "canonical",
) -> dg.AssetsDefinition:
    """An asset that is the snapshot that ``source`` finds, as a changed job restores it.

    Its metadata have the plan. ``migrated_source`` finds it for checks.

    Args:
        spec: Of the asset.
        source: Finds the savepoint of the old job.
        declaration: Path of the YAML file, or its values.
        op_name: Of the op.
        engine: As that of ``rewritten_asset``.
        files: As for ``SavepointResource.rewrite``.
        format: As for ``SavepointResource.rewrite``.
    """

    @_copy_op(spec, op_name, engine)
    def migrated(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        storage = context.resources.storage
        with no_retry_of_permanent_errors(), units_of(context, engine, op_name) as jobs:
            resource = resource_for(source, storage)
            migration = resource.migration(declaration, source(storage), files=files, format=format)
            plan = "\n".join(migration.plan_lines())
            snapshot = resource.write_migration(migration, _migrated_place(migration), jobs)
        result = _copy_result(context, spec, migration.source, snapshot)
        return result._replace(
            metadata={**(result.metadata or {}), "dstl/plan": show.text_block(plan)}
        )

    return migrated


def migrated_source(
    source: SnapshotSource,
    declaration: str | Mapping[str, Any],
    *,
    files: Files | None = None,
    format: KeyedForm = "canonical",
) -> SnapshotSource:
    """Finds what ``migrated_asset`` wrote of the present snapshot and declaration."""

    def migration(storage: DstlStorageResource) -> SavepointMigration:
        resource = resource_for(source, storage)
        return resource.migration(declaration, source(storage), files=files, format=format)

    return TypedSource(
        lambda storage: storage.path_of(_migrated_place(migration(storage))),
        lambda: registry_of(source),
        lambda storage: migration(storage).shares_files_in,
    )


def _kept(files: Files | None, form: KeyedForm) -> dict[str, str]:
    """What an edit says of files and forms. Nothing by default, so that a copy that a version
    before wrote keeps its name.
    """
    named: dict[str, str] = {} if files is None else {"files": files}
    return named if form == "canonical" else {**named, "format": form}


def _migrated_place(migration: SavepointMigration) -> str:
    document = json.dumps(migration.migration.document, sort_keys=True, default=str)
    if migration.files != "canonical" or migration.form != "canonical":
        document += f" {migration.files} {migration.form}"
    digest = hashlib.sha256(document.encode()).hexdigest()[:8]
    return f"{migration.source.folder.name}-{digest}-{migration.source.file.sha256[:8]}"


def _copy_asset(
    spec: dg.AssetSpec,
    source: SnapshotSource,
    write: Callable[..., Snapshot],
    edit: Mapping[str, Any],
    *,
    op_name: str,
    engine: str | None,
) -> dg.AssetsDefinition:
    """A copy of a snapshot. Its folder is named after the source and the edit."""
    digest = hashlib.sha256(json.dumps(edit, sort_keys=True).encode()).hexdigest()[:8]

    @_copy_op(spec, op_name, engine)
    def copy(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        storage = context.resources.storage
        with no_retry_of_permanent_errors(), units_of(context, engine, op_name) as jobs:
            resource = resource_for(source, storage)
            original = resource.load(source(storage))
            out = f"{original.folder.name}-{digest}-{original.file.sha256[:8]}"
            snapshot = write(resource, str(original.folder), out, jobs=jobs, **edit)
        return _copy_result(context, spec, original, snapshot)

    return copy


def _copy_op(
    spec: dg.AssetSpec, op_name: str, engine: str | None
) -> Callable[[Callable[..., dg.MaterializeResult]], dg.AssetsDefinition]:
    """Makes the asset of a function that writes a copy."""
    return dg.multi_asset(
        name=op_name,
        specs=[spec],
        retry_policy=DEFAULT_RETRIES,
        required_resource_keys={"storage"} if engine is None else {"storage", engine},
    )


def _copy_result(
    context: dg.AssetExecutionContext, spec: dg.AssetSpec, original: Snapshot, snapshot: Snapshot
) -> dg.MaterializeResult:
    notes = {} if snapshot.file.sidecar is None else snapshot.file.sidecar.notes
    shared = ", ".join(notes.get("shares_files_in", []))
    return dg.MaterializeResult(
        metadata={
            **show.snapshot_metadata(snapshot),
            **({"dstl/shares_files_in": shared} if shared else {}),
            "dstl/source": str(original.folder),
            "dstl/source_version": version_of(original),
            "dstl/run": dg.MetadataValue.dagster_run(context.run.run_id),
        },
        data_version=dg.DataVersion(version_of(snapshot)),
    )


def build_bootstrapped_asset(
    name: str,
    write: Callable[[Any, str], Any],
    *,
    group: str,
    deps: Sequence[Any] = (),
    translator: DagsterDstlTranslator | None = None,
) -> dg.AssetsDefinition:
    """A savepoint that a function writes in bulk; written once.

    Args:
        name: Name of the savepoint, in the storage and in the key.
        write: Takes a session and the path; writes the savepoint there.
        group: First part of the key, e.g. the pipeline's name.
        deps: Upstream assets.
        translator: Names of the assets.
    """
    check_options(f"savepoint {name!r}", build_bootstrapped_asset, locals())
    data = DstlTranslatorData(group, "bootstrapped", name=name)
    spec = (translator or DagsterDstlTranslator()).get_asset_spec(data)
    spec = spec.replace_attributes(deps=list(deps))
    op_name = re.sub(r"[^A-Za-z0-9]", "_", f"{group}_{name}")

    @dg.multi_asset(name=op_name, specs=[spec], retry_policy=DEFAULT_RETRIES)
    def bootstrapped(
        context: dg.AssetExecutionContext,
        storage: DstlStorageResource,
        spark: dg.ResourceParam[Any],
    ) -> dg.MaterializeResult:
        resource = SavepointResource(storage=storage)
        with no_retry_of_permanent_errors():
            there_before = resource.find(name) is not None
            if not there_before:
                with engine_of(spark, "dstl", context.run.run_id, name) as session:
                    write(session, storage.savepoint(name))
            snapshot = resource.load(name)
        return dg.MaterializeResult(
            metadata={**show.snapshot_metadata(snapshot), "dstl/there_before": there_before},
            data_version=dg.DataVersion(version_of(snapshot)),
        )

    return bootstrapped


def build_report_asset(pipeline: StatefulPipeline) -> dg.AssetsDefinition:
    """Reports on the latest checkpoint, and writes the page to ``reports`` in the storage.

    It reads all state, and needs no Spark. Keys are in it only if the pipeline shows them.
    """
    spec = pipeline.spec("report").replace_attributes(deps=[pipeline.key("checkpoint")])

    @dg.multi_asset(name=pipeline.python_name("report"), specs=[spec])
    def report(
        context: dg.AssetExecutionContext, storage: DstlStorageResource
    ) -> dg.MaterializeResult[None]:
        store = pipeline.store(storage)
        context.instance.add_run_tags(context.run.run_id, pipeline.run_tags)
        with no_retry_of_permanent_errors():
            latest = store.require_latest()
            snapshot = Snapshot.load(store.path_of(latest), serializers=pipeline.registry)
            made = report_snapshot(snapshot, show_keys=pipeline.show_keys)
            name = f"{pipeline.name}-{latest.checkpoint_id}.html"
            page = Location.parse(storage.base_path).child("reports", name)
            open_file_io(page).replace(page, made.page.encode(errors="backslashreplace"))
        return dg.MaterializeResult(
            metadata={
                **show.report_metadata(made, page.path if page.is_local else str(page)),
                "dstl/checkpoint": dg.MetadataValue.asset(
                    pipeline.as_run(context).key("checkpoint")
                ),
                "dstl/checkpoint_id": latest.checkpoint_id,
            },
            data_version=dg.DataVersion(latest.data_version),
        )

    return report
