"""The source of a pipeline gains columns: committed days stay committed, and the next day runs."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from dstl_core import KeyedOperator, StatefulJob
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedProcessFunction
from dstl_dagster import (
    DstlStorageResource,
    StatefulPipelineComponent,
)
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    ROWS,
    epochs_of,
    expected_totals,
    payments,
    totals_in,
)

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]
RANGE = {
    "dagster/asset_partition_range_start": "2026-01-01",
    "dagster/asset_partition_range_end": "2026-01-03",
}


def test_a_range_goes_over_committed_days_of_a_source_with_a_new_column(
    storage: DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    resources = {"storage": storage, "engine": LOCAL}
    before = epochs_of(PAYMENTS, lambda engine, day: payments(*ROWS[day]))
    for day in ("2026-01-01", "2026-01-02"):
        dg.materialize([before], partition_key=day, resources=resources, instance=instance)

    def wider(engine: Any, day: str) -> pa.Table:
        rows = payments(*ROWS[day])
        return rows.append_column("channel", pa.nulls(len(rows), pa.string()))

    after = epochs_of(PAYMENTS, wider)
    assert dg.materialize([after], resources=resources, instance=instance, tags=RANGE).success
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02", "2026-01-03")
    epochs = [c for c in PAYMENTS.store(storage).commits() if c.facts.kind == "epoch"]
    assert len(epochs) == 3


class Names(KeyedProcessFunction):
    """Gives the names of the columns that it gets."""

    order_insensitive = True

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"names": " ".join(sorted(value))}


def names_job(session: Any, base_path: str) -> StatefulJob:
    schema = pa.schema([("names", pa.string())])
    operator = KeyedOperator("names", "account", Types.STRING, Names(), schema)
    return StatefulJob(session, "names", base_path, operator)


def component(**attributes: Any) -> StatefulPipelineComponent:
    return StatefulPipelineComponent.from_attributes_dict(
        attributes={
            "name": "names",
            "uid": "names",
            "engine": "engine",
            "events": {"path": "payments", "partition_column": "day"},
            "partitions": {"start": "2026-01-01", "end": "2026-01-08"},
            **attributes,
        }
    )


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"ignore_columns": ["_dlt_*"]}, "account amount"),
        ({"columns": "account string"}, "account"),
    ],
)
def test_a_component_leaves_out_columns_of_a_loader(
    storage: DstlStorageResource,
    instance: dg.DagsterInstance,
    attributes: dict[str, Any],
    wanted: str,
) -> None:
    job = f"{names_job.__module__}:{names_job.__name__}"
    pipeline = component(job=job, **attributes).pipeline
    resources = {"storage": storage, "engine": LOCAL}
    for load in ("1", "2"):  # the day is loaded again

        def loaded(engine: Any, day: str, load: str = load) -> pa.Table:
            rows = payments(*ROWS[day])
            return rows.append_column("_dlt_load_id", pa.array([load] * len(rows)))

        done = dg.materialize(
            [epochs_of(pipeline, loaded)],
            partition_key="2026-01-01",
            resources=resources,
            instance=instance,
        )
        assert done.success
    with LOCAL.tagged("test") as engine:
        output = pipeline.open(engine, storage).current_output()["names"]
    assert set(pa.table(output)["names"].to_pylist()) == {wanted}
    epochs = [c for c in pipeline.store(storage).commits() if c.facts.kind == "epoch"]
    assert len(epochs) == 1


def test_states_have_no_columns_to_ignore() -> None:
    states = {"key_by": "account", "states": {"n": {"how": "count"}}}
    with pytest.raises(ConfigError, match="has ignore_columns, which belong to a job"):
        _ = component(**states, ignore_columns=["_dlt_*"]).pipeline
