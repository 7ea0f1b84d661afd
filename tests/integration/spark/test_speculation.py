"""Speculative attempts, for real: on a cluster of two hosts, Spark starts a slow task a second time
while the first attempt still runs, and both write.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.check.gc import collect_garbage
from dstl_core.savepoint.check.verify import verify_snapshot
from tests.integration.spark.standalone_cluster import HOSTS, StandaloneCluster
from tests.integration.spark.test_task_failures import make_old

pytestmark = [pytest.mark.spark, pytest.mark.soak]
ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("speculated_write.py")


def test_speculative_attempts_run_and_savepoints_are_exact(tmp_path):
    out, events = tmp_path / "out", tmp_path / "events"
    events.mkdir()
    cluster = StandaloneCluster(tmp_path)
    try:
        done = subprocess.run(
            [sys.executable, PROGRAM, cluster.url, out, events],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
    finally:
        cluster.close()
    assert done.returncode == 0, done.stderr[-3000:]

    for slow, speculative in attempts_of_the_slow_tasks(events):
        assert (slow["Attempt"], slow["Speculative"]) == (0, False)
        assert (speculative["Attempt"], speculative["Speculative"]) == (1, True)
        assert {slow["Host"], speculative["Host"]} == set(HOSTS)
        assert slow["Launch Time"] < speculative["Launch Time"] < slow["Finish Time"]
        assert slow["Killed"] != speculative["Killed"], "one of them was given up"
        assert not slow["Failed"] and not speculative["Failed"]

    make_old(out)
    for folder in (out / "columns", out / "function"):
        found = Snapshot.load(folder)
        assert verify_snapshot(found).findings == []
        values = {line["key"]: line["value"] for line in found["op"].dump()}
        assert values == {f"key-{number}": number for number in range(4000)}
        named = {handle.stream.relative_path for handle in found["op"].keyed_handles}
        left = {path.name for path in folder.iterdir()} - named - {"_metadata", "_dstl.json"}
        assert left or folder.name == "columns", "both attempts have written"
        garbage = collect_garbage(str(folder), delete=True).garbage
        assert {each.location.name for each in garbage} == left
        assert verify_snapshot(Snapshot.load(folder)).findings == []


def attempts_of_the_slow_tasks(events):
    """Both attempts of both tasks that wait for a second one, by Spark's event log: those that took
    longest. On a busy machine, others may be started twice, too.
    """
    [log] = events.glob("app-*")
    found = {}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            task = event["Task Info"]
            found.setdefault((event["Stage ID"], task["Index"]), []).append(task)
    twice = [sorted(each, key=lambda t: t["Attempt"]) for each in found.values() if len(each) > 1]
    assert len(twice) >= 2, "Spark did not speculate"
    return sorted(twice, key=lambda tasks: tasks[0]["Launch Time"] - tasks[0]["Finish Time"])[:2]
