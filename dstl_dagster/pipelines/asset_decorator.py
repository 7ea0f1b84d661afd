"""``@dstl_assets``: state, changelog and checkpoint of a pipeline as one op."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import dagster as dg

from dstl_core.errors import ConfigError
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.epoch_metadata import EPOCH_KINDS
from dstl_dagster.pipelines.epoch_runs import EpochConfig, InputConfig
from dstl_dagster.pipelines.pipeline import NUM_RETAINED_KEY, RETAIN_KEY, StatefulPipeline

InputPartitions = dg.TimeWindowPartitionsDefinition | dg.DynamicPartitionsDefinition
STATE_TAG = "dstl/state-of"
"""The tag of a state, with the name of its pipeline."""
DEFAULT_RETRIES = dg.RetryPolicy(
    max_retries=3, delay=2, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL
)

UNNAMED = "dstl_rows"
"""Key of the IO manager of assets that name none. The assets bring it, because Dagster's own IO
manager pickles values.
"""


def build_dstl_asset_specs(
    pipeline: StatefulPipeline,
    *,
    deps: Sequence[Any] = (),
    partitions_def: dg.PartitionsDefinition | None = None,
    automation_condition: dg.AutomationCondition | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
) -> list[dg.AssetSpec]:
    """The specs of state, changelog and checkpoint: ``deps -> state -> changelog -> checkpoint``,
    and of each output: ``state -> output``.

    Args:
        pipeline: The pipeline.
        deps: Upstream assets of the batches. The first one is the source of the column lineage.
        partitions_def: Windows of input. The state of a window depends on the window before. Other
            partitions do not depend on each other in Dagster.
        automation_condition: Automation condition of the state; by default the translator's.
        freshness_policy: Freshness policy of the checkpoint; by default the translator's.
    """
    check_options("dstl_assets", build_dstl_asset_specs, locals())
    state, changelog, checkpoint = (pipeline.spec(kind) for kind in EPOCH_KINDS)
    upstream = [dep if isinstance(dep, dg.AssetDep) else dg.AssetDep(dep) for dep in deps]
    if _are_windows(partitions_def):
        before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
        upstream.append(dg.AssetDep(state.key, partition_mapping=before))
    condition = _beside_itself(automation_condition or state.automation_condition, pipeline.name)
    return [
        state.replace_attributes(deps=upstream, automation_condition=condition).merge_attributes(
            tags={STATE_TAG: pipeline.name}
        ),
        changelog.replace_attributes(deps=[state.key]),
        checkpoint.replace_attributes(
            deps=[changelog.key], freshness_policy=freshness_policy or checkpoint.freshness_policy
        ),
        *(
            pipeline.spec("output", operator=uid).replace_attributes(deps=[state.key])
            for uid in pipeline.outputs
        ),
    ]


def _beside_itself(
    condition: dg.AutomationCondition | None, pipeline: str
) -> dg.AutomationCondition | None:
    """A condition that waits for upstream assets, and not for the state of the window before, on
    which a state depends: conditions such as ``on_cron`` wait until each dependency was updated.
    The state is found by its tag, since its key may get a prefix.
    """
    ignore = getattr(condition, "ignore", None)  # only conditions on dependencies have it
    return condition if ignore is None else ignore(dg.AssetSelection.tag(STATE_TAG, pipeline))


def dstl_assets(
    *,
    pipeline: StatefulPipeline,
    partitions_def: InputPartitions | None = None,
    deps: Sequence[Any] = (),
    name: str | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    retry_policy: dg.RetryPolicy | None = DEFAULT_RETRIES,
    automation_condition: dg.AutomationCondition | None = None,
    freshness_policy: dg.FreshnessPolicy | None = None,
    check_specs: Sequence[dg.AssetCheckSpec] | None = None,
    op_tags: Mapping[str, Any] | None = None,
    required_resource_keys: Set[str] | None = None,
    pool: str | None = None,
    num_retained: int | None = None,
    retain: str | None = None,
    io_manager_key: str | None = None,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Makes state, changelog and checkpoint assets from a function that runs the epochs.

        @dstl_assets(pipeline=flights, partitions_def=DAYS, deps=[events])
        def flights_state(context, storage: DstlStorageResource, spark: DstlSparkResource):
            yield from run_epochs(context, flights, rows_of_day, storage=storage, engine=spark)

    Partitions are windows of input. A backfill is one run, in order. Without partitions each run is
    an input with an id (``run_epochs(input_id=..)``), and each dynamic partition is one. The op
    takes ``EpochConfig``, or ``InputConfig`` without windows; one of yours derives from it.

    Args:
        pipeline: The pipeline.
        partitions_def: Time windows, dynamic partitions, or none.
        deps: Upstream assets of the batches.
        name: Name of the op.
        backfill_policy: A single run by default, which keeps the order and starts Spark once.
        retry_policy: Retries of the op; keep them few if uploads retry, too.
        automation_condition: Automation condition of the state.
        freshness_policy: Freshness policy of the checkpoint.
        check_specs: Checks that the function reports.
        op_tags: Tags of the op.
        required_resource_keys: Resources that the function takes from ``context.resources``.
        pool: Dagster's concurrency pool; the commit log decides which run commits.
        num_retained: Replaces that of the pipeline, also for what ``build_pipeline_defs`` adds.
        retain: As ``num_retained``.
        io_manager_key: Key of the ``DstlIOManager`` of state and output, where an input names none.

    Raises:
        ConfigError: The partitions are static or of several dimensions, or an argument is wrong.
    """
    check_options(pipeline, dstl_assets, locals())
    specs = build_dstl_asset_specs(
        pipeline,
        deps=deps,
        partitions_def=partitions_def,
        automation_condition=automation_condition,
        freshness_policy=freshness_policy,
    )
    return partial(
        _multi_asset,
        name=name or pipeline.python_name("state"),
        specs=loaded_by(_retaining(pipeline, specs, num_retained, retain), io_manager_key),
        can_subset=True,
        partitions_def=partitions_def,
        backfill_policy=backfill_policy or dg.BackfillPolicy.single_run(),
        config=EpochConfig if _are_windows(partitions_def) else InputConfig,
        retry_policy=retry_policy,
        check_specs=check_specs,
        op_tags=op_tags,
        required_resource_keys=required_resource_keys,
        pool=pool,
    )


def _retaining(
    pipeline: StatefulPipeline,
    specs: Sequence[dg.AssetSpec],
    num_retained: int | None,
    retain: str | None,
) -> list[dg.AssetSpec]:
    """The specs, with the retention in the metadata of the state."""
    options = {NUM_RETAINED_KEY: num_retained, RETAIN_KEY: retain}
    said = {name: value for name, value in options.items() if value is not None}
    state, *others = specs
    kept = [state.merge_attributes(metadata=said), *others]
    pipeline.as_defined(kept)  # refuses what is wrong
    return kept


def _are_windows(partitions_def: dg.PartitionsDefinition | None) -> bool:
    """Whether partitions are time windows; if not, each of them is an input of its own."""
    is_windows = isinstance(partitions_def, dg.TimeWindowPartitionsDefinition)
    if not is_windows and not isinstance(partitions_def, dg.DynamicPartitionsDefinition | None):
        raise ConfigError(
            f"State needs inputs that follow each other: expected a "
            f"TimeWindowPartitionsDefinition, a DynamicPartitionsDefinition or none, got "
            f"{type(partitions_def).__name__}; for several regions make a pipeline for each, or "
            f"put the region into the key."
        )
    return is_windows


def _multi_asset(
    function: Callable[..., Any], *, config: type[dg.Config], **options: Any
) -> dg.AssetsDefinition:
    """The assets of a function, with their configuration in the launchpad."""
    # A function with a configuration of its own derives that from this one.
    has_config = "config" in inspect.signature(function).parameters
    schema = None if has_config else dict(config.to_fields_dict())
    made: dg.AssetsDefinition = dg.multi_asset(config_schema=schema, **options)(function)
    return bringing(made)


class UnnamedIOManager(dg.IOManager):
    """Stores nothing, because state and output are in the pipeline's folder, and loads nothing."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Does nothing."""

    def load_input(self, context: dg.InputContext) -> Any:
        """Raises ConfigError."""
        raise ConfigError(
            f"No IO manager loads the asset {context.asset_key.to_user_string()!r} of a pipeline: "
            f"expected the key of a DstlIOManager; give it to dstl_assets (io_manager_key='dstl'), "
            f"or to the input alone (AssetIn(input_manager_key='dstl'))."
        )


_BROUGHT = {UNNAMED: dg.IOManagerDefinition.hardcoded_io_manager(UnnamedIOManager())}
"""One object for all assets: Dagster refuses two of one key in one run."""


def loaded_by(specs: Sequence[dg.AssetSpec], key: str | None = None) -> list[dg.AssetSpec]:
    """Specs whose values an IO manager loads.

    Args:
        specs: The specs.
        key: Key of the IO manager; None: of one that says what to do.
    """
    return [spec.with_io_manager_key(key or UNNAMED) for spec in specs]


def bringing(assets: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """Assets with the IO manager of ``UNNAMED``. The decorator takes no resources of assets whose
    function has resources as parameters, so they are given here.
    """
    attributes = {**assets.get_attributes_dict(), "resource_defs": _BROUGHT}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # of attributes that the decorator has set
        return dg.AssetsDefinition(**attributes)
