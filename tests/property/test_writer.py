"""The changelog writer against a model of twenty lines: a list of closed sets and a lower bound.

A program appends, persists, confirms, resets, truncates and closes, while uploads end, fail and
are grouped into files as they please. After every step: what a persist acknowledged is readable
and is exactly what was appended, and a persist fails only for a reason that there was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.changelog.writer import FsPersistFuture, FsStateChangelogWriter
from dstl_core.errors import ChangelogError, StorageError, UploadFailedError, WriterClosedError
from dstl_core.model.sequence import SequenceNumber
from tests.unit.changelog.manual_upload import Changelog, files_of, handle_of

Change = tuple[int, bytes]
Step = tuple[str, int, int]

KINDS = [
    *["append"] * 8,
    *["persist"] * 4,
    *["truncate", "truncate", "confirm", "confirm", "complete", "complete", "complete last"],
    *["fail", "drain", "next", "reset", "close"],
]
# What to do, with which writer, and a number that says how.
STEPS: st.SearchStrategy[Step] = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 1), st.integers(0, 11)
)
PROGRAMS = st.tuples(
    st.sampled_from([0, 50, 100, 10_000]), st.lists(STEPS, min_size=40, max_size=120)
)


@dataclass(eq=False)
class Persisted:
    """A persist and what it has to give."""

    from_: int
    to: int
    expected: list[list[Change]]
    future: FsPersistFuture
    confirmed: bool = False


@dataclass
class Modelled:
    """A writer beside its model."""

    writer: FsStateChangelogWriter
    threshold: int
    sets: list[list[Change]] = field(default_factory=list)
    active: list[Change] = field(default_factory=list)
    lowest: int = 0
    persisted: list[Persisted] = field(default_factory=list)
    closed: bool = False

    def append(self, key_group: int, change: bytes) -> None:
        if key_group < 0:
            self.writer.append_meta(change)
        else:
            self.writer.append(key_group, change)
        self.active.append((key_group, change))
        if sum(len(each) for _, each in self.active) >= self.threshold:
            self.roll_over()

    def roll_over(self) -> None:
        if self.active:
            self.sets.append(self.active)
            self.active = []

    def next(self) -> SequenceNumber:
        number = self.writer.next_sequence_number()
        self.roll_over()
        assert number.number == len(self.sets)
        return number

    def persist(self, from_: int, checkpoint_id: int) -> Persisted:
        future = self.writer.persist(SequenceNumber(from_), checkpoint_id)
        self.roll_over()
        made = Persisted(from_, len(self.sets), [list(each) for each in self.sets[from_:]], future)
        self.persisted.append(made)
        return made


def by_group(sets: list[list[Change]]) -> dict[int, list[bytes]]:
    by_key_group: dict[int, list[bytes]] = {}
    for changes in sets:
        for key_group, change in changes:
            by_key_group.setdefault(key_group, []).append(change)
    return by_key_group


class Run:
    """One program on two writers that share a scheduler, a registry and their files."""

    def __init__(self, threshold: int) -> None:
        self.log = Changelog(threshold=threshold)
        self.both = [Modelled(self.log.writer(), threshold) for _ in range(2)]
        self.failures = 0
        self.serial = 0

    def step(self, name: str, which: int, how: int) -> None:
        match name:
            case "complete":
                self.log.scheduler.complete_upload(1 + how % 3)
            case "complete last":
                if self.log.scheduler.queued:
                    self.log.scheduler.complete_last()
            case "fail":
                self.failures += bool(self.log.scheduler.queued)
                self.log.scheduler.fail_upload(StorageError("no disk"))
            case _:
                if not self.both[which].closed:
                    self._call(self.both[which], name, how)

    def _call(self, modelled: Modelled, name: str, how: int) -> None:
        writer = modelled.writer
        match name:
            case "append":
                self.serial += 1
                change = f"{self.serial}-".encode() + bytes((0, 1, 30, 60)[how % 4])
                modelled.append(how % 7 - 1, change)
            case "next":
                modelled.next()
            case "persist":
                modelled.persist(self._between(modelled, (0.0, 0.0, 0.5, 1.0)[how % 4]), how)
            case "confirm":
                done = [each for each in modelled.persisted if self._is_good(modelled, each)]
                if done:
                    made = done[how % len(done)]
                    writer.confirm(SequenceNumber(made.from_), SequenceNumber(made.to), how)
                    made.confirmed = True
            case "reset":
                writer.reset(SequenceNumber(0), SequenceNumber(0), how)
            case "truncate":
                to = self._between(modelled, (0.0, 0.3, 0.6, 1.0)[how % 4])
                writer.truncate(SequenceNumber(to))
                modelled.lowest = to
            case "drain":
                writer.drain()
            case "close" if how == 0:
                writer.close()
                modelled.closed = True

    def _between(self, modelled: Modelled, fraction: float) -> int:
        """A number between the lower bound and the next one."""
        top = modelled.next().number
        return modelled.lowest + int(fraction * (top - modelled.lowest))

    def _is_good(self, modelled: Modelled, made: Persisted) -> bool:
        """Whether a persist succeeded and its files are promised to be there."""
        good = made.future.done() and made.future.exception() is None
        return good and (made.confirmed or made.from_ >= modelled.lowest)

    def check(self) -> None:
        for modelled in self.both:
            for made in modelled.persisted:
                if not made.future.done():
                    assert not modelled.closed, "a closed writer leaves nobody waiting"
                    assert made.from_ >= modelled.lowest, "truncated changes cannot arrive"
                elif self._is_good(modelled, made):
                    assert by_group([self.log.read(handle_of(made.future))]) == by_group(
                        made.expected
                    )
                else:
                    self._check_failure(modelled, made)

    def _check_failure(self, modelled: Modelled, made: Persisted) -> None:
        match made.future.exception():
            case None:
                assert made.from_ < modelled.lowest
            case UploadFailedError():
                assert self.failures
            case WriterClosedError():
                assert modelled.closed
            case ChangelogError():
                assert made.from_ < modelled.lowest
            case error:
                raise AssertionError(f"a persist failed with {error!r}")

    def finish(self) -> None:
        """The disk is back: everybody gets an answer, and nothing is lost or doubled."""
        for modelled in self.both:
            if not modelled.closed:
                modelled.persist(modelled.lowest, 0)
        self.log.scheduler.complete_upload()
        for modelled in self.both:
            if modelled.closed:
                continue
            modelled.writer.drain()
            last = modelled.persisted[-1]
            assert all(made.future.done() for made in modelled.persisted)
            assert self._is_good(modelled, last)
            assert last.expected == modelled.sets[modelled.lowest :]
            handle = handle_of(last.future)
            assert handle.state_size == sum(len(c) for each in last.expected for _, c in each)
            assert len(handle.handles_and_offsets) == len(last.expected)
        self.check()
        self._close()

    def _close(self) -> None:
        """After the end, what checkpoints own is still there, and nothing else."""
        closed_before = any(modelled.closed for modelled in self.both)
        for modelled in self.both:
            modelled.writer.truncate_and_close(SequenceNumber(0))
        owned = set()
        for modelled in self.both:
            for made in modelled.persisted:
                if made.confirmed:
                    owned |= files_of(handle_of(made.future))
        assert owned <= self.log.file_names()
        # A writer that just closes leaves its files to whoever was told of them, or to gc.
        assert closed_before or owned == self.log.file_names()


@pytest.mark.slow
@given(PROGRAMS)
def test_no_change_is_lost_or_doubled_and_nobody_waits_for_ever(
    program: tuple[int, list[Step]],
) -> None:
    threshold, steps = program
    run = Run(threshold)
    try:
        for step in steps:
            run.step(*step)
            run.check()
        run.finish()
    finally:
        run.log.remove()
