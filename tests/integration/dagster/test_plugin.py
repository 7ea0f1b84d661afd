"""The plugin's surface: what importing it costs, which Dagster names it uses, resources, specs."""

import ast
import base64
import os
import re
import subprocess
import sys
from inspect import getsourcelines
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import dagster as dg
import pytest
import s3fs
from dagster_shared.libraries import DagsterLibraryRegistry

import definitions
import dstl_dagster
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts
from dstl_core.errors import ConfigError, DstlError
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import options_for
from dstl_dagster import (
    DagsterDstlTranslator,
    DstlSparkResource,
    DstlStorageResource,
    FlinkClusterResource,
    StatefulPipeline,
    build_dstl_asset_specs,
    build_pipeline_defs,
    dstl_assets,
)
from dstl_dagster.charts import bar_chart, epoch_charts, line_chart, shown
from dstl_dagster.resources import (
    AzureCredentials,
    BatchingUploads,
    DirectUploads,
    EnvironmentCredentials,
    GcsCredentials,
    S3Credentials,
    UploadSchedulerResource,
)
from dstl_dagster.snapshots import Rewrite, build_bootstrapped_asset
from tests.integration.dagster.small_pipeline import PAYMENTS

pytestmark = pytest.mark.dagster

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "dstl_dagster").rglob("*.py"))
NOT_AT_LOAD = ("pyspark", "duckdb", "polars", "deltalake", "s3fs", "botocore", "matplotlib")
"""What makes a code location slow to load, and what it needs only when a run does."""


def run_python(code):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    ).stdout.strip()


def test_definitions_load_without_engines_threads_or_processes():
    code = (
        "import sys, threading, multiprocessing; import definitions; "
        f"print(set({NOT_AT_LOAD}) & set(sys.modules), threading.active_count(), "
        "len(multiprocessing.active_children()))"
    )
    assert run_python(code) == "set() 1 0"


def test_definitions_load_without_compiling_a_kernel():
    """Kernels are compiled, or loaded from their cache, by the run that first uses them."""
    code = (
        "import gc, definitions; from numba.core.registry import CPUDispatcher as kernel; "
        "print([each.py_func.__qualname__ for each in gc.get_objects() "
        "if isinstance(each, kernel) and each.overloads])"
    )
    assert run_python(code) == "[]"


def test_every_public_name_loads_without_spark():
    code = (
        "import sys, dstl_dagster; [getattr(dstl_dagster, name) for name in dstl_dagster.__all__]; "
        "print('pyspark' in sys.modules, len(dstl_dagster.__all__))"
    )
    assert run_python(code) == f"False {len(dstl_dagster.__all__)}"
    with pytest.raises(AttributeError, match="nothing"):
        _ = dstl_dagster.nothing
    assert set(dstl_dagster.__all__) <= set(dir(dstl_dagster))


def test_the_package_is_registered_with_dagster():
    assert DagsterLibraryRegistry.get()["dagster-dstl"]


def test_definitions_are_loadable():
    dg.Definitions.validate_loadable(definitions.defs)
    graph = definitions.defs.resolve_asset_graph()
    path = [
        "flights/events",
        "flights/flights_state_flights-by-aircraft",
        "flights/flights_changelog_flights-by-aircraft",
        "flights/flights_checkpoint",
        "flights/flights_materialization_flights-by-aircraft",
        "flights/flights_savepoint",
        "flights/flights_rewritten",
    ]
    keys = [dg.AssetKey.from_user_string(text) for text in path]
    for before, after in pairwise(keys):
        assert before in graph.get(after).parent_keys
    state = graph.get(keys[1])
    assert keys[1] in state.parent_keys, "the state of a day depends on the one before"


# ------------------------------------------------------------------------- Dagster's names

OLD = [
    "AutoMaterializePolicy",
    "ExpectationResult",
    "LegacyFreshnessPolicy",
    "MetadataEntry",
    "SourceAsset",
    "StepLauncher",
    "build_component_defs",
    "build_last_update_freshness_checks",
    "compute_kind",
    "fs_io_manager",
    "load_defs",
    "multi_asset_sensor",
    "observable_source_asset",
    "pyspark_resource",
    "with_resources",
]


def names_of_dagster(path):
    """What a module imports from Dagster, and the attributes of ``dg`` that it uses."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dagster":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] == "dagster")
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("dg", "context", "instance")
        ):
            yield f"{node.value.id}.{node.attr}"


def test_no_deprecated_or_private_name_of_dagster_is_used():
    used = {name for path in SOURCES for name in names_of_dagster(path)}
    assert len(used) > 50
    assert {name for name in used if any(part.startswith("_") for part in name.split("."))} == set()
    assert {name for name in used if name.split(".")[-1] in OLD} == set()
    assert {name for name in used if name.startswith("dg.") and not hasattr(dg, name[3:])} == set()


# ------------------------------------------------------------------------------- resources


def test_storage_paths(tmp_path):
    storage = DstlStorageResource(base_path=str(tmp_path))
    assert storage.jobs == f"file:{tmp_path}/jobs"
    assert storage.savepoint("a") == f"file:{tmp_path}/savepoints/a"
    assert storage.path_of("a") == storage.savepoint("a")
    assert storage.path_of("/x/a") == "file:/x/a"
    remote = DstlStorageResource(base_path="s3://bucket/dstl")
    assert remote.jobs == "s3://bucket/dstl/jobs"
    with pytest.raises(OSError, match="holds a password") as refused:
        DstlStorageResource(base_path=f"sftp://user:{SECRET}@host/dstl")
    assert SECRET not in str(refused.value)


SECRET = "planted-secret-7dd1"


def test_credentials_reach_storage_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setenv("MY_SECRET", SECRET)
    storage = DstlStorageResource(
        base_path="s3://bucket/dstl",
        credentials=S3Credentials(
            access_key_id="id", secret_access_key=dg.EnvVar("MY_SECRET"), region="eu-west-1"
        ),
    )
    before = dict(os.environ)

    @dg.asset
    def uses_it(context: dg.AssetExecutionContext, storage: DstlStorageResource) -> str:
        context.log.info(f"{storage} {storage!r}")
        sys.stdout.write(str(storage))
        assert dict(os.environ) == before
        return options_for(Location.parse(storage.jobs))["secret"]

    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([uses_it], resources={"storage": storage}, instance=instance)
        events = [str(record) for record in instance.all_logs(done.run_id)]
        run = instance.get_run_by_id(done.run_id)
    assert done.output_for_node("uses_it") == SECRET
    assert not any(SECRET in text for text in [*events, str(run)])
    printed = capsys.readouterr()
    assert SECRET not in printed.out + printed.err and "s3://bucket/dstl" in printed.out
    assert SECRET not in repr(storage) + str(storage) + repr(storage.credentials)
    defs = dg.Definitions(assets=[uses_it], resources={"storage": storage})
    assert SECRET not in str(defs.resolve_asset_graph()) + repr(defs.resources)


WRONG_SECRETS = {
    "a text": lambda: DstlStorageResource(base_path="x", credentials=SECRET),
    "a list": lambda: DstlStorageResource(base_path="x", credentials=[SECRET]),
    "a kind as an option": lambda: DstlStorageResource(
        base_path="x", credentials={"kind": "s3", "secret_access_key": SECRET}
    ),
    "a text under a kind": lambda: DstlStorageResource(base_path="x", credentials={"s3": SECRET}),
    "another kind": lambda: DstlStorageResource(
        base_path="x", credentials={"s4": {"secret_access_key": SECRET}}
    ),
    "a field too few": lambda: DstlStorageResource(
        base_path="x", credentials={"s3": {"secret_access_key": SECRET}}
    ),
    "a path": lambda: DstlStorageResource(base_path=[f"s3://k:{SECRET}@b"]),
    "s3": lambda: S3Credentials(access_key_id="k", secret_access_key=[SECRET]),
    "gcs": lambda: GcsCredentials(key_file={"private_key": SECRET}),
    "azure": lambda: AzureCredentials(account_name="a", account_key=[SECRET]),
    "flink": lambda: FlinkClusterResource(url="http://x", authorization=[SECRET]),
}


@pytest.mark.parametrize("make", WRONG_SECRETS.values(), ids=WRONG_SECRETS)
def test_errors_of_resources_do_not_show_a_wrong_value(make):
    with pytest.raises(DstlError) as caught:
        make()
    assert SECRET not in str(caught.value) + repr(caught.value)


def test_credentials_as_a_text_say_what_they_should_be():
    with pytest.raises(ConfigError, match=r"expected S3Credentials, .*, got str.*EnvVar"):
        DstlStorageResource(base_path="x", credentials="a secret")


def test_each_kind_of_credentials_speaks_its_file_systems_language():
    assert EnvironmentCredentials().storage_options() == {}
    assert GcsCredentials(key_file="/k.json").storage_options() == {"token": "/k.json"}
    assert AzureCredentials(account_name="a", account_key="k").storage_options() == {
        "account_name": "a",
        "account_key": "k",
        "connection_string": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k;"
        "EndpointSuffix=core.windows.net",
    }


def test_s3_credentials_take_nothing_of_the_environment(monkeypatch):
    for name in ("AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "FSSPEC_S3_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://of-another-resource")
    credentials = S3Credentials(access_key_id="i", secret_access_key="s", region="eu-west-1")
    fs = s3fs.S3FileSystem(skip_instance_cache=True, **credentials.storage_options())
    fs.connect()
    client = fs._s3
    assert client.meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"
    used = client._request_signer._credentials
    assert (used.access_key, used.secret_key, used.token) == ("i", "s", None)


def test_uploads_are_direct_or_batching():
    direct = UploadSchedulerResource(scheduler=DirectUploads(), compress=True)
    assert direct.changelog_options()["persist_delay_ms"] == 0
    assert direct.changelog_options()["compression_enabled"] is True
    batching = UploadSchedulerResource(scheduler=BatchingUploads(num_threads=2))
    assert batching.changelog_options()["num_upload_threads"] == 2
    too_small = BatchingUploads(persist_size_bytes=10, max_in_flight_bytes=5)
    with pytest.raises(ConfigError, match="must not exceed"):
        UploadSchedulerResource(scheduler=too_small).changelog_options()


def test_the_tasks_of_a_pipeline_upload_as_the_resource_says(tmp_path):
    storage = DstlStorageResource(base_path=str(tmp_path))
    uploads = UploadSchedulerResource(scheduler=BatchingUploads(num_threads=3), compress=True)
    job = PAYMENTS.open(None, storage, uploads.changelog_options())
    [task] = job._tasks.root_specs()
    options = task.job.changelog_options
    assert (options.num_upload_threads, options.compression_enabled) == (3, True)
    assert job.name == PAYMENTS.name and job.num_retained == 32


def test_uploads_can_be_configured_by_kind():
    @dg.asset
    def options(uploads: UploadSchedulerResource) -> int:
        return uploads.changelog_options()["num_upload_threads"]

    done = dg.materialize(
        [options],
        resources={"uploads": UploadSchedulerResource.configure_at_launch()},
        run_config={
            "resources": {"uploads": {"config": {"scheduler": {"batching": {"num_threads": 3}}}}}
        },
    )
    assert done.output_for_node("options") == 3


# ------------------------------------------------------------------------------ definitions


def pipeline(**options):
    return StatefulPipeline("p", "u", "nowhere:job", **options)


def test_setting_up_resources_does_no_io():
    """Retries do not cover it: nothing there answers, and nothing is asked."""
    resources = {
        "storage": DstlStorageResource(base_path="s3://no-such-bucket/dstl"),
        "spark": DstlSparkResource(remote="sc://127.0.0.1:1"),
        "flink": FlinkClusterResource(url="http://127.0.0.1:1"),
    }
    with dg.build_resources(resources) as built:
        assert built.storage.jobs == "s3://no-such-bucket/dstl/jobs"


def test_every_job_runs_in_one_process():
    """The default executor would start a JVM for each step."""
    jobs = definitions.defs.resolve_all_job_defs()
    ours = [job for job in jobs if job.name.startswith("flights_")]
    assert {job.name for job in ours} >= {
        "flights_materialize",
        "flights_write_savepoint",
        "flights_verify",
        "flights_reset",
        "flights_gc",
    }
    assert {job.executor_def.name for job in ours} == {"in_process"}


def test_the_translator_has_one_point_to_override():
    class Renaming(DagsterDstlTranslator):
        def get_asset_spec(self, data):
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(key=spec.key.with_prefix("team"), owners=["team:data"])

    days = dg.DailyPartitionsDefinition("2026-01-01")
    specs = build_dstl_asset_specs(pipeline(translator=Renaming()), partitions_def=days)
    assert [spec.key.to_user_string() for spec in specs] == [
        "team/p/p_state_u",
        "team/p/p_changelog_u",
        "team/p/p_checkpoint",
    ]
    assert all(spec.owners == ["team:data"] for spec in specs)


def test_no_two_nodes_of_three_pipelines_have_the_same_last_part():
    """That part alone is the name of a node in Dagster's graph."""
    days = dg.DailyPartitionsDefinition("2026-01-01")

    def defs_of(name):
        made = StatefulPipeline(name, "totals", "nowhere:job", outputs=["totals", "late"])

        @dstl_assets(pipeline=made, partitions_def=days)
        def epochs(context: dg.AssetExecutionContext):
            yield from ()

        behind = build_bootstrapped_asset("history", print, group=name)
        return build_pipeline_defs(made, [epochs, behind], rewrite=Rewrite())

    defs = dg.Definitions.merge(*map(defs_of, ("payments", "orders", "carts")))
    keys = [each.key for assets in defs.assets for each in assets.specs]
    assert len(keys) == 3 * 10
    assert len({key.path[-1] for key in keys}) == len(keys)
    assert dg.AssetKey(["carts", "carts_output_late"]) in keys
    assert dg.AssetKey(["carts", "carts_history"]) in keys


def test_the_keys_of_versions_before_are_one_option_away():
    """Also for a translator that does not call ``__init__``."""

    class Silent(DagsterDstlTranslator):
        unique_keys = False

        def __init__(self):
            pass

    for translator in (DagsterDstlTranslator(unique_keys=False), Silent()):
        made = pipeline(translator=translator)
        assert made.key("state") == dg.AssetKey(["p", "state", "u"])
        assert made.key("checkpoint") == dg.AssetKey(["p", "checkpoint"])
        assert made.key("savepoint", "nightly") == dg.AssetKey(["p", "nightly"])


@pytest.mark.filterwarnings("ignore:.*is currently in beta")
def test_code_references_and_owners_pass_through():
    link = dg.UrlCodeReference(url="https://example.com/payments.py", label="payments")

    class Owned(DagsterDstlTranslator):
        def get_asset_spec(self, data):
            spec = super().get_asset_spec(data)
            shown = {
                "dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[link])
            }
            return spec.replace_attributes(owners=["team:data"]).merge_attributes(metadata=shown)

    def defs_of(made):
        @dstl_assets(pipeline=made, partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
        def epochs(context: dg.AssetExecutionContext):
            yield from ()

        return build_pipeline_defs(made, [epochs], rewrite=Rewrite()).assets

    specs = [spec for assets in defs_of(pipeline(translator=Owned())) for spec in assets.specs]
    assert len(specs) == 7
    for spec in specs:
        assert spec.owners == ["team:data"]
        assert spec.metadata["dagster/code_references"].code_references == [link]

    # Dagster finds the function of the epochs, which is the user's.
    [epochs, *_] = dg.with_source_code_references(defs_of(pipeline()))
    for spec in epochs.specs:
        [reference] = spec.metadata["dagster/code_references"].code_references
        assert reference.file_path == __file__
        assert (
            getsourcelines(test_code_references_and_owners_pass_through)[1] < reference.line_number
        )


def test_only_time_windows_can_be_partitions():
    """Nothing else can depend on itself in Dagster. Dynamic partitions are inputs of their own."""
    static = dg.StaticPartitionsDefinition(["a"])
    with pytest.raises(ConfigError, match=r"expected a TimeWindow.*got StaticPartitions"):
        dstl_assets(pipeline=pipeline(), partitions_def=static)
    files = dg.DynamicPartitionsDefinition(name="files")
    assert not build_dstl_asset_specs(pipeline(), partitions_def=files)[0].deps


def test_state_is_backfilled_in_one_run():
    @dstl_assets(pipeline=pipeline(), partitions_def=dg.DailyPartitionsDefinition("2026-01-01"))
    def epochs(context: dg.AssetExecutionContext):
        yield from ()

    assert epochs.backfill_policy == dg.BackfillPolicy.single_run()


@pytest.mark.parametrize("name", ["", "a b", "a/b", "1a", "x" * 64])
def test_a_pipeline_has_a_name_that_asset_keys_can_carry(name):
    with pytest.raises(ConfigError, match="name"):
        StatefulPipeline(name, "u", "nowhere:job")


def test_a_job_that_cannot_be_imported_is_named():
    with pytest.raises(ConfigError, match="nowhere:job"):
        pipeline().open(None, DstlStorageResource(base_path="/tmp"))


# --------------------------------------------------------------------------------- metadata


def svg_of(chart):
    [encoded] = re.findall(r"base64,([^)]+)\)", chart.value)
    return ElementTree.fromstring(base64.b64decode(encoded))


@pytest.mark.parametrize("values", [[], [0], [5] * 3, list(range(10_000)), [10**15] * 10_000])
def test_a_chart_is_small_enough_to_be_drawn_in_place(values):
    """Finding 9: Markdown of 1000 characters or more hides behind a link."""
    points = [("2026-01-01T05:00Z <&>", value) for value in values]
    skew = "largest: 1.2e+02 x mean"
    for chart in (
        line_chart(points, "bytes of state per materialization", "B"),
        bar_chart(values, "bytes per key group", "B", skew),
    ):
        assert len(chart.value) < 1000
        assert svg_of(chart).tag.endswith("svg")


def test_a_chart_has_axes_units_and_the_last_value():
    points = [(f"2026-01-{day:02d}", day * 100_000) for day in range(1, 15)]
    svg = svg_of(line_chart(points, "log bytes per epoch", "B"))
    texts = [each.text for each in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert sorted(texts) == ["0", "1.4 MB", "2026-01-01", "2026-01-14", "last: 1.4 MB"]
    line, axes = svg.findall("{http://www.w3.org/2000/svg}path")
    assert axes.get("d") == "M56 8V72H312"
    places = [each.split() for each in line.get("d")[1:].split("L")]
    # From the left of the axis to its right, and up to the top at the largest value.
    assert places[0] == ["56", "67"] and places[-1] == ["312", "8"]


def test_of_many_values_the_largest_are_drawn_and_the_last():
    values = [1.0] * 999
    values[500], values[-1] = 7.0, 3.0
    svg = svg_of(line_chart([(str(at), v) for at, v in enumerate(values)], "values", ""))
    line, _ = svg.findall("{http://www.w3.org/2000/svg}path")
    heights = [int(each.split()[1]) for each in line.get("d")[1:].split("L")]
    assert min(heights) == 8 and heights[-1] == 72 - 27


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (1_234, "B", "1.23 kB"),
        (5e6, "", "5 M"),
        (0.25, "s", "0.25 s"),
        (7_200, "s", "7,200 s"),
        (3e15, "B", "3 PB"),
    ],
)
def test_numbers_of_charts_have_units(value, unit, text):
    assert shown(value, unit) == text


@pytest.mark.parametrize("kind", ["materialization", "migration"])
def test_the_log_grows_from_the_last_base(kind):
    epoch_input = InputFacts(id="d", rows=1, hash_sum="0" * 16)
    day = EpochFacts(kind="epoch", input=epoch_input, log_bytes=10)
    base = EpochFacts(kind=kind, materialized_bytes=50)
    facts = [day, base, day, day]
    commits = [
        CompletedCheckpoint(number, number - 1, "0" * 64, 0, facts_of_epoch)
        for number, facts_of_epoch in enumerate(facts, 1)
    ]
    texts = texts_of(epoch_charts(commits, 20)["dstl/log_total_chart"])
    assert "last: 20 B" in texts
    # Without a base among them, the size of the last one says where they begin.
    texts = texts_of(epoch_charts(commits[2:], 120)["dstl/log_total_chart"])
    assert "last: 120 B" in texts
    texts = texts_of(epoch_charts(commits, 20)["dstl/state_chart"])
    assert "last: 50 B" in texts


def texts_of(chart):
    return [each.text for each in svg_of(chart).iter("{http://www.w3.org/2000/svg}text")]
