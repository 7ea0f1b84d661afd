"""What Spark's UI says of the jobs that write a savepoint, as tasks see it."""

import pytest
from pyspark import TaskContext

from dstl_core.codec.serializers import Types
from dstl_core.errors import DuplicateKeyError
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from tests.integration.spark.writing import bootstrap_with

pytestmark = pytest.mark.spark
PROPERTY = "spark.job.description"


def note_down(path):
    """Makes a stage of rows that writes down the description of its job."""

    def rows(batches):
        with open(path, "a") as notes:
            notes.write(f"{TaskContext.get().getLocalProperty(PROPERTY)}\n")
        yield from batches

    return rows


class Fill(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))

    def process_element(self, value, ctx):
        self.n.update(value["n"])


@pytest.mark.parametrize("before", [None, "the user's own"])
def test_jobs_of_a_bootstrap_are_described(spark, tmp_path, before):
    context = spark.sparkContext
    noted = tmp_path / "noted"
    rows = spark.range(10).selectExpr("id AS k", "id AS n")
    rows = rows.coalesce(1).mapInArrow(note_down(noted), rows.schema)
    columns = bootstrap_with(rows).key_by("k").transform_columns()
    function = bootstrap_with(rows).key_by("k").transform(Fill())
    lists = bootstrap_with(rows).transform_columns(list_state={"n": None})
    uid = OperatorIdentifier.for_uid
    writer = (
        SavepointWriter.new_savepoint(spark, 128, 1)
        .with_operator(uid("accounts"), columns)
        .with_operator(uid("totals"), function)
        .with_operator(OperatorIdentifier.for_uid_hash("0" * 32), lists)
    )
    context.setLocalProperty(PROPERTY, before)
    try:
        writer.write(str(tmp_path / "sp-secret"))
        assert context.getLocalProperty(PROPERTY) == before
    finally:
        context.setLocalProperty(PROPERTY, None)

    assert sorted(set(noted.read_text().splitlines())) == [
        f"dstl: operator {'0' * 32}: write its operator state",
        "dstl: operator accounts: encode its rows (1 of 2)",
        "dstl: operator totals: run its function and write its state",
    ]


def test_the_description_is_taken_back_after_an_error(spark, tmp_path):
    context = spark.sparkContext
    twice = spark.createDataFrame([("a", 1), ("a", 2)], "k string, n int").coalesce(1)
    columns = bootstrap_with(twice).key_by("k").transform_columns(show_keys=True)
    writer = SavepointWriter.new_savepoint(spark, 128, 1)
    context.setLocalProperty(PROPERTY, "before")
    try:
        with pytest.raises(DuplicateKeyError, match="'a'"):
            writer.with_operator(OperatorIdentifier.for_uid("op"), columns).write(
                str(tmp_path / "sp")
            )
        assert context.getLocalProperty(PROPERTY) == "before"
    finally:
        context.setLocalProperty(PROPERTY, None)
