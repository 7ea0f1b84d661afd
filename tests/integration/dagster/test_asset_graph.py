"""The assets of a pipeline in the graph of a team: other keys, other code locations, mappings."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dstl_dagster as dstl
from dstl_core import aggregates
from dstl_core.errors import ConfigError
from dstl_dagster.snapshots.snapshot_assets import (
    build_materialization_asset,
    build_savepoint_asset,
)
from tests.integration.dagster.small_pipeline import DAYS, LOCAL, SPARK, payments

pytestmark = [pytest.mark.dagster, pytest.mark.filterwarnings("ignore::dagster.BetaWarning")]
FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"
RANGE = {
    "dagster/asset_partition_range_start": FIRST,
    "dagster/asset_partition_range_end": THIRD,
}
ROWS = {FIRST: [("a", 1), ("b", 2)], SECOND: [("a", 10)], THIRD: [("c", 100)]}
STATE_AFTER = {
    FIRST: {"a": 1, "b": 2},
    SECOND: {"a": 11, "b": 2},
    THIRD: {"a": 11, "b": 2, "c": 100},
}
OUTPUT_OF = {FIRST: [("a", 1), ("b", 2)], SECOND: [("a", 11)], THIRD: [("c", 100)]}
PIPELINE = dstl.aggregating_pipeline(
    "sales",
    uid="by/shop",
    key_by="account",
    states={"total": aggregates.sum("amount")},
    schema="account string, amount long",
    output=True,
    engine="engine",
)
STATE, OUTPUT = PIPELINE.key("state"), PIPELINE.key("output", operator="by/shop")
KINDS = ("state", "changelog", "checkpoint", "output")


def epochs(**options: Any) -> dg.AssetsDefinition:
    @dstl.dstl_assets(pipeline=PIPELINE, partitions_def=DAYS, retry_policy=None, **options)
    def sales_state(
        context: dg.AssetExecutionContext,
        storage: dstl.DstlStorageResource,
        engine: dg.ResourceParam[Any],
    ) -> Iterator[Any]:
        yield from dstl.run_epochs(
            context,
            PIPELINE,
            lambda engine, day: payments(*ROWS[day]),
            storage=storage,
            engine=engine,
        )

    return sales_state


def resources_of(storage: dstl.DstlStorageResource) -> dict[str, Any]:
    rows = dstl.DstlIOManager(storage=storage, spark=SPARK)
    return {"storage": storage, "engine": LOCAL, "spark": SPARK, "dstl": rows}


def with_prefix() -> dg.AssetsDefinition:
    module = ModuleType("sales")
    module.epochs = epochs()  # type: ignore[attr-defined]
    [assets] = dg.load_assets_from_modules([module], key_prefix=["team", "eu"])
    assert isinstance(assets, dg.AssetsDefinition)
    return assets


def renamed() -> dg.AssetsDefinition:
    plain = epochs()
    return plain.with_attributes(
        asset_key_replacements={key: dg.AssetKey(["x", key.path[-1].upper()]) for key in plain.keys}
    )


FORMS = {"as they are": epochs, "with a prefix": with_prefix, "renamed": renamed}


@pytest.mark.parametrize("form", FORMS)
def test_events_go_to_the_keys_of_the_definitions_that_run(
    form: str, storage: dstl.DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    assets, resources = FORMS[form](), resources_of(storage)
    for run in ({"partition_key": FIRST}, {"tags": RANGE}):
        done = dg.materialize([assets], resources=resources, instance=instance, **run)
        events = [each.materialization for each in done.get_asset_materialization_events()]
        reported = {(each.asset_key, each.partition) for each in events}
        days = [FIRST] if "partition_key" in run else [FIRST, SECOND, THIRD]
        assert reported == {(key, day) for key in assets.keys for day in days}
    for key in assets.keys:
        assert set(instance.get_materialized_partitions(key)) == {FIRST, SECOND, THIRD}


@pytest.mark.parametrize("form", FORMS)
def test_what_is_built_from_assets_is_about_their_keys(
    form: str, storage: dstl.DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    assets = FORMS[form]()
    defs = dstl.build_pipeline_defs(PIPELINE, [assets], resources=resources_of(storage))
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    assert {key for key in graph.get_all_asset_keys() if not graph.get(key).is_executable} == set()
    assert len(graph.get_all_asset_keys()) == len(assets.keys) + 3  # a base, a savepoint, a report
    [checked] = {key.asset_key for key in graph.asset_check_keys}
    assert checked in assets.keys and "checkpoint" in checked.path[-1].lower()
    job = defs.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(
        partition_key=FIRST, instance=instance, asset_selection=[*assets.keys]
    ).success
    behind = [PIPELINE.key("materialization"), PIPELINE.key("savepoint")]
    assert job.execute_in_process(instance=instance, asset_selection=behind).success
    with dg.DagsterInstance.ephemeral() as other:  # it has no events
        report = defs.resolve_job_def("sales_report_commits")
        assert report.execute_in_process(instance=other).success
        for key in assets.keys:
            assert set(other.get_materialized_partitions(key)) == {FIRST}


def test_a_module_of_all_assets_takes_a_prefix(
    storage: dstl.DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    module = ModuleType("sales")
    module.found = [  # type: ignore[attr-defined]
        epochs(),
        build_materialization_asset(PIPELINE),
        build_savepoint_asset(PIPELINE),
    ]
    assets = dg.load_assets_from_modules([module], key_prefix="team")
    resources = resources_of(storage)
    state, *behind = assets
    assert dg.materialize(
        [state], partition_key=FIRST, resources=resources, instance=instance
    ).success
    done = dg.materialize(assets, selection=[*behind], resources=resources, instance=instance)
    reported = {each.asset_key for each in done.get_asset_materialization_events()}
    assert {key.to_user_string() for key in reported} == {
        "team/sales/sales_materialization_by_shop",
        "team/sales/sales_savepoint",
    }


# --------------------------------------------------------------------------------- values


@pytest.fixture
def ran(storage: dstl.DstlStorageResource, instance: dg.DagsterInstance) -> dict[str, Any]:
    """Three days; the resources."""
    resources = resources_of(storage)
    assert dg.materialize([epochs()], resources=resources, instance=instance, tags=RANGE).success
    return resources


def values_in(rows: Any) -> Any:
    """Total by account of state; account and total of output, sorted."""
    table = pa.table(rows) if not isinstance(rows, pd.DataFrame) else pa.Table.from_pandas(rows)
    if "state_key" in table.schema.names:
        return dict(zip(table["state_key"].to_pylist(), table["total"].to_pylist(), strict=True))
    return sorted(zip(table["account"].to_pylist(), table["total"].to_pylist(), strict=True))


def loaded(
    upstream: Any, ran: dict[str, Any], instance: dg.DagsterInstance, day: str, **of_input: Any
) -> Any:
    """What an asset gets for a day: the rows, or the failure."""
    seen = []
    wanted = of_input.pop("wanted", pa.Table)
    key = upstream.key if isinstance(upstream, dg.AssetSpec) else of_input.pop("key")

    @dg.asset(partitions_def=DAYS, ins={"rows": dg.AssetIn(key, **of_input)})
    def downstream(rows: wanted) -> None:  # type: ignore[valid-type]
        seen.append(rows)

    done = dg.materialize(
        [upstream, downstream],
        selection=[downstream],
        partition_key=day,
        resources=ran,
        instance=instance,
        raise_on_error=False,
    )
    if done.success:
        return seen[0]
    error = done.failure_data_for_node("downstream").error
    while error.cause is not None:
        error = error.cause
    return error.message


def test_another_code_location_loads_by_spec_and_by_key_alone(
    ran: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    named = {"input_manager_key": "dstl"}
    for kind, expected in (("state", STATE_AFTER[SECOND]), ("output", OUTPUT_OF[SECOND])):
        own = PIPELINE.spec(kind, operator="by/shop")  # type: ignore[arg-type]
        key = own.key
        for spec in (
            own.replace_attributes(partitions_def=DAYS),
            dg.AssetSpec(key, partitions_def=DAYS),
            dg.AssetSpec(key.with_prefix("team"), partitions_def=DAYS),
            dg.AssetSpec(dg.AssetKey(["sales", kind, "by_shop"]), partitions_def=DAYS),
        ):
            assert values_in(loaded(spec, ran, instance, SECOND, **named)) == expected
    unknown = dg.AssetSpec("sales/sales_state_other", partitions_def=DAYS)
    message = loaded(unknown, ran, instance, SECOND, **named)
    assert "There are no rows of the asset 'sales/sales_state_other'" in message
    assert str(Path(ran["storage"].base_path) / "savepoints") in message
    assert "'dstl/pipeline', 'dstl/kind' and 'dstl/operator'" in message


def test_values_come_from_the_named_io_manager(
    storage: dstl.DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset_check(asset=OUTPUT)
    def has_rows(rows: pd.DataFrame) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=values_in(rows) == OUTPUT_OF[FIRST])

    resources = resources_of(storage)
    assets = epochs(io_manager_key="dstl")
    done = dg.materialize(
        [assets, has_rows], partition_key=FIRST, resources=resources, instance=instance
    )
    assert [each.passed for each in done.get_asset_check_evaluations()] == [True]
    assert dg.materialize([assets], resources=resources, instance=instance, tags=RANGE).success
    defs = dstl.build_pipeline_defs(PIPELINE, [assets], resources=resources)
    value_read = defs.load_asset_value(
        STATE, python_type=pd.DataFrame, partition_key=SECOND, instance=instance
    )
    assert values_in(value_read) == STATE_AFTER[SECOND]
    assert values_in(loaded(assets, resources, instance, THIRD, key=OUTPUT)) == OUTPUT_OF[THIRD]
    with pytest.raises(ConfigError, match="has no rows to load: expected state or output"):
        defs.load_asset_value(PIPELINE.key("checkpoint"), partition_key=FIRST, instance=instance)


def test_an_op_takes_assets_as_parameters_and_gets_all_that_the_state_stands_on(
    storage: dstl.DstlStorageResource, instance: dg.DagsterInstance
) -> None:
    resources = resources_of(storage)
    assets = epochs(io_manager_key="dstl")
    assert dg.materialize([assets], resources=resources, instance=instance, tags=RANGE).success
    sources = {source.key: source for source in assets.to_source_assets()}

    @dg.op
    def compare(totals: pa.Table, rows: pd.DataFrame) -> list[Any]:
        return [values_in(totals), values_in(rows)]

    def graph() -> None:
        compare(sources[STATE], sources[OUTPUT])

    for job, day in (
        (dg.job(name="whole")(graph), None),
        (dg.job(name="by_day", partitions_def=DAYS)(graph), FIRST),
    ):
        done = job.execute_in_process(instance=instance, resources=resources, partition_key=day)
        every = sorted(row for day in (FIRST, SECOND, THIRD) for row in OUTPUT_OF[day])
        assert done.output_for_node("compare") == [STATE_AFTER[THIRD], every]


def test_without_a_named_io_manager_nothing_is_pickled_and_one_sentence_says_what_to_do(
    ran: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    pickled = Path(instance.storage_directory())
    assert not pickled.exists() or not [each for each in pickled.rglob("*") if "sales" in each.name]
    for key in (STATE, OUTPUT, PIPELINE.key("checkpoint")):
        message = loaded(epochs(), ran, instance, FIRST, key=key)
        assert f"No IO manager loads the asset {key.to_user_string()!r}" in message
        assert "io_manager_key='dstl'" in message
    by_input = loaded(epochs(), ran, instance, FIRST, key=OUTPUT, input_manager_key="dstl")
    assert values_in(by_input) == OUTPUT_OF[FIRST]


# ------------------------------------------------------------------------------- mappings


def at(start: int, end: int) -> dg.TimeWindowPartitionMapping:
    return dg.TimeWindowPartitionMapping(
        start_offset=start, end_offset=end, allow_nonexistent_upstream_partitions=True
    )


MAPPINGS: dict[str, tuple[Any, dict[str, list[str]]]] = {
    "the day before": (lambda: at(-1, -1), {FIRST: [], SECOND: [FIRST], THIRD: [SECOND]}),
    "two days before": (lambda: at(-2, -2), {FIRST: [], SECOND: [], THIRD: [FIRST]}),
    "the day and two before": (
        lambda: at(-2, 0),
        {FIRST: [FIRST], SECOND: [FIRST, SECOND], THIRD: [FIRST, SECOND, THIRD]},
    ),
    "the first day": (
        lambda: dg.SpecificPartitionsPartitionMapping([FIRST]),
        {FIRST: [FIRST], THIRD: [FIRST]},
    ),
    "all": (dg.AllPartitionMapping, {FIRST: [FIRST, SECOND, THIRD]}),
}


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_mapping_gives_its_windows_or_no_rows_with_the_columns(
    mapping: str, ran: dict[str, Any], instance: dg.DagsterInstance
) -> None:
    make, cases = MAPPINGS[mapping]
    rule = make()
    for day, windows in cases.items():
        for kind, wanted in (
            ("state", pa.Table),
            ("output", pl.DataFrame),
            ("state", pd.DataFrame),
        ):
            spec = PIPELINE.spec(kind, operator="by/shop")  # type: ignore[arg-type]
            rows = loaded(
                spec.replace_attributes(partitions_def=DAYS),
                ran,
                instance,
                day,
                wanted=wanted,
                partition_mapping=rule,
                input_manager_key="dstl",
            )
            assert not isinstance(rows, str), rows
            if kind == "state":
                assert values_in(rows) == (STATE_AFTER[windows[-1]] if windows else {})
                assert list(getattr(rows, "column_names", rows.columns)) == ["state_key", "total"]
            else:
                assert values_in(rows) == sorted(row for key in windows for row in OUTPUT_OF[key])
    if isinstance(rule, dg.TimeWindowPartitionMapping):
        return
    assert "int64" in str(pa.Table.from_pandas(rows).schema.field("total").type)


@pytest.mark.spark
def test_no_windows_are_no_rows_in_spark(ran: dict[str, Any], instance: dg.DagsterInstance) -> None:
    rows = loaded(
        PIPELINE.spec("state").replace_attributes(partitions_def=DAYS),
        ran,
        instance,
        FIRST,
        wanted=Any,
        partition_mapping=at(-1, -1),
        input_manager_key="dstl",
    )
    assert (rows.columns, rows.count()) == (["state_key", "total"], 0)
