"""What lies in ``tests/golden``: one folder a fixture, each with a ``manifest.json``."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


@dataclass(frozen=True)
class Fixture:
    """A snapshot by real Flink. ``truth`` is what Flink itself restored from it."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def metadata_files(self) -> list[Path]:
        return sorted(self.folder.rglob("_metadata"))

    @property
    def snapshot(self) -> Path:
        [metadata] = self.metadata_files
        return metadata.parent

    @property
    def descriptor(self) -> dict[str, Any]:
        return json.loads((self.folder / "descriptor.json").read_bytes())

    @cached_property
    def _truth(self) -> dict[str, Any]:
        packed = self.folder / "truth.json.gz"  # where keys are long
        if packed.is_file():
            return json.loads(gzip.decompress(packed.read_bytes()))
        return json.loads((self.folder / "truth.json").read_bytes())

    @property
    def truth(self) -> list[dict[str, Any]]:
        return self._truth["entries"]

    @property
    def unreadable(self) -> list[dict[str, Any]]:
        """Entries that only Java classes of the job can read."""
        return self._truth.get("unreadable", [])

    def __str__(self) -> str:
        return self.name


PIPELINE = GOLDEN / "pipeline-log-v1"
"""A pipeline of our own with its commit log; ``pipeline.json`` says what is in it."""
UPGRADE_JOBS = GOLDEN / "upgrade-jobs"
"""Jobs of Flink 1.20.5 whose values need their jars."""
JDK_JOBS = GOLDEN / "jdk-jobs"
"""Jobs of Flink 1.20.5 with what the JDK has, generics, native savepoints, thousands of keys."""
JDK_TYPES = {
    "undeclared": {
        "lines": "List<undeclared.Line>",
        "pair": "Tuple2<String, List<Long>>",
        "groups": "Map<String, Set<Long>>",
        "log": "Map<String, undeclared.Line>",
    }
}
"""Types that the jars of ``JDK_JOBS`` do not show, by job and state."""
CONNECTORS = GOLDEN / "connectors"
"""Savepoints of sources and sinks; ``truth.json`` has their splits and committables."""
CHANGED_JOBS = GOLDEN / "changed-jobs"
"""Pairs of a job and a changed job: savepoints ``old`` and ``new``, and compiled plans."""
CHANGED_CLASSES = GOLDEN / "changed-classes"
"""Small changed jobs: the savepoint of version 1, jars, and what Flink did with version 2."""
PLANTED = GOLDEN / "planted-state"
"""One plan of hot key, skew, expiry, timers and growth, in each form of Flink."""
MAX_PARALLELISM = GOLDEN / "max-parallelism"
"""``first -> keyBy keyed -> after``, ``keyed`` and ``after`` in one vertex: 100 keys, count 4."""
COMPRESSED_OPERATOR_STATE = GOLDEN / "compressed-operator-state"
"""List state of Flink 1.18 with compression: six elements of a subtask behind one offset."""
LEGACY_FILE_SOURCE = GOLDEN / "legacy-file-source"
"""A job that reads files by ``env.readFile``."""
LEGACY_CONNECTORS = GOLDEN / "legacy-connectors"
"""Sources before FLIP-27 and sinks before Sink V2, of Flink, of Kafka and of users."""
UNION_GROWTH = GOLDEN / "union-growth"
"""A union state that multiplies: ``first`` has 4 equal elements, ``restored`` has 16."""
ALL_SNAPSHOTS = sorted(path.parent for path in GOLDEN.rglob("_metadata"))
"""The folders of all snapshots, also those without a truth."""
SNAPSHOTS = [
    fixture
    for fixture in map(Fixture, sorted(GOLDEN.iterdir()))
    if (fixture.folder / "descriptor.json").is_file()
]
"""Those with one snapshot and its truth."""


def snapshot(name: str) -> Path:
    return Fixture(GOLDEN / name).snapshot


def as_lines(entries: Iterable[dict[str, Any]]) -> Counter[str]:
    """Entries without their order, keys sorted: equal if and only if the entries are."""
    return Counter(json.dumps(entry, sort_keys=True, ensure_ascii=True) for entry in entries)


def entries_of(path: Path) -> list[dict[str, Any]]:
    """What a file like ``truth.json`` holds; large ones are packed, as ``truth.json.gz``."""
    packed = path.with_name(f"{path.name}.gz")
    raw = gzip.decompress(packed.read_bytes()) if packed.is_file() else path.read_bytes()
    entries: list[dict[str, Any]] = json.loads(raw)["entries"]
    return entries
