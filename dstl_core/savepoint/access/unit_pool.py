"""Runs a function of a unit on all units, in this process or in a pool of processes.

The function is pure: it gets a unit and returns what it found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from dstl_core.errors import DAMAGED, DstlError
from dstl_core.savepoint.access.units import Unit, UnitRunner
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog

_PARENT_DEATH_SIGNAL = 1
"""``PR_SET_PDEATHSIG`` of Linux."""
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` of glibc."""
_FROM_SYSTEM_BYTES = 32 << 20
"""Larger pieces of memory come from the system, and go back to it; glibc has no higher bound."""
_KEPT_BYTES = 128 << 20
"""What a process of a pool keeps of the memory that it has freed."""
_WAITING = 2
"""Units for each process that run, or whose results wait for those of earlier ones."""
_PAUSE_S = 0.01
_STOP = signal.SIGUSR1

Result = TypeVar("Result")


def run_units(
    task: Callable[[Unit], Result], units: Sequence[Unit], jobs: int | UnitRunner
) -> Generator[tuple[Unit, Result], None, None]:
    """Yields each unit with the result of the task, in the order of the units.

    A pool holds at most ``2 * jobs`` results. Its processes are forks, so that they share what is
    loaded: the metadata and the compiler. This process only waits for them.

    A task with an attribute ``in_sequence``, places of handles, wants one process of a pool to do
    the units of such a handle, one after the other. A process that has nothing else to do takes
    some from the end, but not the last one. Its results come as they are done, and must be small.

    Args:
        task: What to do. A result is pickled, unless one process does all.
        units: The units.
        jobs: Number of processes, or what runs the units.

    A task with an attribute ``reads_all_of``, the operator whose handles the units are of, lets a
    store read ahead across units.

    Raises:
        DstlError: A process ended before its unit did. Errors of the task are raised as they are.
    """
    if callable(jobs):
        yield from jobs(task, units)
        return
    processes = min(jobs, len(units))
    if processes > 1:
        yield from _pooled(task, units, processes)
        return
    for number, unit in enumerate(units):
        later = units[number + 1 : number + 2]
        _read_ahead(task, partial(next, iter(later), None))
        yield unit, task(unit)


def _pooled(
    task: Callable[[Unit], Result], units: Sequence[Unit], jobs: int
) -> Generator[tuple[Unit, Result], None, None]:
    if "numba" in sys.modules:  # the task has kernels
        _load_compiler()
    window = _WAITING * jobs
    pool = _Pool(jobs, _SharedUnits(task, units, window))
    in_order = pool.shared.has_order
    submitted = 0
    completed: SimpleQueue[Future[tuple[int, Any] | None]] = SimpleQueue()
    results: dict[int, Any] = {}
    failures: dict[int, _UnitError] = {}
    number, is_done = 0, False
    try:
        for number in range(len(units)):
            while (done := _next(results, number, in_order=in_order)) is None:
                # Results and errors of earlier units come first.
                if (failed := _next(failures, number, in_order=in_order)) is not None:
                    raise failures[failed].error from failures[failed].__cause__
                for _ in range(window - submitted):
                    pool.submit().add_done_callback(completed.put)
                future, submitted = completed.get(), window - 1
                error = future.exception()
                if isinstance(error, _UnitError):
                    failures[error.number] = error
                elif error is not None:
                    raise error
                elif (result := future.result()) is not None:
                    results[result[0]] = result[1]
            yield units[done], results.pop(done)
            pool.shared.allow(number + 1 + window)
        is_done = True
    except BrokenProcessPool as error:
        is_done = True  # the pool ends the others
        raise DstlError(
            f"One of {jobs} processes was killed while it read key groups "
            f"{units[number].key_groups}, perhaps for want of memory; run it with fewer of them "
            f"(jobs, --jobs)."
        ) from error
    finally:
        pool.end(is_done=is_done)


def _next(waiting: Mapping[int, object], number: int, *, in_order: bool) -> int | None:
    """The number of what comes next; None if it does not wait yet."""
    if in_order:
        return number if number in waiting else None
    return next(iter(waiting), None)


class _Pool:
    """Processes that take units.

    Linux kills them with the thread that forked them. Whoever takes results may do so in several
    threads, of which one may end before the others, so the pool has a thread for it.

    Args:
        jobs: The number of processes.
        shared: The units.
    """

    def __init__(self, jobs: int, shared: _SharedUnits) -> None:
        self.shared = shared
        arguments = shared, os.getpid(), _compiler_lock()
        self._pool = ProcessPoolExecutor(jobs, get_context("fork"), _adopt, arguments)
        self._lock = arguments[2]
        self._has_begun = False
        self._is_over = Event()

    def submit(self) -> Future[tuple[int, Any] | None]:
        """Has a unit run, as ``_run`` does; the first call forks all processes."""
        if self._has_begun:
            return self._pool.submit(_run)
        self._has_begun = True
        begun: Future[Future[tuple[int, Any] | None]] = Future()
        Thread(target=self._fork, args=(begun,), name="dstl-fork", daemon=True).start()
        return begun.result()

    def _fork(self, begun: Future[Future[tuple[int, Any] | None]]) -> None:
        # A process that has just begun must not miss that it is told to leave.
        signal.pthread_sigmask(signal.SIG_BLOCK, [_STOP])
        try:
            with self._lock:
                first = self._pool.submit(_run)
        except BaseException as error:
            begun.set_exception(error)
        else:
            begun.set_result(first)
            self._is_over.wait()

    def end(self, *, is_done: bool) -> None:
        """Waits for the processes; unless the work is done, they leave their units."""
        try:
            if not is_done:
                self._stop()
            self._pool.shutdown(cancel_futures=True)
        finally:
            self._is_over.set()

    def _stop(self) -> None:
        """Has each process leave the unit that it does: it may be the state of a subtask, for which
        nobody waits any more.
        """
        processes = self._pool._processes or {}  # noqa: SLF001  # none has a public name
        for process in list(processes.values()):
            if process.pid is not None and process.is_alive():
                with suppress(ProcessLookupError):  # it has ended since
                    os.kill(process.pid, _STOP)


def _compiler_lock() -> Any:
    """What no other thread may hold while this one forks: a fork would wait for it for ever."""
    if "numba" not in sys.modules:
        return nullcontext()
    from numba.core import compiler_lock

    untyped: Any = compiler_lock
    return untyped.global_compiler_lock


class _UnitError(Exception):
    """What a unit has raised in a process of a pool.

    Args:
        number: Its number.
        error: The error.
    """

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(number, error)
        self.number, self.error = number, error


def _load_compiler() -> None:
    """Calls a kernel and makes an array: what the first ones load, the forks of this process share.
    It takes 0.4 s, and each of them would take as long.
    """
    import numpy as np
    import pyarrow as pa

    from dstl_core.codec.columnar.keyed.byte_index import Ranges, hashes_of

    nothing = np.empty(0, np.int64)
    hashes_of(Ranges(nothing, nothing))
    pa.array([], pa.int64())


class _SharedUnits:
    """The units of a pool, of which each process takes the next one when it is free, or when the
    store has nothing to do for it. Processes take runs of units, most of which have one.

    Args:
        task: What to do with each.
        units: The units.
        end: The number of the first one that may not be taken yet, if they have an order.
    """

    def __init__(self, task: Callable[[Unit], Any], units: Sequence[Unit], end: int) -> None:
        self.task, self.units = task, units
        self._runs = _runs_of(task, units)
        self.has_order = len(self._runs) == len(units)
        """Whether results come in the order of the units."""
        end = end if self.has_order else len(units)
        self._next_and_end = get_context("fork").Array("q", [0, end])
        """The next run, and the first one that may not be taken yet."""
        bounds = [bound for run in self._runs for bound in (run.start, run.stop - 1)]
        self._bounds = get_context("fork").RawArray("q", bounds)
        """Of each run, the next unit, and the end of those that anybody may take."""
        self._run: int | None = None
        """The run of this process."""
        self._ahead: list[int] = []

    def allow(self, end: int) -> None:
        """Lets units up to a number be taken. Nobody else writes this word, and no lock is waited
        for: a process that was killed may have it.
        """
        if self.has_order:
            self._next_and_end.get_obj()[1] = end

    def take(self) -> int | None:
        """The number of a unit for this process; None if there is none now."""
        return self._ahead.pop() if self._ahead else self._taken()

    def take_ahead(self) -> Unit | None:
        """What ``take`` will give next."""
        with _left_afterwards():
            number = self._taken()
        if number is None:
            return None
        self._ahead.append(number)
        return self.units[number]

    def _taken(self) -> int | None:
        with self._next_and_end.get_lock():
            number = None if self._run is None else self._next_of(self._run)
            if number is not None:
                return number
            run, end = self._next_and_end[:]
            if run < min(end, len(self._runs)):
                self._next_and_end[0], self._run = run + 1, run
                return self._next_of(run)
            return None if self.has_order else self._from_another()

    def _next_of(self, run: int) -> int | None:
        """The next unit of a run; None if it is done."""
        at, end = self._bounds[2 * run : 2 * run + 2]
        last = self._runs[run].stop - 1
        if at > last:
            return None
        number = at if at < end else last
        self._bounds[2 * run] = number + 1
        return number

    def _from_another(self) -> int | None:
        """A unit from the end of the run with most of them; never its last one."""
        starts, ends = self._bounds[0::2], self._bounds[1::2]
        left = [end - start for start, end in zip(starts, ends, strict=True)]
        run = max(range(len(left)), key=left.__getitem__)
        if left[run] < 1:
            return None
        number = int(ends[run]) - 1
        self._bounds[2 * run + 1] = number
        return number


def _runs_of(task: Callable[[Unit], Any], units: Sequence[Unit]) -> list[range]:
    """Numbers of units that one process does, one after the other."""
    in_sequence: Set[int] = getattr(task, "in_sequence", frozenset())
    runs: list[range] = []
    for number, unit in enumerate(units):
        if runs and unit.handle in in_sequence and unit.handle == units[number - 1].handle:
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


_shared: list[_SharedUnits] = []
"""The units of a process of a pool; none once it is told to stop."""
_running: list[int] = []
"""The unit that a process of a pool does now."""


def _adopt(shared: _SharedUnits, parent: int, compiler_lock: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a pool ends its others so when one is killed
    signal.signal(_STOP, _leave)
    # If that one is killed, nobody does: this one would wait for ever, and hold its output open.
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    compiler_lock.__exit__(None, None, None)  # the thread that forked this process took it
    keep_freed_memory()
    _shared[:] = [shared]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [_STOP, signal.SIGTERM])


def _leave(*_: object) -> None:
    """Leaves the unit. What it has begun is undone, and a result that is being sent is sent."""
    _shared.clear()
    if _running:
        raise SystemExit


@contextmanager
def _left_afterwards() -> Iterator[None]:
    """Has a process that is told to leave do so when the block is done: it would keep the lock of
    the units, for which others would wait for ever.
    """
    running = _running[:]
    _running.clear()
    try:
        yield
    finally:
        _running[:] = running
    if running and not _shared:
        raise SystemExit


def _run() -> tuple[int, Any] | None:
    """The number and the result of a unit; None if there is none for this process."""
    shared = next(iter(_shared), None)
    number = None if shared is None else shared.take()
    if shared is None or number is None:
        time.sleep(_PAUSE_S)  # another process has taken the unit that is waited for
        return None
    _running.append(number)
    try:
        if not _shared:
            return None  # it was told to leave while it took the unit
        _read_ahead(shared.task, shared.take_ahead)
        return number, shared.task(shared.units[number])
    except Exception as error:
        raise _UnitError(number, error) from error
    finally:
        _running.clear()


def _read_ahead(task: Callable[[Unit], Any], following: Callable[[], Unit | None]) -> None:
    """Begins to read the next unit while the last bytes of this one are used, on a store."""
    operator: OperatorCatalog | None = getattr(task, "reads_all_of", None)
    if operator is None:
        return

    def begin() -> None:
        unit = following()
        if unit is not None:
            from dstl_core.savepoint.read.stored_records import begin_part  # loads Arrow

            with suppress(*DAMAGED):  # who runs the unit finds it again
                begin_part(operator, operator.keyed_handles[unit.handle], unit.key_groups)

    operator.snapshot.resolver.afterwards(begin)


def keep_freed_memory() -> None:
    """Lets this process use the memory of one unit for the next one. Without it, what is large goes
    back to the system, and comes again page by page.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
    if set_option is not None:
        set_option(_MMAP_THRESHOLD, _FROM_SYSTEM_BYTES)
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
