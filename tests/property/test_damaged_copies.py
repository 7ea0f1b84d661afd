"""A byte of a local copy may flip at any time: an epoch commits right, or fails once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.errors import DstlError
from dstl_core.job.task.held_state import HELD
from dstl_core.state.backends.state_backend import (
    EmbeddedRocksDBStateBackend,
    HashMapStateBackend,
    StateBackend,
)
from tests.examples import examples
from tests.unit.job.subtasks import ByColumn, ByRowInTables, Subtask

KEYS = 40
MOMENTS = ("before", "while it runs", "at the snapshot", "at the end", "never")
DURING: list[Callable[[], None]] = []
"""Called at the first row of an epoch."""


class RowsOnDisk(ByRowInTables):
    def process_element(self, value: Any, ctx: Any) -> Any:
        while DURING:
            DURING.pop()()
        yield from super().process_element(value, ctx)


class Columns(ByColumn):
    def process_batch(self, keys: Any, state: Any, rows: Any) -> Any:
        while DURING:
            DURING.pop()()
        return super().process_batch(keys, state, rows)


class Flip(AbstractContextManager[None]):
    """Flips a bit of a file of the copies, which are chosen by two numbers from 0 to 1."""

    def __init__(self, local: Path, which: float, place: float) -> None:
        self._local, self._which, self._place = local, which, place

    def __enter__(self) -> None:
        files = [each for each in sorted(self._local.glob("*/*/*/*/*")) if each.stat().st_size]
        if files:
            path = files[int(self._which * (len(files) - 1))]
            with path.open("r+b") as file:
                content = file.read()
                at = int(self._place * (len(content) - 1))
                file.seek(at)
                file.write(bytes([content[at] ^ 1 << at % 8]))

    def __exit__(self, *error: object) -> None:
        return None


PART = st.floats(0, 1)
STEPS = st.lists(st.tuples(st.sampled_from(MOMENTS), PART, PART), min_size=1, max_size=6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "backend"),
    [(RowsOnDisk(), EmbeddedRocksDBStateBackend()), (Columns(), HashMapStateBackend())],
    ids=["rows on disk", "columns"],
)
@settings(max_examples=examples(25), deadline=None)
@given(steps=STEPS)
def test_a_flipped_bit_never_changes_a_value_and_never_fails_an_epoch_twice(
    function: Any, backend: StateBackend, steps: list[tuple[str, float, float]]
) -> None:
    HELD.clear()
    with TemporaryDirectory() as folder:
        subtask = Subtask(Path(folder), function, backend)
        expected: list[float | None] = [None] * KEYS
        for number, (moment, which, place) in enumerate(steps):
            # An epoch changes some keys only, so that older files of the copy are read again.
            values = [float(100 * number + key) for key in range(KEYS - number * 5)]
            flip = Flip(subtask.local, which, place)
            at = {"at the snapshot": "at_snapshot", "at the end": "at_close"}.get(moment)
            if moment == "before":
                flip.__enter__()
            if moment == "while it runs":
                DURING.append(flip.__enter__)
            try:
                _, _, before = subtask.run(*values, **({} if at is None else {at: flip}))
            except DstlError:
                assert moment in ("while it runs", "at the snapshot")
                _, _, before = subtask.run(*values)
            assert before == expected[: len(values)]
            expected[: len(values)] = values
        assert subtask.run(*range(KEYS))[2] == expected
