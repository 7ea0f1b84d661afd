"""One call gives everything of a pipeline, or of a savepoint. Wrong arguments get one sentence."""

import dagster as dg
import pytest

import dstl_dagster as dstl
from dstl_core.errors import ConfigError
from dstl_dagster.checks import DiffCheck, RestoreCheck, SchemaCheck, StateCheck, VerifyCheck
from dstl_dagster.snapshots import Rewrite, snapshot_at
from tests.integration.dagster.small_pipeline import DAYS, LOCAL, PAYMENTS, SPARK

pytestmark = pytest.mark.dagster

RESOURCES = {
    "storage": dstl.DstlStorageResource(base_path="state"),
    "engine": LOCAL,
    "spark": SPARK,
    "flink": dstl.FlinkClusterResource(url="http://flink:8081"),
}


def epochs(**options):
    @dstl.dstl_assets(pipeline=PAYMENTS, **options)
    def payments_state():
        yield from ()

    return payments_state


def names(definitions):
    return sorted(definition.name for definition in definitions or ())


def test_a_pipeline_with_all_that_it_can_have_is_one_call():
    defs = dstl.build_pipeline_defs(
        PAYMENTS,
        [epochs(partitions_def=DAYS)],
        checks=[StateCheck("SELECT 1 FROM {state} WHERE total < 0", name="no_debt")],
        savepoint_checks=[
            VerifyCheck(),
            RestoreCheck(snapshot_at("next")),
            SchemaCheck(snapshot_at("next")),
            DiffCheck(snapshot_at("before")),
        ],
        rewrite=Rewrite(rename={"totals": "sums"}),
        epochs_schedule="10 0 * * *",
        verify_schedule="0 5 * * 0",
        schedule_timezone="Europe/Berlin",
        schedules_running=True,
        sensors_running=True,
        resources=RESOURCES,
    )
    graph = defs.resolve_asset_graph()
    checks = {(key.asset_key.path[-1], key.name) for key in graph.asset_check_keys}
    assert checks >= {
        ("payments_checkpoint", "no_debt"),
        ("payments_checkpoint", "committed"),
        ("payments_savepoint", "verified"),
        ("payments_savepoint", "restore_plan"),
        ("payments_savepoint", "schema"),
        ("payments_savepoint", "diff_of_totals"),
    }
    verbs = ["gc", "materialize", "report_commits", "reset", "verify", "write_savepoint"]
    assert names(defs.jobs) == [f"payments_{verb}" for verb in verbs]
    sensors = ["reset_after_canceled", "reset_after_failure", "sweeper", "truncation"]
    assert names(defs.sensors) == [f"payments_{sensor}" for sensor in sensors]
    schedules = {
        schedule.name: (schedule.cron_schedule, schedule.execution_timezone)
        for schedule in defs.schedules or ()
    }
    assert schedules == {
        "payments_epochs_schedule": ("10 0 * * *", "Europe/Berlin"),
        "payments_materialization_schedule": ("0 3 * * *", "Europe/Berlin"),
        "payments_verify_schedule": ("0 5 * * 0", "Europe/Berlin"),
    }
    for launching in (*(defs.sensors or ()), *(defs.schedules or ())):
        assert launching.default_status.value == "RUNNING"
    assert names(dstl.build_pipeline_defs(PAYMENTS, [epochs()], inputs=list).sensors)[0] == (
        "payments_arrivals"
    )


def test_a_savepoint_with_all_that_it_can_have_is_one_call():
    defs = dstl.build_savepoint_defs(
        "orders",
        flink_job="orders",
        stop=True,
        checkpoints="s3://bucket/chk/ab12",
        checks=[StateCheck("SELECT 1 FROM {state}", "counts", severity="warn")],
        template="next-orders",
        rewrite=Rewrite(rename={"counts": "order-counts"}, automatic=False),
        upgrade=dstl.snapshots.Upgrade(jars=["orders.jar"]),
        schedule="0 2 * * *",
        resources=RESOURCES,
    )
    graph = defs.resolve_asset_graph()
    keys = {key.path[-1]: graph.get(key) for key in graph.get_all_asset_keys()}
    assert set(keys) == {
        "orders_savepoint",
        "orders_rewritten",
        "orders_upgraded",
        "orders_checkpoints",
    }
    assert keys["orders_rewritten"].automation_condition is None
    assert keys["orders_upgraded"].automation_condition is not None
    checks = {key.name for key in graph.asset_check_keys}
    assert checks == {"verified", "restore_plan", "schema", "state_of_counts"}
    assert names(defs.sensors) == ["orders_checkpoints"]
    assert names(defs.schedules) == ["orders_savepoint_schedule"]


WRONG_PIPELINES = {
    "option pipeline .*expected a StatefulPipeline.*got 'payments'": {"pipeline": "payments"},
    r"expected dstl_dagster.snapshots.Rewrite.*got \{'rename'": {"rewrite": {"rename": {}}},
    "option max_log_ratio of pipeline 'payments'.*above 0, got 0": {"max_log_ratio": 0},
    "expected a check of dstl_dagster.checks.*got str 'SELECT": {"checks": ["SELECT 1"]},
    "asset 'payments/payments_checkpoint' has 2 checks with the name 'verified'": {
        "checks": [VerifyCheck(), VerifyCheck()]
    },
    "expected 'error' or 'warn', got 'bad'": {"checks": [StateCheck("s", severity="bad")]},
    "epochs_schedule of pipeline 'payments' has nothing to run": {
        "assets": [],
        "epochs_schedule": "0 0 * * *",
    },
    "option assets of pipeline 'payments' is wrong: expected a list": {"assets": epochs()},
    "option checks of pipeline 'payments' is wrong: expected a list.*got VerifyCheck": {
        "checks": VerifyCheck()
    },
    r"job of a check.*for example.*snapshot_at\('next'\), got 'next'": {
        "checks": [RestoreCheck("next")]
    },
    "job of a check is wrong.*got 'last'": {"savepoint_checks": [SchemaCheck("last")]},
    "snapshot before is wrong.*got 'before'": {"checks": [DiffCheck("before")]},
    "inputs of pipeline 'payments' has nothing to run": {"assets": [], "inputs": list},
    "inputs of pipeline 'payments' are wrong.*got time windows": {"inputs": list},
}


@pytest.mark.parametrize("message", WRONG_PIPELINES)
def test_a_wrong_argument_of_a_pipeline_gets_one_sentence(message):
    options = {"pipeline": PAYMENTS, "assets": [epochs(partitions_def=DAYS)]}
    with pytest.raises(ConfigError, match=message):
        dstl.build_pipeline_defs(**{**options, **WRONG_PIPELINES[message]})


WRONG_SAVEPOINTS = {
    "'orders' needs either a path or a flink_job, not both": {},
    "has stop, which tell Flink how to take it.*got the path 'x'": {"path": "x", "stop": True},
    "has drain without stop": {"flink_job": "orders", "drain": True},
    r"rewrite of savepoint 'orders' is wrong.*snapshots.Rewrite\(..\), got \{'rename'": {
        "path": "x",
        "rewrite": {"rename": {}},
    },
    "upgrade of savepoint.*snapshots.Upgrade": {"path": "x", "upgrade": {"to": "2.2"}},
    "migrate of savepoint.*snapshots.Migrate": {"path": "x", "migrate": "orders-v2.yaml"},
    "asset 'orders/orders_savepoint' has 2 checks with the name 'verified'": {
        "path": "x",
        "checks": [VerifyCheck()],
    },
    "names no operator.*expected a uid": {"path": "x", "checks": [StateCheck("SELECT 1")]},
}


@pytest.mark.parametrize("message", WRONG_SAVEPOINTS)
def test_a_wrong_argument_of_a_savepoint_gets_one_sentence(message):
    with pytest.raises(ConfigError, match=message):
        dstl.build_savepoint_defs("orders", **WRONG_SAVEPOINTS[message])


def test_a_cron_that_is_none_is_refused():
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="invalid cron schedule 'daily'"):
        dstl.build_pipeline_defs(PAYMENTS, [epochs()], verify_schedule="daily")


@pytest.mark.filterwarnings("ignore::dagster.PreviewWarning")
def test_definitions_take_tags_afterwards_and_dagster_keeps_their_keys():
    defs = dstl.build_pipeline_defs(PAYMENTS, [epochs(partitions_def=DAYS)], resources=RESOURCES)
    tagged = defs.map_asset_specs(func=lambda spec: spec.merge_attributes(tags={"team": "shop"}))
    graph = tagged.resolve_asset_graph()
    keys = graph.materializable_asset_keys
    assert {graph.get(key).tags["team"] for key in keys} == {"shop"}
    job = tagged.resolve_job_def("payments_materialize")
    assert job.asset_layer.executable_asset_keys == {PAYMENTS.key("materialization")}
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="must not change keys"):
        defs.map_asset_specs(
            func=lambda spec: spec.replace_attributes(key=spec.key.with_prefix("team"))
        )
