"""SavepointWriter: modes, run keys, changes of existing savepoints, comparisons."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from dstl_core import Snapshot
from dstl_core.errors import SavepointError
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.spark.savepoints.savepoint_writer import SavepointWriter
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
    given = tmp_path / "given"
    shutil.copytree(snapshot("a-hashmap-canonical-files"), given)
    frame = spark.createDataFrame([("a", 1)], "k string, n bigint")
    out = (
        SavepointWriter.from_existing_savepoint(spark, str(given))
        .with_operator(UID("new"), bootstrap_with(frame).key_by("k").transform_columns())
        .change_operator_identifier(UID("a-keyed"), UID("renamed"))
        .write(str(tmp_path / "out"))
    )
    shutil.rmtree(given)  # the result needs nothing of it
    found = Snapshot.load(out)
    assert [line["value"] for line in found["new"].dump()] == [1]
    assert found["new"].max_parallelism == 128
    for old, new in zip(
        source["a-keyed"].keyed_handles, found["renamed"].keyed_handles, strict=True
    ):
        assert source.resolver.read(old.stream) == found.resolver.read(new.stream)


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

    found = Snapshot.load(out)["a-keyed"]
    assert as_lines(found.dump()) == as_lines(map(normal, operator.dump()))
    assert Path(out.removeprefix("file:")).is_dir()


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
