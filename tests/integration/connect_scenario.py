"""What a client of Spark Connect does.

    python -m tests.integration.connect_scenario <url> <folder> <bucket>

A process is a client of Spark Connect or it has a Spark of its own, so this one runs by itself.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from dstl_core import Snapshot, edit_savepoint, verify_snapshot
from dstl_core.codec.serializers import Types
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.spark.savepoints.data_source import register
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.spark.savepoints.spark_units import SparkUnits
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob
from dstl_dagster import DstlSparkResource, DstlStorageResource
from tests.golden_files import snapshot
from tests.integration.dagster import small_pipeline


class Sum(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self._total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._total.update((self._total.value() or 0) + value["v"])
        yield {"k": value["k"], "total": self._total.value()}


OUTPUT = pa.schema([("k", pa.string()), ("total", pa.int64())])


def run(url: str, folder: str, bucket: str) -> dict[str, Any]:
    """Everything once; what was seen."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark = DstlSparkResource(remote=url)
    session = spark.spark_session
    register(session)
    seen: dict[str, Any] = {"session": type(session).__module__}

    rows = session.createDataFrame([("a", 1), ("b", 2)], "k string, n long")
    noted = f"{folder}/tags"

    def note_tags(batches: Any) -> Any:
        with open(noted, "a") as notes:
            notes.write(f"{TaskContext.get().getLocalProperty('spark.job.tags')}\n")
        yield from batches

    rows = rows.mapInArrow(note_tags, rows.schema)
    out = f"{folder}/bootstrapped"
    (
        SavepointWriter.new_savepoint(session, max_parallelism=128)
        .with_operator(
            OperatorIdentifier.for_uid("op"),
            OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns(),
        )
        .write(out)
    )
    seen["described"] = "dstl: operator op: encode its rows (1 of 2)" in Path(noted).read_text()
    seen["tags left"] = sorted(session.getTags())
    read = session.read.format("savepoint").option("operator.uid", "op").load(out)
    seen["read"] = sorted(map(tuple, read.select("state_key", "n").collect()))
    session.sql(f"CREATE TEMPORARY VIEW state USING savepoint OPTIONS (path '{out}')")
    selected = session.sql("SELECT n FROM state WHERE state_key = 'b'").collect()
    seen["sql"] = [row["n"] for row in selected]
    keyed = SavepointReader.read(session, out).read_keyed_state(OperatorIdentifier.for_uid("op"))
    seen["reader"] = sorted(map(tuple, keyed.select("state_key", "n").collect()))

    edit = edit_savepoint(Snapshot.load(snapshot("a-rocksdb-native-incremental")))
    edit.with_files("canonical").write(f"{folder}/rewritten", jobs=SparkUnits(session))
    seen["rewritten"] = verify_snapshot(Snapshot.load(f"{folder}/rewritten")).to_json()

    # In a bucket: server and client reach it by the environment, and Spark's JVM does not.
    operator = KeyedOperator("op", "k", Types.STRING, Sum(), OUTPUT)
    job = StatefulJob(session, "job", bucket, operator)
    for epoch in (1, 2):
        batch = session.createDataFrame([("a", epoch), ("c", 10)], "k string, v long")
        output = job.run(batch, epoch, ["v"]).output
        seen["output"] = output is not None and sorted(map(tuple, output.collect()))
    state = session.read.format("savepoint").load(job.savepoint(f"{folder}/savepoint"))
    seen["job"] = sorted(map(tuple, state.select("state_key", "total").collect()))
    changes = session.read.format("state-changelog").load(job.latest_path())
    seen["changes"] = changes.count() > 0

    storage = DstlStorageResource(base_path=f"{folder}/dagster")
    defs = small_pipeline.small_defs(storage)
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize(
            [next(iter(defs.assets or ()))],
            instance=instance,
            partition_key="2026-01-01",
            resources={"storage": storage, "engine": spark},
            raise_on_error=False,
        )
    seen["dagster"] = done.success and sorted(small_pipeline.totals_in(storage).items())
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(*sys.argv[1:])) + "\n")
