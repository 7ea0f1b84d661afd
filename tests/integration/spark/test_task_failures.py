"""A savepoint is exact whatever happens to the tasks that write it; gc finds their leftovers."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.codec.state_meta import (
    KeyedBackendHeader,
    KeyedStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.job.task.reports import SubtaskReport
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.bootstrap.column_runs import ColumnRuns, StateColumns
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.spark.savepoints.column_stages import _EncodeRuns, _index_of, _MergeRuns
from tests.job_files import make_old

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, sys
from pyspark import TaskContext
from pyspark.sql import SparkSession, functions as F
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.functions import KeyedStateBootstrapFunction
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.codec.serializers import Types

master, base = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.pyspark.python", sys.executable)
    .config("spark.executor.extraJavaOptions", os.environ["SPARK_DAEMON_JAVA_OPTS"])
    .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    .getOrCreate()
)

def die(form):
    open(f"{base}/died {form}", "w").close()
    os._exit(3)

def dies_once(batches):
    for batch in batches:
        yield batch
        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            die("columns")

class Fill(KeyedStateBootstrapFunction):
    def open(self, context):
        self.n = context.get_state(ValueStateDescriptor("n", Types.LONG))
        self.seen = 0
    def process_element(self, value, ctx):
        self.n.update(value["n"])
        self.seen += 1
        context = TaskContext.get()
        first = context.attemptNumber() == 0 and not os.path.exists(f"{base}/died function")
        if self.seen == 100 and first:
            die("function")

numbers = spark.range(0, 4000, 1, 4)
rows = numbers.select(F.format_string("key-%d", "id").alias("k"), F.col("id").alias("n"))
keyed = OperatorTransformation.bootstrap_with
forms = {
    "columns": keyed(rows.mapInArrow(dies_once, rows.schema)).key_by("k").transform_columns(),
    "function": keyed(rows).key_by("k").transform(Fill()),
}
for form, made in forms.items():
    writer = SavepointWriter.new_savepoint(spark, 128, 3)
    writer.with_operator(OperatorIdentifier.for_uid("op"), made).write(f"{base}/{form}")
spark.stop()
"""


@pytest.mark.parametrize(
    "master",
    ["local[2,4]", pytest.param("local-cluster[2,1,1024]", marks=pytest.mark.soak)],
)
def test_a_killed_task_is_retried_and_the_savepoint_is_exact(tmp_path, master):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    base = tmp_path / "base"
    base.mkdir()
    done = subprocess.run(
        [sys.executable, program, master, base],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    left = set()
    make_old(base)
    for form in ("columns", "function"):
        assert (base / f"died {form}").exists(), f"no task was killed: {form}"
        written = Snapshot.load(base / form)["op"]
        values = {line["key"]: line["value"] for line in written.dump()}
        assert values == {f"key-{number}": number for number in range(4000)}
        named = {"_metadata", "_dstl.json"} | {
            handle.stream.relative_path
            for handle in written.keyed_handles
            if hasattr(handle.stream, "relative_path")
        }
        left |= {path.name for path in (base / form).iterdir()} - named
    assert {each.location.name for each in collect_garbage(str(base)).garbage} == left


def test_tasks_that_run_twice_leave_only_what_gc_finds(tmp_path):
    """Speculation: both attempts of every task write, and the driver takes one report of each."""
    meta = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG)
    states = (StateColumns(meta, {"n": "n"}, joined=True),)
    runs = ColumnRuns("k", Types.STRING, states)
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "k": [f"k{n}" for n in range(first, first + 3000)],
                "n": list(range(first, first + 3000)),
            }
        )
        for first in (0, 3000, 6000)
    ]
    folder = SavepointFolder(tmp_path / "sp")
    encode = _EncodeRuns(runs, str(folder.folder), 128)
    attempts = [[list(encode([batch])) for batch in batches] for _ in range(2)]
    # The first attempt of the first task won, the second one of the others.
    taken = [attempts[0][0], attempts[1][1], attempts[1][2]]
    rows = [Row(**row) for part in taken for each in part for row in each.to_pylist()]
    merge = _MergeRuns(
        str(folder.folder),
        KeyedBackendHeader(Types.STRING, (meta,)),
        2,
        128,
        _index_of(rows),
        "canonical",
    )
    numbers = pa.RecordBatch.from_pydict({"id": [0, 1]})
    reports = [list(merge([numbers])) for _ in range(2)][1]
    subtasks = [SubtaskReport.of(Row(**row.to_pylist()[0])).subtask_state for row in reports]
    operator = OperatorState(OperatorID.for_uid("op"), 2, 128, tuple(subtasks), uid="op")
    folder.publish(CheckpointMetadata(3, 0, (operator,)), {})

    written = Snapshot.load(tmp_path / "sp")
    values = {line["key"]: line["value"] for line in written["op"].dump()}
    assert values == {f"k{n}": n for n in range(9000)}
    make_old(tmp_path)
    names = {path.name for path in (tmp_path / "sp").iterdir()}
    named = {each.stream.relative_path for each in written["op"].keyed_handles}
    report = collect_garbage(str(tmp_path), delete=True)
    assert {each.location.name for each in report.garbage} == names - named - {
        "_metadata",
        "_dstl.json",
    }
    assert len(report.garbage) == 6 + 2
    assert {line["key"] for line in Snapshot.load(tmp_path / "sp")["op"].dump()} == values.keys()


class Row(dict):
    """What Spark's rows offer."""

    def __getattr__(self, name):
        return self[name]

    def asDict(self, recursive=False):  # Spark's names
        return dict(self)
