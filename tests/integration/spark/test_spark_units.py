"""Units of savepoints on Spark: the bytes and the answers of one process. And what may happen to a
rewriting, on each of the three runners.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dstl_core import Snapshot, verify_snapshot
from dstl_core.errors import (
    ConfigError,
    DstlError,
    SavepointError,
    StateFileNotFoundError,
    StorageError,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.compare.diff import diff_snapshots
from dstl_core.savepoint.edit import keyed_units, rewriting
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.write import work_record
from dstl_core.spark.savepoints import spark_units
from dstl_core.spark.savepoints.spark_units import SparkUnits
from dstl_core.state.columns import keyed_sections
from tests.full_disk import full_disk
from tests.golden_files import snapshot
from tests.integration.spark.kill_rewriting import MANY, Noted

pytestmark = pytest.mark.spark
SOURCE = "a-rocksdb-native-incremental"


@pytest.fixture(autouse=True)
def _several_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (keyed_units, entry_reader):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", 40_000)
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: "a1" * size)


def _tree(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize("max_parallelism", [None, 200])
@pytest.mark.parametrize("workers", [1, MANY])
def test_a_rewriting_has_the_same_bytes(
    spark: SparkSession,
    max_parallelism: int | None,
    workers: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker writes whole streams, or many share the units of one."""
    monkeypatch.setattr(SparkUnits, "workers", workers)
    edit = edit_savepoint(Snapshot.load(snapshot(SOURCE))).with_files("canonical")
    if max_parallelism is not None:
        edit = edit.with_max_parallelism(max_parallelism)
    edit.write(tmp_path / "expected")
    edit.write(tmp_path / "out", jobs=SparkUnits(spark))
    assert _tree(tmp_path / "out") == _tree(tmp_path / "expected")


def test_answers_are_those_of_one_process(spark: SparkSession) -> None:
    one, two = (Snapshot.load(snapshot(name)) for name in (SOURCE, "a-rocksdb-canonical"))
    runner = SparkUnits(spark)
    assert verify_snapshot(one, jobs=runner).to_json() == verify_snapshot(one).to_json()
    compared = [each.to_json() for each in diff_snapshots(one, two, jobs=runner)]
    assert compared == [each.to_json() for each in diff_snapshots(one, two)]


def test_light_units_share_spark_jobs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster may have more cores than the session says, and a job has a start and an end."""
    monkeypatch.setattr(spark_units, "_JOB_SECONDS", 1e9)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    units = [Unit(0, KeyGroupRange(number, number), 1) for number in range(200)]
    done = list(SparkUnits(spark)(_first_key_group, units))
    assert done == [(unit, unit.key_groups.start_key_group) for unit in units]
    assert len(set(tracker.getJobIdsForGroup(None)) - before) <= 5


def test_jobs_with_large_results_stay_small(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_units, "_MOST_RESULT_BYTES", 10)
    tracker = spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    cores = spark.sparkContext.defaultParallelism
    units = [Unit(0, KeyGroupRange(number, number), 1) for number in range(16 * cores)]
    assert len(list(SparkUnits(spark)(_first_key_group, units))) == len(units)
    assert len(set(tracker.getJobIdsForGroup(None)) - before) == 4


def _first_key_group(unit: Unit) -> int:
    return unit.key_groups.start_key_group


class _Changed:
    """Runs units as another runner does. Something happens once, in a unit that begins when another
    one of the output is recorded.
    """

    workers = MANY

    def __init__(self, runner: Any, out: Path, happens: Callable[[], None]) -> None:
        self._runner, self._out, self._happens = runner, out, happens

    def __call__(self, task: Callable[[Unit], Any], units: Sequence[Unit]) -> Any:
        out, happens = self._out, self._happens

        def changed(unit: Unit) -> Any:
            if any((out / work_record.WORK_FOLDER).glob("unit-*")):
                with suppress(FileExistsError):
                    out.with_name("happened").touch(exist_ok=False)
                    happens()
            return task(unit)

        return run_units(changed, units, self._runner)


@pytest.fixture(params=["one process", "a pool", "spark"])
def runner(request: pytest.FixtureRequest) -> Any:
    if request.param != "spark":
        return 1 if request.param == "one process" else 2
    return SparkUnits(request.getfixturevalue("spark"))


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], SavepointEdit]:
    """Makes the edit of a copy; a part of it that is done is kept."""
    monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)
    shutil.copytree(snapshot(SOURCE), tmp_path / "source")
    loaded = Snapshot.load(tmp_path / "source")
    edit_savepoint(loaded).with_files("canonical").write(tmp_path / "expected")
    return lambda: edit_savepoint(Snapshot.load(tmp_path / "source")).with_files("canonical")


def test_a_source_that_goes_half_way_is_said_and_the_work_goes_on(
    runner: Any, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    source, away, out = tmp_path / "source", tmp_path / "away", tmp_path / "out"

    def goes() -> None:
        source.rename(away)

    with pytest.raises(StateFileNotFoundError, match="source"):
        edit().write(out, jobs=_Changed(runner, out, goes))
    assert (out / work_record.WORK_FOLDER).is_dir()
    away.rename(source)
    edit().write(out, jobs=runner)
    assert _tree(out) == _tree(tmp_path / "expected")


def test_one_of_two_runs_on_one_output_is_refused(
    runner: Any, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    out, refused = tmp_path / "out", []

    def other(done: int) -> None:
        with pytest.raises(SavepointError, match=r"Another run writes .*out: wait"):
            edit().write(out, jobs=runner)
        refused.append(done)

    edit().write(out, jobs=runner, on_progress=other)
    assert refused
    assert _tree(out) == _tree(tmp_path / "expected")


@pytest.mark.parametrize("runner", ["a pool", "spark"], indirect=True)
def test_a_worker_that_dies_costs_its_unit(
    runner: Any, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    out = tmp_path / "out"

    def dies() -> None:
        os._exit(1)

    with pytest.raises(DstlError, match=r"was killed|did not finish"):
        edit().write(out, jobs=_Changed(runner, out, dies))
    assert any((out / work_record.WORK_FOLDER).glob("unit-*"))
    edit().write(out, jobs=runner)
    assert _tree(out) == _tree(tmp_path / "expected")


def _survives_a_kill(
    spark: SparkSession, edit: Callable[[], SavepointEdit], tmp_path: Path, done: int
) -> bool:
    """Whether the driver was killed after so many units. Those alone that were in flight are done
    twice.
    """
    out, log = tmp_path / "out", tmp_path / "log"
    shutil.rmtree(out, ignore_errors=True)
    every = _units(lambda: edit().write(out, jobs=Noted(1, out, log, lambda _: None)), log)
    shutil.rmtree(out)
    log.write_text("")
    arguments = [str(tmp_path / "source"), str(out), str(log), str(done)]
    program = [sys.executable, "-m", "tests.integration.spark.kill_rewriting", *arguments]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode == 0:
        return False
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    later = tmp_path / "later"  # a worker of the driver that was killed may still write to its log
    again = _units(
        lambda: edit().write(out, jobs=Noted(SparkUnits(spark), out, later, lambda _: None)), later
    )
    assert again <= every - done
    assert _tree(out) == _tree(tmp_path / "expected")
    return True


def _units(run: Callable[[], object], log: Path) -> int:
    """How many units a run does."""
    log.write_text("")
    run()
    return len(log.read_text().splitlines())


def test_a_driver_that_is_killed_goes_on(
    spark: SparkSession, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    assert _survives_a_kill(spark, edit, tmp_path, 3)


@pytest.mark.soak
def test_a_driver_that_is_killed_after_any_unit_goes_on(
    spark: SparkSession, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    places = itertools.count(1)
    survived = itertools.takewhile(
        lambda done: _survives_a_kill(spark, edit, tmp_path, done), places
    )
    assert len(list(survived)) > 3


class _OnFullDisk:
    """Runs units as another runner does, one late one where no file can be written."""

    workers = MANY

    def __init__(self, runner: Any, mark: Path) -> None:
        self._runner, self._mark = runner, mark

    def __call__(self, task: Callable[[Unit], Any], units: Sequence[Unit]) -> Any:
        mark = self._mark

        def limited(unit: Unit) -> Any:
            if unit.key_groups.start_key_group > 20:
                with suppress(FileExistsError):
                    mark.touch(exist_ok=False)
                    with full_disk():
                        return task(unit)
            return task(unit)

        return run_units(limited, units, self._runner)


def test_a_full_disk_of_the_output_is_said_and_the_work_goes_on(
    runner: Any, edit: Callable[[], SavepointEdit], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(StorageError, match=r"^Cannot [^\n]*out[^\n]*: File too large\.$"):
        edit().write(out, jobs=_OnFullDisk(runner, tmp_path / "mark"))
    assert any((out / work_record.WORK_FOLDER).glob("unit-*"))
    edit().write(out, jobs=runner)
    assert _tree(out) == _tree(tmp_path / "expected")


def test_a_full_temporary_disk_is_said_and_the_work_goes_on(
    runner: Any,
    edit: Callable[[], SavepointEdit],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, spill = tmp_path / "out", keyed_sections.KeyedSections._spill
    monkeypatch.setattr(keyed_units.sections_for, "__defaults__", (0,))
    edit().with_max_parallelism(200).write(tmp_path / "others")

    def on_a_full_disk(sections: Any) -> None:
        with full_disk(4000):
            spill(sections)

    with (
        monkeypatch.context() as patch,
        pytest.raises(StorageError, match=r"temporary files.*run the command again"),
    ):
        patch.setattr(keyed_sections.KeyedSections, "_spill", on_a_full_disk)
        edit().with_max_parallelism(200).write(out, jobs=runner)
    assert any((out / work_record.WORK_FOLDER).glob("unit-*"))
    edit().with_max_parallelism(200).write(out, jobs=runner)
    assert _tree(out) == _tree(tmp_path / "others")


def test_an_error_of_a_unit_is_raised_here(spark: SparkSession) -> None:
    def refused(unit: Unit) -> None:
        raise ConfigError(f"Unit {unit.handle} is refused.")

    units = [Unit(at, KeyGroupRange(0, 1), 1) for at in range(2)]
    with pytest.raises(ConfigError, match=r"Unit 0 is refused\."):
        list(SparkUnits(spark)(refused, units))
