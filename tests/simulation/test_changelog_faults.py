"""Eight writers that share a scheduler, on a storage that is never well for long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.config import ChangelogOptions
from dstl_core.errors import BackpressureTimeoutError, UploadFailedError
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.testing import Fault, FaultyFileIO, MemoryFileIO
from tests.simulation.changelog_world import World

WRITERS = 8


def fault_run(seed: int, rounds: int) -> World:
    """Each round every writer gets an instruction, and time passes."""
    world = World(seed, WRITERS)
    random = Random(seed)
    for round_ in range(rounds):
        if round_ % 10 == 0:
            world.act(92, random.randrange(10_000))  # breaks or mends the disk
        for writer in range(WRITERS):
            code = random.randrange(92) if random.random() < 0.995 else 99
            world.act(code, writer + WRITERS * random.randrange(10_000))
        world.threads.advance(random.randrange(400))
        if round_ % 20 == 0:
            world.check()
    world.end(seed)
    return world


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slice_of_the_fault_run(seed: int) -> None:
    world = fault_run(seed, 120)
    assert set(world.io.seen) == set(Fault)
    assert world.acknowledged > 1_000


@pytest.mark.soak
def test_two_thousand_rounds(soak_seed: int) -> None:
    world = fault_run(soak_seed, 2_000)
    assert set(world.io.seen) == set(Fault)
    assert world.acknowledged > 20_000
    assert sum(world.io.seen.values()) - world.io.seen[Fault.NONE] > 500


# --------------------------------------------------------------------------- real threads


class Pauses:
    """Real waits, ended all at once so that nothing hangs longer than the test."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def __call__(self, for_ms: int) -> None:
        self._over.wait(for_ms / 1000)

    def end(self) -> None:
        self._over.set()


@pytest.fixture
def pauses() -> Iterator[Pauses]:
    made = Pauses()
    yield made
    made.end()


def run_on_threads(seed: int, rounds: int, pauses: Pauses) -> None:
    random, lock = Random(seed), threading.Lock()

    def next_fault() -> Fault:
        with lock:
            faults, weights = [*Fault], [0.7, 0.06, 0.06, 0.06, 0.06, 0.06]
            return random.choices(faults, weights)[0]

    disk = MemoryFileIO()
    io = FaultyFileIO(disk, next_fault, pause=pauses, pause_ms=60)
    storage = FsStateChangelogStorage(
        JobID.for_name("job"),
        ChangelogOptions.of(
            base_path="s3://bucket/base",
            preemptive_persist_threshold=300,
            persist_size_threshold=1_000,
            persist_delay_ms=1,
            max_in_flight=6_000,
            upload_timeout_ms=30,
            next_attempt_delay_ms=1,
            max_attempts=4,
        ),
        io,
    )
    needed: set[str] = set()

    def work(number: int) -> int:
        mine = Random(seed * 100 + number)
        writer = storage.create_writer(f"operator {number}", KeyGroupRange(0, 0))
        written: list[bytes] = []
        acknowledged = 0
        for round_ in range(rounds):
            for _ in range(mine.randrange(8)):
                value = b"%d %d" % (number, len(written)) + bytes(mine.randrange(60))
                while True:
                    try:
                        writer.append(0, value)
                        break
                    except BackpressureTimeoutError:
                        continue
                written.append(value)
            if mine.random() < 0.3 or round_ == rounds - 1:
                while True:
                    try:
                        result = writer.persist(SequenceNumber(0), round_).result(60)
                        break
                    except (BackpressureTimeoutError, UploadFailedError):
                        continue
                handle = result.job_manager_owned_snapshot
                read = [each.change for each in storage.create_reader().get_changes(handle)]
                assert read == written
                acknowledged = len(written)
        with lock:
            needed.update(stream.path for stream, _ in handle.handles_and_offsets)  # type: ignore[union-attr]
        writer.close()
        return acknowledged

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = sum(pool.map(work, range(WRITERS)))
    pauses.end()
    storage.close()
    assert acknowledged > WRITERS * rounds
    assert storage.bytes_in_flight == 0
    assert disk.files.keys() >= needed
    assert disk.files.keys() - needed <= set(storage.orphans)


def test_a_slice_on_real_threads(pauses: Pauses) -> None:
    run_on_threads(3, 12, pauses)


@pytest.mark.soak
def test_longer_on_real_threads(soak_seed: int, pauses: Pauses) -> None:
    run_on_threads(soak_seed, 150, pauses)
