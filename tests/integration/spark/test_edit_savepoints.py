"""SavepointWriter: modes, run keys, changes of existing savepoints, comparisons."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from tests.golden_files import as_lines, snapshot
from tests.integration.spark.writing import UID, bootstrap_with, write

pytestmark = pytest.mark.spark


def test_modes_and_run_keys(spark, tmp_path):
    def rows(number):
        frame = spark.createDataFrame([("a", number)], "k string, n bigint")
        return bootstrap_with(frame).key_by("k").transform_columns()

    def value():
        return next(iter(Snapshot.load(tmp_path / "sp")["op"].dump()))["value"]

    write(spark, tmp_path / "sp", "op", rows(1), run_key="r1")
    write(spark, tmp_path / "sp", "op", rows(2), run_key="r1")
    assert value() == 1, "the same run does nothing the second time"
    with pytest.raises(SavepointError, match="already there"):
        write(spark, tmp_path / "sp", "op", rows(3))
    write(spark, tmp_path / "sp", "op", rows(4), mode="overwrite")
    assert value() == 4


def test_an_operator_is_added_to_an_existing_savepoint(spark, tmp_path):
    source = Snapshot.load(snapshot("a-hashmap-canonical-files"))
    source_folder = tmp_path / "given"
    shutil.copytree(snapshot("a-hashmap-canonical-files"), source_folder)
    frame = spark.createDataFrame([("a", 1)], "k string, n bigint")
    out = (
        SavepointWriter.from_existing_savepoint(spark, str(source_folder))
        .with_operator(UID("new"), bootstrap_with(frame).key_by("k").transform_columns())
        .change_operator_identifier(UID("a-keyed"), UID("renamed"))
        .write(str(tmp_path / "out"))
    )
    shutil.rmtree(source_folder)  # the result needs nothing of it
    written = Snapshot.load(out)
    assert [line["value"] for line in written["new"].dump()] == [1]
    assert written["new"].max_parallelism == 128
    for old, new in zip(
        source["a-keyed"].keyed_handles, written["renamed"].keyed_handles, strict=True
    ):
        assert source.resolver.read(old.stream) == written.resolver.read(new.stream)


def test_a_value_is_fixed_in_one_pipeline(spark, tmp_path):
    """Query, fix and write: negative counts become 0, everything else stays."""
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    operator = source["a-keyed"]
    frame = SavepointReader.read(spark, str(source.folder)).read_keyed_state("a-keyed")
    fixed = frame.withColumn("red", F.greatest(F.col("red"), F.lit(0)))
    rows = bootstrap_with(fixed).key_by("state_key")
    out = (
        SavepointWriter.from_existing_savepoint(spark, source)
        .remove_operator(UID("a-keyed"))
        .with_operator(
            UID("a-keyed"),
            rows.transform_columns(
                template=operator,
                event_time_timers="event_time_timers",
                processing_time_timers="processing_time_timers",
            ),
        )
        .write(str(tmp_path / "out"))
    )

    def normal(line):
        return line | {"value": max(line["value"], 0)} if line.get("state") == "red" else line

    written = Snapshot.load(out)["a-keyed"]
    assert as_lines(written.dump()) == as_lines(map(normal, operator.dump()))
    assert Path(out.removeprefix("file:")).is_dir()


TIMERS = {
    "event_time_timers": "event_time_timers",
    "processing_time_timers": "processing_time_timers",
}
EXACT = ColumnOptions(strings="utf16", timestamps="exact")


def keys_with_groups(spark, uid):
    """An operator of a savepoint with its rows, the key group of each beside it."""
    source = Snapshot.load(snapshot("x-keys-hashmap"))
    names = [
        "state_key",
        "key_group",
        *(info.name for info in source[uid].states if not info.kind.endswith("timer")),
        *TIMERS,
    ]
    frame = SavepointReader.read(spark, str(source.folder), types=EXACT).read_keyed_state(
        uid, columns=names
    )
    return source, frame


def test_keys_of_any_type_are_fixed_in_place(spark, tmp_path):
    """A class, whose hash dstl does not know, and times in nanoseconds."""
    source = Snapshot.load(snapshot("x-keys-hashmap"))
    writer = SavepointWriter.from_existing_savepoint(spark, source)
    for uid in ("k-pojo", "k-instant"):
        _, frame = keys_with_groups(spark, uid)
        fixed = frame.withColumn("l", F.transform("l", lambda number: number + 1))
        writer = writer.remove_operator(UID(uid)).with_operator(
            UID(uid),
            bootstrap_with(fixed)
            .key_by("state_key")
            .transform_columns(
                template=source[uid], options=EXACT, key_groups="key_group", **TIMERS
            ),
        )
    written = Snapshot.load(writer.write(str(tmp_path / "out")))

    def normal(line):
        return line | {"value": [x + 1 for x in line["value"]]} if line["kind"] == "list" else line

    for uid in ("k-pojo", "k-instant"):
        before = [normal(line) for line in source[uid].dump()]
        assert any(line["kind"] == "list" for line in before)
        assert as_lines(written[uid].dump()) == as_lines(before)


@pytest.mark.parametrize(
    ("uid", "groups", "problem"),
    [
        ("k-instant", "5", "a key belongs into another key group than its row says"),
        ("k-pojo", "128", "expected 0..127 in every row"),
        ("k-pojo", "cast(null as int)", "expected 0..127 in every row"),
    ],
)
def test_key_groups_that_cannot_be_right(spark, tmp_path, uid, groups, problem):
    source, frame = keys_with_groups(spark, uid)
    keyed = bootstrap_with(frame.withColumn("key_group", F.expr(groups))).key_by("state_key")
    rows = keyed.transform_columns(
        template=source[uid], options=EXACT, key_groups="key_group", **TIMERS
    )
    with pytest.raises(ConfigError, match=problem):
        write(spark, tmp_path / "out", uid, rows)


def test_key_groups_of_another_number(spark, tmp_path):
    source, frame = keys_with_groups(spark, "k-pojo")
    keyed = bootstrap_with(frame).key_by("state_key")
    with pytest.raises(ConfigError, match="key_groups needs template"):
        keyed.transform_columns(key_groups="key_group")
    rows = keyed.transform_columns(template=source["k-pojo"], options=EXACT, key_groups="key_group")
    with pytest.raises(ConfigError, match="max parallelism 128, and the savepoint has 64"):
        write(spark, tmp_path / "out", "k-pojo", rows, max_parallelism=64)


def test_two_snapshots_as_a_difference_and_as_a_history(spark, tmp_path):
    paths = []
    for number, rows in enumerate([[("a", 1), ("b", 2)], [("a", 1), ("b", 3), ("c", 4)]]):
        frame = spark.createDataFrame(rows, "k string, n bigint")
        paths.append(str(tmp_path / str(number)))
        write(spark, paths[-1], "op", bootstrap_with(frame).key_by("k").transform_columns())
    reader = SavepointReader.read(spark, paths[0])
    rows = reader.diff(paths[1]).collect()
    assert {(row.change, row.op, row.key, row.before, row.after) for row in rows} == {
        ("changed", "op", '"b"', "2", "3"),
        ("added", "op", '"c"', None, "4"),
    }
    history = reader.read_history(paths[1:], "op").collect()
    assert {(row.snapshot, row.state_key, row.n) for row in history} == {
        (paths[0], "a", 1),
        (paths[0], "b", 2),
        (paths[1], "a", 1),
        (paths[1], "b", 3),
        (paths[1], "c", 4),
    }
