"""Properties that are computed once do not make threads wait for each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import dstl_core
from dstl_core.cached_property import cached_property


class Meeting:
    def __init__(self, both: Barrier) -> None:
        self._both = both

    @cached_property
    def place(self) -> int:
        return self._both.wait(60)


def test_two_objects_compute_at_the_same_time() -> None:
    both = Barrier(2)
    meetings = [Meeting(both), Meeting(both)]
    with ThreadPoolExecutor(2) as pool:
        places = list(pool.map(lambda meeting: meeting.place, meetings))
    assert sorted(places) == [0, 1]
    assert [meeting.place for meeting in meetings] == places


def test_the_core_has_no_other_one() -> None:
    """A fork waits for ever for the lock of Python's: 3 of 42 pools did, beside a thread that
    read.
    """
    root = Path(dstl_core.__file__).parent
    users = [
        path
        for path in root.rglob("*.py")
        if "cached_property" in "".join(_imports_of_functools(path))
    ]
    assert not users


def _imports_of_functools(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line.startswith("from functools ")]
