"""Segments both ways: real Flink's reader on ours, ours on Flink's, and byte for byte the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.codec.change_format import segment_body
from dstl_core.config import ChangelogOptions
from dstl_core.model.handle import ChangelogStateHandleStream, FileStateHandle
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from tests.integration.flink.checker import FlinkCheckerError
from tests.integration.flink.segments import Change, FlinkSegments, Place

pytestmark = pytest.mark.flink

RANGE = KeyGroupRange(0, 32767)
JOB = JobID.for_name("job")
ZERO = SequenceNumber(0)

Step = tuple[str, int, int, bytes]
"""append | meta | next, writer, key group, value."""


@pytest.fixture(scope="module")
def flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkSegments]:
    try:
        segments = FlinkSegments(tmp_path_factory.mktemp("segments"))
    except FlinkCheckerError as error:
        pytest.fail(str(error), pytrace=False)
    yield segments
    segments.close()


def script(rng: Random, writers: int) -> list[Step]:
    steps: list[Step] = []
    top = rng.choice([3, 13, 14, 25, 49, 128, 300])
    stride = rng.choice([1, 1, 16])
    for _ in range(rng.choice([5, 60, 800])):
        writer = rng.randrange(writers)
        value = rng.randbytes(rng.choice([0, 1, 20, 300]))
        kind = rng.choices(["append", "meta", "next"], [0.9, 0.04, 0.06])[0]
        steps.append((kind, writer, rng.randrange(top) * stride, value))
    return steps + [("append", writer, 7, b"last") for writer in range(writers)]


def lines(steps: list[Step]) -> list[str]:
    commands = []
    for kind, writer, key_group, value in steps:
        match kind:
            case "append":
                commands.append(f"append {writer} {key_group} {value.hex()}")
            case "meta":
                commands.append(f"meta {writer} {value.hex()}")
            case _:
                commands.append(f"next {writer}")
    return commands


def write_ours(
    folder: Path, steps: list[Step], writers: int, compressed: bool, threshold: int
) -> list[list[Place]]:
    storage = FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(
            base_path=str(folder),
            compression_enabled=compressed,
            preemptive_persist_threshold=threshold,
            persist_delay_ms=300,
            upload_timeout_ms=60_000,
        ),
    )
    made = [storage.create_writer("operator", RANGE) for _ in range(writers)]
    for kind, writer, key_group, value in steps:
        match kind:
            case "append":
                made[writer].append(key_group, value)
            case "meta":
                made[writer].append_meta(value)
            case _:
                made[writer].next_sequence_number()
    futures = [writer.persist(ZERO, 1) for writer in made]
    handles = [future.result(60).job_manager_owned_snapshot for future in futures]
    storage.close()
    return [places_of(handle) for handle in handles]


def places_of(handle: ChangelogStateHandleStream) -> list[Place]:
    return [
        Place(stream.path, offset, stream.state_size)  # type: ignore[union-attr]
        for stream, offset in handle.handles_and_offsets
    ]


def read_ours(folder: Path, places: list[Place]) -> list[Change]:
    storage = FsStateChangelogStorage(JOB, ChangelogOptions.of(base_path=str(folder)))
    pairs = tuple((FileStateHandle(place.path, place.size), place.offset) for place in places)
    handle = ChangelogStateHandleStream(pairs, RANGE, 0, 0, "id")
    changes = [
        (change.key_group, change.change) for change in storage.create_reader().get_changes(handle)
    ]
    storage.close()
    return changes


def files(places: list[list[Place]]) -> list[str]:
    """Segment files in the order in which they are first named."""
    return list(dict.fromkeys(place.path for each in places for place in each))


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "snappy"])
@pytest.mark.parametrize("writers", [1, 3])
def test_the_same_calls_give_the_same_bytes_and_both_read_both(
    flink: FlinkSegments, tmp_path: Path, compressed: bool, writers: int
) -> None:
    for seed in range(12):
        steps = script(Random(seed), writers)
        theirs_at, ours_at = tmp_path / f"flink-{seed}", tmp_path / f"ours-{seed}"
        theirs = flink.write(theirs_at, lines(steps), writers=writers, compressed=compressed)
        ours = write_ours(ours_at, steps, writers, compressed, 1 << 30)
        assert len(files(theirs)) == len(files(ours)) == 1
        [their_file], [our_file] = files(theirs), files(ours)
        # Two compressors need not agree on the bytes; on what they hold they do.
        bodies = [
            bytes(segment_body(Path(file.removeprefix("file:")).read_bytes()))
            for file in (our_file, their_file)
        ]
        assert bodies[0] == bodies[1], seed
        for writer in range(writers):
            strip = [(place.offset, place.size) for place in theirs[writer]]
            assert strip == [(place.offset, place.size) for place in ours[writer]]
            expected = flink.read(theirs[writer])
            assert flink.read(ours[writer]) == expected
            assert read_ours(theirs_at, theirs[writer]) == expected
            assert read_ours(ours_at, ours[writer]) == expected


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "snappy"])
def test_sets_that_a_threshold_cuts_are_the_same(
    flink: FlinkSegments, tmp_path: Path, compressed: bool
) -> None:
    rng = Random(99)
    steps: list[Step] = [
        ("append", 0, rng.randrange(50), rng.randbytes(rng.randrange(60))) for _ in range(400)
    ]
    theirs = flink.write(
        tmp_path / "flink", lines(steps), writers=1, compressed=compressed, threshold=500
    )
    ours = write_ours(tmp_path / "ours", steps, 1, compressed, 500)
    assert len(theirs[0]) == len(ours[0]) > 3
    for their_place, our_place in zip(theirs[0], ours[0], strict=True):
        assert flink.read([our_place]) == flink.read([their_place])


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "snappy"])
def test_flink_reads_what_columns_became(
    flink: FlinkSegments, tmp_path: Path, compressed: bool
) -> None:
    rng = np.random.default_rng(7)
    groups = rng.integers(0, 128, 20_000).astype(np.int32)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 40, 20_000)]
    storage = FsStateChangelogStorage(
        JOB,
        ChangelogOptions.of(
            base_path=str(tmp_path),
            compression_enabled=compressed,
            preemptive_persist_threshold=100_000,
        ),
    )
    writer = storage.create_writer("operator", KeyGroupRange(0, 127))
    writer.append_meta(b"meta")
    writer.append_batch(groups, pa.array(values, pa.binary()))
    handle = writer.persist(ZERO, 1).result(60).job_manager_owned_snapshot
    storage.close()
    by_key_group: dict[int, list[bytes]] = {}
    for key_group, value in flink.read(places_of(handle)):
        by_key_group.setdefault(key_group, []).append(value)
    expected: dict[int, list[bytes]] = {-1: [b"meta"]}
    for key_group, value in zip(groups.tolist(), values, strict=True):
        expected.setdefault(key_group, []).append(value)
    assert by_key_group == expected
