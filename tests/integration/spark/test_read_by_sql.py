"""Snapshots as tables of SQL: catalog views, filters, the changelog."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from dstl_core import Snapshot, edit_savepoint
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.savepoint.read.changes import change_lines
from dstl_core.spark.savepoints.data_source import register
from tests.golden_files import GOLDEN, snapshot
from tests.integration.flink.checker import State
from tests.integration.flink.writing import write_savepoint
from tests.integration.spark.reading import open_reader, truth
from tests.integration.spark.writing import UID, bootstrap_with

pytestmark = pytest.mark.spark


def test_metadata_has_the_columns_of_flink(spark):
    rows = open_reader(spark, "a-hashmap-canonical").metadata().collect()
    by_uid = {row["operator-uid"]: row for row in rows}
    keyed = Snapshot.load(snapshot("a-hashmap-canonical"))["a-keyed"]
    assert by_uid["a-keyed"]["operator-uid-hash"] == keyed.operator_id.hex
    assert by_uid["a-keyed"]["operator-total-size-in-bytes"] == keyed.state.state_size
    assert by_uid["a-keyed"]["operator-max-parallelism"] == 128


def test_views_have_the_names_of_flinks_catalog(spark):
    path = str(snapshot("a-hashmap-canonical"))
    names = register(spark, path)
    try:
        assert {"metadata", "uid_a_keyed_keyed", "uid_a_keyed_m_keyed_flat"} <= set(names)
        [row] = spark.sql("SELECT sum(cnt) AS s, count(*) AS n FROM uid_a_keyed_keyed").collect()
        counts = truth("a-hashmap-canonical", "a-keyed", "value", "cnt")
        assert row.s == sum(each["value"] for each in counts)
        flat = spark.sql("SELECT state_key, map_key, map_value FROM uid_a_keyed_m_keyed_flat")
        maps = truth("a-hashmap-canonical", "a-keyed", "map", "m")
        assert flat.count() == sum(len(each["value"]) for each in maps)
        assert spark.sql("SELECT * FROM metadata").count() == 3
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


def test_an_application_as_a_database(spark, tmp_path):
    """Src{os1}, Proc{os2, keyed(ks1, ks2)}: a namespace per operator, a table per kind of state;
    the keyed rows are the keys of ks1 and of ks2, null where one of them has nothing.
    """
    numbers = spark.range(5).selectExpr("id AS os1", "id * 10 AS os2")
    keyed = spark.createDataFrame(
        [("a", 1, None), ("b", 2, "two"), ("c", None, "three")], "k string, ks1 int, ks2 string"
    )
    rows = bootstrap_with(numbers).set_parallelism(2)
    made = (
        SavepointWriter.new_savepoint(spark, 128, 2)
        .with_operator(UID("Src"), rows.transform_columns(list_state={"os1": None}))
        .with_operator(UID("Proc"), bootstrap_with(keyed).key_by("k").transform_columns())
        .with_operator(UID("lists"), rows.transform_columns(list_state={"os2": None}))
        .write(str(tmp_path / "parts"))
    )
    edit = edit_savepoint(Snapshot.load(made)).merge_operators(UID("lists"), UID("Proc"))
    names = register(spark, edit.write(tmp_path / "MyApp"))
    try:
        assert sorted(names) == [
            "metadata",
            "uid_Proc_keyed",
            "uid_Proc_os2_list",
            "uid_Src_os1_list",
        ]
        assert [
            tuple(row) for row in spark.sql("SELECT * FROM uid_Proc_keyed ORDER BY 1").collect()
        ] == [
            ("a", 1, None),
            ("b", 2, "two"),
            ("c", None, "three"),
        ]
        for table, expected in (
            ("uid_Src_os1_list", range(5)),
            ("uid_Proc_os2_list", range(0, 50, 10)),
        ):
            selected = spark.sql(f"SELECT list_value FROM {table}").collect()
            assert sorted(row.list_value for row in selected) == list(expected)
        joined = spark.sql(
            "SELECT state_key FROM uid_Proc_keyed JOIN uid_Src_os1_list ON ks1 = list_value"
        )
        assert sorted(row.state_key for row in joined.collect()) == ["a", "b"]
    finally:
        for name in names:
            spark.catalog.dropTempView(name)


@pytest.fixture
def pushing(spark):
    """A session that pushes filters down."""
    session = spark.newSession()
    register(session, push_filters=True)
    return session


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("state_key = 'key-4'", {"key-4"}),
        ("state_key IN ('key-4', 'key-24', 'nobody')", {"key-4", "key-24"}),
        ("state_key = 'key-4' AND cnt > 0", {"key-4"}),
        ("state_key >= 'key-3' AND state_key < 'key-4'", None),
        ("state_key = 'key-4' OR state_key = 'key-24'", {"key-4", "key-24"}),
        ("state_key = 'key-4' AND state_key = 'key-24'", set()),
        ("state_key = 'nobody'", set()),
    ],
)
def test_filters_on_the_key(spark, pushing, condition, wanted):
    path = str(snapshot("a-hashmap-canonical"))
    everything = {row.state_key for row in spark.read.format("savepoint").load(path).collect()}
    expected = {key for key in everything if "key-3" <= key < "key-4"} if wanted is None else wanted
    assert wanted is None or wanted <= everything
    for session in (spark, pushing):
        frame = session.read.format("savepoint").load(path)
        assert {row.state_key for row in frame.filter(condition).collect()} == expected


def test_queries_over_one_frame_do_not_see_each_others_filters(spark):
    """Spark 4.3.0 keeps what was pushed down with the frame; see ``register``."""
    frame = spark.read.format("savepoint").load(str(snapshot("a-hashmap-canonical")))
    first, second = frame.where("state_key = 'key-4'"), frame.where("state_key = 'key-24'")
    everything = len(list(Snapshot.load(snapshot("a-hashmap-canonical"))["a-keyed"].dump("cnt")))
    assert first.count() == 1
    assert frame.count() == everything
    assert {row.state_key for row in first.union(second).collect()} == {"key-4", "key-24"}
    assert frame.count() == everything


def test_a_key_reads_its_key_group_only(spark, pushing, tmp_path):
    """Damage in every other key group is not met."""

    updates = [
        {"key": f"{number:0200}", "state": "n", "do": "update", "value": number}
        for number in range(2000)
    ]
    path = write_savepoint(tmp_path / "sp", "op", "string", [State("n", "value", "long")], updates)
    [file] = [each for each in path.iterdir() if not each.name.startswith("_")]
    handle = Snapshot.load(path)["op"].keyed_handles[0]
    wanted = f"{7:0200}"
    row = pushing.read.format("savepoint").load(str(path)).filter(F.col("state_key") == wanted)
    kg = next(line["kg"] for line in Snapshot.load(path)["op"].dump() if line["key"] == wanted)
    data = bytearray(file.read_bytes())
    placed = sorted((offset, group) for group, offset in handle.offsets.items())
    for (start, group), (end, _) in zip(placed, [*placed[1:], (len(data), None)], strict=True):
        if group != kg:
            data[start:end] = b"\x01" * (end - start)
    file.write_bytes(data)
    assert [each.n for each in row.collect()] == [7]
    assert [
        selected.n
        for selected in spark.read.format("savepoint")
        .option("key", wanted)
        .load(str(path))
        .collect()
    ] == [7]
    with pytest.raises(PySparkException):
        spark.read.format("savepoint").load(str(path)).collect()


@pytest.mark.parametrize(
    "options",
    [{"fs.s3a.secret.key": "hunter2-xyz"}, {"storage.options": "{'secret': 'hunter2-xyz'}"}],
)
def test_a_secret_in_options_is_refused_and_not_repeated(spark, options):
    path = str(snapshot("a-hashmap-canonical"))
    with pytest.raises(PySparkException) as raised:
        spark.read.format("savepoint").options(**options).load(path).collect()
    assert "has no option" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_the_changelog_as_rows(spark):
    path = str(snapshot("a-hashmap-changelog-multi"))
    base = str(GOLDEN / "a-hashmap-changelog-multi" / "dstl")
    frame = spark.read.format("state-changelog").option("changelog.base", base).load(path)
    rows = frame.collect()
    operator = Snapshot.load(path, changelog_base=base)["a-keyed"]
    expected = list(change_lines(operator, None))
    assert len(rows) == len(expected)
    assert [(r.kg, r.state, r.operation, json.loads(r.value or "null")) for r in rows] == [
        (line["kg"], line["state"], line["operation"], line["value"]) for line in expected
    ]
    since = frame.sparkSession.read.format("state-changelog").option("changelog.base", base)
    assert since.option("since", path).load(path).count() == 0
