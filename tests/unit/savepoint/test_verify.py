"""``verify`` as a gate: what is healthy has no finding, what dstl cannot read is a note."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core import Snapshot, verify_snapshot
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.codec.serializers.strings import StringSerializer
from dstl_core.model.handle import (
    CheckpointedStateScope,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
)
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.golden_files import snapshot

SHARED = CheckpointedStateScope.SHARED
FILES = "a-hashmap-canonical-files"


def in_segments(folder: Path, cut: int = 0) -> Snapshot:
    """A real savepoint, its files merged into one, with other bytes around each of them. ``cut``
    bytes are missing at the end.
    """
    source = Snapshot.load(snapshot(FILES))
    location = Location.parse(folder)
    merged = bytearray(b"another job's bytes")
    operators = []
    for operator in source.metadata.operators:
        subtasks = []
        for subtask in operator.subtasks:
            handle = subtask.managed_keyed_state
            if isinstance(handle, KeyGroupsSavepointStateHandle):
                assert isinstance(handle.stream, RelativeFileStateHandle)
                raw = source.resolver.read(handle.stream)
                segment = SegmentFileStateHandle(
                    str(location.child("merged")), len(merged), len(raw), SHARED, "f"
                )
                merged += raw
                subtask = replace(subtask, managed_keyed_state=replace(handle, stream=segment))
            subtasks.append(subtask)
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    metadata = replace(source.metadata, operators=tuple(operators))
    folder.mkdir()
    if cut:
        del merged[-cut:]
    else:
        merged += b"the next segment"
    (folder / "merged").write_bytes(merged)
    publish_metadata_file(open_file_io(location), location, metadata, {})
    return Snapshot.load(folder)


def test_a_segment_of_a_merged_file_is_no_whole_file(tmp_path: Path) -> None:
    report = verify_snapshot(in_segments(tmp_path / "s"))
    assert report.findings == []
    assert report.files == 1
    assert report.entries == verify_snapshot(Snapshot.load(snapshot(FILES))).entries


def test_a_merged_file_that_ends_before_its_segment(tmp_path: Path) -> None:
    report = verify_snapshot(in_segments(tmp_path / "s", cut=1))
    assert "the size of a file differs from its handle" in str(report.findings[0])


WITHOUT_STRINGS = SerializerRegistry(
    {
        name: reader
        for name in BUILT_IN
        if name != StringSerializer.snapshot_class and (reader := BUILT_IN.get(name)) is not None
    }
)


@pytest.mark.parametrize(
    "name",
    [
        "a-hashmap-canonical",
        "a-hashmap-native",
        "a-hashmap-changelog-materialized",
        "a-rocksdb-checkpoint-incremental",
        "a-rocksdb-heaptimers-checkpoint",
    ],
)
def test_a_key_type_that_nobody_knows_is_a_note(name: str) -> None:
    report = verify_snapshot(Snapshot.load(snapshot(name), serializers=WITHOUT_STRINGS))
    assert report.findings == []
    assert any(
        "not checked as a whole" in note and "StringSerializer" in note for note in report.notes
    )
    # One note a state, whatever the number of its keys.
    assert len(report.notes) <= 8


def test_timers_in_raw_keyed_state_are_counted_once() -> None:
    source = Snapshot.load(snapshot("a-rocksdb-heaptimers-checkpoint"))
    entries = [entry for operator in source.operators for entry in operator.entries()]
    assert verify_snapshot(source).entries == len(entries)


def test_a_missing_log_is_a_finding_of_its_handle_and_not_of_each_key_group(
    tmp_path: Path,
) -> None:
    name = "o-max32768-rocksdb-changelog"
    golden = snapshot(name)
    [root] = [path for path in golden.parents if path.name == name]
    shutil.copytree(root, tmp_path / name)
    shutil.rmtree(tmp_path / name / "dstl")
    loaded = Snapshot.load(tmp_path / name / golden.relative_to(root))
    subtasks = [each for operator in loaded.metadata.operators for each in operator.subtasks]
    findings = verify_snapshot(loaded).findings
    assert 0 < len(findings) <= 1 + len(subtasks)
