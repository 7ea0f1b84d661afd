"""Decimals of a job's own aggregates come back in the type that the job declared."""

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal as D
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import Snapshot, aggregates
from dstl_core.cli import main
from dstl_core.errors import ColumnValueError
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.read.keyed_reader import KeyedStateReader
from dstl_core.spark.engine.schema import spark_schema_of, spark_type_of
from dstl_core.stateful_job import StatefulJob
from dstl_core.windows import TumblingEventTimeWindows
from tests.command_line import run

__all__ = ["run"]
pytestmark = pytest.mark.spark

ROWS = [("a", D("12.50"), 1), ("a", D("-0.05"), 2), ("b", D("7"), 1), ("b", None, 3)]
SCHEMA = "k string, amount decimal(18,2), at bigint"
ARROW = pa.schema([("k", pa.string()), ("amount", pa.decimal128(18, 2)), ("at", pa.int64())])
STATES = {
    "total": aggregates.sum("amount"),
    "declared": aggregates.sum("amount", "decimal(18, 2)"),
    "largest": aggregates.max("amount"),
    "latest": aggregates.last("amount", "at"),
    "wide": aggregates.min("amount", "decimal(30, 6)"),
}
TYPES = {
    "total": pa.decimal128(38, 2),
    "declared": pa.decimal128(18, 2),
    "largest": pa.decimal128(18, 2),
    "latest": pa.decimal128(18, 2),
    "wide": pa.decimal128(30, 6),
}
EXPECTED = {
    "a": {"total": D("12.45"), "declared": D("12.45"), "largest": D("12.50")}
    | {"latest": D("-0.05"), "wide": D("-0.050000")},
    "b": dict.fromkeys(STATES, D("7.00")) | {"wide": D("7.000000")},
}


@pytest.fixture(scope="module")
def job(spark, tmp_path_factory):
    operator = AggregateOperator("u", "k", STATES, schema=ARROW)
    made = StatefulJob(spark, "decimals", str(tmp_path_factory.mktemp("base")), operator)
    made.run(spark.createDataFrame(ROWS, SCHEMA), 1)
    return made


def test_arrow_has_the_declared_types(job):
    for snapshot in (job.snapshot(), Snapshot.load(job.savepoint(f"{job.base_path}/sp"))):
        table = pa.Table.from_batches(snapshot["u"].keyed().read())
        assert {name: table.schema.field(name).type for name in STATES} == TYPES
        rows = {row.pop("state_key"): row for row in table.to_pylist()}
        assert {key: {name: row[name] for name in STATES} for key, row in rows.items()} == EXPECTED
        flat = pa.Table.from_batches(snapshot["u"].flat("largest").read())
        assert flat.schema.field("state_value").type == pa.decimal128(18, 2)


def test_materialized_state_and_spark_have_them_too(spark, job):
    job.materialize()
    frame = spark.read.format("savepoint").option("operator.uid", "u").load(job.latest_path())
    kinds_of_states = {name: kind for name, kind in frame.dtypes if name in STATES}
    assert kinds_of_states == {
        name: str(kind).replace("128", "").replace(" ", "") for name, kind in TYPES.items()
    }
    rows = {row.state_key: {name: row[name] for name in STATES} for row in frame.collect()}
    assert rows == EXPECTED
    exact = frame.sparkSession.read.format("savepoint").option("operator.uid", "u")
    stored = exact.option("decimals", "exact").load(job.latest_path())
    assert dict(stored.dtypes)["largest"] == "struct<unscaled:binary,scale:int>"


def test_a_number_beyond_the_declared_type_names_the_option(spark, tmp_path):
    operator = AggregateOperator(
        "u", "k", {"s": aggregates.sum("amount", "decimal(18, 2)")}, schema=ARROW
    )
    job = StatefulJob(spark, "large", str(tmp_path), operator)
    rows = [("a", D("9999999999999999.99"), at) for at in range(3)]
    job.run(spark.createDataFrame(rows, SCHEMA), 1)
    with pytest.raises(
        ColumnValueError, match=r"does not fit decimal128.18, 2., .* decimals=exact"
    ):
        list(job.snapshot()["u"].keyed().read())


# ------------------------------------------------------------------------- faces and types

MOMENT, DAY = datetime(2026, 1, 1, 2, tzinfo=UTC), date(2026, 1, 2)
ALL = pa.schema(
    [
        ("k", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("price", pa.decimal128(10, 4)),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("n", pa.int64()),
        ("s", pa.string()),
    ]
)
EVENTS = [
    ("a", D("12.50"), D("3"), datetime(2026, 1, 1, 1, tzinfo=UTC), date(2026, 1, 1), 1, "x"),
    ("a", D("7"), D("1.25"), MOMENT, DAY, 2, "y"),
]
KINDS = {
    "amount": aggregates.max("amount"),
    "wide": aggregates.min("amount", "decimal(30, 6)"),
    "at": aggregates.max("at"),
    "day": aggregates.max("day"),
    "n": aggregates.max("n"),
    "s": aggregates.max("s"),
    "best": aggregates.max_by("s", "price"),
    "first": aggregates.first("amount", "at"),
}
LISTS = {"top": aggregates.top("amount", 3), "latest": aggregates.last_values("n", 3, "price")}
OF_KINDS = {
    "amount": (pa.decimal128(18, 2), D("12.50"), "12.50"),
    "wide": (pa.decimal128(30, 6), D("7"), "7.000000"),
    "at": (pa.timestamp("us", "UTC"), MOMENT, "2026-01-01T02:00:00Z"),
    "day": (pa.date32(), DAY, "2026-01-02"),
    "n": (pa.int64(), 2, 2),
    "s": (pa.string(), "y", "y"),
    "best": (pa.string(), "x", "x"),
    "best_order": (pa.decimal128(10, 4), D("3"), "3.0000"),
    "first": (pa.decimal128(18, 2), D("12.50"), "12.50"),
    "first_order": (pa.timestamp("us", "UTC"), EVENTS[0][3], "2026-01-01T01:00:00Z"),
}
OF_LISTS = {
    "top": (pa.list_(pa.decimal128(18, 2)), [D("12.50"), D("7.00")], ["12.50", "7.00"]),
    "latest": (pa.list_(pa.int64()), [1, 2], [1, 2]),
    "latest_order": (pa.list_(pa.decimal128(10, 4)), [D("3"), D("1.25")], ["3.0000", "1.2500"]),
}
"""Type, value and text of each state, by hand."""


@pytest.fixture(scope="module")
def everything(spark, tmp_path_factory):
    """The folders of one state in every form in which dstl writes it, by form; one has windows."""
    base = str(tmp_path_factory.mktemp("faces"))
    frame = spark.createDataFrame(EVENTS, spark_schema_of(ALL))
    plain = AggregateOperator("u", "k", {**KINDS, **LISTS}, schema=ALL)
    window = TumblingEventTimeWindows.of("1 d")
    windowed = AggregateOperator("u", "k", KINDS, schema=ALL, window=window, event_time="at")
    snapshots = {}
    for name, operator in (("keyed", plain), ("windows", windowed)):
        job = StatefulJob(spark, name, base, operator, parallelism=1)
        job.run(frame, 1)
        savepoint = job.savepoint(f"{base}/{name}")
        snapshots |= {(name, "checkpoint"): job.latest_path(), (name, "savepoint"): savepoint}
        for how in REWRITES:
            out = f"{base}/{name}-{len(snapshots)}"
            with pytest.raises(SystemExit) as ended:
                main(["rewrite", savepoint, out, *how])
            assert not ended.value.code
            snapshots[name, " ".join(how)] = out
        for how in MOVES:
            out = f"{base}/{name}-{how}"
            declared = Path(f"{base}/{name}.yaml")
            declared.write_text(f"{{migration: 1, from: {name}, operators: {{u: {{}}}}}}")
            words = [*how.split(), str(declared) if how == "migrate apply" else savepoint, out]
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert not ended.value.code
            snapshots[name, how] = out
    return snapshots


REWRITES = (("--rename", "u=v"), ("--max-parallelism", "256"), ())
MOVES = ("migrate apply", "upgrade")
FORMS = ("checkpoint", "savepoint", *(" ".join(how) for how in REWRITES), *MOVES)


def only_operator(path):
    [operator] = Snapshot.load(path).operators
    return operator


@pytest.mark.parametrize("form", FORMS)
def test_every_type_comes_back_in_arrow_and_in_spark(spark, everything, form):
    path, expected = everything["keyed", form], OF_KINDS | OF_LISTS
    operator = only_operator(path)
    table = pa.Table.from_batches(operator.keyed().read())
    frame = spark.read.format("savepoint").option("operator.uid", operator.uid).load(path)
    [in_arrow], [in_spark] = table.to_pylist(), frame.collect()
    for name, (kind, value, _) in expected.items():
        assert table.schema.field(name).type == kind, name
        assert in_arrow[name] == value, name
        assert frame.schema[name].dataType == spark_type_of(kind), name
        value_read = in_spark[name]
        assert (
            value_read.replace(tzinfo=UTC) if isinstance(value_read, datetime) else value_read
        ) == value, name


@pytest.mark.parametrize("form", FORMS)
def test_the_fields_of_windows_have_their_types_too(spark, everything, form):
    path = everything["windows", form]
    operator = only_operator(path)
    reader = spark.read.format("savepoint").option("operator.uid", operator.uid)
    for state, column in (("windows", "window-contents"), ("window-contents", "state_value")):
        table = pa.Table.from_batches(KeyedStateReader(operator, state).read())
        kinds = [each.type for each in table.schema.field(column).type]
        assert kinds == [kind for kind, _, _ in OF_KINDS.values()]
        [row] = table[column].to_pylist()
        assert list(row.values()) == [value for _, value, _ in OF_KINDS.values()]
    frame = reader.option("state", "window-contents").load(path)
    parts = [each.dataType for each in frame.schema["state_value"].dataType]
    assert parts == [spark_type_of(kind) for kind, _, _ in OF_KINDS.values()]
    [[row]] = frame.select("state_value").collect()
    assert (row.f0, row.f1, row.f7) == (D("12.50"), D("7"), D("3"))


@pytest.mark.parametrize("form", FORMS)
def test_dump_prints_the_declared_digits(everything, run, form):
    values = {line["state"]: line["value"] for line in run("dump", everything["keyed", form]).lines}
    assert values == {name: text for name, (_, _, text) in (OF_KINDS | OF_LISTS).items()}
    lines = run("dump", everything["windows", form]).lines
    [values] = [line["value"] for line in lines if line.get("state") == "window-contents"]
    assert values == [text for _, _, text in OF_KINDS.values()]


def test_rows_that_become_state_declare_their_decimals(spark, tmp_path):
    schema = "k string, amount decimal(18,2), pair struct<n:int,price:decimal(10,4)>"
    schema += ", many array<decimal(9,3)>, at timestamp, day date, n bigint"
    row = ("a", D("7"), (1, D("2.5")), [D("1"), None], MOMENT, DAY, 3)
    frame = spark.createDataFrame([row], schema)
    keyed = OperatorTransformation.bootstrap_with(frame).key_by("k")
    out = str(tmp_path / "out")
    SavepointWriter.new_savepoint(spark, max_parallelism=8).with_operator(
        OperatorIdentifier.for_uid("u"), keyed.transform_columns()
    ).write(out)
    read_frame = spark.read.format("savepoint").option("operator.uid", "u").load(out)
    kinds = dict(read_frame.dtypes)
    assert kinds.pop("state_key") == "string"
    assert kinds.pop("pair") == "struct<f0:int,f1:decimal(10,4)>"
    expected = {name: kind for name, kind in frame.dtypes if name not in ("k", "pair")}
    assert kinds == expected
    [back] = read_frame.collect()
    assert (back.amount, tuple(back.pair), back.many) == (D("7.00"), row[2], row[3])


def test_keys_and_maps_of_rows_declare_their_decimals(spark, run, tmp_path):
    schema = "k decimal(9,1), prices map<string,decimal(18,2)>, names map<decimal(10,4),string>"
    row = (D("7"), {"a": D("2.5"), "b": None}, {D("1.5"): "x"})
    frame = spark.createDataFrame([row], schema)
    keyed = OperatorTransformation.bootstrap_with(frame).key_by("k")
    out = str(tmp_path / "out")
    SavepointWriter.new_savepoint(spark, max_parallelism=8).with_operator(
        OperatorIdentifier.for_uid("u"), keyed.transform_columns()
    ).write(out)
    copy = str(tmp_path / "copy")
    declared = tmp_path / "declared.yaml"
    rules = "{u: {states: {costs: {from: prices}}}}"
    declared.write_text(f"{{migration: 1, from: '{out}', operators: {rules}}}")
    assert run("migrate", "apply", str(declared), copy).code == 0
    for path, prices in ((out, "prices"), (copy, "costs")):
        read_frame = spark.read.format("savepoint").option("operator.uid", "u").load(path)
        assert dict(read_frame.dtypes) == {
            "state_key": "decimal(9,1)",
            prices: "map<string,decimal(18,2)>",
            "names": "map<decimal(10,4),string>",
        }
        [back] = read_frame.collect()
        assert (back.state_key, back[prices], back.names) == row
        table = pa.Table.from_batches(KeyedStateReader(only_operator(path), prices).read())
        kinds = {each.name: each.type for each in table.schema}
        assert (kinds["state_key"], kinds["map_value"]) == (pa.decimal128(9, 1), DECLARED)
        lines = {line["state"]: line for line in run("dump", path).lines}
        assert lines[prices]["key"] == "7.0"
        assert lines[prices]["value"] == [["a", "2.50"], ["b", None]]
        assert lines["names"]["value"] == [["1.5000", "x"]]


DECLARED = pa.decimal128(18, 2)


@pytest.mark.parametrize("kind", [None, "decimal(20, 4)"])
def test_the_decimal_key_of_a_job_comes_back(spark, run, tmp_path, kind):
    operator = AggregateOperator("u", "price", {"n": aggregates.count()}, kind, schema=ALL)
    made = StatefulJob(spark, "keys", str(tmp_path), operator, parallelism=1)
    made.run(spark.createDataFrame(EVENTS, spark_schema_of(ALL)), 1)
    table = pa.Table.from_batches(made.snapshot()["u"].keyed().read())
    expected = pa.decimal128(10, 4) if kind is None else pa.decimal128(20, 4)
    assert table.schema.field("state_key").type == expected
    assert set(table["state_key"].to_pylist()) == {D("3.0000"), D("1.2500")}
    lines = run("dump", made.latest_path()).lines
    assert {line["key"] for line in lines} == {"3.0000", "1.2500"}


def test_a_diff_shows_the_declared_digits(spark, run, tmp_path):
    operator = AggregateOperator("u", "k", {"wide": STATES["wide"]}, schema=ARROW)
    made = StatefulJob(spark, "diff", str(tmp_path), operator, parallelism=1)
    made.run(spark.createDataFrame(ROWS, SCHEMA), 1)
    old = made.savepoint(str(tmp_path / "old"))
    made.run(spark.createDataFrame([("b", D("-1.50"), 4), ("c", D("9"), 4)], SCHEMA), 2)
    new = made.savepoint(str(tmp_path / "new"))

    def differences(*paths):
        lines = run("diff", *map(str, paths), "--json").lines
        return {line["key"]: (line.get("before"), line.get("after")) for line in lines}

    assert differences(old, new) == {"b": ("7.000000", "-1.500000"), "c": (None, "9.000000")}
    shutil.copytree(tmp_path / "new", tmp_path / "other")
    sidecar = tmp_path / "other" / "_dstl.json"
    facts = json.loads(sidecar.read_text())
    [of_operator] = facts["decimals"].values()
    assert of_operator == {"wide": [30, 6]}
    of_operator["wide"] = [30, 4]
    sidecar.write_text(json.dumps(facts))
    assert differences(new, tmp_path / "other") == {}, "another declaration is no other value"
