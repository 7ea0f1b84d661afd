from __future__ import annotations

from random import Random

import pytest

from dstl_core.errors import StorageError
from dstl_core.storage.location import Location
from dstl_core.testing import Fault, FaultyFileIO, MemoryFileIO, scripted_faults, seeded_faults

FOLDER = Location.parse("s3://bucket/dstl")


def write(fault: Fault) -> tuple[int | None, bool, list[int]]:
    """Bytes that are there, whether the write failed, and its pauses."""
    pauses: list[int] = []
    inner = MemoryFileIO()
    files = FaultyFileIO(inner, scripted_faults([fault]), pause=pauses.append, pause_ms=7)
    failed = False
    try:
        files.write_new(FOLDER.child("x"), [b"0123", memoryview(b"4567")])
    except StorageError as error:
        failed = True
        assert fault.value in str(error)
    assert files.seen == {fault: 1}
    return inner.size(FOLDER.child("x")), failed, pauses


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (Fault.NONE, (8, False, [])),
        (Fault.REFUSED, (None, True, [])),
        (Fault.TRUNCATED, (4, True, [])),
        (Fault.BAD_CLOSE, (8, True, [])),
        (Fault.SLOW, (8, False, [7])),
        (Fault.HANGING, (4, True, [7])),
    ],
)
def test_what_a_fault_leaves_behind(
    fault: Fault, outcome: tuple[int | None, bool, list[int]]
) -> None:
    assert write(fault) == outcome


def test_deletions_fail_when_told_and_the_rest_passes_through() -> None:
    refuse = [True, False]
    files = FaultyFileIO(
        MemoryFileIO(),
        scripted_faults([]),
        pause=lambda ms: None,
        delete_fails=lambda: refuse.pop(0),
    )
    location = FOLDER.child("a", "x")
    files.write_new(location, b"x")
    assert files.publish_once(FOLDER.child("once"), b"y")
    with pytest.raises(StorageError, match="Cannot delete"):
        files.delete(location)
    assert files.read_bytes(location) == b"x"
    assert files.delete(location)
    assert files.size(location) is None
    assert [each.location.name for each in files.list_folder(FOLDER)] == ["once"]
    files.delete_folder(FOLDER)
    assert files.list_folder(FOLDER) == []


def test_a_seed_is_a_run_of_faults() -> None:
    def run(seed: int) -> list[Fault]:
        draw = seeded_faults(Random(seed), {Fault.REFUSED: 0.2, Fault.SLOW: 0.1})
        return [draw() for _ in range(1_000)]

    assert run(1) == run(1) != run(2)
    assert 100 < run(1).count(Fault.REFUSED) < 300
    assert 30 < run(1).count(Fault.SLOW) < 200
