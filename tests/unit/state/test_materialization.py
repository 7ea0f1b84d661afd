"""When a base is due, what a checkpoint beside it holds, what a failure costs, and compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions
from dstl_core.errors import CheckpointError, StorageError
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    ChangelogStateHandleStream,
    FileStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.snapshot_type import CheckpointOptions, CheckpointType
from dstl_core.operators.environment import file_system_streams
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend
from dstl_core.state.backends.materialization import PeriodicMaterializationManager
from dstl_core.state.restore.compaction import compact_log, count_segments
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.descriptor import ListStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import JobLayout, Location
from dstl_core.testing import FaultyFileIO, ManualClock, MemoryFileIO
from dstl_core.testing.faulty_file_io import Fault

ALL = KeyGroupRange(0, 7)
NAMES = ListStateDescriptor("names", Types.STRING)
INTERVAL_MS = 10_000


class Later(Executor):
    """Does work when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except StorageError as error:
                future.set_exception(error)

        self.waiting.append(work)
        return future

    def run(self) -> None:
        for work in self.waiting:
            work()
        self.waiting.clear()


class Backend:
    """A backend with a log in memory, and its manager."""

    def __init__(self, *, executor: Later | None = None, **options: Any) -> None:
        self.disk = MemoryFileIO()
        self.fault = Fault.NONE
        io = FaultyFileIO(self.disk, lambda: self.fault, pause=lambda ms: None)
        base = Location.parse("memory://test/base")
        self.layout = JobLayout.of(base, "ab" * 16)
        self.clock = ManualClock()
        self.options = ChangelogOptions.of(
            base_path=str(base),
            periodic_materialize_interval_ms=INTERVAL_MS,
            preemptive_persist_threshold=100,
            **{"materialize_log_size": 0, "materialize_log_ratio": 0, **options},
        )
        self.storage = FsStateChangelogStorage(
            JobID.from_hex("ab" * 16),
            self.options,
            self.disk,
            scheduler=StateChangeUploadScheduler.direct_scheduler,
        )
        self.delegate = HashMapKeyedStateBackend(KeyedState(ALL, 8), Types.STRING)
        self.changelog = ChangelogKeyedStateBackend(
            self.delegate, self.storage.create_writer("u", ALL)
        )
        self.executor = executor
        streams = file_system_streams(self.layout, io, inline_threshold=0)
        self.manager = PeriodicMaterializationManager(
            self.changelog,
            streams(0, CheckpointOptions(CheckpointType.CHECKPOINT)),
            self.options,
            self.clock,
            operator_identifier="u-0",
            executor=executor,
        )
        self.names = self.delegate.get_list_state(NAMES)
        self.model: dict[str, list[str]] = {}
        self.checkpoints = 0

    def add(self, key: str, name: str) -> None:
        self.delegate.set_current_key(key)
        self.names.add(name)
        self.model.setdefault(key, []).append(name)

    def checkpoint(self) -> ChangelogStateBackendHandle:
        self.checkpoints += 1
        handle = self.changelog.snapshot(self.checkpoints)
        self.changelog.notify_checkpoint_complete(self.checkpoints)
        return handle

    def restored(self, handle: ChangelogStateBackendHandle) -> dict[str, list[str]]:
        resolver = HandleResolver(self.disk, self.layout.root)
        state = restore_keyed_state([handle], ALL, 8, resolver, key_serializer=Types.STRING)
        return {key: value for key_group in ALL for _, (key, _, value) in state.rows(key_group)}

    def bases(self) -> list[str]:
        return [path for path in self.disk.files if "/taskowned/" in path]

    def past_first_delay(self) -> None:
        """The first period is over, whatever the hash of the operator made of it."""
        self.clock.advance(INTERVAL_MS)
        self.manager.poll()
        assert self.manager.started == 1


@pytest.fixture
def backend() -> Iterator[Backend]:
    made = Backend()
    yield made
    made.changelog.close()
    made.storage.close()


# ------------------------------------------------------------------------------- when it is due


def test_the_first_delay_is_spread_over_the_period_and_then_it_is_periodic(
    backend: Backend,
) -> None:
    delays = set()
    for number in range(50):
        manager = PeriodicMaterializationManager(
            backend.changelog,
            backend.manager._streams,
            backend.options,
            backend.clock,
            operator_identifier=f"operator-{number}",
        )
        delays.add(manager._next_ms - backend.clock.monotonic_ms())
    assert len(delays) > 40
    assert all(0 <= each < INTERVAL_MS for each in delays)

    backend.past_first_delay()
    backend.add("a", "1")
    backend.clock.advance(INTERVAL_MS - 1)
    backend.manager.poll()
    assert backend.manager.started == 1
    assert backend.bases() == []
    backend.clock.advance(1)
    backend.manager.poll()
    assert backend.manager.started == 2
    assert len(backend.bases()) == 1
    # The next period counts from its end.
    backend.clock.advance(INTERVAL_MS - 1)
    backend.manager.poll()
    assert backend.manager.started == 2


def test_without_changes_no_base_is_written(backend: Backend) -> None:
    backend.past_first_delay()
    backend.add("a", "1")
    backend.clock.advance(INTERVAL_MS)
    backend.manager.poll()
    backend.checkpoint()
    for _ in range(3):
        backend.clock.advance(INTERVAL_MS)
        backend.manager.poll()
    assert backend.manager.started == 5
    assert backend.manager.completed == 5
    assert len(backend.bases()) == 1


def test_a_base_that_no_completed_checkpoint_names_is_not_followed_by_another(
    backend: Backend,
) -> None:
    backend.past_first_delay()
    for name in "123":
        backend.add("a", name)
        backend.clock.advance(INTERVAL_MS)
        backend.manager.poll()
    assert len(backend.bases()) == 1
    backend.checkpoint()
    backend.add("a", "4")
    backend.clock.advance(INTERVAL_MS)
    backend.manager.poll()
    assert len(backend.bases()) == 2


def test_a_log_of_some_size_is_due_before_the_period_ends() -> None:
    backend = Backend(materialize_log_size=300)
    backend.past_first_delay()
    while True:
        backend.add("a", "some name")
        log = backend.changelog.log_bytes
        backend.manager.poll()
        assert bool(backend.bases()) is (log >= 300)
        if log >= 300:
            break
    assert backend.changelog.log_bytes == 0
    backend.storage.close()


def test_a_log_that_is_large_against_its_base_is_due() -> None:
    backend = Backend(materialize_log_ratio=2.0)
    backend.past_first_delay()
    backend.add("a", "x" * 200)
    backend.manager.poll()
    # Nothing is materialized yet: the log is larger than twice nothing, and than the threshold.
    assert len(backend.bases()) == 1
    backend.checkpoint()
    base = backend.changelog.base_bytes
    assert base > 200
    while True:
        backend.add("b", "another name")
        log = backend.changelog.log_bytes
        backend.manager.poll()
        assert len(backend.bases()) == (2 if log > 2 * base else 1)
        if log > 2 * base:
            break
    backend.storage.close()


def test_a_small_log_is_left_alone_whatever_the_ratio() -> None:
    backend = Backend(materialize_log_ratio=0.001)
    backend.past_first_delay()
    backend.add("a", "1")
    assert 0 < backend.changelog.log_bytes <= backend.options.preemptive_persist_threshold
    backend.manager.poll()
    assert backend.bases() == []
    backend.storage.close()


def test_nothing_is_due_when_it_is_switched_off() -> None:
    backend = Backend(periodic_materialize_enabled=False, materialize_log_size=1)
    backend.add("a", "1")
    backend.clock.advance(100 * INTERVAL_MS)
    backend.manager.poll()
    assert backend.manager.started == 0
    backend.storage.close()


# ------------------------------------------------------------------------- beside checkpoints


def test_checkpoints_go_on_while_a_base_is_written() -> None:
    executor = Later()
    backend = Backend(executor=executor)
    backend.past_first_delay()
    backend.add("a", "before")
    backend.clock.advance(INTERVAL_MS)
    backend.manager.poll()
    assert backend.manager.started == 2
    assert executor.waiting

    backend.add("a", "during")
    beside = backend.checkpoint()
    assert beside.materialized == ()
    at_beside = dict(backend.model)
    assert backend.restored(beside) == {"a": ["before", "during"]}
    # It is due again, but one is on its way.
    backend.clock.advance(2 * INTERVAL_MS)
    backend.manager.poll()
    assert backend.manager.started == 2

    executor.run()
    # It is written, and nobody has taken it over yet.
    backend.add("b", "later")
    assert backend.checkpoint().materialized == ()
    backend.manager.poll()
    after = backend.checkpoint()
    assert len(after.materialized) == 1
    assert after.materialization_id == 1
    # The base is the moment at which it began; what came since is in the log above it.
    base = ChangelogStateBackendHandle(
        after.materialized, (), ALL, after.materialization_id, after.checkpoint_id, 0, "id"
    )
    assert backend.restored(base) == {"a": ["before"]}
    assert backend.restored(after) == backend.model == {"a": ["before", "during"], "b": ["later"]}
    # No checkpoint was subsumed: what the older one names is still there.
    assert backend.restored(beside) == at_beside
    backend.storage.close()


def test_the_log_goes_when_no_checkpoint_that_may_be_restored_needs_it(backend: Backend) -> None:
    backend.past_first_delay()
    backend.add("a", "1")
    first = backend.checkpoint()
    backend.clock.advance(INTERVAL_MS)
    backend.manager.poll()
    backend.add("a", "2")
    second = backend.checkpoint()
    assert (len(first.materialized), len(second.materialized)) == (0, 1)
    writer: Any = backend.changelog._writer
    assert writer._ledger.lowest == 0
    backend.changelog.notify_checkpoint_subsumed(1)
    assert writer._ledger.lowest > 0
    assert backend.restored(second) == {"a": ["1", "2"]}


# ----------------------------------------------------------------------------------- failures


def test_failures_are_counted_and_too_many_in_a_row_end_the_subtask() -> None:
    backend = Backend(max_failures_allowed=2)
    backend.past_first_delay()
    backend.fault = Fault.TRUNCATED
    for failed in (1, 2):
        backend.add("a", f"{failed}")
        backend.clock.advance(INTERVAL_MS)
        backend.manager.poll()
        assert (backend.manager.failed, backend.manager.consecutive_failures) == (failed, failed)
        assert backend.checkpoint().materialized == ()
    # One that succeeds starts the count anew.
    backend.fault = Fault.NONE
    backend.clock.advance(INTERVAL_MS)
    backend.manager.poll()
    assert backend.manager.consecutive_failures == 0
    handle = backend.checkpoint()
    assert len(handle.materialized) == 1
    assert backend.restored(handle) == {"a": ["1", "2"]}

    backend.fault = Fault.REFUSED
    for _ in range(2):
        backend.add("a", "more")
        backend.clock.advance(INTERVAL_MS)
        backend.manager.poll()
    backend.clock.advance(INTERVAL_MS)
    with pytest.raises(CheckpointError, match=r"Materializing the state failed 3 times in a row"):
        backend.manager.poll()
    # Nothing is lost with it: the base before and the log hold all.
    assert backend.restored(backend.checkpoint()) == {"a": ["1", "2", "more", "more"]}
    backend.storage.close()


def test_a_base_that_is_needed_at_once_says_why_it_could_not_be_written(backend: Backend) -> None:
    backend.add("a", "1")
    backend.fault = Fault.REFUSED
    with pytest.raises(StorageError, match="refused"):
        backend.manager.materialize_now()
    backend.fault = Fault.NONE
    backend.manager.materialize_now()
    handle = backend.checkpoint()
    assert len(handle.materialized) == 1
    assert handle.non_materialized == ()
    assert backend.restored(handle) == {"a": ["1"]}


# --------------------------------------------------------------------------------- compaction


def test_many_small_segments_become_one_with_the_same_changes(backend: Backend) -> None:
    for number in range(40):
        backend.add(f"key-{number % 7}", f"name {number}")
        handle = backend.checkpoint()
    [log] = handle.non_materialized
    assert isinstance(log, ChangelogStateHandleStream)
    # One a checkpoint, and one more where the first log reached the threshold between two.
    assert count_segments([log]) >= 40
    segments = {stream for stream, _ in log.handles_and_offsets}
    reader = StateChangelogHandleReader(
        HandleResolver(backend.disk, backend.layout.root).read_segment
    )
    before = list(reader.get_changes(log))

    options = ChangelogOptions.of(base_path="memory://test/base")
    storage = FsStateChangelogStorage(
        JobID.from_hex("ab" * 16),
        options,
        backend.disk,
        scheduler=StateChangeUploadScheduler.direct_scheduler,
    )
    [compacted] = compact_log((log,), reader, storage.create_writer("u", ALL), 41)
    assert isinstance(compacted, ChangelogStateHandleStream)
    assert count_segments([compacted]) == 1
    assert list(reader.get_changes(compacted)) == before
    # The old files stay: checkpoints before name them.
    assert all(
        isinstance(segment, FileStateHandle) and segment.path in backend.disk.files
        for segment in segments
    )
    whole = ChangelogStateBackendHandle((), (compacted,), ALL, 0, 41, 0, "id")
    assert backend.restored(whole) == backend.model
    storage.close()


def test_a_log_that_cannot_be_written_together_stays_as_it_is(backend: Backend) -> None:
    for number in range(5):
        backend.add("a", f"{number}")
        handle = backend.checkpoint()
    files = set(backend.disk.files)
    io = FaultyFileIO(backend.disk, lambda: Fault.TRUNCATED, pause=lambda ms: None)
    options = ChangelogOptions.of(base_path="memory://test/base", retry_policy="none")
    storage = FsStateChangelogStorage(
        JobID.from_hex("ab" * 16),
        options,
        io,
        scheduler=StateChangeUploadScheduler.direct_scheduler,
    )
    reader = StateChangelogHandleReader(
        HandleResolver(backend.disk, backend.layout.root).read_segment
    )
    with pytest.raises(Exception, match="truncated"):
        compact_log(handle.non_materialized, reader, storage.create_writer("u", ALL), 6)
    storage.close()
    assert set(backend.disk.files) == files
    assert backend.restored(handle) == backend.model
