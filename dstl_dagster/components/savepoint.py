"""``SavepointComponent``: governs the savepoints of Flink jobs, in YAML only."""

from dataclasses import dataclass, field, fields
from typing import Annotated

import dagster as dg

from dstl_dagster.attributes import shown
from dstl_dagster.checks.state_checks import StateCheck
from dstl_dagster.components.scaffolders import SavepointScaffolder
from dstl_dagster.components.translation import ComponentTranslator, Translation, translated
from dstl_dagster.savepoint_defs import build_savepoint_defs
from dstl_dagster.snapshots.edits import Migrate, Rewrite, Upgrade
from dstl_dagster.translator import DstlTranslatorData


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
        Rewrite | None,
        shown("An edited copy of the savepoint.", {"rename": {"counts": "order-counts"}}),
    ] = None
    upgrade: Annotated[
        Upgrade | None,
        shown("A copy of a savepoint of Flink 1.x for Flink 2.x.", {"jars": ["jobs/orders.jar"]}),
    ] = None
    migrate: Annotated[
        Migrate | None,
        shown(
            "The savepoint as a changed job restores it.",
            {"declaration": "migrations/orders-v2.yaml"},
        ),
    ] = None
    checks: Annotated[
        list[StateCheck],
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
    allow_roots: Annotated[
        list[str],
        shown("Further folders from which files of the savepoint may be read.", ["s3://old/chk"]),
    ] = field(default_factory=list)
    relocate: Annotated[
        dict[str, str],
        shown(
            "Old root to new root, for files of the savepoint that were moved.",
            {"hdfs://nn/flink": "s3://bucket/flink"},
        ),
    ] = field(default_factory=dict)
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

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        options = {name: getattr(self, name) for name in _OPTIONS}
        return build_savepoint_defs(self.name, translator=ComponentTranslator(self), **options)


_OPTIONS = {field.name for field in fields(SavepointComponent)} - {
    "name",
    "translation",
    "unique_keys",
}
"""The attributes that are arguments of ``build_savepoint_defs``."""
