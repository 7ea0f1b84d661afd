"""Values that only the classes of a job explain: with its jar, ``dump`` shows what Flink holds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.command_line import run
from tests.golden_files import UPGRADE_JOBS

__all__ = ["run"]

JOBS = sorted(path for path in UPGRADE_JOBS.iterdir() if path.is_dir())


def savepoint(job: Path) -> Path:
    [folder] = job.glob("savepoint-*")
    return folder


def plain(value: Any) -> Any:
    """Without ``@class``, which truth leaves out of elements, and dates as truth has them."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if name != "@class"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, str) and value.startswith("2023-11-14T22:13:20."):
        return 1700000000000 + int(value[20:23])
    return value


def lines(entries: list[dict[str, Any]]) -> Counter[str]:
    # Metadata of version 4 has no uids; all state but that of the source is of one operator.
    return Counter(
        json.dumps({**plain(entry), "op": ""}, sort_keys=True)
        for entry in entries
        if entry.get("state") != "SourceReaderState"
    )


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_with_the_jar_every_value_is_what_flink_holds(job: Path) -> None:
    snapshot = Snapshot.load(savepoint(job), jars=[job / "job.jar"])
    read = [json.loads(json.dumps(line)) for each in snapshot.operators for line in each.dump()]
    truth = json.loads((job / "truth.json").read_bytes())["entries"]
    assert lines(read) == lines(truth)
    assert all(not each.unreadable() for each in snapshot.operators)


def test_dump_takes_the_jar_and_asks_for_it(run: Any) -> None:
    job = UPGRADE_JOBS / "sessions"
    path = str(savepoint(job))
    without = run("dump", path, "--state", "session")
    assert without.code == 0
    assert "Class sessions.Session of the job is needed" in without.err
    assert "--jar" in without.err
    ran = run("dump", path, "--state", "session", "--jar", str(job / "job.jar"))
    assert (ran.code, ran.err) == (0, "")
    assert sorted(line["value"]["start"] for line in ran.lines) == list(range(8))


def test_a_jar_that_is_not_there_is_one_sentence(run: Any) -> None:
    path = str(savepoint(UPGRADE_JOBS / "orders"))
    ran = run("dump", path, "--jar", "/nowhere/job.jar")
    assert ran.code == 2
    assert "The jar does not exist" in ran.err


def test_diff_reads_values_of_the_job_with_its_jar(run: Any, tmp_path: Path) -> None:
    job = UPGRADE_JOBS / "registered"
    path, jar, out = str(savepoint(job)), str(job / "job.jar"), str(tmp_path / "out")
    assert run("rewrite", path, out, "--jar", jar).code == 0
    assert run("diff", path, out, "--jar", jar).code == 0
    upgraded = str(tmp_path / "upgraded")
    assert run("upgrade", path, upgraded, "--jar", jar).code == 0
    # Kryo 5 stores the same values as other bytes; with the jar, values are compared.
    assert run("diff", path, upgraded).code == 1
    assert run("diff", path, upgraded, "--jar", jar).code == 0
