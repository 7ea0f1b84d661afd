"""The same work in one process and in a pool: equal results, errors, processes that die."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from select import select
from threading import Event, Thread
from typing import Any, cast

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from dstl_core import Snapshot, report_snapshot, verify_snapshot
from dstl_core.cli import dump_lines
from dstl_core.errors import ConfigError, DstlError, FormatError
from dstl_core.model.handle import KeyGroupsSavepointStateHandle, RelativeFileStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access import unit_pool, units
from dstl_core.savepoint.access.thread_runner import ThreadRunner
from dstl_core.savepoint.access.unit_pool import run_units
from dstl_core.savepoint.access.units import (
    POOL_FROM_BYTES,
    Unit,
    jobs_for,
    processes_that_fit,
    units_of,
)
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.verify import range_check
from dstl_core.state.restore import into_tables
from dstl_core.storage import file_systems, profiles
from dstl_core.storage.location import Location
from tests.command_line import run
from tests.examples import thinned
from tests.golden_files import PLANTED, SNAPSHOTS, as_lines
from tests.golden_files import snapshot as golden

__all__ = ["run"]

FILES = "a-hashmap-canonical-files"
SEVERAL_FORMS = [
    "a-hashmap-canonical-compressed",
    "a-hashmap-changelog-multi",
    "a-rocksdb-heaptimers-checkpoint",
    "d-windows-hashmap",
    "e-ttl-hashmap",
    "x-kryo-hashmap",
    "x-lsm-rocksdb-incremental",
    "x-sql-join-hashmap",
]
PLACES = [*map(golden, SEVERAL_FORMS), *sorted(path.parent for path in PLANTED.rglob("_metadata"))]


@pytest.fixture(params=["by columns", "by record"])
def small_units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    by_columns = request.param == "by columns"
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 10)
    for module in (range_check, into_tables, dump_lines):
        monkeypatch.setattr(module, "are_read_by_kernels", lambda size: by_columns)


@pytest.mark.slow
@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("place", thinned(PLACES, 3, 1), ids=lambda place: place.parents[1].name)
def test_results_do_not_depend_on_the_number_of_processes(run: Any, place: Path) -> None:
    assert any(len(units_of(operator)) > 2 for operator in Snapshot.load(place).operators)
    one, three = (verify_snapshot(Snapshot.load(place), jobs=jobs) for jobs in (1, 3))
    assert one == three
    figures = [
        dict(report_snapshot(Snapshot.load(place), at_ms=0, show_keys=True, jobs=jobs).figures)
        for jobs in (1, 3)
    ]
    assert figures[0] == figures[1]
    assert run("dump", str(place), "--opaque") == run("dump", str(place), "--opaque", "--jobs", "3")


@pytest.mark.slow
@pytest.mark.usefixtures("small_units")
@pytest.mark.parametrize("name", thinned(SEVERAL_FORMS, 2, 1))
def test_several_processes_print_what_flink_has_restored(run: Any, name: str) -> None:
    [fixture] = [each for each in SNAPSHOTS if each.name == name]
    ran = run("dump", str(fixture.snapshot), "--jobs", "3")
    assert ran.code == 0
    assert as_lines(ran.lines) == as_lines(fixture.truth)


@pytest.mark.usefixtures("small_units")
def test_damage_is_found_by_several_processes(run: Any, tmp_path: Path) -> None:
    place = tmp_path / "s"
    shutil.copytree(golden(FILES), place)
    [operator] = [each for each in Snapshot.load(place).operators if each.keyed_handles]
    handle = operator.keyed_handles[0]
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    assert isinstance(handle.stream, RelativeFileStateHandle)
    file = place / handle.stream.relative_path
    raw = bytearray(file.read_bytes())
    middle = sorted(filter(None, handle.offsets.offsets))[len(handle.offsets.offsets) // 8]
    raw[middle + 4 : middle + 12] = b"\x7f" * 8  # the first record of a key group
    file.write_bytes(raw)
    one, three = (verify_snapshot(Snapshot.load(place), jobs=jobs) for jobs in (1, 3))
    assert one.findings
    assert one == three
    assert run("dump", str(place)).err == run("dump", str(place), "--jobs", "3").err
    file.unlink()
    one, three = (verify_snapshot(Snapshot.load(place), jobs=jobs) for jobs in (1, 3))
    assert len([finding for finding in one.findings if finding.subtask is not None]) == 1
    assert one == three


# -------------------------------------------------------------------------------------- the pool

UNITS = [Unit(0, KeyGroupRange(at, at), 1) for at in range(12)]


def test_results_come_in_the_order_of_the_units() -> None:
    ended = get_context("fork").Event()

    def task(unit: Unit) -> int:
        group = unit.key_groups.start_key_group
        if group == 1:
            assert ended.wait(60)  # until a later unit has ended, in another process
        if group == 2:
            ended.set()
        return group

    assert [result for _, result in run_units(task, UNITS, 2)] == list(range(12))


def test_units_run_in_other_processes() -> None:
    meeting = get_context("fork").Barrier(3)

    def task(unit: Unit) -> int:
        if unit.key_groups.start_key_group < 3:
            meeting.wait(60)
        return os.getpid()

    processes = [result for _, result in run_units(task, UNITS, 3)]
    assert len(set(processes[:3])) == 3
    assert os.getpid() not in processes
    assert {result for _, result in run_units(task, UNITS[3:4], 3)} == {os.getpid()}
    assert {result for _, result in run_units(lambda unit: os.getpid(), UNITS, 1)} == {os.getpid()}


def test_only_a_few_results_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    context = get_context("fork")
    begun = context.Value("i", 0)

    def task(unit: Unit) -> None:
        with begun.get_lock():
            begun.value += 1

    results = run_units(task, UNITS, 2)
    next(results)
    next(results)
    assert begun.value <= 1 + 4
    assert len(list(results)) == len(UNITS) - 2
    assert begun.value == len(UNITS)


def test_an_error_of_a_task_is_raised_as_it_is() -> None:
    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group == 5:
            raise FormatError("A record is damaged", offset=7, location="file:/f")

    done = []
    with pytest.raises(FormatError, match=r"A record is damaged, at byte 7 \[file:/f\]") as caught:
        done += run_units(task, UNITS, 2)
    assert caught.value.context["offset"] == 7


def test_errors_come_in_the_order_of_the_units() -> None:
    ended = get_context("fork").Event()

    def task(unit: Unit) -> int:
        group = unit.key_groups.start_key_group
        if group == 1:
            assert ended.wait(60)  # until a later unit has failed, in another process
        if group in (2, 3):
            ended.set()
            raise FormatError(f"Record {group} is damaged")
        return group

    done = []
    with pytest.raises(FormatError, match="Record 2 is damaged") as caught:
        for _, result in run_units(task, UNITS, 2):
            done.append(result)
    assert done == [0, 1]
    assert "in task" in str(caught.value.__cause__), "the place in the other process is there"


def test_an_error_does_not_wait_for_other_units(tmp_path: Path) -> None:
    """They may be whole streams of gigabytes. What they have begun is undone."""
    begun, never = get_context("fork").Event(), get_context("fork").Event()

    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group == 0:
            assert begun.wait(60)
            raise FormatError("A record is damaged")
        try:
            begun.set()
            never.wait(60)
            (tmp_path / "waited").touch()
        finally:
            (tmp_path / "undone").touch()

    with pytest.raises(FormatError):
        list(run_units(task, UNITS, 2))
    assert [each.name for each in tmp_path.iterdir()] == ["undone"]


def test_units_that_nobody_wants_any_more_are_left(tmp_path: Path) -> None:
    never = get_context("fork").Event()

    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group:
            never.wait(60)
            (tmp_path / "waited").touch()

    results = run_units(task, UNITS, 2)
    next(results)
    results.close()
    assert not [*tmp_path.iterdir()]


def test_a_process_that_is_killed_while_it_takes_a_unit_holds_nobody_up() -> None:
    taken, come = get_context("fork").Event(), get_context("fork").Event()

    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group == 0:
            assert taken.wait(30)  # what the first result allows, is written after this
        if unit.key_groups.start_key_group == 1:
            unit_pool._shared[0]._next_and_end.get_lock().acquire()
            taken.set()
            assert come.wait(30)
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        signal.alarm(60)
        signal.signal(signal.SIGTERM, lambda *_: None)  # as Dagster does while it keeps them back
        try:
            for _ in run_units(task, UNITS, 2):
                come.set()
        except DstlError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_process_that_is_killed_is_one_sentence() -> None:
    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(DstlError, match=r"One of 2 processes was killed .* fewer of them"):
        list(run_units(task, UNITS, 2))


def test_processes_end_with_the_one_that_started_them() -> None:
    reading, writing = os.pipe()

    def task(unit: Unit) -> None:
        if unit.key_groups.start_key_group == 3:
            os.kill(os.getppid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        os.close(reading)
        list(run_units(task, UNITS, 2))
        os._exit(0)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with os.fdopen(reading, "rb") as pipe:
        # A pipe ends when no process has its other end open.
        assert select([pipe], [], [], 60)[0]
        assert pipe.read() == b""


def test_results_may_be_taken_in_several_threads() -> None:
    """Linux ends processes with the thread that forked them."""
    results = run_units(lambda unit: unit.key_groups.start_key_group, UNITS, 2)
    first = Thread(target=next, args=(results,))
    first.start()
    first.join()
    assert [result for _, result in results] == [*range(1, 12)]


def test_a_process_that_is_told_to_leave_while_it_takes_a_unit_does_not_begin() -> None:
    class Told(unit_pool._SharedUnits):
        def take(self) -> int | None:
            number = super().take()
            unit_pool._leave()
            return number

    begun: list[Unit] = []
    unit_pool._shared[:] = [Told(begun.append, UNITS, len(UNITS))]
    assert unit_pool._run() is None
    assert not begun


def test_a_process_that_is_told_to_leave_while_it_takes_the_next_unit_keeps_no_lock() -> None:
    class Told(unit_pool._SharedUnits):
        def _taken(self) -> int | None:
            lock = self._next_and_end.get_lock()
            lock.acquire()
            unit_pool._leave()  # as the signal does that comes just now
            lock.release()
            return super()._taken()

    shared = Told(print, UNITS, len(UNITS))
    unit_pool._shared[:], unit_pool._running[:] = [shared], [0]
    with pytest.raises(SystemExit):
        shared.take_ahead()
    unit_pool._running.clear()
    taken: list[bool] = []
    lock = shared._next_and_end.get_lock()
    other = Thread(target=lambda: taken.append(lock.acquire(False)))  # its holder may take it twice
    other.start()
    other.join()
    assert taken == [True]


def test_a_process_that_is_told_to_leave_before_it_begins_takes_no_unit() -> None:
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [unit_pool._STOP])  # as in the thread that forks
        os.kill(os.getpid(), unit_pool._STOP)
        unit_pool._adopt(
            unit_pool._SharedUnits(print, UNITS, len(UNITS)), os.getppid(), nullcontext()
        )
        os._exit(len(unit_pool._shared))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("lock", [file_systems._LOCK, profiles._PROCESS._lock], ids=["fs", "find"])
def test_a_pool_does_not_wait_for_a_lock_of_another_thread(lock: Any) -> None:
    def task(unit: Unit) -> str:
        if unit.key_groups.start_key_group:
            signal.alarm(60)  # kills a process that waits
            file_systems.file_system("memory", {})
            profiles.options_for(Location.parse("memory:/place"))
        return "opened"

    with lock:
        assert {result for _, result in run_units(task, UNITS, 2)} == {"opened"}


def test_a_pool_forks_when_no_other_thread_compiles() -> None:
    is_taken = Event()

    def compile_kernel() -> None:
        with global_compiler_lock:
            is_taken.set()
            Event().wait(0.5)  # a pool that does not wait forks meanwhile

    def task(unit: Unit) -> str:
        signal.alarm(60)  # kills a process that waits
        thread = Thread(target=global_compiler_lock.acquire)
        thread.start()
        thread.join()
        return "compiled"

    other = Thread(target=compile_kernel)
    other.start()
    assert is_taken.wait(60)
    assert {result for _, result in run_units(task, UNITS[:2], 2)} == {"compiled"}
    other.join()


def test_a_process_that_may_start_no_other_does_the_work_alone() -> None:
    with get_context("fork").Pool(1) as pool:
        assert pool.apply(jobs_for, (POOL_FROM_BYTES, 3)) == 1


def test_the_number_of_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "processes_that_fit", lambda: 3)
    assert jobs_for(POOL_FROM_BYTES, None) == 3
    assert jobs_for(POOL_FROM_BYTES - 1, None) == 1
    assert jobs_for(1, 2) == 2
    assert type(jobs_for(1, cast(int, np.int64(2)))) is int
    with pytest.raises(ConfigError, match="expected 1 or more, got 0"):
        jobs_for(1, 0)
    monkeypatch.setattr(units.sys, "platform", "darwin")
    assert jobs_for(POOL_FROM_BYTES, 2) == 1


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ("max 100000", "max", 8),
        ("250000 100000", "max", 3),
        ("1600000 100000", "max", 8),
        ("20000 100000", "max", 1),
        ("max 100000", str(4 << 30), 8),
        ("max 100000", str(2 << 30), 4),
        ("max 100000", str(100 << 20), 1),
        (None, None, 8),
    ],
)
def test_a_container_gets_no_more_processes_than_it_has_room_for(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cpu: str | None,
    memory: str | None,
    expected: int,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    for name, text in (("cpu.max", cpu), ("memory.max", memory)):
        if text is not None:
            (tmp_path / name).write_text(f"{text}\n")
    assert processes_that_fit(tmp_path) == expected


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
@pytest.mark.usefixtures("small_units")
def test_threads_find_what_one_process_finds(place: Path) -> None:
    snapshot = Snapshot.load(place)
    alone = verify_snapshot(snapshot, jobs=1)
    threads = verify_snapshot(snapshot, jobs=ThreadRunner(3))
    assert threads.to_json() == alone.to_json()


def test_an_error_in_a_thread_comes_after_the_results_before_it() -> None:
    units = [Unit(number, KeyGroupRange(0, 0), 1) for number in range(9)]

    def task(unit: Unit) -> int:
        if unit.handle == 5:
            raise FormatError("A unit is damaged")
        return unit.handle

    seen = []
    with pytest.raises(FormatError, match="A unit is damaged"):
        for unit, result in run_units(task, units, ThreadRunner(2)):
            assert unit.handle == result
            seen.append(result)
    assert seen == [0, 1, 2, 3, 4]
