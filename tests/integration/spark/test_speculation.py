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
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.integration.spark.job_functions import plain, random_batch
from tests.integration.spark.standalone_cluster import HOSTS, StandaloneCluster
from tests.integration.spark.test_task_failures import make_old

pytestmark = [pytest.mark.spark, pytest.mark.soak]
ROOT = Path(__file__).parents[3]


def run_on_cluster(program, folder, out, events):
    """Runs a program on two hosts."""
    events.mkdir()
    cluster = StandaloneCluster(folder)
    try:
        done = subprocess.run(
            [sys.executable, Path(__file__).with_name(program), cluster.url, out, events],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        cluster.close()
    assert done.returncode == 0, done.stderr[-3000:]


def test_speculative_attempts_run_and_savepoints_are_exact(tmp_path):
    out, events = tmp_path / "out", tmp_path / "events"
    run_on_cluster("speculated_write.py", tmp_path, out, events)

    for slow, speculative in attempts_of_the_slow_tasks(events):
        assert (slow["Attempt"], slow["Speculative"]) == (0, False)
        assert (speculative["Attempt"], speculative["Speculative"]) == (1, True)
        assert {slow["Host"], speculative["Host"]} == set(HOSTS)
        assert slow["Launch Time"] < speculative["Launch Time"] < slow["Finish Time"]
        assert slow["Killed"] != speculative["Killed"], "one of them was given up"
        assert not slow["Failed"] and not speculative["Failed"]

    make_old(out)
    for folder in (out / "columns", out / "function"):
        written = Snapshot.load(folder)
        assert verify_snapshot(written).findings == []
        values = {line["key"]: line["value"] for line in written["op"].dump()}
        assert values == {f"key-{number}": number for number in range(4000)}
        named = {handle.stream.relative_path for handle in written["op"].keyed_handles}
        left = {path.name for path in folder.iterdir()} - named - {"_metadata", "_dstl.json"}
        assert left or folder.name == "columns", "both attempts have written"
        garbage = collect_garbage(str(folder), delete=True).garbage
        assert {each.location.name for each in garbage} == left
        assert verify_snapshot(Snapshot.load(folder)).findings == []


def test_an_attempt_that_writes_after_the_commit_changes_nothing(tmp_path):
    out, events = tmp_path / "out", tmp_path / "events"
    run_on_cluster("speculated_job.py", tmp_path, out, events)
    jobs = json.loads((events / "seen.json").read_bytes())
    assert jobs.keys() == {"row", "column", "tables", "database"}
    for slow, speculative in attempts_of_the_slow_tasks(events, count=len(jobs)):
        assert (slow["Attempt"], speculative["Attempt"]) == (0, 1)
        assert not slow["Speculative"] and speculative["Speculative"]
        assert slow["Killed"] and not speculative["Killed"] and not speculative["Failed"]

    batches = [random_batch(number) for number in range(1, 5)]
    make_old(out)
    for kind, job in jobs.items():
        assert [epoch["retries"] > 0 for epoch in job["epochs"]] == [False, True, False, False]
        for number, epoch in enumerate(job["epochs"], 1):
            expected = outputs_of(batches[:number], each_row=kind != "column")
            assert epoch["output"] == [expected] * 2
        assert states_of(job["path"]) == plain(batches)
        assert verify_snapshot(Snapshot.load(job["path"])).findings == []
        folder = Path(job["path"].removeprefix("file:")).parent
        kept = collect_garbage(str(folder), delete=True).kept
        assert kept["of a live claim"] >= 2, "the slow attempt wrote nothing"


def states_of(path):
    by_key = {}
    for line in Snapshot.load(path)["totals"].dump():
        by_key.setdefault(line["key"], {})[line["state"]] = line["value"]
    return {key: (states["total"], states.get("last")) for key, states in by_key.items()}


def outputs_of(batches, *, each_row):
    """The output of the last batch, by hand: the running sums, or those after it."""
    sums, output = {}, []
    for rows in batches:
        output = []
        for key, value, _ in sorted(rows, key=lambda row: row[1]):
            sums[key] = sums.get(key, 0) + value
            output.append([key, sums[key]])
    return sorted(output if each_row else [[key, sums[key]] for key in {key for key, _ in output}])


def attempts_of_the_slow_tasks(events, count=2):
    """Both attempts of the tasks that wait for a second one, by Spark's event log: those that took
    longest. On a busy machine, others may be started twice, too.
    """
    [log] = events.glob("app-*")
    attempts = {}
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerTaskEnd":
            task = event["Task Info"]
            attempts.setdefault((event["Stage ID"], task["Index"]), []).append(task)
    twice = [
        sorted(tasks, key=lambda t: t["Attempt"]) for tasks in attempts.values() if len(tasks) > 1
    ]
    assert len(twice) >= count, "Spark did not speculate"
    longest = sorted(twice, key=lambda tasks: tasks[0]["Launch Time"] - tasks[0]["Finish Time"])
    return longest[:count]
