"""Snapshots that share table files come and go, and a collection never takes what one needs."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.checkpoint.store import sharing
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.errors import SavepointError, StorageError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import gc
from dstl_core.savepoint.edit import kept_state
from dstl_core.savepoint.gc import GarbageReport, collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.testing.manual import ManualClock
from tests.golden_files import as_lines, snapshot

CHECKPOINT = "a-rocksdb-checkpoint-incremental"
STEPS = 10
Lines = list[dict[str, Any]]
Owners = dict[Path, Lines]
"""The snapshots that are there, and the lines of their keyed state."""


class Storm:
    """Edits, retires and collects at random. It knows in plain Python what each snapshot holds."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.base = folder / "base"
        self.job = self.base / "94ee8bb4a62d2cde06306c091e999da9"
        shutil.copytree(snapshot(CHECKPOINT).parent, self.job)
        self.owners: Owners = {}
        self.owners[self.job / "chk-1"] = self.lines(self.job / "chk-1")
        self.made = self.deleted = 0

    def load(self, place: Path) -> Snapshot:
        return Snapshot.load(place, allow_roots=[str(self.base)])

    def lines(self, place: Path) -> Lines:
        keyed = (operator for operator in self.load(place).operators if operator.keyed_handles)
        return [line for operator in keyed for line in operator.dump()]

    def share(self, *, crashes: bool = False) -> None:
        place = self.random.choice(sorted(self.owners))
        self.made += 1
        options, lines = self.edit(self.owners[place])
        out = self.base / f"out-{self.made}"
        with pytest.MonkeyPatch.context() as patch:
            if crashes:
                patch.setattr(SavepointFolder, "publish", _crash)
            try:
                rewrite_savepoint(
                    self.load(place),
                    out,
                    checkpoint_id=100 + self.made,
                    files=self.random.choice(["share", "share", "copy"]),
                    **options,
                )
            except KeyboardInterrupt:
                return
        self.owners[out] = lines

    def edit(self, lines: Lines) -> tuple[dict[str, Any], Lines]:
        """Options of an edit of any kind, and what is left by it."""
        new = f"new-{self.made}"
        uid = self.random.choice(sorted({line["op"] for line in lines}))
        own = [line for line in lines if line["op"] == uid]
        others = [line for line in lines if line["op"] != uid]
        states = sorted({line["state"] for line in own if "state" in line})
        has_timers = {line["op"] for line in lines if "ts" in line}
        joined = sorted({line["op"] for line in others} - has_timers)
        keys = sorted({line["key"] for line in own})
        kinds = ["rename", *(["erase"] if keys[2:] else []), *(["merge"] if joined else [])]
        kind = self.random.choice([*kinds, *(["state", "drop", "split"] if states[1:] else [])])
        match kind:
            case "rename":
                return {"rename": {uid: new}}, [*others, *({**line, "op": new} for line in own)]
            case "erase":
                gone = self.random.sample(keys, 2)
                left = [line for line in own if line["key"] not in gone]
                return {"erase_keys": {uid: gone}}, [*others, *left]
            case "merge":
                into = self.random.choice(joined)
                moved = [{**line, "op": uid} if line["op"] == into else line for line in others]
                return {"merge": {into: uid}}, [*own, *moved]
        state = self.random.choice(states)
        of_state = [line for line in own if line.get("state") == state]
        rest = [*others, *(line for line in own if line.get("state") != state)]
        match kind:
            case "state":
                renamed = [{**line, "state": new} for line in of_state]
                return {"rename_states": {(uid, state): new}}, [*rest, *renamed]
            case "drop":
                return {"drop_states": [(uid, state)]}, rest
        return {"split": {(uid, new): [state]}}, [*rest, *({**e, "op": new} for e in of_state)]

    def retire(self) -> None:
        """A person deletes a snapshot, and the notes that name it."""
        if len(self.owners) > 1:
            place = self.random.choice(sorted(self.owners))
            del self.owners[place]
            (place / "_metadata").unlink()
            self.delete_notes(place)

    def delete_notes(self, place: Path) -> None:
        for note in self.base.rglob("_dstl_shared_*.json"):
            if json.loads(note.read_bytes())["snapshot"] == f"file:{place}":
                note.unlink()

    def collect(self) -> None:
        then = time.time() - 7 * 86_400
        for path in self.base.rglob("*"):
            os.utime(path, (then, then))
        place = self.random.choice([self.base, self.base, self.job, self.job / "shared"])
        done = collect_garbage(str(place), flink_job_stopped=True, delete=True)
        self.deleted += len(done.garbage)
        for owner, lines in self.owners.items():
            assert verify_snapshot(self.load(owner)).findings == []
            assert as_lines(self.lines(owner)) == as_lines(lines)


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("seed", [1, 2])
def test_no_owner_loses_a_file(tmp_path: Path, seed: int) -> None:
    storm = Storm(tmp_path, seed)
    for _ in range(STEPS):
        storm.random.choice([storm.share, storm.share, storm.retire, storm.collect])()
    storm.collect()

    while len(storm.owners) > 1:
        storm.retire()
    [last] = storm.owners
    storm.deleted += len(
        collect_garbage(str(storm.base), flink_job_stopped=True, delete=True).garbage
    )
    storm.collect()
    needed = {
        str(own.location.name)
        for stream in _streams(storm.load(last))
        if (own := storm.load(last).resolver.resolve(stream)).location is not None
    }
    stored = {path.name for path in storm.base.rglob("*") if path.is_file()}
    assert needed <= stored
    assert storm.deleted > 0 or seed not in (1, 2)  # other histories may leave no garbage


@pytest.mark.soak
def test_no_owner_loses_a_file_in_many_histories(
    tmp_path: Path, soak_seed: int, soak_seconds: float
) -> None:
    ends = time.monotonic() + soak_seconds
    run = 0
    while run == 0 or time.monotonic() < ends:
        folder = tmp_path / str(run)
        test_no_owner_loses_a_file(folder, 1000 * (soak_seed + 1) + run)
        shutil.rmtree(folder)
        run += 1


def _streams(loaded: Snapshot) -> list[object]:
    return [
        stream
        for operator in loaded.metadata.operators
        for subtask in operator.subtasks
        for stream in subtask.streams()
    ]


def test_a_crash_before_publication_blocks_and_loses_nothing(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 7)
    storm.share(crashes=True)
    with pytest.raises(SavepointError, match="delete the note"):
        storm.collect()
    storm.delete_notes(storm.base / "out-1")
    storm.collect()
    assert storm.owners.keys() == {storm.job / "chk-1"}


def test_a_file_that_went_before_the_note_was_there_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes the source of an edit, and a collection has looked for notes already."""
    storm = Storm(tmp_path, 7)
    source = storm.load(storm.job / "chk-1")

    def leave_notes(files: Any, shared: Any, *others: Any) -> None:
        Path(max(shared, key=str).path).unlink()
        sharing.leave_notes(files, shared, *others)

    monkeypatch.setattr(kept_state, "leave_notes", leave_notes)
    with pytest.raises(SavepointError, match=r"nothing was published: .* got no file"):
        rewrite_savepoint(source, storm.base / "out", rename={"a-keyed": "new"}, files="share")
    assert not (storm.base / "out" / "_metadata").exists()


class Late:
    """An edit that shares files of a checkpoint which somebody deletes while the edit runs."""

    def __init__(self, folder: Path) -> None:
        storm = Storm(folder, 7)
        self.base, self.out = storm.base, storm.base / "out"
        self.load = storm.load
        edit = edit_savepoint(storm.load(storm.job / "chk-1")).with_files("share")
        names = map(OperatorIdentifier.for_uid, ("a-keyed", "new"))
        self.edit = edit.change_operator_identifier(*names)
        (storm.job / "chk-1" / "_metadata").unlink()
        for path in storm.base.rglob("*"):
            os.utime(path, (0, 0))

    def collect(self) -> GarbageReport:
        return collect_garbage(str(self.base), flink_job_stopped=True, delete=True)

    def signs(self) -> list[Path]:
        return [*self.base.rglob("_dstl_*.json")]


def test_a_note_that_is_left_after_the_listing_keeps_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, listed = Late(tmp_path), gc.files_below

    def files_below(files: Any, folder: Any) -> list[Any]:
        statuses = [*listed(files, folder)]
        late.edit.write(late.out)
        return statuses

    monkeypatch.setattr(gc, "files_below", files_below)
    late.collect()
    assert verify_snapshot(late.load(late.out)).findings == []
    assert all(path.name.startswith("_dstl_shared_") for path in late.signs())


def test_nothing_is_shared_while_a_collection_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, delete = Late(tmp_path), DeletionGuard.delete

    def edit_and_delete(guard: DeletionGuard, *files: Any) -> bool:
        monkeypatch.undo()
        with pytest.raises(SavepointError, match="A collection of garbage deletes files in"):
            late.edit.write(late.out)
        return delete(guard, *files)

    monkeypatch.setattr(DeletionGuard, "delete", edit_and_delete)
    assert late.collect().deleted > 0
    assert late.signs() == []  # a note of nothing would stop collections


def test_shared_files_are_kept_for_the_checkpoint_beside_their_folder(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 7)
    source = storm.load(storm.job / "chk-1")
    keys = sorted({line["key"] for line in source["a-keyed"].dump()})
    rewrite_savepoint(source, storm.base / "out", erase_keys={"a-keyed": keys}, files="share")
    for path in storm.base.rglob("*"):
        os.utime(path, (0, 0))
    collect_garbage(str(storm.job / "shared"), flink_job_stopped=True, delete=True)
    assert verify_snapshot(storm.load(storm.job / "chk-1")).findings == []


SIGN = f"_dstl_collection_{'0' * 32}.json"


@pytest.mark.parametrize("hours", [23, 25])
def test_the_sign_of_a_killed_collection_counts_for_a_day(tmp_path: Path, hours: int) -> None:
    late = Late(tmp_path)
    then = time.time() - hours * 3600
    for folder in {path.parent for path in late.base.rglob("*") if path.is_file()}:
        (folder / SIGN).write_text("{}")
        os.utime(folder / SIGN, (then, then))
    if hours < 24:
        with pytest.raises(SavepointError, match=rf"if it was killed, delete .*{SIGN}, which"):
            late.edit.write(late.out)
        return
    late.edit.write(late.out)
    assert verify_snapshot(late.load(late.out)).findings == []
    shutil.rmtree(late.out)
    for path in late.base.rglob("_dstl_shared_*.json"):
        path.unlink()
    assert late.collect().deleted > 0
    assert [path for path in late.signs() if path.parent.name == "shared"] == []


class Slow(ManualClock):
    """Seven hours go by whenever somebody looks."""

    def now_ms(self) -> int:
        self.advance(7 * 3_600_000)
        return super().now_ms()


def test_a_collection_ends_before_its_sign_counts_no_more(tmp_path: Path) -> None:
    late, slow = Late(tmp_path), Slow(int(time.time() * 1000))
    done = collect_garbage(str(late.base), flink_job_stopped=True, delete=True, clock=slow)
    assert done.deleted == 1
    assert done.kept["left for another collection"] > 1


def test_a_note_that_cannot_be_left_leaves_no_other_note(tmp_path: Path) -> None:
    """It would stop collections, and the snapshot that it names is not there."""
    late = Late(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SavepointFolder, "publish", _crash)
        with pytest.raises(KeyboardInterrupt):
            late.edit.write(late.out)
    notes = sorted(late.signs())
    assert len(notes) > 1
    for note in notes:
        note.unlink()
    notes[-1].mkdir()
    with pytest.raises(StorageError, match="cannot be shared"):
        late.edit.write(late.out)
    assert late.signs() == [notes[-1]]
