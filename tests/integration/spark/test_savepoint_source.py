import json
import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    ConfigError,
    DuplicateKeyError,
    NoSuchOperatorError,
    NoSuchStateError,
    SavepointError,
    StateFileNotFoundError,
)
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.data_source import load_state, register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from tests.golden_files import CONNECTORS, PLANTED

pytestmark = pytest.mark.spark

FIXTURES = Path(__file__).parents[2] / "golden"
CANONICAL = FIXTURES / "a-hashmap-canonical"
SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"


def truth(kind, state):
    entries = json.loads((CANONICAL / "truth.json").read_text())["entries"]
    return {
        entry["key"]: entry["value"]
        for entry in entries
        if entry["kind"] == kind and entry.get("state") == state
    }


@pytest.fixture(scope="module")
def canonical():
    descriptor = json.loads((CANONICAL / "descriptor.json").read_text())
    return str(CANONICAL / descriptor["savepoint"])


def read(spark, path, **options):
    reader = spark.read.format("savepoint")
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), value)
    return reader.load(path)


def test_one_row_per_key_of_a_savepoint_by_flink(spark, canonical):
    rows = {row.state_key: row for row in read(spark, canonical, operator_uid="a-keyed").collect()}
    values, lists = truth("value", "cnt"), truth("list", "names")
    assert {key: row.cnt for key, row in rows.items() if row.cnt is not None} == values
    assert {key: row.names for key, row in rows.items() if row.names is not None} == lists
    maps = {key: sorted(dict(value).items()) for key, value in truth("map", "m").items()}
    assert {k: sorted(r.m.items()) for k, r in rows.items() if r.m is not None} == maps


def test_values_of_the_job_are_texts_with_its_jar(spark):
    job = FIXTURES / "upgrade-jobs" / "registered"
    [path] = job.glob("savepoint-*")
    entries = json.loads((job / "truth.json").read_text())["entries"]
    expected = {each["key"]: each["value"]["id"] for each in entries if each["state"] == "holder"}
    jar = str(job / "job.jar")
    rows = read(spark, str(path), state="holder", jar=jar).collect()
    assert {row.state_key: json.loads(row.state_value)["id"] for row in rows} == expected
    frame = SavepointReader.read(spark, str(path), jars=[jar]).read_keyed_state(
        OperatorIdentifier.for_uid_hash("90b3c5b321efda0005d80687f0a5cbd9")
    )
    texts = frame.select("state_key", F.get_json_object("holder", "$.id").alias("id")).collect()
    assert {row.state_key: int(row.id) for row in texts} == expected


def test_messages_are_structs_with_their_descriptor_set(spark):
    job = FIXTURES / "proto-jobs"
    [path] = map(str, job.glob("savepoint-*"))
    entries = json.loads((job / "truth.json").read_text())["entries"]
    lines = {
        entry["key"]: sum(line.get("quantity", 0) for line in entry["value"].get("lines", []))
        for entry in entries
        if entry["state"] == "delimited"
    }
    options = {"proto": str(job / "shop.desc"), "type": "delimited=shop.Order, raws=shop.Line"}
    frame = read(spark, path, state="delimited", **options)
    total = F.aggregate("state_value.lines", F.lit(0), lambda sum_, line: sum_ + line.quantity)
    rows = frame.select("state_key", total.alias("pieces")).collect()
    assert {row.state_key: row.pieces for row in rows} == lines
    with pytest.raises(PySparkException, match="type is wrong: expected STATE=TYPE"):
        read(spark, path, state="raws", proto=options["proto"], type="raws").collect()


def test_a_session_made_of_another_has_its_formats(spark, canonical):
    register(spark)
    another = spark.newSession()
    register(another)
    register(another)
    assert read(another, canonical, operator_uid="a-keyed").count() > 0


def test_one_state_in_flat_form(spark, canonical):
    rows = read(spark, canonical, state="names").collect()
    by_key = {}
    for row in sorted(rows, key=lambda row: (row.state_key, row.list_index)):
        by_key.setdefault(row.state_key, []).append(row.list_value)
    assert by_key == truth("list", "names")
    rows = read(spark, canonical, state="cnt").collect()
    assert {row.state_key: row.state_value for row in rows} == truth("value", "cnt")
    rows = read(spark, canonical, state="m").collect()
    pairs = {(row.state_key, row.map_key): row.map_value for row in rows}
    expected = {(k, uk): v for k, entry in truth("map", "m").items() for uk, v in entry}
    assert pairs == expected


def test_columns_and_splits(spark, canonical):
    narrow = read(spark, canonical, columns="cnt", split_bytes="2000")
    assert narrow.columns == ["cnt"]
    assert narrow.agg(F.sum("cnt")).collect()[0][0] == sum(truth("value", "cnt").values())
    parts = narrow.mapInArrow(lambda batches: batches, narrow.schema).rdd.getNumPartitions()
    assert parts > 2


def test_where_sources_stand(spark):
    rows = read(spark, str(CONNECTORS / "c-kafka" / "savepoint"), kind="offsets").collect()
    expected = json.loads((CONNECTORS / "c-kafka" / "truth.json").read_bytes())
    [source] = [each for each in expected["operators"] if each.get("splits")]
    held = {
        f"{split['split']['topic']}/{split['split']['partition']}": split["subtask"]
        for split in source["splits"]
    }
    assert {row.split: row.subtask for row in rows if row.status == "assigned"} == held
    [pending] = [row for row in rows if row.status == "unassigned"]
    assert (pending.split, pending.position, pending.subtask) == ("orders/6", "earliest", None)
    assert {(row.op, row.connector) for row in rows} == {("source", "kafka")}


def test_in_sql(spark, canonical):
    spark.sql(
        f"CREATE TEMPORARY VIEW counts USING savepoint OPTIONS (path '{canonical}', state 'cnt')"
    )
    try:
        [row] = spark.sql("SELECT count(*) AS n, sum(state_value) AS s FROM counts").collect()
        assert (row.n, row.s) == (len(truth("value", "cnt")), sum(truth("value", "cnt").values()))
        plans = spark.table("counts")._jdf.queryExecution().toString()
        assert "SubqueryAlias counts" in plans
        assert "BatchScan savepoint" in plans
    finally:
        spark.catalog.dropTempView("counts")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator_uid": "nobody"}, "it has: 'a-keyed', 'sink', 'src'"),
        ({"operator_uid": "src"}, "'src' has no keyed state"),
        ({"state": "nothing"}, "'nothing' is not in operator 'a-keyed'; it has: "),
        ({"columns": "cnt,zzz"}, "no column 'zzz'; there are: state_key, agg, cnt, m, names, red"),
        ({"split_bytes": "many"}, "split.bytes is wrong"),
        ({"backend": "rocksdb"}, "no option 'backend'; it has: "),
        ({"operator_uid": "a", "operator_name": "b"}, "Give one of"),
    ],
)
def test_bad_options_say_what_is_right(spark, canonical, options, message):
    """They do so when the DataFrame is made, with one frame of dstl before the sentence."""
    with pytest.raises(PySparkException) as raised:
        read(spark, canonical, **options)
    assert message in str(raised.value)
    assert str(raised.value).count("\n  File ") == 1


def test_state_that_dstl_loads_raises_what_is_wrong_as_itself(spark, canonical):
    for options, kind in (
        ({"uid": "nobody"}, NoSuchOperatorError),
        ({"uid": "a-keyed", "state": "nothing"}, NoSuchStateError),
    ):
        with pytest.raises(kind, match=r"in the snapshot; it has|in operator 'a-keyed'; it has"):
            load_state(spark, canonical, **options)
    with pytest.raises(StateFileNotFoundError, match="There is no snapshot: "):
        load_state(spark, f"{canonical}/nothing")
    rows = load_state(spark, canonical, state="cnt").collect()
    assert len(rows) == len(truth("value", "cnt"))


def test_damage_is_told_with_a_short_traceback_or_with_all_of_it(spark, tmp_path):
    folder = tmp_path / "damaged"
    shutil.copytree(PLANTED / "canonical" / "savepoint", folder)
    for file in folder.iterdir():
        if not file.name.startswith("_"):
            raw = file.read_bytes()
            file.write_bytes(raw[:-40] + b"\x7f" * 40)
    frame = read(spark, str(folder), operator_uid="op")
    for simplified, frames in (("true", range(1, 2)), ("false", range(5, 100))):
        spark.conf.set(SIMPLIFIED, simplified)
        try:
            with pytest.raises(PySparkException, match="A count does not fit into") as raised:
                frame.collect()
        finally:
            spark.conf.unset(SIMPLIFIED)
        assert str(raised.value).count("\n  File ") in frames


def test_a_missing_path_is_named(spark, tmp_path):
    with pytest.raises(PySparkException, match="There is no snapshot: expected a file _metadata"):
        read(spark, str(tmp_path / "nothing"))


# ------------------------------------------------------------------------------- bootstrap


def bootstrap(spark, frame, path, key="k", **options):
    keyed = OperatorTransformation.bootstrap_with(frame).key_by(key)
    return (
        SavepointWriter.new_savepoint(
            spark, max_parallelism=options.pop("max_parallelism", 128), parallelism=3
        )
        .with_operator(OperatorIdentifier.for_uid("u"), keyed.transform_columns(**options))
        .write(str(path))
    )


@pytest.mark.parametrize("max_parallelism", [3, 128, 300])
def test_what_is_bootstrapped_is_read_back(spark, tmp_path, max_parallelism):
    rows = [
        ("a", 1, 1.5, True, ["x", ""], None),
        ("", -(2**63), float("-inf"), False, None, "ü"),
        ("😀\0", None, None, None, [], "z" * 1000),
    ]
    schema = "k string, n long, d double, b boolean, l array<string>, s string"
    frame = spark.createDataFrame(rows, schema)
    path = bootstrap(spark, frame, tmp_path / "sp", max_parallelism=max_parallelism)
    selected = read(spark, path).select("state_key", "n", "d", "b", "l", "s").collect()
    # An empty array is no list state, as in Flink.
    normalised = [(*row[:4], row[4] or None, row[5]) for row in rows]
    assert sorted(map(tuple, selected)) == sorted(normalised)


@pytest.mark.parametrize(("kind", "keys"), [("long", [0, -1, 2**62]), ("int", [5, -7, 2**31 - 1])])
def test_number_keys(spark, tmp_path, kind, keys):
    frame = spark.createDataFrame([(key, str(key)) for key in keys], f"k {kind}, s string")
    path = bootstrap(spark, frame, tmp_path / "sp")
    assert {row.state_key: row.s for row in read(spark, path).collect()} == {
        key: str(key) for key in keys
    }
    assert Snapshot.load(path)["u"].max_parallelism == 128


def test_types_may_be_given(spark, tmp_path):
    frame = spark.createDataFrame([("a", 7)], "k string, n long")
    path = bootstrap(spark, frame, tmp_path / "sp", types={"n": Types.INT})
    assert Snapshot.load(path)["u"].state_info("n").type == "Integer"
    with pytest.raises(ConfigError, match="no state column 'x'; the DataFrame has: n"):
        bootstrap(spark, frame, tmp_path / "other", types={"x": Types.INT})


def test_two_rows_of_one_key_are_refused_without_showing_it(spark, tmp_path):
    frame = spark.createDataFrame([("secret", 1), ("secret", 2), ("b", 3)], "k string, n long")
    with pytest.raises(DuplicateKeyError, match="a key comes more than once") as raised:
        bootstrap(spark, frame, tmp_path / "sp")
    assert "secret" not in raised.value.message
    with pytest.raises(DuplicateKeyError, match="'secret'"):
        bootstrap(spark, frame, tmp_path / "sp", show_keys=True)
    assert not (tmp_path / "sp" / "_metadata").exists()


def test_a_savepoint_is_not_overwritten(spark, tmp_path):
    frame = spark.createDataFrame([("a", 7)], "k string, n long")
    path = bootstrap(spark, frame, tmp_path / "sp")
    before = Path(path.removeprefix("file:"), "_metadata").read_bytes()
    with pytest.raises(SavepointError, match="A snapshot is already there"):
        bootstrap(spark, frame, tmp_path / "sp")
    assert Path(path.removeprefix("file:"), "_metadata").read_bytes() == before


def test_an_operator_is_added_once(spark):
    frame = spark.createDataFrame([("a", 7)], "k string, n long")
    transformation = OperatorTransformation.bootstrap_with(frame).key_by("k").transform_columns()
    identifier = OperatorIdentifier.for_uid("u")
    writer = SavepointWriter.new_savepoint(spark).with_operator(identifier, transformation)
    with pytest.raises(SavepointError, match="already contains u"):
        writer.with_operator(
            OperatorIdentifier.for_uid_hash(identifier.operator_id.hex), transformation
        )
