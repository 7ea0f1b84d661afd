"""Each option of the plugin is checked where it is given: a wrong value never waits for a run."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import dagster as dg
import pytest
from pydantic import ValidationError

import dstl_dagster as dstl
from dstl_core import aggregates
from dstl_core.errors import ConfigError, DstlError
from dstl_dagster import checks, pipelines, snapshots
from dstl_dagster.resources.storage_resource import S3Credentials
from tests.command_line import is_one_sentence
from tests.integration.dagster.small_pipeline import DAYS, PAYMENTS

pytestmark = pytest.mark.dagster

LATEST = snapshots.snapshot_at("latest")


def assets(**options: Any) -> dg.AssetsDefinition:
    @dstl.dstl_assets(**options)
    def payments_state() -> Iterator[Any]:
        yield from ()

    return payments_state


def checked(check: type[Any]) -> Any:
    def define(**options: Any) -> Any:
        return check(**options).definition("asset", LATEST, "totals")

    return define


def write(session: Any, path: str) -> None:
    """Would write a savepoint."""


PIPELINE = {"pipeline": PAYMENTS}
AGGREGATES = {"uid": "totals", "key_by": "account", "states": {"n": aggregates.count()}}
BUILDERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "aggregating_pipeline": (
        dstl.aggregating_pipeline,
        dstl.aggregating_pipeline,
        {"name": "payments", "key_type": "string", **AGGREGATES},
    ),
    "StatefulPipeline": (
        dstl.StatefulPipeline,
        dstl.StatefulPipeline,
        {"name": "payments", "uid": "totals", "job": "shop.jobs:open_job"},
    ),
    "dstl_assets": (assets, dstl.dstl_assets, {**PIPELINE, "partitions_def": DAYS}),
    "build_dstl_asset_specs": (
        dstl.build_dstl_asset_specs,
        dstl.build_dstl_asset_specs,
        PIPELINE,
    ),
    "build_pipeline_defs": (
        dstl.build_pipeline_defs,
        dstl.build_pipeline_defs,
        {**PIPELINE, "assets": [assets(**PIPELINE)]},
    ),
    "build_savepoint_defs": (
        dstl.build_savepoint_defs,
        dstl.build_savepoint_defs,
        {"name": "orders", "path": "savepoints/orders"},
    ),
    "snapshot_at": (snapshots.snapshot_at, snapshots.snapshot_at, {"place": "orders"}),
    "build_bootstrapped_asset": (
        snapshots.build_bootstrapped_asset,
        snapshots.build_bootstrapped_asset,
        {"name": "bulk", "write": write, "group": "payments"},
    ),
    **{
        check.__name__: (checked(check), check, arguments)
        for check, arguments in {
            checks.StateCheck: {"sql": "SELECT 1 FROM {state}"},
            checks.DiffCheck: {"before": LATEST},
            checks.VerifyCheck: {},
            checks.RestoreCheck: {"job": LATEST},
            checks.SchemaCheck: {"job": LATEST},
        }.items()
    },
    **{
        edit.__name__: (edit, edit, arguments)
        for edit, arguments in {
            snapshots.Rewrite: {},
            snapshots.Upgrade: {},
            snapshots.Migrate: {"declaration": "orders-v2.yaml"},
        }.items()
    },
    **{
        build.__name__: (build, build, arguments)
        for build, arguments in {
            pipelines.build_reset_op: PIPELINE,
            pipelines.build_materialize_op: PIPELINE,
            pipelines.build_savepoint_op: PIPELINE,
            pipelines.build_bootstrap_op: {"name": "bulk", "write": write},
            pipelines.build_rewrite_op: {"name": "rewrite"},
            pipelines.build_erase_op: PIPELINE,
            pipelines.build_persist_op: {**PIPELINE, "batch": write},
            pipelines.build_confirm_op: PIPELINE,
            pipelines.build_protocol_job: {**PIPELINE, "batch": write, "partitions_def": DAYS},
            snapshots.checkpoint_of: PIPELINE,
            snapshots.savepoint_of: PIPELINE,
            pipelines.build_erased_check: {**PIPELINE, "keys": {"totals": "keys.txt"}},
        }.items()
    },
}
"""Name to what makes a definition, what has its parameters, and arguments that are right."""

NO_TEXT = [5, True, "", " ", ["a"], {"a": "b"}]
WRONG: Mapping[str, list[Any]] = {
    "bool": ["perhaps", "", 1.5, ["a"]],
    "str": NO_TEXT,
    "str | None": NO_TEXT,
    "str | os.PathLike[str] | None": NO_TEXT,
    "int": ["five", "", -1, 0.5, math.inf, ["a"]],
    "int | None": ["five", "", -1, 0.5, ["a"]],
    "float": ["much", "", -0.5, math.nan, math.inf, ["a"]],
    "float | None": ["much", "", -0.5, math.nan],
    "list[str]": ["a", 5, [""], [["a"]], {"a": "b"}],
    "Sequence[str]": ["a", 5, [""], [5], {"a": "b"}],
    "Sequence[str] | None": ["a", 5, [""], [5], {"a": "b"}],
    "Sequence[Any]": ["ab", 5, {"a": "b"}, dg.AssetKey("a"), dg.AssetDep("a")],
    "dict[str, str]": ["a", 5, ["a"], {"a": ""}, {"a": ["b"]}],
    "Mapping[str, str]": ["a", 5, ["a"], {"a": ""}, {"a": 5}],
    "Mapping[str, str] | None": ["a", 5, ["a"], {"a": ""}, {"a": 5}],
    "Mapping[str, Any] | None": ["", 0, 5, ["a"]],
    "Mapping[str, str | os.PathLike[str]]": ["a", 5, ["a"], {"a": ""}, {"a": 5}],
    "Mapping[str, list[str]] | None": ["a", 5, {"a": "b"}, {"a": [5]}],
    "Mapping[str, Sequence[str]]": ["a", 5, {"a": "b"}, {"a": [5]}],
}
"""A type to values that are none of it, or none that an option of this type can have."""
ANY_OBJECT = [object(), 0, "", "no such"]
RIGHT = {
    ("build_savepoint_defs", "path"): ["savepoints/orders"],
    ("StatefulPipeline", "small_log_bytes"): [0, 1e9],
    ("build_pipeline_defs", "max_log_bytes"): [1, 1e9],
    ("StatefulPipeline", "materialize_at_ratio"): [None, 0, 1, 0.5],
    ("dstl_assets", "retry_policy"): [None, dg.RetryPolicy()],
    ("dstl_assets", "deps"): [("a", "b"), {"a"}, [dg.AssetDep("a"), dg.AssetKey("b")]],
    ("build_pipeline_defs", "materialization_schedule"): [None, "0 * * * *", ["0 1 * * *"]],
    ("build_pipeline_defs", "verify_schedule"): [None],
    ("DiffCheck", "max_changed_ratio"): [0, 1],
    ("build_erased_check", "keys"): [{"totals": Path("keys.txt")}],
    ("build_savepoint_defs", "checkpoints"): [Path("checkpoints/ab12"), "s3://bucket/ab12"],
    ("Upgrade", "to"): ["2.0", 2.3],
    ("build_savepoint_defs", "serializers"): ["shop.types:registry", None],
}
REFUSALS = (ConfigError, ValidationError, dg.DagsterError, dg._check.CheckError)


def type_of(parameter: inspect.Parameter) -> str:
    """The annotation of a parameter as it is written, without what YAML shows of it."""
    written = parameter.annotation
    if get_origin(written) is Annotated:
        written = get_args(written)[0]
    text = written if isinstance(written, str) else inspect.formatannotation(written)
    return text.removeprefix("Annotated[").split(", shown(")[0].replace("collections.abc.", "")


def options() -> Iterator[tuple[str, str, str]]:
    for name, (_, owner, _) in BUILDERS.items():
        for parameter in inspect.signature(owner).parameters.values():
            yield name, parameter.name, type_of(parameter)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_wrong_value_of_an_option_is_refused_where_it_is_given(name: str) -> None:
    define, _, right = BUILDERS[name]
    define(**right)
    taken = []
    for builder, option, kind in options():
        for value in WRONG.get(kind, ANY_OBJECT) if builder == name else []:
            try:
                define(**{**right, option: value})
            except REFUSALS as error:
                assert option in str(error) or "expected" in str(error)
            else:
                taken.append((option, kind, value))
    assert taken == []


@pytest.mark.parametrize(("name", "option"), RIGHT)
def test_a_right_value_of_an_option_is_taken(name: str, option: str) -> None:
    define, _, right = BUILDERS[name]
    for value in RIGHT[name, option]:
        define(**{**right, option: value})


def test_the_sentence_names_the_option_its_owner_and_both_values() -> None:
    with pytest.raises(ConfigError) as refused:
        dstl.build_savepoint_defs("orders", path="orders", relocate=["a"])  # type: ignore[arg-type]
    assert str(refused.value) == (
        "The option relocate of savepoint 'orders' is wrong: expected a dictionary from text to "
        "text, got ['a']."
    )


def test_options_of_a_class_of_the_user_are_not_judged() -> None:
    @dataclass(frozen=True)
    class Fresh(checks.VerifyCheck):
        keys: Sequence[str] = ("ada",)
        retain: int = 5

    @dataclass(frozen=True)
    class Recent(checks.SnapshotCheck):
        keys: Sequence[str]

        def definition(self, asset: Any, source: Any, uid: str | None = None) -> Any:
            return Fresh().definition(asset, source, uid)

    # Dagster reads annotations of a component as types, not as text.
    fields = [("path", int, field(default=5))]
    Regional = make_dataclass("Regional", fields, bases=(dstl.StatefulPipelineComponent,))

    class Dated(snapshots.Rewrite):
        group: int = 5

    Recent(["ada"]).definition("asset", LATEST)
    Dated(group=7)
    Regional.from_attributes_dict(attributes=COMPONENT).build_defs(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="option blocking of a Fresh is wrong"):
        Fresh(blocking="no")  # type: ignore[arg-type]


COMPONENT: dict[str, Any] = {
    "name": "payments",
    "uid": "totals",
    "key_by": "account",
    "states": {"total": {"how": "sum", "column": "amount"}},
    "columns": "account string, amount bigint",
    "events": {"path": "data", "partition_column": "day"},
    "partitions": {"start": "2026-01-01"},
}
WRONG_IN_YAML: dict[str, dict[str, Any]] = {
    "option max_retries .*at least 0, got -1": {"max_retries": -1},
    "option parallelism .*from 1 to 32768, got 0": {"parallelism": 0},
    "must not be smaller than parallelism: 2 < 4": {"parallelism": 4, "max_parallelism": 2},
    "option retain .*such as '14 days' or '12 h', got 'two weeks'": {"retain": "two weeks"},
    "option automation_condition .*got 'eager'": {"automation_condition": "eager"},
    "option rename of evolve of pipeline 'payments'.*got": {"evolve": {"rename": {"total": ""}}},
    "option path of the events of pipeline 'payments'": {
        "events": {"path": "", "partition_column": "day"}
    },
    "option partition_column of the events": {"events": {"path": "data", "partition_column": ""}},
    "expected dates such as 2026-01-01.*'yesterday'": {"partitions": {"start": "yesterday"}},
    "a time zone such as Europe/Berlin.*'Mars'": {
        "partitions": {"start": "2026-01-01", "timezone": "Mars"}
    },
    "partitions have no window.*after the start '2026-01-02', got '2026-01-01'": {
        "partitions": {"start": "2026-01-02", "end": "2026-01-01"}
    },
}


@pytest.mark.parametrize("message", WRONG_IN_YAML)
def test_a_wrong_option_in_yaml_is_refused_before_a_run(message: str) -> None:
    attributes = {**COMPONENT, **WRONG_IN_YAML[message]}
    component = dstl.StatefulPipelineComponent.from_attributes_dict(attributes=attributes)
    with pytest.raises(ConfigError, match=message):
        component.build_defs(None)  # type: ignore[arg-type]


WRONG_RESOURCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "A path is empty": (dstl.DstlStorageResource, {"base_path": ""}),
    "holds a password or a signature, got 's3://[*]{3}@b/x'": (
        dstl.DstlStorageResource,
        {"base_path": "data", "also_reaches": ["s3://key:hidden@b/x"]},
    ),
    "expected a whole number with b, kb, mb, gb or tb, got 'lots'": (
        dstl.DstlLocalEngineResource,
        {"memory": "lots"},
    ),
    "REST URL is http or https, got 'jobmanager'": (
        dstl.FlinkClusterResource,
        {"url": "jobmanager"},
    ),
}


@pytest.mark.parametrize("message", WRONG_RESOURCES)
def test_a_wrong_value_of_a_resource_is_refused_where_it_is_given(message: str) -> None:
    resource, fields = WRONG_RESOURCES[message]
    with pytest.raises(DstlError, match=message) as refused:
        resource(**fields)
    assert "hidden" not in str(refused.value)
    assert is_one_sentence(f"dstl: {refused.value}\n")


@pytest.mark.parametrize(
    ("resource", "fields", "said"),
    [
        (
            dstl.DstlLocalEngineResource,
            {"threads": "a", "memory": "lots"},
            "threads: expected a whole number, got 'a'; memory: Not a memory size: expected a "
            "whole number with b, kb, mb, gb or tb, got 'lots'.",
        ),
        (
            S3Credentials,  # what may be a secret is not shown
            {"secret_access_key": 42, "region": 43},
            "access_key_id is missing; secret_access_key: expected text; region: expected text.",
        ),
        (
            dstl.DstlSparkResource,
            {"spark_config": "spark.hadoop.fs.s3a.secret.key=hidden"},
            "spark_config: expected a mapping.",
        ),
    ],
)
def test_all_wrong_values_of_a_resource_are_one_sentence(
    resource: type, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resource(**fields)
    assert str(refused.value) == f"An option of {resource.__name__} is wrong: {said}"
    assert is_one_sentence(f"dstl: {refused.value}\n")


def test_a_value_of_the_environment_is_known_when_a_run_starts() -> None:
    later = dg.EnvVar("NAMED_LATER")
    dstl.DstlStorageResource(base_path=later, also_reaches=["s3://bucket"])
    dstl.DstlLocalEngineResource(memory=later)
    dstl.FlinkClusterResource(url=later)
