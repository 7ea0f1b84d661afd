"""A changelog under a manual clock on disks that break, and the model that it is held against.

Several writers share the storage: its scheduler, its files and its limits. Checked all along: no
acknowledged change is lost or doubled, no file that a live handle names is deleted (nor a local
copy that a checkpoint may still restore from), a call that is against the rules is refused and
changes nothing, and bytes in flight stay below the promised bound. At the end: once the disks work,
one persist makes durable whatever failed; every future has ended, no bytes in flight leaked, and
every file that stays without need is reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from dstl_core.changelog import FsStateChangelogStorage, FsStateChangelogWriter
from dstl_core.changelog.local_recovery import LocalRecoveryConfig
from dstl_core.changelog.persist import SnapshotResult
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.storage import segment_reader
from dstl_core.changelog.upload.task import UploadTask
from dstl_core.changelog.writer import FsPersistFuture
from dstl_core.config import ChangelogOptions
from dstl_core.errors import (
    BackpressureTimeoutError,
    ChangelogError,
    ChangesTruncatedError,
    ConfigError,
    UploadFailedError,
    WriterClosedError,
)
from dstl_core.model.handle import ChangelogStateHandleStream
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.storage.location import Location
from dstl_core.testing import Fault, FaultyFileIO, ManualScheduler, MemoryFileIO, seeded_faults

KEY_GROUPS = KeyGroupRange(0, 3)
BASE = "s3://bucket/base"
LOCAL = "file:/local"
THRESHOLD = 60
MAX_IN_FLIGHT = 400

Changes = list[tuple[int, bytes]]


@dataclass
class Handle:
    """A handle that a future gave: what it has to hold, and whether anybody still needs it."""

    from_: int
    to: int
    checkpoint: int
    expected: dict[int, list[bytes]]
    result: SnapshotResult[ChangelogStateHandleStream]
    confirmed: bool = False
    dead: bool = False

    @property
    def live(self) -> bool:
        return self.confirmed or not self.dead

    @property
    def handle(self) -> ChangelogStateHandleStream:
        return self.result.job_manager_owned_snapshot

    @property
    def files(self) -> set[str]:
        return {stream.path for stream, _ in self.handle.handles_and_offsets}  # type: ignore[union-attr]

    @property
    def local_files(self) -> set[str]:
        local = self.result.task_local_snapshot
        if local is None:
            return set()
        return {stream.path for stream, _ in local.handles_and_offsets} - self.files  # type: ignore[union-attr]


@dataclass
class Model:
    """What a writer has to know: closed sets by number, the open one, the lower bound."""

    sets: list[Changes] = field(default_factory=list)
    open: Changes = field(default_factory=list)
    lowest: int = 0
    closed: bool = False

    def append(self, change: tuple[int, bytes]) -> None:
        self.open.append(change)
        if sum(len(value) for _, value in self.open) >= THRESHOLD:
            self.roll_over()

    def roll_over(self) -> None:
        if self.open:
            self.sets.append(self.open)
            self.open = []

    def by_group(self, from_: int) -> dict[int, list[bytes]]:
        by_key_group: dict[int, list[bytes]] = {}
        for changes in self.sets[from_:]:
            for key_group, value in changes:
                by_key_group.setdefault(key_group, []).append(value)
        return by_key_group


@dataclass
class Subject:
    writer: FsStateChangelogWriter
    model: Model = field(default_factory=Model)
    handles: list[Handle] = field(default_factory=list)
    futures: list[FsPersistFuture] = field(default_factory=list)


class World:
    """The storage, its writers and their models; ``act`` interprets one instruction."""

    def __init__(self, seed: int, writers: int = 2) -> None:
        self.random = Random(seed)
        self.threads = ManualScheduler(random=Random(seed))
        self.disk, self.local_disk = MemoryFileIO(), MemoryFileIO()
        self.io, self.local_io = (
            FaultyFileIO(disk, lambda: Fault.NONE, pause=self.threads.pause, pause_ms=2_500)
            for disk in (self.disk, self.local_disk)
        )
        self.storage = FsStateChangelogStorage(
            JobID.for_name("job"),
            ChangelogOptions.of(
                base_path=BASE,
                preemptive_persist_threshold=THRESHOLD,
                persist_size_threshold=150,
                max_in_flight=MAX_IN_FLIGHT,
                num_upload_threads=2,
                compression_enabled=seed % 2 == 0,
            ),
            self.io,
            local_recovery=LocalRecoveryConfig(
                (Location.parse(LOCAL),) if seed % 3 == 0 else (), self.local_io
            ),
            threads=self.threads,
            new_name=iter(map(str, range(10**9))).__next__,
        )
        self.largest_task = self._watch_tasks()
        self.reader = StateChangelogHandleReader(
            segment_reader(
                {"s3": self.disk, "file": self.local_disk},
                [Location.parse(BASE), Location.parse(LOCAL)],
            )
        )
        self._writers = writers
        self.mail: deque[Callable[[], None]] = deque()
        self.subjects = [self._subject(index) for index in range(writers)]
        self.broken = False
        """Whether a disk ever was."""
        self.closed = False
        """Whether the storage is."""
        self.failures: list[Exception] = []
        """What callbacks raised."""
        self.acknowledged = 0
        """Changes in the handles that futures gave."""
        self.refused = 0
        """Calls against the rules."""
        self.left: set[str] = set()
        """Files of sets that a closed writer left to the checkpoints that were given them."""
        self._next = 0

    def _subject(self, index: int) -> Subject:
        mailbox = self.mail.append if index % 2 else None
        return Subject(self.storage.create_writer("operator", KEY_GROUPS, mailbox))

    def _watch_tasks(self) -> Callable[[], int]:
        """Notes the size of the largest task that goes through the scheduler."""
        scheduler, sizes = self.storage._scheduler, [0]
        real = scheduler.upload

        def upload(task: UploadTask) -> None:
            sizes[0] = max(sizes[0], task.size)
            real(task)

        scheduler.upload = upload  # type: ignore[method-assign]
        return lambda: sizes[0]

    def act(self, code: int, argument: int) -> None:
        subject = self.subjects[argument % self._writers]
        writer, model = subject.writer, subject.model
        argument //= self._writers
        if code < 40:
            self._append(subject, argument)
        elif code < 48:
            self._append_batch(subject, argument)
        elif code < 53:
            # The writer rolls over after it has drained: callbacks find the set still open.
            number = writer.next_sequence_number()
            model.roll_over()
            assert number.number == len(model.sets)
        elif code < 70:
            self._persist(subject, argument)
        elif code < 76:
            self._confirm_some(subject, argument)
        elif code < 79:
            writer.reset(SequenceNumber(0), SequenceNumber(0), argument % 5)
        elif code < 84:
            self._truncate(subject, argument)
        elif code < 86:
            self._misuse(subject, argument)
        elif code < 92:
            self._wait(subject, argument)
        elif code < 97:
            self._break_or_mend(argument)
        else:
            self._replace(argument)

    def _value(self, argument: int) -> bytes:
        # Every value is another one, so that a doubled change shows.
        self._next += 1
        return b"%d:" % self._next + bytes(argument % 40)

    def _append(self, subject: Subject, argument: int) -> None:
        key_group = argument % 5 - 1
        value = self._value(argument // 5)
        try:
            if key_group < 0:
                subject.writer.append_meta(value)
            else:
                subject.writer.append(key_group, value)
        except BackpressureTimeoutError:
            return
        subject.model.append((key_group, value))

    def _append_batch(self, subject: Subject, argument: int) -> None:
        changes = [(i % 4, self._value(argument + i * 7)) for i in range(1 + argument % 6)]
        appended = len(changes)
        try:
            subject.writer.append_batch([g for g, _ in changes], [v for _, v in changes])
        except BackpressureTimeoutError as error:
            appended = int(str(error.context["appended"]))
        for change in changes[:appended]:
            subject.model.append(change)

    def _persist(self, subject: Subject, argument: int) -> None:
        model = subject.model
        subject.writer.drain()
        from_ = model.lowest + argument % (len(model.sets) - model.lowest + 1)
        checkpoint = argument % 50
        try:
            future = subject.writer.persist(SequenceNumber(from_), checkpoint)
        except BackpressureTimeoutError:
            model.roll_over()
            return
        model.roll_over()
        subject.futures.append(future)
        to, expected = len(model.sets), model.by_group(from_)

        def take(future: FsPersistFuture) -> None:
            error = future.exception()
            if error is None:
                handle = Handle(from_, to, checkpoint, expected, future.result(0))
                subject.handles.append(handle)
                # The callback of a persist that ended in the same call may have truncated.
                handle.dead = from_ < model.lowest
                if not handle.dead:
                    self._check(handle)
                    self._decide(subject, handle, argument)
            elif isinstance(error, UploadFailedError):
                assert self.broken or self.closed
            elif isinstance(error, ChangesTruncatedError):
                assert from_ < model.lowest
            else:
                assert isinstance(error, WriterClosedError)
                assert model.closed or self.closed

        def done(future: FsPersistFuture) -> None:
            # What a callback raises is logged and forgotten: here it must not be.
            try:
                take(future)
            except Exception as failure:
                self.failures.append(failure)

        future.add_done_callback(done)

    def _decide(self, subject: Subject, handle: Handle, argument: int) -> None:
        """What a callback may do: it is on the writer's thread, in the middle of a call."""
        if argument % 5 == 0:
            self._confirm(subject, handle)
        if argument % 10 == 0 and not handle.dead:
            self._truncate_to(subject, handle.to)

    def _confirm_some(self, subject: Subject, argument: int) -> None:
        subject.writer.drain()
        open_ = [each for each in subject.handles if not each.dead and not each.confirmed]
        if open_:
            self._confirm(subject, open_[argument % len(open_)])

    def _confirm(self, subject: Subject, handle: Handle) -> None:
        subject.writer.confirm(
            SequenceNumber(handle.from_), SequenceNumber(handle.to), handle.checkpoint
        )
        handle.confirmed = True

    def _truncate(self, subject: Subject, argument: int) -> None:
        subject.writer.drain()
        model = subject.model
        self._truncate_to(subject, model.lowest + argument % (len(model.sets) - model.lowest + 1))

    def _truncate_to(self, subject: Subject, to: int) -> None:
        # First the model: the writer fails what waits for the changes before it returns.
        subject.model.lowest = to
        subject.writer.truncate(SequenceNumber(to))
        for handle in subject.handles:
            handle.dead = handle.dead or handle.from_ < to

    def _misuse(self, subject: Subject, argument: int) -> None:
        """What is against the rules is refused, and nothing has changed."""
        writer, model = subject.writer, subject.model
        writer.drain()
        above = SequenceNumber(len(model.sets) + 1)
        calls: list[Callable[[], object]] = [
            lambda: writer.persist(above, 1),
            lambda: writer.truncate(above),
            lambda: writer.confirm(SequenceNumber(0), above, 1),
            lambda: writer.append(9, b"of another writer"),
            lambda: writer.append_batch([0, 9], [b"fits", b"does not"]),
        ]
        if model.lowest:
            below = SequenceNumber(model.lowest - 1)
            calls += [lambda: writer.persist(below, 1), lambda: writer.truncate(below)]
        for old in self.subjects[self._writers :]:
            calls.append(lambda old=old: old.writer.append(0, b"late"))  # type: ignore[misc]
            calls.append(lambda old=old: old.writer.persist(SequenceNumber(0), 1))  # type: ignore[misc]
        try:
            calls[argument % len(calls)]()
        except (ChangelogError, ConfigError):
            self.refused += 1
        else:
            raise AssertionError("a call against the rules was not refused")

    def _wait(self, subject: Subject, argument: int) -> None:
        """Time passes; mailboxes are emptied, or somebody waits for a result."""
        self.threads.advance(argument % 1_500)
        while self.mail:
            self.mail.popleft()()
        waiting = [each for each in subject.futures if not each.done()]
        if waiting and argument % 3 == 0:
            try:
                waiting[argument % len(waiting)].result(argument % 7)
            except (TimeoutError, UploadFailedError, ChangesTruncatedError):
                pass  # the future's callback looks at that
        elif argument % 3 == 1:
            subject.writer.drain()

    def _break_or_mend(self, argument: int) -> None:
        if argument % 3 == 0:
            self._mend()
            return
        self.broken = True
        random = self.random
        share = 0.9 if argument % 10 == 1 else 0.15
        weights = {fault: share / 5 for fault in Fault if fault is not Fault.NONE}
        for io in (self.io, self.local_io):
            io.next_fault = seeded_faults(random, weights)
            io.delete_fails = lambda: random.random() < 0.2

    def _mend(self) -> None:
        for io in (self.io, self.local_io):
            io.next_fault = lambda: Fault.NONE
            io.delete_fails = lambda: False

    def _replace(self, argument: int) -> None:
        """Closes a writer; another one takes its place and shares its files' fate."""
        index = argument % self._writers
        subject = self.subjects[index]
        self._close(subject, argument // self._writers)
        self.subjects.append(subject)
        self.subjects[index] = self._subject(index)

    def _close(self, subject: Subject, argument: int) -> None:
        model = subject.model
        # What the drain inside completes counts as given out before the release.
        subject.writer.drain()
        from_ = len(model.sets)
        model.closed = True
        if argument % 2:
            subject.writer.close()
        else:
            from_ = argument % (len(model.sets) + 1)
            subject.writer.truncate_and_close(SequenceNumber(from_))
        for handle in subject.handles:
            handle.dead = handle.dead or handle.to > from_
            for number, (stream, _) in enumerate(handle.handle.handles_and_offsets, handle.from_):
                if model.lowest <= number < from_:
                    self.left.add(stream.path)  # type: ignore[union-attr]
        assert all(future.done() for future in subject.futures)

    # ------------------------------------------------------------------------------ checks

    def _check(self, handle: Handle) -> None:
        for local in (None, handle.result.task_local_snapshot):
            by_key_group: dict[int, list[bytes]] = {}
            for read in self.reader.get_changes(handle.handle, local=local):
                by_key_group.setdefault(read.key_group, []).append(read.change)
            assert by_key_group == handle.expected
        changes = [change for group in by_key_group.values() for change in group]
        assert handle.handle.state_size == sum(map(len, changes))
        self.acknowledged += len(changes)

    @property
    def live(self) -> list[Handle]:
        return [each for subject in self.subjects for each in subject.handles if each.live]

    def check(self) -> None:
        """What holds after every instruction."""
        for failure in self.failures:
            raise failure
        for handle in self.live:
            assert handle.files <= self.disk.files.keys()
        bound = 2 * MAX_IN_FLIGHT + self._writers * self.largest_task()
        assert 0 <= self.storage.bytes_in_flight <= bound

    def end(self, argument: int) -> None:
        """Closes everything, in one order or another; nothing may be left open."""
        if argument % 2:
            self._recover()
        elif argument % 3 == 0:
            self.closed = True
            self.storage.close()
        for index, subject in enumerate(self.subjects):
            if not subject.model.closed:
                self._close(subject, argument // 3 + index)
        self.storage.close()
        self.threads.run_until_idle()
        assert all(future.done() for subject in self.subjects for future in subject.futures)
        for handle in self.live:
            self._check(handle)
        self._check_what_is_left()
        self.check()
        assert self.storage.bytes_in_flight == 0
        self.threads.close(0)

    def _recover(self) -> None:
        """The disks work again: the next persist makes all durable, whatever failed before."""
        self._mend()
        self.threads.run_until_idle()
        for subject in self.subjects[: self._writers]:
            subject.writer.drain()
            self._persist(subject, 0)
            future = subject.futures[-1]
            self.threads.run_until_idle()
            subject.writer.drain()
            assert future.done()
            assert future.exception() is None

    def _check_what_is_left(self) -> None:
        orphans = set(self.storage.orphans)
        needed = {path for handle in self.live for path in handle.files}
        assert not orphans & needed
        assert self.disk.files.keys() - needed - self.left <= orphans
        handles = [each for subject in self.subjects for each in subject.handles]
        copies = {path for handle in handles for path in handle.local_files}
        assert self.local_disk.files.keys() - copies <= orphans
