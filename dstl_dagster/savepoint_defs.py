"""Builds all definitions of a Flink job's savepoint in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_dagster import metadata as show
from dstl_dagster.checks.restore_checks import RestoreCheck, SchemaCheck
from dstl_dagster.checks.snapshot_check import Check, SnapshotCheck, build_snapshot_checks
from dstl_dagster.checks.verify_check import VerifyCheck
from dstl_dagster.option_kinds import check_options
from dstl_dagster.resources.flink_resource import build_flink_savepoint_asset
from dstl_dagster.resources.savepoint_resource import version_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.sensors import build_external_checkpoint_sensor
from dstl_dagster.snapshots.edits import Migrate, Rewrite, Upgrade
from dstl_dagster.snapshots.snapshot_assets import (
    migrated_asset,
    migrated_source,
    rewritten_asset,
    upgraded_asset,
)
from dstl_dagster.snapshots.sources import latest_below, snapshot_at
from dstl_dagster.snapshots.typed_source import SnapshotSource, resource_for
from dstl_dagster.translator import DagsterDstlTranslator, DstlAssetKind, DstlTranslatorData

_EAGER = dg.AutomationCondition.eager()


def build_savepoint_defs(
    name: str,
    *,
    path: str | None = None,
    flink_job: str | None = None,
    stop: bool = False,
    drain: bool = False,
    native: bool = False,
    deps: Sequence[Any] = (),
    checkpoints: str | os.PathLike[str] | None = None,
    checks: Sequence[Check] = (),
    template: str | None = None,
    rewrite: Rewrite | None = None,
    upgrade: Upgrade | None = None,
    migrate: Migrate | None = None,
    schedule: str | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    sensor_interval_seconds: int = 60,
    sensors_running: bool = False,
    serializers: SerializerRegistry | str | None = None,
    allow_roots: Sequence[str] = (),
    relocate: Mapping[str, str] | None = None,
    translator: DagsterDstlTranslator | None = None,
    resources: Mapping[str, Any] | None = None,
) -> dg.Definitions:
    """Builds the definitions of a savepoint: its asset, copies of it, checks, sensor and schedule.

    Args:
        name: First part of all asset keys.
        path: An existing savepoint, by path or by name in the storage.
        flink_job: Name or id of the running job whose savepoint the resource ``flink`` takes.
        stop: Whether the savepoint stops the job.
        drain: With ``stop``: whether event timers fire first.
        native: Whether Flink writes the format of the state backend.
        deps: Upstream assets.
        checkpoints: Folder with the ``chk-<n>`` of a running job; a sensor reports them.
        checks: More checks: values of ``dstl_dagster.checks``, or made by ``@asset_check``.
        template: A savepoint of the next job. Restore plan and types are checked against it.
        rewrite: The edit of an asset that is a copy of the savepoint.
        upgrade: The options of an asset that is a copy for Flink 2.x.
        migrate: The declaration of an asset that is the savepoint as a changed job restores it.
        schedule: Cron of a schedule that takes or finds the savepoint.
        automation_condition: When Dagster takes or finds the savepoint by itself.
        sensor_interval_seconds: Seconds between two looks for checkpoints.
        sensors_running: Whether sensors run by default.
        serializers: The registry of your own types, or ``package.module:name``.
        allow_roots: Further folders from which files of the savepoint may be read.
        relocate: Old root to new root, for files of the savepoint that were moved.
        translator: Names the assets.
        resources: ``storage``, and ``flink`` or ``spark`` where they are needed.

    Raises:
        ConfigError: There are both of path and flink_job, or neither; a check or an edit is wrong.
    """
    check_options(f"savepoint {name!r}", build_savepoint_defs, locals())
    of_flink = {"stop": stop, "drain": drain, "native": native}
    _check_arguments(name, path, flink_job, of_flink)
    translator = translator or DagsterDstlTranslator()
    savepoint = _Savepoint(name, translator, serializers, path, allow_roots, relocate)
    taken = savepoint.asset(flink_job, deps, automation_condition, of_flink)
    reported, sensors = savepoint.reported(checkpoints, sensor_interval_seconds, sensors_running)
    return dg.Definitions(
        assets=[taken, *savepoint.copies(rewrite, upgrade, migrate), *reported],
        asset_checks=savepoint.checks(template, checks) + savepoint.migrated_checks(migrate),
        sensors=sensors,
        schedules=[] if schedule is None else [savepoint.schedule(schedule)],
        resources=dict(resources or {}),
    )


def _check_arguments(
    name: str, path: str | None, flink_job: str | None, of_flink: Mapping[str, bool]
) -> None:
    if (path is None) == (flink_job is None):
        raise ConfigError(f"{name!r} needs either a path or a flink_job, not both.")
    wrong = [option for option, is_set in of_flink.items() if is_set and flink_job is None]
    if wrong:
        raise ConfigError(
            f"The savepoint {name!r} has {', '.join(wrong)}, which tell Flink how to take it: "
            f"expected a flink_job, got the path {path!r}."
        )
    if of_flink["drain"] and not of_flink["stop"]:
        raise ConfigError(
            f"The savepoint {name!r} has drain without stop: Flink fires the timers of a job only "
            f"when it stops it."
        )


def _check_edit(name: str, edit: Any, kind: type) -> None:
    if edit is not None and not isinstance(edit, kind):
        raise ConfigError(
            f"The {kind.__name__.lower()} of savepoint {name!r} is wrong: expected "
            f"dstl_dagster.snapshots.{kind.__name__}(..), got {edit!r}."
        )


@dataclass(frozen=True)
class _Savepoint:
    """A savepoint of a Flink job as an asset.

    Args:
        name: First part of all asset keys.
        translator: Names the assets.
        serializers: The registry of types, or where it is.
        path: Where the savepoint is; None if Flink takes it.
        allow_roots: Further folders from which its files may be read.
        relocate: Old root to new root of its files.
    """

    name: str
    translator: DagsterDstlTranslator
    serializers: SerializerRegistry | str | None
    path: str | None
    allow_roots: Sequence[str]
    relocate: Mapping[str, str] | None

    @property
    def source(self) -> SnapshotSource:
        """Finds the savepoint: the one of the path, or the latest that was taken."""
        find = latest_below if self.path is None else snapshot_at
        place = "savepoint" if self.path is None else self.path
        return find(place, self.serializers, allow_roots=self.allow_roots, relocate=self.relocate)

    @property
    def key(self) -> dg.AssetKey:
        return self.spec("external", "savepoint").key

    def spec(self, kind: DstlAssetKind, name: str) -> dg.AssetSpec:
        return self.translator.get_asset_spec(DstlTranslatorData(self.name, kind, name=name))

    def op_name(self, what: str) -> str:
        return "".join(c if c.isalnum() else "_" for c in f"{self.name}_{what}")

    def asset(
        self,
        flink_job: str | None,
        deps: Sequence[Any],
        condition: dg.AutomationCondition | None,
        of_flink: Mapping[str, bool],
    ) -> dg.AssetsDefinition:
        """The asset of the savepoint, which Flink takes if there is a ``flink_job``."""
        if flink_job is None:
            return self._existing_asset(deps, condition)
        return build_flink_savepoint_asset(
            "savepoint",
            job=flink_job,
            group=self.name,
            deps=deps,
            translator=self.translator,
            automation_condition=condition,
            **of_flink,
        )

    def _existing_asset(
        self, deps: Sequence[Any], condition: dg.AutomationCondition | None
    ) -> dg.AssetsDefinition:
        spec = self.spec("external", "savepoint")
        spec = spec.replace_attributes(
            deps=[*spec.deps, *deps],
            automation_condition=condition or spec.automation_condition,
        )
        source = self.source

        @dg.multi_asset(name=self.op_name("savepoint"), specs=[spec])
        def savepoint(storage: DstlStorageResource) -> dg.MaterializeResult:
            snapshot = resource_for(source, storage).load(source(storage))
            return dg.MaterializeResult(
                spec.key,
                metadata=show.snapshot_metadata(snapshot),
                data_version=dg.DataVersion(version_of(snapshot)),
            )

        return savepoint

    def reported(
        self, folder: str | os.PathLike[str] | None, interval_seconds: int, running: bool
    ) -> tuple[list[dg.AssetSpec], list[dg.SensorDefinition]]:
        """The asset of the checkpoints in a folder, and the sensor that reports them."""
        if folder is None:
            return [], []
        spec, status = self.spec("external", "checkpoints"), dg.DefaultSensorStatus
        sensor = build_external_checkpoint_sensor(
            spec,
            folder,
            name=self.op_name("checkpoints"),
            minimum_interval_seconds=interval_seconds,
            default_status=status.RUNNING if running else status.STOPPED,
            serializers=self.serializers,
        )
        return [spec], [sensor]

    def copies(
        self, rewrite: Rewrite | None, upgrade: Upgrade | None, migrate: Migrate | None
    ) -> list[dg.AssetsDefinition]:
        for edit, kind in ((rewrite, Rewrite), (upgrade, Upgrade), (migrate, Migrate)):
            _check_edit(self.name, edit, kind)
        assets = []
        if rewrite is not None:
            assets.append(
                rewritten_asset(
                    self._copy_spec("rewritten", rewrite.name, rewrite.automation_condition),
                    self.source,
                    op_name=self.op_name(rewrite.name),
                    engine=rewrite.engine,
                    **rewrite.edit(),
                )
            )
        if upgrade is not None:
            assets.append(
                upgraded_asset(
                    self._copy_spec("upgraded", upgrade.name),
                    self.source,
                    op_name=self.op_name(upgrade.name),
                    engine=upgrade.engine,
                    **upgrade.edit(),
                )
            )
        if migrate is not None:
            assets.append(
                migrated_asset(
                    self._copy_spec("migrated", migrate.name),
                    self.source,
                    migrate.declaration,
                    op_name=self.op_name(migrate.name),
                    engine=migrate.engine,
                    files=migrate.files,
                    format=migrate.format,
                )
            )
        return assets

    def _copy_spec(
        self,
        kind: DstlAssetKind,
        name: str,
        condition: dg.AutomationCondition | None = _EAGER,
    ) -> dg.AssetSpec:
        spec = self.spec(kind, name)
        return spec.replace_attributes(
            deps=[self.key], automation_condition=spec.automation_condition or condition
        )

    def checks(self, template: str | None, more: Sequence[Check]) -> list[dg.AssetChecksDefinition]:
        """Checks that read the savepoint whole, compare it with one of the next job, and more."""
        every: list[Check] = [VerifyCheck(blocking=True)]
        if template is not None:
            job = snapshot_at(template, self.serializers)
            every += [RestoreCheck(job), SchemaCheck(job)]
        return build_snapshot_checks(self.key, self.source, [*every, *more])

    def migrated_checks(self, migrate: Migrate | None) -> list[dg.AssetChecksDefinition]:
        if migrate is None:
            return []
        checks: list[SnapshotCheck] = [VerifyCheck(blocking=True)]
        template = Migration.load(migrate.declaration).to_template
        if template is not None:
            checks.append(RestoreCheck(snapshot_at(template, self.serializers), blocking=True))
        written = migrated_source(
            self.source, migrate.declaration, files=migrate.files, format=migrate.format
        )
        return build_snapshot_checks(self.spec("migrated", migrate.name).key, written, checks)

    def schedule(self, cron: str) -> dg.ScheduleDefinition:
        """A schedule that takes or finds the savepoint."""
        return dg.ScheduleDefinition(
            name=self.op_name("savepoint_schedule"),
            cron_schedule=cron,
            target=dg.AssetSelection.assets(self.key),
        )
