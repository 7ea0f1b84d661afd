"""A changelog under a manual clock on a disk that breaks, and the model that it is held against.

Checked all along: no acknowledged change is lost or doubled, no file that a live handle names is
deleted. At the end: every future has ended, no bytes in flight leaked, and every file that stays
without need is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from dstl_core.changelog import FsStateChangelogStorage, FsStateChangelogWriter
from dstl_core.changelog.reader import StateChangelogHandleReader
from dstl_core.changelog.storage import segment_reader
from dstl_core.changelog.writer import FsPersistFuture
from dstl_core.config import ChangelogOptions
from dstl_core.errors import (
    BackpressureTimeoutError,
    ChangesTruncatedError,
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
THRESHOLD = 60

Changes = list[tuple[int, bytes]]


@dataclass
class Handle:
    """A handle that a future gave: what it has to hold, and whether anybody still needs it."""

    from_: int
    to: int
    checkpoint: int
    expected: dict[int, list[bytes]]
    handle: ChangelogStateHandleStream
    confirmed: bool = False
    dead: bool = False

    @property
    def live(self) -> bool:
        return self.confirmed or not self.dead

    @property
    def files(self) -> set[str]:
        return {stream.path for stream, _ in self.handle.handles_and_offsets}  # type: ignore[union-attr]


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
        found: dict[int, list[bytes]] = {}
        for changes in self.sets[from_:]:
            for key_group, value in changes:
                found.setdefault(key_group, []).append(value)
        return found


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
        self.disk = MemoryFileIO()
        self.io = FaultyFileIO(
            self.disk, lambda: Fault.NONE, pause=self.threads.pause, pause_ms=2_500
        )
        self.storage = FsStateChangelogStorage(
            JobID.for_name("job"),
            ChangelogOptions.of(
                base_path=BASE,
                preemptive_persist_threshold=THRESHOLD,
                persist_size_threshold=150,
                max_in_flight=400,
                num_upload_threads=2,
                compression_enabled=seed % 2 == 0,
            ),
            self.io,
            threads=self.threads,
            new_name=iter(map(str, range(10**9))).__next__,
        )
        self.reader = StateChangelogHandleReader(
            segment_reader({"s3": self.disk}, [Location.parse(BASE)])
        )
        self._writers = writers
        self.subjects = [self._subject() for _ in range(writers)]
        self.acknowledged = 0
        """Changes in the handles that futures gave."""
        self.left: set[str] = set()
        """Files of sets that a closed writer left to the checkpoints that were given them."""
        self._next = 0

    def _subject(self) -> Subject:
        return Subject(self.storage.create_writer("operator", KEY_GROUPS))

    def act(self, code: int, argument: int) -> None:
        subject = self.subjects[argument % self._writers]
        writer, model = subject.writer, subject.model
        argument //= self._writers
        if code < 40:
            self._append(subject, argument)
        elif code < 48:
            self._append_batch(subject, argument)
        elif code < 53:
            writer.next_sequence_number()
            model.roll_over()
        elif code < 70:
            self._persist(subject, argument)
        elif code < 76:
            self._confirm(subject, argument)
        elif code < 79:
            writer.reset(SequenceNumber(0), SequenceNumber(0), argument % 5)
        elif code < 84:
            self._truncate(subject, argument)
        elif code < 92:
            self.threads.advance(argument % 1_500)
            writer.drain()
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

        def done(future: FsPersistFuture) -> None:
            error = future.exception()
            if error is None:
                handle = future.result(0).job_manager_owned_snapshot
                found = Handle(from_, to, checkpoint, expected, handle)
                subject.handles.append(found)
                self._check(found)
            else:
                assert isinstance(
                    error, UploadFailedError | ChangesTruncatedError | WriterClosedError
                )

        future.add_done_callback(done)

    def _confirm(self, subject: Subject, argument: int) -> None:
        open_ = [each for each in subject.handles if not each.dead and not each.confirmed]
        if open_:
            chosen = open_[argument % len(open_)]
            subject.writer.confirm(
                SequenceNumber(chosen.from_), SequenceNumber(chosen.to), chosen.checkpoint
            )
            chosen.confirmed = True

    def _truncate(self, subject: Subject, argument: int) -> None:
        model = subject.model
        to = model.lowest + argument % (len(model.sets) - model.lowest + 1)
        subject.writer.truncate(SequenceNumber(to))
        model.lowest = to
        for each in subject.handles:
            each.dead = each.dead or each.from_ < to

    def _break_or_mend(self, argument: int) -> None:
        random = self.random
        if argument % 3:
            share = 0.9 if argument % 10 == 1 else 0.15
            self.io.next_fault = seeded_faults(
                random,
                {
                    Fault.REFUSED: share / 5,
                    Fault.TRUNCATED: share / 5,
                    Fault.BAD_CLOSE: share / 5,
                    Fault.SLOW: share / 5,
                    Fault.HANGING: share / 5,
                },
            )
            self.io.delete_fails = lambda: random.random() < 0.2
        else:
            self.io.next_fault = lambda: Fault.NONE
            self.io.delete_fails = lambda: False

    def _replace(self, argument: int) -> None:
        """Closes a writer; another one takes its place and shares its files' fate."""
        index = argument % self._writers
        subject = self.subjects[index]
        self._close(subject, argument // self._writers)
        self.subjects.append(subject)
        self.subjects[index] = self._subject()

    def _close(self, subject: Subject, argument: int) -> None:
        model = subject.model
        # What the drain inside completes counts as given out before the release.
        subject.writer.drain()
        from_ = len(model.sets)
        if argument % 2:
            subject.writer.close()
        else:
            from_ = argument % (len(model.sets) + 1)
            subject.writer.truncate_and_close(SequenceNumber(from_))
        for each in subject.handles:
            each.dead = each.dead or each.to > from_
            for number, (stream, _) in enumerate(each.handle.handles_and_offsets, each.from_):
                if model.lowest <= number < from_:
                    self.left.add(stream.path)  # type: ignore[union-attr]
        model.closed = True
        assert all(future.done() for future in subject.futures)

    # ------------------------------------------------------------------------------ checks

    def _check(self, handle: Handle) -> None:
        found: dict[int, list[bytes]] = {}
        for each in self.reader.get_changes(handle.handle):
            found.setdefault(each.key_group, []).append(each.change)
        assert found == handle.expected
        self.acknowledged += sum(map(len, found.values()))

    @property
    def live(self) -> list[Handle]:
        return [each for subject in self.subjects for each in subject.handles if each.live]

    def check_files(self) -> None:
        for handle in self.live:
            assert handle.files <= self.disk.files.keys()

    def end(self, argument: int) -> None:
        """Closes everything, in one order or another; nothing may be left open."""
        if argument % 3 == 0:
            self.storage.close()
        for index, subject in enumerate(self.subjects):
            if not subject.model.closed:
                self._close(subject, argument // 3 + index)
        self.storage.close()
        self.threads.run_until_idle()
        assert all(future.done() for subject in self.subjects for future in subject.futures)
        for handle in self.live:
            self._check(handle)
        needed = {path for handle in self.live for path in handle.files}
        orphans = set(self.storage.orphans)
        assert not orphans & needed
        assert self.disk.files.keys() - needed - self.left <= orphans
        assert self.storage.bytes_in_flight == 0
        self.threads.close(0)
