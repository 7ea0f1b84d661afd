"""What a pipeline is, said once: assets, jobs, sensors and checks are built from it.

Nothing here imports Spark; the job is made when a run needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster_shared.check import CheckError

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.config import plain
from dstl_core.errors import ConfigError
from dstl_core.flink_text import parse_duration_ms
from dstl_core.job.spec.state_changes import StateChanges
from dstl_core.model.state_size import SMALL_LOG_BYTES
from dstl_core.state.tables.named_objects import load_object, registry_from
from dstl_dagster.option_kinds import check_options
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.resources.upload_resource import UploadSchedulerResource
from dstl_dagster.translator import (
    SPARK,
    DagsterDstlTranslator,
    DstlAssetKind,
    DstlTranslatorData,
    RenamedParts,
)

if TYPE_CHECKING:
    from dstl_core.stateful_job import StatefulJob

Context = dg.AssetExecutionContext | dg.OpExecutionContext | dg.AssetCheckExecutionContext
JobFactory = Callable[[Any, str], "StatefulJob"]
NUM_RETAINED = 32
"""Enough to go back 14 windows, each with a materialization after it."""
PIPELINE, KIND, UID, NAME = "dstl/pipeline", "dstl/kind", "dstl/operator", "dstl/name"
"""Metadata of the definition of a pipeline's assets: what the IO manager finds its rows by."""
NUM_RETAINED_KEY, RETAIN_KEY = "dstl/num_retained", "dstl/retain"
"""Metadata of the definition of the state, where ``dstl_assets`` says what is retained."""
NEEDS_APPROVAL = "needs_approval"
"""The part of ``evolve`` with which a change waits for an approval."""
APPROVED_TAG = "dstl/approved"
"""The tag of a materialization of the evolution that has the digest of an approved plan."""
_PLANS = 1000
"""The latest plans among which an approval is."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")


@dataclass(frozen=True)
class StatefulPipeline:
    """A stateful job and how Dagster runs it.

    Args:
        name: Name of the pipeline, as in the job; prefix of its asset keys.
        uid: Uid of its operator, as in the job.
        job: Makes the job from a session (or an engine) and the base path of jobs; or
            ``package.module:function``, which is imported by the run and keeps Spark out of the
            code location.
        order_by: Order in which the rows of a key apply.
        starts_from: Savepoint (name in the storage, or path) that the first epoch starts from.
        allow_non_restored_state: Whether to leave out state of operators that the job lacks, of
            ``starts_from`` and of the pipeline itself; by default as the job says.
        evolve: What becomes of state that the job of an earlier definition wrote: the arguments
            ``rename``, ``drop``, ``start_empty``, ``backfill`` and ``rekey`` of
            ``StatefulJob.migrate``, which a run calls before its first epoch. ``{}`` converts wider
            types alone. With ``needs_approval``, a change waits until a run of the asset
            ``evolution`` approves it.
        materialize_at_ratio: Fold the log into the base, within a run, once it has this size
            against the base; None leaves that to the truncation sensor.
        small_log_bytes: A log below this size stays as it is, whatever the ratio.
        num_retained: Committed checkpoints that are kept at least; a run can go back to each.
        retain: A duration as Flink writes it, e.g. ``"14 days"``: checkpoints that were committed
            less than this time before the latest one are kept as well.
        uploads: How changes are uploaded; by default the job's own options apply.
        outputs: Uids of the operators whose output is an asset of its own; ``<uid>.late`` is the
            output with the late rows of an operator's windows.
        show_keys: Whether metadata may show keys and values: the first rows of output, and the
            keys with the largest state.
        lineage: State to the columns of the events that it is made of.
        columns: Columns of a batch that the functions of the job get; by default those that they
            declare, or all. What no operator reads does not identify a batch: it may come, go and
            change, and committed windows stay committed.
        ignore_columns: Patterns of columns that functions do not get which take all, such as
            ``"_dlt_*"``.
        serializers: The registry of types, with readers of your own serializers; or
            ``package.module:name``. By default the job's own applies.
        engine: Key of the resource that runs the assets and ops that are built from the pipeline:
            a ``DstlSparkResource``, or any that ``run_epochs`` takes.
        translator: Names of the assets.
    """

    name: str
    uid: str
    job: JobFactory | str
    order_by: Sequence[str] = ()
    starts_from: str | None = None
    allow_non_restored_state: bool = False
    evolve: Mapping[str, Any] | None = None
    materialize_at_ratio: float | None = 1.0
    small_log_bytes: float = SMALL_LOG_BYTES
    num_retained: int = NUM_RETAINED
    retain: str | None = None
    uploads: UploadSchedulerResource | None = None
    outputs: Sequence[str] = ()
    show_keys: bool = False
    lineage: Mapping[str, Sequence[str]] = field(default_factory=dict)
    columns: Sequence[str] | None = None
    ignore_columns: Sequence[str] = ()
    serializers: SerializerRegistry | str | None = None
    engine: str = SPARK
    translator: DagsterDstlTranslator = field(default_factory=DagsterDstlTranslator)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or _NAME.fullmatch(self.name) is None:
            raise ConfigError(
                f"A pipeline's name has letters, digits, '_', '.' and '-', at most 63 of them; got "
                f"{self.name!r}."
            )
        check_options(f"pipeline {self.name!r}", type(self), vars(self))
        if self.evolve is not None:
            StateChanges.of(self.changes)

    def spec(
        self, kind: DstlAssetKind, name: str | None = None, *, operator: str | None = None
    ) -> dg.AssetSpec:
        """The asset spec of one part; ``operator`` is the first one of the job by default."""
        uid = operator or self.uid
        spec = self.translator.get_asset_spec(
            DstlTranslatorData(self.name, kind, uid, name, self.engine)
        )
        named = {} if name is None else {NAME: name}
        return spec.merge_attributes(metadata={PIPELINE: self.name, KIND: kind, UID: uid, **named})

    def key(
        self, kind: DstlAssetKind, name: str | None = None, *, operator: str | None = None
    ) -> dg.AssetKey:
        """The asset key of one part; ``operator`` is the first one of the job by default."""
        return self.spec(kind, name, operator=operator).key

    def as_defined(self, specs: Iterable[dg.AssetSpec]) -> StatefulPipeline:
        """This pipeline, as its assets are defined: with their keys, which may have got a prefix,
        and with the retention that ``dstl_assets`` was given.
        """
        of_pipeline = [spec for spec in specs if spec.metadata.get(PIPELINE) == self.name]
        said = next((spec.metadata for spec in of_pipeline if spec.metadata[KIND] == "state"), {})
        keys = {self._key_of(spec.metadata): spec.key for spec in of_pipeline}
        renamed = any(key != old for old, key in keys.items())
        return replace(
            self,
            translator=RenamedParts(self.translator, keys) if renamed else self.translator,
            num_retained=said.get(NUM_RETAINED_KEY, self.num_retained),
            retain=said.get(RETAIN_KEY, self.retain),
        )

    def as_run(self, context: Context) -> StatefulPipeline:
        """This pipeline, as the code location of a run defines its assets."""
        return self.as_defined(_specs_beside(context))

    def _key_of(self, metadata: Mapping[str, Any]) -> dg.AssetKey:
        """The key that this pipeline gives to a part with this metadata."""
        return self.key(metadata[KIND], metadata.get(NAME), operator=metadata[UID])

    def python_name(self, what: str) -> str:
        """A name for an op, job, sensor or schedule of this pipeline."""
        return re.sub(r"[^A-Za-z0-9_]", "_", f"{self.name}_{what}")

    @property
    def run_tags(self) -> dict[str, str]:
        return {"dstl/pipeline": self.name}

    def store(self, storage: DstlStorageResource) -> PipelineStore:
        """The pipeline's folder, without Spark."""
        return PipelineStore(storage.jobs, self.name)

    def open(
        self,
        session: Any,
        storage: DstlStorageResource,
        changelog_options: Mapping[str, Any] | None = None,
    ) -> StatefulJob:
        """The job, on its state.

        Args:
            session: A session of Spark, or another engine.
            storage: Where the state is.
            changelog_options: Options of the changelog, before those of the pipeline.

        Raises:
            ConfigError: The job has another name or operator than the pipeline, or an operator of
                ``outputs`` gives none.
        """
        from dstl_core.job.spec.operators import output_names_of

        job = self._factory()(session, storage.jobs)
        if (job.name, job.operator.uid) != (self.name, self.uid):
            raise ConfigError(
                f"The pipeline and its job do not agree: expected name {self.name!r} and uid "
                f"{self.uid!r}, got {job.name!r} and {job.operator.uid!r}."
            )
        giving = [name for each in job.operators for name in output_names_of(each)]
        silent = [uid for uid in self.outputs if uid not in giving]
        if silent:
            raise ConfigError(
                f"The operator {silent[0]!r} of pipeline {self.name!r} gives no output: expected "
                f"outputs out of {', '.join(giving) or 'none'}."
            )
        uploads = {} if self.uploads is None else self.uploads.changelog_options()
        # A job takes its options in when it is made.
        return replace(
            job,
            num_retained=max(job.num_retained, self.num_retained),
            retain=max(job.retain, self.retain, key=_duration_ms),
            allow_non_restored_state=(
                self.allow_non_restored_state or job.allow_non_restored_state
            ),
            changelog_options={
                **plain(job.changelog_options),
                **uploads,
                **(changelog_options or {}),
            },
            columns=job.columns if self.columns is None else self.columns,
            ignore_columns=[*job.ignore_columns, *self.ignore_columns],
            serializers=job.serializers if self.serializers is None else self.registry,
        )

    @property
    def changes(self) -> Mapping[str, Any]:
        """What becomes of state of an earlier definition: the arguments of ``migrate``."""
        if not isinstance(self.evolve, Mapping):
            return self.evolve or {}
        return {name: value for name, value in self.evolve.items() if name != NEEDS_APPROVAL}

    def migrate(
        self,
        job: StatefulJob,
        instance: dg.DagsterInstance,
        before_input: str | int | None,
        batches: Callable[[Any], Any],
    ) -> None:
        """Converts the state of an earlier definition, where ``evolve`` allows it.

        Args:
            job: The job.
            instance: Where an approval is recorded.
            before_input: The input that is applied again; None for one after the latest state.
            batches: Gives the rows of an input that was committed, by its id.

        Raises:
            ConfigError: A change was not approved.
        """
        if self.evolve is None:
            return
        if self.evolve.get(NEEDS_APPROVAL):
            self._check_approved(job, instance)
        job.migrate(**self.changes, batches=batches, before_input=before_input)

    def _check_approved(self, job: StatefulJob, instance: dg.DagsterInstance) -> None:
        # The changes that a restated day makes again are in the latest state: they were approved.
        plan = job.plan_migration(**self.changes)
        if plan.is_empty:
            return
        key = self.key("evolution")
        # An earlier approval will do: whoever takes a change back may make it again.
        made = instance.fetch_materializations(key, limit=_PLANS).records
        events = [record.asset_materialization for record in made]
        tags = [(event.tags or {}) for event in events if event is not None]
        if all(of_event.get(APPROVED_TAG) != plan.digest for of_event in tags):
            raise ConfigError(
                f"The changed definition of pipeline {self.name!r} is not approved: expected the "
                f"approval of plan {plan.digest}; look at the plan of the asset "
                f"{key.to_user_string()}, and materialize it with the config approve: true."
            )

    @property
    def registry(self) -> SerializerRegistry:
        """Reads the types of the state, for code that has no job.

        Raises:
            ConfigError: ``serializers`` names no registry.
        """
        return registry_from(self.serializers, f"pipeline {self.name!r}")

    def _factory(self) -> JobFactory:
        return load_object(self.job) if isinstance(self.job, str) else self.job


def _specs_beside(context: Context) -> Iterator[dg.AssetSpec]:
    """The assets of the code location of a run, and last those of its op."""
    op_context: Any = getattr(context, "op_execution_context", context)
    try:
        beside = op_context.repository_def.assets_defs_by_key.values()
    except (CheckError, dg.DagsterError):
        beside = ()  # ``dagster.materialize`` has no code location
    running = [op_context.assets_def] if op_context.has_assets_def else []
    for assets in [*{id(assets): assets for assets in beside}.values(), *running]:
        yield from assets.specs


def _duration_ms(text: str | None) -> int:
    return 0 if text is None else parse_duration_ms(text)
