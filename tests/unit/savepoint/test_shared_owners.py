"""Snapshots that share table files come and go, and a collection never takes what one needs."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.errors import SavepointError
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from tests.golden_files import as_lines, snapshot

CHECKPOINT = "a-rocksdb-checkpoint-incremental"
STEPS = 10
Owners = dict[Path, tuple[str, Counter[str]]]
"""The snapshots that are there: the uid of the operator, and its lines without it."""


class Storm:
    """Edits, retires and collects at random. It knows in plain Python what each snapshot holds."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.base = folder / "base"
        self.job = self.base / "94ee8bb4a62d2cde06306c091e999da9"
        shutil.copytree(snapshot(CHECKPOINT).parent, self.job)
        self.owners: Owners = {}
        self.owners[self.job / "chk-1"] = "a-keyed", self.lines(self.job / "chk-1", "a-keyed")
        self.made = self.deleted = 0

    def load(self, place: Path) -> Snapshot:
        return Snapshot.load(place, allow_roots=[str(self.base)])

    def lines(self, place: Path, uid: str) -> Counter[str]:
        return as_lines(
            {name: part for name, part in line.items() if name != "op"}
            for line in self.load(place)[uid].dump()
        )

    def share(self, *, crashes: bool = False) -> None:
        place = self.random.choice(sorted(self.owners))
        uid, lines = self.owners[place]
        self.made += 1
        out, new = self.base / f"out-{self.made}", f"uid-{self.made}"
        keys = sorted({json.loads(line)["key"] for line in lines})
        gone = self.random.sample(keys, 2) if self.random.random() < 0.5 else []
        with pytest.MonkeyPatch.context() as patch:
            if crashes:
                patch.setattr(SavepointFolder, "publish", _crash)
            try:
                rewrite_savepoint(
                    self.load(place),
                    out,
                    rename={uid: new},
                    files="share",
                    erase_keys={uid: gone} if gone else None,
                )
            except KeyboardInterrupt:
                return
        left = {line: n for line, n in lines.items() if json.loads(line)["key"] not in gone}
        self.owners[out] = new, Counter(left)

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
        for owner, (uid, lines) in self.owners.items():
            assert verify_snapshot(self.load(owner)).findings == []
            assert self.lines(owner, uid) == lines


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


SEEDS = [1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 40))]


@pytest.mark.parametrize("seed", SEEDS)
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


def test_shared_files_are_kept_for_the_checkpoint_beside_their_folder(tmp_path: Path) -> None:
    storm = Storm(tmp_path, 7)
    source = storm.load(storm.job / "chk-1")
    keys = sorted({line["key"] for line in source["a-keyed"].dump()})
    rewrite_savepoint(source, storm.base / "out", erase_keys={"a-keyed": keys}, files="share")
    for path in storm.base.rglob("*"):
        os.utime(path, (0, 0))
    collect_garbage(str(storm.job / "shared"), flink_job_stopped=True, delete=True)
    assert verify_snapshot(storm.load(storm.job / "chk-1")).findings == []
