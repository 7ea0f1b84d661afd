"""Processes edit snapshots, delete them and collect garbage side by side: no snapshot loses a file.

Each process has a seed. A snapshot may be deleted while an edit shares its files: then the edit is
refused, or keeps them. Who claims a copy, as Flink does, deletes its files only if no other
snapshot shares them.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dstl_core import rewrite_savepoint
from dstl_core.errors import DstlError, SavepointError
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.golden_files import as_lines, snapshot
from tests.unit.savepoint.test_shared_owners import CHECKPOINT, Lines, Storm

FORK = multiprocessing.get_context("fork")
LONG_AGO_S = 7 * 86_400
JOB = snapshot(CHECKPOINT).parent
COUNTED = ("edits", "refused", "deleted", "claimed", "collections", "blocked", "files")
ROLES = {"editor": ["change"], "owner": ["delete", "claim", "change"], "gc": ["collect"]}


class Person(Storm):
    """One process of several on one folder. What each snapshot holds stands in a file of its own
    beside the folder, which is locked while somebody reads or deletes the snapshot.
    """

    def __init__(self, folder: Path, seed: int, name: str) -> None:
        self.random, self.name = random.Random(seed), name
        self.made = (
            10_000 * seed
        )  # new uids and states have its numbers, and no other process has them
        self.base = folder / "base"
        self.job = self.base / JOB.name
        self.ledger = folder / "ledger"
        self.counts = dict.fromkeys(COUNTED, 0)

    def publish(self, place: Path, lines: Lines, needs: Sequence[str]) -> None:
        """Enters a snapshot. Its files are old now, as far as the next collection knows: one that
        runs may have listed them before the snapshot was there.
        """
        with self.alone("collections"):
            _backdate(place)
        entry = self.ledger / place.relative_to(self.base).as_posix().replace("/", "+")
        scratch = entry.with_name(f".{entry.name}")
        scratch.write_text(json.dumps({"lines": lines, "needs": [entry.name, *needs]}))
        scratch.rename(entry)

    def place_of(self, entry: Path) -> Path:
        return self.base / entry.name.replace("+", "/")

    def entries(self) -> list[Path]:
        return sorted(path for path in self.ledger.iterdir() if path.name[0] != ".")

    @contextmanager
    def held(self, entry: Path, how: int = fcntl.LOCK_EX) -> Iterator[dict[str, Any] | None]:
        """What a snapshot holds, under a lock; None if another one has it, or has deleted it. An
        edit and a deletion share it.
        """
        try:
            with entry.open() as file:
                fcntl.flock(file, how | fcntl.LOCK_NB)
                yield json.load(file) if entry.exists() else None
        except (BlockingIOError, FileNotFoundError):
            yield None

    @contextmanager
    def alone(self, what: str, how: int = fcntl.LOCK_EX) -> Iterator[None]:
        """Waits until nobody does something; with ``LOCK_SH``, is one of those who do it."""
        with (self.base.parent / f"{what}.lock").open("a") as file:
            fcntl.flock(file, how)
            yield

    # ------------------------------------------------------------------------------- steps

    def change(self) -> None:
        entry = self.random.choice(self.entries())
        with self.alone("edits", fcntl.LOCK_SH), self.held(entry, fcntl.LOCK_SH) as known:
            if known is None:
                return
            self.made += 1
            out = self.base / f"{self.name}-{self.made}"
            options, lines = self.edit(known["lines"])
            files: Any = self.random.choice(["share", "share", "copy"])
            try:
                rewrite_savepoint(
                    self.load(self.place_of(entry)),
                    out,
                    checkpoint_id=100 + self.made,
                    files=files,
                    **options,
                )
            except DstlError as error:
                if entry.exists() and "A collection of garbage deletes" not in error.message:
                    raise
                self.counts["refused"] += 1
                return
            self.publish(out, lines, known["needs"] if files == "share" else [])
            self.counts["edits"] += 1

    def delete(self) -> None:
        """Deletes a snapshot, and the notes that name it; its files are for a collection."""
        entries = self.entries()
        entry = self.random.choice(entries)
        with self.held(entry, fcntl.LOCK_SH) as known:
            if known is None or len(entries) < 3:
                return
            entry.unlink()
            place = self.place_of(entry)
            (place / "_metadata").unlink()
            self.delete_notes(place)
            self.counts["deleted"] += 1

    def claim(self) -> None:
        """As Flink with CLAIM, once the copy is subsumed: its metadata goes, then its files."""
        entry = self.random.choice(self.entries())
        with self.alone("edits"), self.held(entry) as known:
            if known is None or known["needs"] != [entry.name]:
                return
            others = [json.loads(each.read_text()) for each in self.entries() if each != entry]
            place = self.place_of(entry)
            if place.parent != self.base or any(entry.name in own["needs"] for own in others):
                return
            entry.unlink()
            (place / "_metadata").unlink()
            shutil.rmtree(place, ignore_errors=True)  # a collection may be faster
            self.counts["claimed"] += 1

    def collect(self) -> None:
        place = self.random.choice([self.base, self.base, self.job, self.job / "shared"])
        try:
            with self.alone("collections", fcntl.LOCK_SH):
                done = collect_garbage(str(place), flink_job_stopped=True, delete=True)
        except SavepointError:  # a snapshot is on its way, or has just gone
            self.counts["blocked"] += 1
        else:
            self.counts["collections"] += 1
            self.counts["files"] += len(done.garbage)
        self.check(self.random.sample(self.entries(), 1))

    def check(self, entries: Sequence[Path]) -> None:
        for entry in entries:
            with self.held(entry) as known:
                if known is not None:
                    loaded = self.load(self.place_of(entry))
                    assert verify_snapshot(loaded).findings == [], entry
                    assert as_lines(self.lines(self.place_of(entry))) == as_lines(known["lines"])


def _backdate(folder: Path) -> None:
    then = time.time() - LONG_AGO_S
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def _run(folder: Path, role: str, seed: int, goes_on: Callable[[int], bool]) -> None:
    """One process; what it counts or raises is a file."""
    try:
        person = Person(folder, seed, role)
        number = 0
        while goes_on(number):
            getattr(person, person.random.choice(ROLES[role]))()
            number += 1
        (folder / f"{role}.json").write_text(json.dumps(person.counts))
    except BaseException:
        (folder / f"{role}.error").write_text(traceback.format_exc())


def storm(folder: Path, seed: int, goes_on: Callable[[int], bool]) -> dict[str, int]:
    """Runs the processes, checks every snapshot that is left, and returns what they counted."""
    folder.mkdir(exist_ok=True)
    first = Person(folder, seed, "first")
    shutil.copytree(JOB, first.job)
    (folder / "ledger").mkdir()
    first.publish(first.job / "chk-1", first.lines(first.job / "chk-1"), [])
    _backdate(first.base)
    for _ in range(3):
        first.change()
    arguments = [(folder, role, 10 * seed + at, goes_on) for at, role in enumerate(ROLES)]
    processes = [FORK.Process(target=_run, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    errors = [path.read_text() for path in folder.glob("*.error")]
    assert not errors, f"seed {seed}: {errors[0]}"
    first.check(first.entries())
    collect_garbage(str(first.base), flink_job_stopped=True, delete=True)  # nothing blocks it
    first.check(first.entries())
    counts = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    return {name: sum(own[name] for own in counts) for name in COUNTED}


def test_no_snapshot_loses_a_file_while_processes_work(tmp_path: Path) -> None:
    counts = storm(tmp_path, 1, lambda number: number < 6)
    assert counts["edits"] > 0
    assert counts["collections"] + counts["blocked"] == 6


@pytest.mark.soak
def test_no_snapshot_loses_a_file_in_many_storms(
    tmp_path: Path, soak_seed: int, soak_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each one has a few seconds, and processes that work as fast as they can."""
    ends, run, total = time.monotonic() + soak_seconds, 0, dict.fromkeys(COUNTED, 0)
    while run == 0 or time.monotonic() < ends:
        ends_here = time.monotonic() + 10
        ran = storm(
            tmp_path / str(run),
            1000 * (soak_seed + 1) + run,
            lambda _, ends_here=ends_here: time.monotonic() < ends_here,  # type: ignore[misc]
        )
        total = {name: total[name] + ran[name] for name in COUNTED}
        shutil.rmtree(tmp_path / str(run))
        run += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{run} storms: {total}\n")
