"""What a changed definition of a pipeline would do to its state, as an asset with a check."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from dstl_core.errors import ConfigError
from dstl_dagster import metadata as show
from dstl_dagster.pipelines.failures import no_retry_of_permanent_errors
from dstl_dagster.pipelines.pipeline import APPROVED_TAG, StatefulPipeline
from dstl_dagster.resources.engines import engine_of

if TYPE_CHECKING:
    from dstl_core.job.spec.state_changes import ChangePlan

CHECK = "evolution_keeps_all_state"


class EvolutionConfig(dg.Config):
    """The options of the plan of a changed definition."""

    approve: bool = Field(
        default=False,
        description="Whether runs of the pipeline may make the changes of this plan, where "
        "evolve has needs_approval.",
    )


def build_evolution_asset(pipeline: StatefulPipeline) -> dg.AssetsDefinition:
    """What the next run of a pipeline would do to the state of an earlier definition.

    The asset commits nothing. Its check fails where the run would be refused, and warns where
    values would be dropped or begin anew.
    """
    spec = pipeline.spec("evolution").replace_attributes(deps=[pipeline.key("checkpoint")])

    @dg.multi_asset(
        name=pipeline.python_name("evolution"),
        specs=[spec],
        check_specs=[dg.AssetCheckSpec(CHECK, asset=spec.key)],
        required_resource_keys={"storage", pipeline.engine},
    )
    def evolution(context: dg.AssetExecutionContext, config: EvolutionConfig) -> Iterator[Any]:
        storage, runs = context.resources.storage, getattr(context.resources, pipeline.engine)
        run_id = context.run.run_id
        with no_retry_of_permanent_errors(), engine_of(runs, "dstl", run_id, "plan") as session:
            job = pipeline.open(session, storage)
            try:
                plan = job.plan_migration(**pipeline.changes)
            except ConfigError as error:
                if config.approve:
                    raise
                refused = {"dstl/refused": str(error)}
                yield dg.MaterializeResult(
                    metadata=refused, check_results=[_result(False, "ERROR", refused)]
                )
                return
        losses = [f"{planned.name} ({planned.change})" for planned in plan.losses]
        lost = {"dstl/losses": ", ".join(losses) or "none"}
        yield dg.MaterializeResult(
            metadata=_metadata(plan) | lost,
            tags={APPROVED_TAG: plan.digest if config.approve else "no"},
            check_results=[_result(not losses, "WARN", lost)],
        )

    return evolution


def _result(passed: bool, severity: str, metadata: dict[str, Any]) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=CHECK,
        passed=passed,
        severity=dg.AssetCheckSeverity[severity],
        metadata=metadata,
    )


def _metadata(plan: "ChangePlan") -> dict[str, Any]:
    changes = [
        {
            "operator": planned.operator,
            "name": planned.name,
            "change": planned.change,
            "before": planned.before,
            "after": planned.after,
        }
        for planned in plan.changes
    ]
    return {
        "dstl/changes": show.rows_table(changes),
        "dstl/changed": sum(planned.change != "kept" for planned in plan.changes),
        "dstl/inputs_to_apply_again": plan.inputs,
        "dstl/plan": plan.digest,
    }
