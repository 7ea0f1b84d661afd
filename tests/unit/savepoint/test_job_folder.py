"""The folder of a job: which checkpoint is the newest one, and how its state grew."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, Snapshot, StatefulJob, aggregates
from dstl_core.savepoint.folders.job_folder import JobFolder
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.savepoint.report.page import report_page
from tests.command_line import run
from tests.golden_files import snapshot

__all__ = ["run"]


def payments(base: Path) -> StatefulJob:
    totals = AggregateOperator(
        "totals", "account", {"total": aggregates.sum("amount")}, schema="account int, amount long"
    )
    return StatefulJob(LocalEngine(), "payments", str(base), totals, num_retained=1)


def rows(count: int) -> pa.Table:
    numbers = range(count)
    return pa.table({"account": pa.array(numbers, pa.int32()), "amount": pa.array(numbers)})


def test_a_pipeline_is_its_last_commit_and_its_log_says_how_it_grew(tmp_path: Path) -> None:
    job = payments(tmp_path)
    sizes = []
    for day, count in enumerate([100, 2000, 300], 1):
        job.run(rows(count), input_id=day)
        size = job.state_size()
        sizes.append(size.materialized + size.log)
    job.materialize()
    sizes.append(job.state_size().materialized)
    for place in (tmp_path / "payments", job.path):
        folder = JobFolder.at(place)
        assert folder is not None
        assert str(folder.newest()) == job.latest_path().replace("file://", "file:")
    figures = report_figures(Snapshot.load(job.latest_path()))
    history = figures["history"]
    assert [point["checkpoint_id"] for point in history] == [1, 2, 3, 4, 5]
    assert [point["bytes"] for point in history[1:]] == sizes
    page = report_page(figures)
    assert "Bytes of state over 5 checkpoints" in page
    assert page.count('class="line"') == 1


@pytest.fixture
def flink_job(tmp_path: Path) -> Path:
    """Checkpoints of a job of Flink, of which one is being written."""
    for number, name in {9: "e-ttl-hashmap", 10: "a-hashmap-canonical"}.items():
        shutil.copytree(snapshot(name), tmp_path / f"chk-{number}")
    (tmp_path / "chk-11").mkdir()
    (tmp_path / "shared").mkdir()
    return tmp_path


def test_a_job_of_flink_is_its_highest_number_with_metadata(flink_job: Path) -> None:
    folder = JobFolder.at(flink_job)
    assert folder is not None
    newest = folder.newest()
    assert newest is not None
    assert newest.path == str(flink_job / "chk-10")
    history = report_figures(Snapshot.load(flink_job / "chk-10"))["history"]
    assert [point["checkpoint_id"] for point in history] == [9, 10]
    assert history[1]["bytes"] == 22157
    assert len(report_figures(Snapshot.load(flink_job / "chk-9"))["history"]) == 1
    (flink_job / "chk-9" / "_metadata").write_bytes(b"damaged")
    assert len(folder.history(10)) == 1


def test_commands_take_the_folder_of_a_job(flink_job: Path, run: Any) -> None:
    whole = run("dump", str(flink_job / "chk-10"), "--op", "a-keyed", "--state", "cnt")
    assert whole.code == 0
    assert run("dump", str(flink_job), "--op", "a-keyed", "--state", "cnt").out == whole.out
    shutil.rmtree(flink_job / "chk-9")
    shutil.rmtree(flink_job / "chk-10")
    assert "There is no snapshot" in run("dump", str(flink_job)).err


@pytest.mark.parametrize("name", ["snapshot", "empty", "missing"])
def test_other_folders_are_no_jobs(tmp_path: Path, name: str) -> None:
    shutil.copytree(snapshot("a-hashmap-canonical"), tmp_path / "snapshot")
    (tmp_path / "empty").mkdir()
    assert JobFolder.at(tmp_path / name) is None
