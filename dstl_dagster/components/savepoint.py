"""``SavepointComponent``: governs the savepoints of Flink jobs, in YAML only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_dagster import metadata as show
from dstl_dagster.checks.restore_checks import (
    build_restore_plan_check,
    build_schema_check,
    expected_of,
)
from dstl_dagster.checks.state_checks import build_state_check
from dstl_dagster.checks.store_checks import build_verify_check
from dstl_dagster.components.models import (
    MigrateModel,
    RewriteModel,
    StateCheckModel,
    UpgradeModel,
    shown,
)
from dstl_dagster.components.scaffolders import SavepointScaffolder
from dstl_dagster.components.translation import ComponentTranslator, Translation, translated
from dstl_dagster.resources.flink_resource import build_flink_savepoint_asset
from dstl_dagster.resources.savepoint_resource import version_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.sensors import build_external_checkpoint_sensor
from dstl_dagster.snapshots.snapshot_assets import (
    migrated_asset,
    migrated_source,
    rewritten_asset,
    upgraded_asset,
)
from dstl_dagster.snapshots.sources import latest_below, snapshot_at
from dstl_dagster.snapshots.typed_source import SnapshotSource, resource_for
from dstl_dagster.translator import DstlAssetKind, DstlTranslatorData


@dg.scaffold_with(SavepointScaffolder)
@dataclass
class SavepointComponent(dg.Component, dg.Resolvable):
    """Takes or finds savepoints of a Flink job, checks and rewrites them, upgrades and migrates
    them.

    Give either ``flink_job`` (name or id; the resource ``flink`` takes its savepoint) or ``path``
    (an existing savepoint, by path or by name in the storage). With ``checkpoints``, the folder of
    a job's retained checkpoints, a sensor reports them as another asset. The resources come from a
    ``DstlResourcesComponent``, or from the project's definitions.
    """

    name: Annotated[str, shown("First part of all asset keys.", "orders")]
    path: Annotated[
        str | None,
        shown(
            "An existing savepoint, by path or by name in the storage.",
            "{{ context.project_root }}/data/savepoints/orders",
        ),
    ] = None
    flink_job: Annotated[
        str | None, shown("Name or id of the running job whose savepoint is taken.", "orders")
    ] = None
    stop: Annotated[bool, shown("Whether the savepoint stops the job.", True)] = False
    checkpoints: Annotated[
        str | None, shown("Folder with the `chk-<n>` of a running job.", "s3://bucket/chk/ab12")
    ] = None
    rewrite: Annotated[
        RewriteModel | None,
        shown("An edited copy of the savepoint.", {"rename": {"counts": "order-counts"}}),
    ] = None
    upgrade: Annotated[
        UpgradeModel | None,
        shown("A copy of a savepoint of Flink 1.x for Flink 2.x.", {"jars": ["jobs/orders.jar"]}),
    ] = None
    migrate: Annotated[
        MigrateModel | None,
        shown(
            "The savepoint as a changed job restores it.",
            {"declaration": "migrations/orders-v2.yaml"},
        ),
    ] = None
    checks: Annotated[
        list[StateCheckModel],
        shown(
            "Checks of the state in SQL; they need the resource `spark`.",
            [{"uid": "counts", "sql": "SELECT state_key FROM {state} WHERE n < 0"}],
        ),
    ] = field(default_factory=list)
    template: Annotated[
        str | None,
        shown(
            "A savepoint of the next job. Restore plan and types are checked against it.",
            "savepoints/next-orders",
        ),
    ] = None
    serializers: Annotated[
        str | None,
        shown(
            "Registry of types with readers of your own serializers, `package.module:name`.",
            "my_project.types:registry",
        ),
    ] = None
    automation_condition: Annotated[
        dg.AutomationCondition | None,
        shown(
            "Condition under which Dagster takes or finds the savepoint by itself.",
            "{{ dg.AutomationCondition.on_cron('0 2 * * *') }}",
            model_field_type=str | None,
        ),
    ] = None
    schedule: Annotated[
        str | None,
        shown("Cron of a schedule that takes or finds the savepoint.", "0 2 * * *"),
    ] = None
    sensor_interval_seconds: Annotated[
        int, shown("Seconds between two looks for checkpoints.", 60)
    ] = 60
    sensors_running: Annotated[bool, shown("Whether sensors run by default.", True)] = False
    unique_keys: Annotated[
        bool,
        shown(
            "Whether the last part of each asset key names the pipeline; false keeps the keys of "
            "versions before, e.g. `payments/state/totals`.",
            False,
        ),
    ] = True
    translation: Translation = None

    def get_asset_spec(self, data: DstlTranslatorData) -> dg.AssetSpec:
        """The spec of one part; override it to rename or describe assets."""
        return translated(self.translation, data, unique_keys=self.unique_keys)

    def spec(self, kind: DstlAssetKind, name: str) -> dg.AssetSpec:
        return self.get_asset_spec(DstlTranslatorData(self.name, kind, name=name))

    @property
    def source(self) -> SnapshotSource:
        """Finds the savepoint: the given one, or the latest that was taken.

        Raises:
            ConfigError: Both of path and flink_job are given, or neither is.
        """
        if (self.path is None) == (self.flink_job is None):
            raise ConfigError(f"{self.name!r} needs either a path or a flink_job, not both.")
        if self.path is not None:
            return snapshot_at(self.path, self.serializers)
        return latest_below("savepoint", self.serializers)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the savepoint."""
        savepoint = self.spec("external", "savepoint")
        if self.automation_condition is not None:
            savepoint = savepoint.replace_attributes(automation_condition=self.automation_condition)
        assets: list[Any] = [self._savepoint_asset(savepoint)]
        checks: list[Any] = [build_verify_check(savepoint.key, self.source, blocking=True)]
        sensors: list[Any] = []
        if self.template is not None:
            checks += self._template_checks(savepoint.key, self.template)
        checks += [
            build_state_check(
                check.uid, check.sql, asset=savepoint.key, source=self.source, **check.arguments()
            )
            for check in self.checks
        ]
        if self.rewrite is not None:
            spec = self._copy_spec(savepoint, "rewritten", self.rewrite.name)
            op_name = self._op_name(self.rewrite.name)
            edit = self.rewrite.edit()
            assets.append(rewritten_asset(spec, self.source, op_name=op_name, **edit))
        if self.upgrade is not None:
            spec = self._copy_spec(savepoint, "upgraded", self.upgrade.name)
            op_name = self._op_name(self.upgrade.name)
            edit = self.upgrade.edit()
            assets.append(upgraded_asset(spec, self.source, op_name=op_name, **edit))
        if self.migrate is not None:
            spec = self._copy_spec(savepoint, "migrated", self.migrate.name)
            op_name = self._op_name(self.migrate.name)
            assets.append(
                migrated_asset(spec, self.source, self.migrate.declaration, op_name=op_name)
            )
            checks += self._migrated_checks(spec.key, self.migrate.declaration)
        if self.checkpoints is not None:
            checkpoints = self.spec("external", "checkpoints")
            assets.append(checkpoints)
            sensors.append(self._checkpoint_sensor(checkpoints, self.checkpoints))
        return dg.Definitions(
            assets=assets,
            asset_checks=checks,
            sensors=sensors,
            schedules=[] if self.schedule is None else [self._schedule(savepoint, self.schedule)],
        )

    def _schedule(self, savepoint: dg.AssetSpec, cron: str) -> dg.ScheduleDefinition:
        return dg.ScheduleDefinition(
            name=self._op_name("savepoint_schedule"),
            cron_schedule=cron,
            target=dg.AssetSelection.assets(savepoint.key),
        )

    def _op_name(self, what: str) -> str:
        return "".join(c if c.isalnum() else "_" for c in f"{self.name}_{what}")

    def _savepoint_asset(self, spec: dg.AssetSpec) -> dg.AssetsDefinition:
        if self.flink_job is not None:
            return build_flink_savepoint_asset(
                "savepoint",
                job=self.flink_job,
                group=self.name,
                stop=self.stop,
                translator=ComponentTranslator(self),
                automation_condition=self.automation_condition,
            )
        source = self.source

        @dg.multi_asset(name=self._op_name("savepoint"), specs=[spec])
        def savepoint(storage: DstlStorageResource) -> dg.MaterializeResult:
            snapshot = resource_for(source, storage).load(source(storage))
            return dg.MaterializeResult(
                spec.key,
                metadata=show.snapshot_metadata(snapshot),
                data_version=dg.DataVersion(version_of(snapshot)),
            )

        return savepoint

    def _copy_spec(self, savepoint: dg.AssetSpec, kind: DstlAssetKind, name: str) -> dg.AssetSpec:
        spec = self.spec(kind, name)
        return spec.replace_attributes(
            deps=[savepoint.key],
            automation_condition=spec.automation_condition or dg.AutomationCondition.eager(),
        )

    def _migrated_checks(self, key: dg.AssetKey, declaration: str) -> Sequence[Any]:
        written = migrated_source(self.source, declaration)
        checks: list[Any] = [build_verify_check(key, written, blocking=True)]
        template = Migration.load(declaration).to_template
        if template is not None:
            job = expected_of(snapshot_at(template, self.serializers))
            checks.append(build_restore_plan_check(job, asset=key, source=written, blocking=True))
        return checks

    def _template_checks(self, key: dg.AssetKey, template: str) -> Sequence[Any]:
        job = expected_of(snapshot_at(template, self.serializers))
        return [
            build_restore_plan_check(job, asset=key, source=self.source),
            build_schema_check(job, asset=key, source=self.source),
        ]

    def _checkpoint_sensor(self, spec: dg.AssetSpec, folder: str) -> dg.SensorDefinition:
        running = self.sensors_running
        status = dg.DefaultSensorStatus.RUNNING if running else dg.DefaultSensorStatus.STOPPED
        return build_external_checkpoint_sensor(
            spec,
            folder,
            name=self._op_name("checkpoints"),
            minimum_interval_seconds=self.sensor_interval_seconds,
            default_status=status,
            serializers=self.serializers,
        )
