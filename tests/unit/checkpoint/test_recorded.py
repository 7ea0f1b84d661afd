"""The view of a commit log: from its summary as from all of its records, and at a bounded price."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.recorded import KEPT, RecordedCheckpoints, subsumed
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock, MemoryFileIO
from tests.uncertain_file_io import FixedClock, UncertainFileIO

STEP_MS = 1_000
FOLDER = Location.parse("s3://bucket/job/_dstl/log")


class CountingFileIO(UncertainFileIO):
    def __init__(self, files: FileIO) -> None:
        super().__init__(files)
        self.requests = 0

    def read_bytes(self, location: Location, start: int = 0, end: int | None = None) -> bytes:
        self.requests += 1
        return super().read_bytes(location, start, end)


class History:
    """A pipeline's log, and beside it what it comes to, by lists and sets."""

    def __init__(self) -> None:
        self.files = CountingFileIO(MemoryFileIO())
        self.clock = ManualClock()
        self.log = CommitLog(self.files, FOLDER, self.clock)
        self.seen = RecordedCheckpoints(self.log, lambda _: None)
        self.held: list[CompletedCheckpoint] = []
        self.commits: list[CompletedCheckpoint] = []
        self.ids: set[int] = set()
        self.next_id = 1
        self.claims = 0

    def claim(self, in_flight: int = 1) -> None:
        self.claims += 1
        self.next_id += in_flight
        payload = {"first_checkpoint_id": self.next_id, "in_flight": in_flight}
        self.log.claim(f"owner {self.claims}", lambda: payload)
        self._indexed()

    def append(self, type_: Any, checkpoint_id: int, **payload: Any) -> None:
        body = {"checkpoint_id": checkpoint_id, "metadata_sha256": "", "facts": {}, **payload}
        self.clock.advance(STEP_MS)
        record = self.log.append(f"owner {self.claims}", type_, body)
        if type_ in ("commit", "restore"):
            self.held.append(CompletedCheckpoint.of(record))
        if type_ == "commit":
            self.commits.append(self.held[-1])
        if type_ != "restore":
            self.ids.add(checkpoint_id)
        self.next_id = max(self.next_id, checkpoint_id + 1)
        self._indexed()

    def commit(self) -> None:
        self.append("commit", self.next_id, facts={"changes": len(self.commits)})

    def discard(self, kept: Sequence[int]) -> None:
        self.log.append(f"owner {self.claims}", "discard", {"kept_ids": list(kept)})
        self.held = [each for each in self.held if each.checkpoint_id in kept]
        self._indexed()

    def _indexed(self) -> None:
        self.seen.read()
        self.log.write_index(self.seen.summary)

    def reopened(self) -> RecordedCheckpoints:
        log = CommitLog(self.files, FOLDER, FixedClock())
        log.refresh()
        seen = RecordedCheckpoints(log, lambda _: None)
        seen.read()
        return seen

    def younger(self, than_ms: int, least: int) -> list[CompletedCheckpoint]:
        """What a store keeps that retains checkpoints by age, and some at least."""
        since = max((each.committed_ms for each in self.held), default=0) - than_ms
        young = [each for each in self.held if each.committed_ms > since]
        gone = subsumed(self.held, max(least, len(young)))
        return [each for each in self.held if each not in gone]

    def check(self, seen: RecordedCheckpoints) -> None:
        assert seen.next_id == self.next_id
        assert seen.latest == (self.held[-1] if self.held else None)
        for count in (1, 3, 200):
            gone = subsumed(self.held, count)
            assert seen.retained(count) == [each for each in self.held if each not in gone]
        for steps in (2, 100, 10**6):
            assert seen.retained(3, steps * STEP_MS) == self.younger(steps * STEP_MS, 3)
        assert list(seen.commits()) == self.commits[::-1]
        ids = {each.checkpoint_id for each in self.held[::7]} | {0, 2, self.next_id, 10**6}
        expected = [
            commit
            for commit in self.held
            if commit.checkpoint_id in ids or commit.location is not None
        ]
        assert seen.held(ids) == seen.held(ids) == expected
        for id_ in range(max(0, self.next_id - 5), self.next_id + 2):
            assert seen.has_id(id_) == (id_ in self.ids)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_the_same_from_its_summary_and_from_its_records(seed: int) -> None:
    chooser, history = random.Random(seed), History()
    history.claim()
    if seed % 2:
        history.append("restore", 7, location="s3://other/chk-7", claim_mode="CLAIM")
    for step in range(900):
        what = chooser.random()
        if what < 0.1:
            history.claim(chooser.randrange(1, 4))
        elif what < 0.2:
            history.append("abort", history.next_id + chooser.randrange(2))
        elif what < 0.25:
            history.append("savepoint", history.next_id, location="s3://other/savepoint")
        elif what < 0.253 and step > 300:
            history.discard([each.checkpoint_id for each in history.held[-chooser.randrange(3) :]])
        else:
            history.commit()
        if step % 150 == 149:
            history.check(history.seen)
            history.check(history.reopened())
    for place in ("head.json", "2.json"):
        history.files.delete(FOLDER.child("index", place))
        history.check(history.reopened())


def test_ids_below_the_claim_are_looked_up_in_the_log() -> None:
    history = History()
    history.claim(3)
    for id_ in (4, 6):  # 5 is in flight
        history.append("commit", id_)
    assert [history.seen.has_id(id_) for id_ in (3, 4, 5, 6, 7)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    history.append("abort", 5)
    assert history.seen.has_id(5)
    history.claim()
    assert [history.seen.has_id(id_) for id_ in (4, 5, 6, 7)] == [True, True, True, False]


def test_the_price_of_an_epoch_does_not_grow() -> None:
    history = History()
    history.claim()
    for _ in range(3 * KEPT):
        history.commit()
    leftover = 5  # its folder could not be deleted; 10**6 was never committed
    prices = []
    for number in range(1200):
        history.commit()
        if number % 100 == 50:
            history.files.requests = 0
            seen = history.reopened()
            assert seen.latest == history.commits[-1]
            assert seen.retained(3) == history.commits[-3:]
            assert seen.commit(history.next_id - 2) == history.commits[-2]
            prices.append(history.files.requests)
            assert [e.checkpoint_id for e in history.seen.held({leftover, 10**6})] == [leftover]
            assert len(history.seen._held) <= 2 * KEPT
            assert len(history.seen._known) <= 4 * KEPT
            assert len(str(history.seen.summary())) < 5000
    assert max(prices) <= 13, prices
    # Where the left folder's commit stands is known from the summary.
    history.commit()
    history.files.requests = 0
    seen = history.reopened()
    opened = history.files.requests
    assert [each.checkpoint_id for each in seen.held({leftover})] == [leftover]
    assert history.files.requests <= opened + 1


@pytest.mark.parametrize(
    "summary", [{}, {"version": 2}, {"version": 1}, {"version": 1, "held": 5}, None]
)
def test_a_summary_of_another_kind_is_not_used(summary: Any) -> None:
    history = History()
    history.claim()
    for _ in range(150):
        history.commit()
    history.log._head_at = 0
    body = {**history.seen.summary(), "held": [[1]]} if summary is None else summary
    history.log.write_index(lambda: body)
    history.check(history.reopened())
