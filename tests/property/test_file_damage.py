"""Any file of a real snapshot, cut short or with a bit turned over: an error, or what is right."""

from __future__ import annotations

import random
import sys
import time
import zlib

import pytest

from tests.golden_files import SNAPSHOTS
from tests.property.file_damage import (
    DamagedFile,
    Endless,
    damaged_files,
    flipped,
    memory_limit,
    time_limit,
)

FILES = [file for fixture in SNAPSHOTS for file in damaged_files(fixture)]
GUARDED = [file for file in FILES if len(file.guarded)]
FLIPS = 100_000


def check(file: DamagedFile, damaged: bytes) -> None:
    try:
        file.check(damaged)
    except BaseException as error:
        pairs = zip(file.raw, damaged, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs) if a != b), len(damaged))
        error.add_note(f"{file}: {len(damaged)} of {len(file.raw)} bytes, damaged at byte {at}")
        raise


def test_there_is_every_kind_of_file() -> None:
    assert len(FILES) > 250
    assert len(GUARDED) > 150


def test_the_limits_hold() -> None:
    with pytest.raises(MemoryError), memory_limit(64 << 20):
        bytes(1 << 30)  # far over it: other memory may be given back meanwhile
    with pytest.raises(Endless), time_limit(0.01):
        while True:
            pass


@pytest.mark.slow
def test_a_slice_of_flips() -> None:
    """The same ones in each run."""
    chance = random.Random(20)
    for file in chance.sample(FILES, 60):
        for _ in range(2):
            check(file, flipped(file, chance))


@pytest.mark.slow
def test_a_slice_of_cuts() -> None:
    chance = random.Random(21)
    for file in chance.sample(FILES, 30):
        for size in chance.sample(range(len(file.raw)), min(3, len(file.raw))):
            check(file, file.raw[:size])


@pytest.mark.soak
def test_random_flips(
    soak_seed: int, soak_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """100,000, or as many as fit into the time, of which each file has its share."""
    end = time.monotonic() + soak_seconds
    done = 0
    for number, file in enumerate(FILES):
        chance = random.Random(soak_seed + zlib.crc32(str(file).encode()))
        left = len(FILES) - number
        stop = time.monotonic() + (end - time.monotonic()) / left
        most = done + -(-(FLIPS - done) // left)
        while time.monotonic() < stop and done < most:
            check(file, flipped(file, chance))
            done += 1
    tell(capsys, f"{done} flips over {len(FILES)} files")


@pytest.mark.soak
def test_cuts_at_every_byte(
    soak_seed: int, soak_seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """In random order, as many as fit into the time, of which each file has its share."""
    chance = random.Random(soak_seed)
    end = time.monotonic() + soak_seconds
    done = whole = 0
    files = sorted(FILES, key=lambda file: len(file.raw))
    for number, file in enumerate(files):
        stop = time.monotonic() + (end - time.monotonic()) / (len(FILES) - number)
        for size in chance.sample(range(len(file.raw)), len(file.raw)):
            if time.monotonic() > stop:
                break
            check(file, file.raw[:size])
            done += 1
        else:
            whole += 1
    tell(capsys, f"{done} cuts, {whole} of {len(FILES)} files at every byte")


def tell(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def test_a_type_that_differs_between_subtasks() -> None:
    """A flipped bit in the class name of one subtask's state made a dump end in a TypeError."""
    altered = [
        file
        for file in FILES
        if file.fixture.name == "o-source-coordinator-chk"
        and b"BytePrimitiveArraySerializerSnapshot" in file.raw
    ]
    assert altered
    for file in altered:
        at = file.raw.index(b"BytePrimitiveArraySerializer") + 14
        check(file, file.raw[:at] + bytes((file.raw[at] ^ 1,)) + file.raw[at + 1 :])
