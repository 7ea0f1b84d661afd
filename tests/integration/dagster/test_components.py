"""Components in YAML alone: scaffolded, checked by Dagster's own commands, run."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import dagster as dg
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

from dstl_core import Snapshot
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.errors import ConfigError
from dstl_core.windows import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from dstl_dagster import (
    DstlLocalEngineResource,
    DstlResourcesComponent,
    DstlStorageResource,
    SavepointComponent,
    StatefulPipeline,
    StatefulPipelineComponent,
)
from dstl_dagster.check_command import BROKEN, FAILED, PASSED, WARNED, app
from tests.golden_files import GOLDEN
from tests.integration.dagster.small_pipeline import (
    PAYMENTS,
    ROWS,
    SPARK,
    expected_totals,
    totals_in,
)
from tests.warm_commands import CALLERS

pytestmark = [pytest.mark.dagster, pytest.mark.spark]

ROOT = Path(__file__).parents[3]
SCAFFOLDED = {"StatefulPipelineComponent": "payments", "SavepointComponent": "orders"}


def command(folder, *words, check=True):
    """Runs one of Dagster's commands in a project. It needs the fixture ``commands``."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder / "src"), str(ROOT)]),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0",  # no look into a package index
    }
    binaries = Path(sys.executable).parent
    environment["PATH"] = f"{binaries}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        [str(CALLERS / words[0]), *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=check,
    )


@pytest.fixture(scope="module")
def scaffolded(tmp_path_factory, commands):
    """A project with one of each component, as their scaffolders write them."""
    parent = tmp_path_factory.mktemp("projects")
    command(parent, "create-dagster", "project", "--no-uv-sync", "scaffolded")
    folder = parent / "scaffolded"
    for name, path in SCAFFOLDED.items():
        command(folder, "dg", "scaffold", "defs", f"dstl_dagster.{name}", path)
    return folder


def test_a_scaffolded_project_passes_dagsters_checks(scaffolded):
    texts = [path.read_text() for path in scaffolded.rglob("defs.yaml")]
    # One of the resources, which both share.
    assert len(texts) == 3 and all("type: dstl_dagster." in text for text in texts)
    folder = scaffolded / "src" / "scaffolded" / "defs"
    assert not list(folder.rglob("[!_]*.py")), "no Python is needed"
    command(scaffolded, "dg", "check", "yaml")
    command(scaffolded, "dg", "check", "defs")
    listed = command(scaffolded, "dg", "list", "defs", "--json").stdout
    for key in (
        "payments/payments_state_totals",
        "payments/payments_savepoint",
        "orders/orders_savepoint",
    ):
        assert key in listed
    command(scaffolded, "dagster", "definitions", "validate", "-m", "scaffolded.definitions")


def test_what_is_scaffolded_runs(scaffolded, monkeypatch, instance):
    monkeypatch.syspath_prepend(str(scaffolded / "src"))
    defs = importlib.import_module("scaffolded.definitions").defs()
    resources = {**defs.resources, "spark": SPARK}
    checks = list(defs.asset_checks or ())
    days = [each for each in defs.assets or () if getattr(each, "partitions_def", None)]
    of_orders = [each for each in defs.assets or () if keys_of(each) <= {"orders"}]

    for day in ("2026-01-01", "2026-01-02"):
        done = dg.materialize(days, instance=instance, resources=resources, partition_key=day)
        assert done.success
    base_path = Path(defs.resources["storage"].base_path)
    assert base_path == scaffolded / "data" / "dstl"
    store = StatefulPipeline("payments", "totals", "a:b").store(defs.resources["storage"])
    snapshot = Snapshot.load(store.path_of(store.require_latest()))
    totals = snapshot["uid:totals"].keyed_entries("total")
    assert {each.key: each.value for each in totals} == {"ada": 17, "bob": 23, "eve": 7}

    done = dg.materialize(
        [*of_orders, *(each for each in checks if asset_of(each) == "orders")],
        instance=instance,
        resources=resources,
    )
    passed = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
    assert passed == {"verified": True, "state_of_counts": True}
    [renamed] = [
        str(event.step_materialization_data.materialization.metadata["dagster/uri"].value)
        for event in done.get_asset_materialization_events()
        if event.asset_key.path[-1] == "orders_rewritten"
    ]
    entries = Snapshot.load(renamed)["uid:orders-counts"].keyed_entries("n")
    assert {each.key: each.value for each in entries} == {"ada": 3, "bob": 2, "eve": 2}


def keys_of(assets):
    return {key.path[0] for key in assets.keys}


def asset_of(check):
    return next(iter(check.check_keys)).asset_key.path[0]


def test_a_wrong_yaml_is_refused(scaffolded, tmp_path):
    folder = tmp_path / "wrong"
    shutil.copytree(scaffolded, folder)
    [path] = [each for each in folder.rglob("defs.yaml") if "how: sum" in each.read_text()]
    path.write_text(path.read_text().replace("how: sum", "how: average"))
    failed = command(folder, "dg", "check", "defs", check=False)
    assert failed.returncode != 0
    assert "average" in failed.stdout + failed.stderr


def test_this_project_passes_dagsters_checks(commands):
    """``make check`` also runs ``dg check defs``."""
    done = command(ROOT, "dg", "list", "defs", check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------------------------ runs


def build(component, **attributes):
    """The definitions of a component from plain attributes."""
    return build_of(component.from_attributes_dict(attributes=attributes))


def build_of(component):
    return dg.build_defs_for_component(component)


def with_resources(defs):
    resources = {"storage": DstlStorageResource(base_path="state"), "spark": SPARK}
    return dg.Definitions.merge(defs, dg.Definitions(resources=resources))


def test_a_pipeline_in_yaml_keeps_the_same_state_on_both_engines(tmp_path):
    table = pa.table(
        {
            "account": [row[0] for rows in ROWS.values() for row in rows],
            "amount": [row[1] for rows in ROWS.values() for row in rows],
            "day": [day for day, rows in ROWS.items() for _ in rows],
        }
    )
    ds.write_dataset(
        table,
        tmp_path / "payments",
        format="parquet",
        partitioning=ds.partitioning(pa.schema([("day", pa.string())]), flavor="hive"),
    )
    storage = DstlStorageResource(base_path=str(tmp_path / "state"))
    epochs = dg.AssetSelection.assets(*(PAYMENTS.key(k) for k in ("state", "changelog")))
    epochs |= dg.AssetSelection.assets(PAYMENTS.key("checkpoint"))
    rest = dg.AssetSelection.assets(
        *(PAYMENTS.key(kind) for kind in ("materialization", "savepoint", "rewritten"))
    )
    jobs = [
        dg.define_asset_job(
            "epochs", epochs | dg.AssetSelection.checks_for_assets(PAYMENTS.key("checkpoint"))
        ),
        dg.define_asset_job("rest", rest),
    ]

    def on(engine):
        defs = build(
            StatefulPipelineComponent,
            name="payments",
            uid="totals",
            engine=engine,
            events={"path": str(tmp_path / "payments"), "partition_column": "day"},
            partitions={"start": "2026-01-01", "end": "2026-01-08"},
            key_by="account",
            columns="account string, amount bigint",
            states={
                "payments": {"how": "count"},
                "total": {"how": "sum", "column": "amount"},
                "largest": {"how": "max", "column": "amount"},
            },
            checks=[{"uid": "totals", "sql": "SELECT 1 FROM {state} WHERE total < largest"}],
            rewrite={"rename": {"totals": "sums"}},
        )
        assert sum(1 for _ in defs.sensors or ()) == 4
        resources = {"storage": storage, "spark": SPARK, "local": DstlLocalEngineResource()}
        return dg.Definitions.merge(defs, dg.Definitions(resources=resources, jobs=jobs))

    on_spark, local = on("spark"), on("local")
    with dg.DagsterInstance.ephemeral() as instance:
        # The second run knows the day that the first one committed on another engine.
        for defs, day in ((on_spark, "2026-01-01"), (local, "2026-01-01"), (local, "2026-01-02")):
            ran = defs.resolve_job_def("epochs").execute_in_process(
                instance=instance, partition_key=day
            )
        checks = {each.check_name: each.passed for each in ran.get_asset_check_evaluations()}
        assert checks["state_of_totals"] and checks["committed"] and checks["verified"]
        assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")
        assert PAYMENTS.store(storage).size().log > 0
        done = local.resolve_job_def("rest").execute_in_process(instance=instance)
    # With the materialization the log is gone, and the state is the same.
    assert PAYMENTS.store(storage).size().log == 0
    assert totals_in(storage) == expected_totals("2026-01-01", "2026-01-02")
    shown = {
        event.asset_key: event.step_materialization_data.materialization.metadata
        for event in done.get_asset_materialization_events()
    }
    [renamed] = Snapshot.load(str(shown[PAYMENTS.key("rewritten")]["dagster/uri"].value)).operators
    assert renamed.uid == "sums"
    assert (
        shown[PAYMENTS.key("rewritten")]["dstl/source"]
        == shown[PAYMENTS.key("savepoint")]["dagster/uri"]
    )


def test_a_savepoint_of_real_flink_in_yaml(tmp_path):
    [source] = (GOLDEN / "f-two-ops-hashmap").glob("savepoint-*")
    uid = Snapshot.load(str(source)).operators[0].label
    defs = build(
        SavepointComponent,
        name="orders",
        path=str(source),
        rewrite={"rename": {uid: "renamed"}},
        template=str(source),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [*(defs.assets or ()), *(defs.asset_checks or ())],
            instance=instance,
            resources={"storage": DstlStorageResource(base_path=str(tmp_path))},
        )
    checks = {each.check_name: each.passed for each in done.get_asset_check_evaluations()}
    assert checks == {"verified": True, "restore_plan": True, "schema": True}
    [event] = [
        e for e in done.get_asset_materialization_events() if "rewritten" in e.asset_key.path[-1]
    ]
    path = str(event.step_materialization_data.materialization.metadata["dagster/uri"].value)
    assert "renamed" in {operator.uid for operator in Snapshot.load(path).operators}


def test_a_component_takes_what_a_pipeline_takes_and_leaves_out_what_it_should():
    attributes = {
        "name": "payments",
        "uid": "totals",
        "events": {"path": "payments", "partition_column": "day"},
        "partitions": {"start": "2026-01-01"},
        "key_by": "account",
        "key_type": "string",
        "states": {"payments": {"how": "count"}},
        "num_retained": 5,
        "retain": "14 days",
        "materialize_at_ratio": 3.5,
    }
    pipeline = StatefulPipelineComponent.from_attributes_dict(attributes=attributes).pipeline
    assert (pipeline.num_retained, pipeline.retain) == (5, "14 days")
    assert pipeline.materialize_at_ratio == 3.5

    def counts(**options):
        defs = build(StatefulPipelineComponent, **attributes, **options)
        return [len(list(each or ())) for each in (defs.jobs, defs.sensors, defs.schedules)]

    assert counts() == [6, 4, 2]
    assert counts(materialization_schedule=None, verify_schedule="0 1 * * *") == [6, 4, 1]
    assert counts(with_sensors=False) == [6, 0, 2]
    assert counts(with_jobs=False) == [0, 0, 0]


def test_a_component_names_the_serializers_of_its_job():
    def component(**options):
        attributes = {**MINIMAL, "key_by": None, "states": {}, "job": "a:b", **options}
        return StatefulPipelineComponent.from_attributes_dict(attributes=attributes).pipeline

    assert component().registry is BUILT_IN
    assert component(serializers="dstl_core.codec.serializers:BUILT_IN").registry is BUILT_IN
    with pytest.raises(ConfigError, match=r"expected a SerializerRegistry, .* got <class"):
        _ = component(serializers="dstl_core.codec.serializers:Types").registry
    with pytest.raises(ConfigError, match="Cannot import 'dstl_core:nothing'"):
        _ = component(serializers="dstl_core:nothing").registry
    with pytest.raises(ConfigError, match="has serializers, which belong to a job"):
        component(job=None, key_by="k", states=MINIMAL["states"], serializers="a:b")


MINIMAL = {
    "name": "payments",
    "uid": "totals",
    "events": {"path": "payments", "partition_column": "day"},
    "partitions": {"start": "2026-01-01"},
    "key_by": "account",
    "key_type": "string",
    "states": {"payments": {"how": "count"}},
}


def test_specs_are_translated_and_automated_in_yaml():
    defs = build(
        StatefulPipelineComponent,
        **MINIMAL,
        translation={
            "group_name": "finance",
            "owners": ["team:payments"],
            "key_prefix": "{{ 'raw' if kind == 'savepoint' else 'lake' }}",
            "tags": {"operator": "{{ operator }}"},
        },
        automation_condition="{{ dg.AutomationCondition.on_cron('15 * * * *') }}",
        epochs_schedule="10 0 * * *",
    )
    specs = {
        known.key.to_user_string(): known
        for known in with_resources(defs).resolve_all_asset_specs()
    }
    state = specs["lake/payments/payments_state_totals"]
    assert (state.group_name, state.owners) == ("finance", ["team:payments"])
    assert state.tags["operator"] == "totals" and state.tags["dstl/pipeline"] == "payments"
    cron = dg.AutomationCondition.on_cron("15 * * * *")
    own = dg.AssetSelection.tag("dstl/state-of", "payments")
    assert state.automation_condition == cron.ignore(own)
    assert [each.asset_key for each in specs["lake/payments/payments_checkpoint"].deps] == [
        dg.AssetKey(["lake", "payments", "payments_changelog_totals"])
    ]
    assert "raw/payments/payments_savepoint" in specs
    names = {each.name for each in defs.schedules or ()}
    assert "payments_epochs_schedule" in names and len(names) == 3

    eager = build(
        SavepointComponent,
        name="orders",
        path="savepoints/orders",
        rewrite={},
        translation={"automation_condition": "{{ dg.AutomationCondition.on_missing() }}"},
    )
    conditions = {
        known.automation_condition for known in with_resources(eager).resolve_all_asset_specs()
    }
    assert conditions == {dg.AutomationCondition.on_missing()}

    # Of a running job as of a savepoint that is there.
    nightly = {"automation_condition": "{{ dg.AutomationCondition.on_cron('0 2 * * *') }}"}
    for source in ({"path": "savepoints/orders"}, {"flink_job": "orders"}):
        defs = build(SavepointComponent, name="orders", schedule="0 2 * * *", **source, **nightly)
        [spec] = [spec for assets in defs.assets for spec in assets.specs]
        assert spec.automation_condition == dg.AutomationCondition.on_cron("0 2 * * *")
        [schedule] = defs.schedules
        assert (schedule.name, schedule.cron_schedule) == ("orders_savepoint_schedule", "0 2 * * *")


@pytest.mark.parametrize("origin", [{"path": "savepoints/orders"}, {"flink_job": "orders"}])
def test_a_savepoint_has_the_upstream_assets_of_its_translation(origin):
    defs = build(SavepointComponent, name="orders", **origin, translation={"deps": ["raw/orders"]})
    [spec] = defs.assets[0].specs
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["raw", "orders"])]


@pytest.mark.parametrize("version", ["2.0", "2.3"])
def test_an_upgrade_in_yaml_names_its_version(version):
    attributes = {"name": "orders", "path": "orders", "upgrade": {"to": version}}
    component = SavepointComponent.from_attributes_dict(attributes=attributes)
    assert component.upgrade.edit()["to"] == version


def test_uids_of_digits_in_yaml_are_texts():
    attributes = {
        "name": "orders",
        "path": "orders",
        "rewrite": {"rename": {"17": "18"}, "remove": ["19"]},
        "upgrade": {"drop": ["20", "21/s"]},
    }
    component = SavepointComponent.from_attributes_dict(attributes=attributes)
    edit = component.rewrite.edit()
    assert (edit["rename"], edit["remove"]) == ({"17": "18"}, ["19"])
    assert component.upgrade.edit()["drop"] == ["20", "21/s"]


def test_a_component_keeps_the_keys_of_versions_before_or_takes_others():
    def keys_of(**options):
        defs = build(StatefulPipelineComponent, **{**MINIMAL, **options})
        specs = with_resources(defs).resolve_all_asset_specs()
        return {each.key.to_user_string() for each in specs}

    parts = ("state_totals", "changelog_totals", "checkpoint", "materialization_totals")
    assert keys_of() == {f"payments/payments_{part}" for part in (*parts, "savepoint", "report")}
    assert keys_of(unique_keys=False) == {
        "payments/state/totals",
        "payments/changelog/totals",
        "payments/checkpoint",
        "payments/materialization/totals",
        "payments/savepoint",
        "payments/report",
    }


def test_a_component_takes_uploads_and_keys_of_its_own():
    def component(**options):
        return StatefulPipelineComponent.from_attributes_dict(attributes={**MINIMAL, **options})

    made = component(
        uploads={"kind": "batching", "options": {"num_threads": 2}, "max_attempts": 7},
        translation={"key": "{{ pipeline }}/{{ name }}/{{ pipeline }}_{{ name }}"},
        show_keys=True,
        small_log_bytes=5,
        output=["payments"],
    )
    pipeline = made.pipeline
    options = pipeline.uploads.changelog_options()
    assert (options["num_upload_threads"], options["max_attempts"]) == (2, 7)
    assert (pipeline.show_keys, pipeline.small_log_bytes) == (True, 5)
    keys = {each.key for each in with_resources(build_of(made)).resolve_all_asset_specs()}
    assert {key.path[-1] for key in keys} == {
        f"payments_{kind}"
        for kind in (
            "state",
            "changelog",
            "checkpoint",
            "output",
            "materialization",
            "savepoint",
            "report",
        )
    }
    for wrong in ({"threads": 2}, {"num_threads": 0}):
        with pytest.raises(ConfigError, match=r"'batching' have wrong options: expected .*num_thr"):
            _ = component(uploads={"options": wrong}).pipeline
    with pytest.raises(ConfigError, match="has outputs, which belong to a job; states have output"):
        _ = component(outputs=["totals"]).pipeline
    hours = {"event_time": "t", "size": 100, "slide": "50 ms", "allowed_lateness": "7 s"}
    operator = component(window=hours).pipeline.job.operator
    assert operator.window == SlidingEventTimeWindows.of(100, 50)
    assert (operator.event_time, operator.allowed_lateness) == ("t", 7000)
    assert operator.output_schema is not None and operator.side_output_late_data is None
    late = {**hours, "side_output_late_data": "k string, t bigint"}
    operator = component(window=late).pipeline.job.operator
    assert operator.side_output_late_data.names == ["k", "t"]
    sessions = component(window={"event_time": "t", "gap": "30 min"}).pipeline.job.operator
    assert sessions.window == EventTimeSessionWindows.with_gap(1_800_000)
    days = {"event_time": "t", "size": "1 d", "offset": -7_200_000, "out_of_orderness": "PT1M"}
    operator = component(window=days).pipeline.job.operator
    assert operator.window == TumblingEventTimeWindows.of(86_400_000, -7_200_000)
    assert operator.out_of_orderness_ms == 60_000
    for wrong, message in (
        ({}, "expected size with or without slide and offset, or gap"),
        ({"size": 1, "gap": "1 s"}, "got .*'size': 1, 'gap': '1 s'"),
        ({"gap": 1, "slide": 1}, "expected size"),
        ({"gap": 1, "offset": 1}, "expected size"),
        ({"gap": 0}, "gap of a session must be more than 0 ms"),
        ({"size": "1 week"}, "The size of a window is wrong: .* '1 h', .*got '1 week'"),
        ({"size": 1, "out_of_orderness": "soon"}, "The out-of-orderness of .* got 'soon'"),
    ):
        with pytest.raises(ConfigError, match=message):
            _ = component(window={"event_time": "t", **wrong}).pipeline
    with pytest.raises(ConfigError, match="has a window, which belongs to states"):
        _ = component(window=hours, states={}, job="a:b").pipeline


@pytest.mark.parametrize(
    "component", [StatefulPipelineComponent, SavepointComponent, DstlResourcesComponent]
)
def test_every_attribute_has_a_description_and_an_example(component):
    schema = component.get_model_cls().model_json_schema()
    own = {
        name: definition
        for name, definition in schema["$defs"].items()
        if not name.startswith("AssetSpec") and "Partitions" not in name  # those are Dagster's
    }
    assert own
    bare = [
        f"{name}.{attribute}"
        for name, definition in {component.__name__: schema, **own}.items()
        for attribute, shown in definition["properties"].items()
        if not (shown.get("description") and shown.get("examples"))
    ]
    assert bare == []


def test_resources_in_yaml_keep_secrets_in_the_environment():
    storage = {
        "base_path": "s3://bucket/dstl",
        "credentials": {
            "kind": "s3",
            "env": {"access_key_id": "DSTL_ID", "secret_access_key": "DSTL_SECRET"},
            "options": {"region": "eu-1"},
        },
    }
    defs = build(DstlResourcesComponent, storage=storage, flink_url="http://flink:8081")
    assert set(defs.resources) == {"storage", "spark", "local", "savepoints", "flink"}
    credentials = defs.resources["storage"].credentials
    assert credentials.secret_access_key == dg.EnvVar("DSTL_SECRET")
    assert credentials.region == "eu-1"
    with pytest.raises(ConfigError, match=r"required: access_key_id, secret_access_key.*got key"):
        build(
            DstlResourcesComponent,
            storage={"base_path": "x", "credentials": {"kind": "s3", "env": {"key": "K"}}},
        )


# ----------------------------------------------------------------------------- dstl-checks

CHECKED = """
import dagster as dg
from dstl_dagster import DstlStorageResource
from dstl_dagster.checks import RestoreCheck, SchemaCheck, VerifyCheck, build_snapshot_checks
from dstl_dagster.snapshots import snapshot_at
from dstl_core.codec.serializers import Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import JobDescription, JobOperator, JobState

source = snapshot_at({path!r})
asset = dg.AssetSpec("savepoint")


def job(uid, *states):
    return JobDescription([JobOperator(OperatorIdentifier.for_uid(uid), states=states)])


@dg.asset_check(asset=asset.key)
def broken():
    raise RuntimeError("cannot be run")


defs = dg.Definitions(
    assets=[asset],
    asset_checks=[
        *build_snapshot_checks(
            asset.key,
            source,
            [
                VerifyCheck(),
                RestoreCheck(job("other")),
                SchemaCheck(
                    job({uid!r}, JobState({state!r}, "value", Types.STRING)), severity="warn"
                ),
            ],
        ),
        broken,
    ],
    resources={{"storage": DstlStorageResource(base_path="state")}},
)
"""


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["verified"], PASSED),
        (["verified", "schema"], WARNED),
        (["schema", "restore_plan"], FAILED),
        (["restore_plan", "broken"], BROKEN),
        (["nothing"], BROKEN),
    ],
)
def test_the_exit_code_is_the_worst_severity(tmp_path, monkeypatch, names, code):
    [source] = (GOLDEN / "f-two-ops-hashmap").glob("savepoint-*")
    text = CHECKED.format(path=str(source), uid="f-uid", state="cnt")
    (tmp_path / "checked.py").write_text(text)
    words = [each for name in names for each in ("--check", name)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "checked", raising=False)
    done = CliRunner().invoke(app, ["-m", "checked.py", *words])
    assert done.exit_code == code, done.output
    if names == ["nothing"]:
        assert done.stdout == ""
        return
    # The table, and nothing else; a log only on request.
    [head, *lines] = done.stdout.splitlines()
    assert head.split() == ["asset", "check", "result", "details"]
    assert [line.split()[1] for line in lines] == sorted(names)
    assert "dagster -" not in done.stderr


def run_checks(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "dstl_dagster.check_command", "-m", "checked.py", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "DAGSTER_DISABLE_TELEMETRY": "yes"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_checks_for_machines_a_reason_and_a_log_on_request(tmp_path):
    [source] = (GOLDEN / "f-two-ops-hashmap").glob("savepoint-*")
    text = CHECKED.format(path=str(source), uid="f-uid", state="cnt")
    (tmp_path / "checked.py").write_text(f"print('loading')\n{text}")
    done = run_checks(tmp_path, "--json", "--junit", "checks.xml", "--verbose")
    results = {each["check"]: each for each in json.loads(done.stdout)}
    assert {name: each["result"] for name, each in results.items()} == {
        "broken": "not run",
        "restore_plan": "failed",
        "schema": "warning",
        "verified": "passed",
    }
    assert results["broken"]["details"] == {"reason": "RuntimeError: cannot be run"}
    assert results["verified"]["details"]["findings"] == 0
    assert "STEP_START" in done.stderr
    suite = ElementTree.parse(tmp_path / "checks.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "1")
    [error] = suite.findall("testcase[@name='broken']/error")
    assert error.get("message") == "reason=RuntimeError: cannot be run"
