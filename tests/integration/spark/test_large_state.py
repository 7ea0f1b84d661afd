"""State of many keys: files grow with the number of keys, memory up to its bound."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.soak]
ROOT = Path(__file__).parents[3]
SIZES = [5_000_000, 20_000_000]
MOST_WORKER_BYTES = 1 << 30
"""What a task may hold of its subtask's records (512 MiB), and as much again for the rest."""

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.spark.savepoints.savepoint_reader import SavepointReader
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from dstl_core.operator_transformation import OperatorTransformation

keys, out = int(sys.argv[1]), sys.argv[2]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.memory", "2g").config("spark.pyspark.python", sys.executable)
    .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
    .getOrCreate()
)
uid = OperatorIdentifier.for_uid("bench")

def write(count, path):
    rows = spark.range(0, count, 1, 2).select(
        F.concat(F.lit("key-"), F.col("id").cast("string")).alias("k"), F.col("id").alias("v")
    )
    made = OperatorTransformation.bootstrap_with(rows).key_by("k").transform_columns()
    SavepointWriter.new_savepoint(spark).with_operator(uid, made).write(path)

def read(path):
    frame = SavepointReader.read(spark, path).read_keyed_state(uid)
    [row] = frame.agg(F.count("state_key").alias("n"), F.sum("v").alias("s")).collect()
    return row.n, row.s

def peaks():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as file:
                lines = dict(line.split(":", 1) for line in file)
            with open(f"/proc/{pid}/cmdline") as file:
                command = file.read()
            with open(f"/proc/{pid}/environ") as file:
                own = f"DSTL_RUN={os.environ['DSTL_RUN']}" in file.read()
        except OSError:
            continue
        if own and "pyspark.daemon" in command:
            found.append(int(lines["VmHWM"].split()[0]) * 1024)
    return found

write(1000, out + "-warm")
read(out + "-warm")
figures = {"keys": keys}
write(keys, out)
assert read(out) == (keys, keys * (keys - 1) // 2)
figures["worker_bytes"] = max(peaks())
figures["savepoint_bytes"] = sum(
    os.path.getsize(os.path.join(out, name)) for name in os.listdir(out)
)
print(json.dumps(figures))
spark.stop()
"""


def measure(keys, folder):
    program = folder / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    out = folder / f"sp-{keys}"
    done = subprocess.run(
        [sys.executable, program, str(keys), out],
        env=os.environ | {"PYTHONPATH": str(ROOT), "DSTL_RUN": str(out)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_files_grow_with_the_keys_and_memory_stays_bounded(tmp_path, capsys):
    small, large = (measure(keys, tmp_path) for keys in SIZES)
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(small)}\n{json.dumps(large)}\n")
    growth = SIZES[1] / SIZES[0]
    assert large["savepoint_bytes"] <= 1.1 * growth * small["savepoint_bytes"]
    assert large["worker_bytes"] <= MOST_WORKER_BYTES
