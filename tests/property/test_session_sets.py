"""Sessions merged by columns are those that plain numbers give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.aggregates.folds import folded
from dstl_core.operators.session_sets import SessionSet, touching

LIST = pa.list_(
    pa.struct([(str(at), pa.struct([("start", pa.int64()), ("end", pa.int64())])) for at in (0, 1)])
)
SESSION = st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(1, 12))
SESSIONS = st.lists(SESSION, min_size=1, max_size=25)
APART = st.lists(SESSION, max_size=25, unique_by=lambda session: session[:2])


def sessions_of(rows: list[tuple[int, int, int]]) -> SessionSet:
    windows = np.array([(start, start + size) for _, start, size in rows], np.int64).reshape(-1, 2)
    return SessionSet(np.array([each[0] for each in rows], np.int64), windows, windows - 100)


@given(SESSIONS)
def test_sessions_of_a_key_that_touch_are_one(rows: list[tuple[int, int, int]]) -> None:
    touched = touching(sessions_of(rows))
    covered = {(key, t) for key, start, size in rows for t in _halves(start, size)}
    windows = [
        (int(key), *map(int, window))
        for key, window in zip(touched.owners, touched.windows, strict=True)
    ]
    assert windows == sorted(set(windows))
    found_times = {(key, t) for key, start, end in windows for t in _halves(start, end - start)}
    assert found_times == covered
    for (key, _, end), (other, start, _) in pairwise(windows):
        assert key != other or end < start
    for (key, start, size), group in zip(rows, touched.group, strict=True):
        owner, first, last = windows[group]
        assert owner == key and first <= start and start + size <= last


def _halves(start: int, size: int) -> range:
    """Twice the times of a session and of its end, so that neighbours with a gap stay apart."""
    return range(2 * start, 2 * (start + size) + 1)


@given(APART)
def test_the_state_of_each_key_has_its_sessions_in_order(rows: list[tuple[int, int, int]]) -> None:
    lists = sessions_of(rows).lists(4, LIST)
    expected = [
        [
            {
                "0": {"start": start, "end": end},
                "1": {"start": start - 100, "end": end - 100},
            }
            for start, end in sorted((s, s + size) for each, s, size in rows if each == key)
        ]
        for key in range(4)
    ]
    assert _sorted(lists.to_pylist()) == _sorted(expected)
    again = SessionSet.of(lists)
    wanted = sorted((key, start, start + size) for key, start, size in rows)
    sessions = [
        (int(key), *map(int, window))
        for key, window in zip(again.owners, again.windows, strict=True)
    ]
    assert sorted(sessions) == wanted
    assert (again.kept == again.windows - 100).all()


def _sorted(lists: list[list[dict[str, Any]]]) -> list[list[tuple[int, ...]]]:
    return [
        [tuple(v for window in pair.values() for v in window.values()) for pair in pairs]
        if pairs == sorted(pairs, key=lambda pair: pair["0"]["start"])
        else [(-1,)]
        for pairs in lists
    ]


@given(APART, SESSIONS)
def test_a_session_is_found_by_its_window(
    rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    wanted = sessions_of(others)
    places = sessions_of(rows).find(wanted.owners, wanted.windows)
    expected = [rows.index(each) if each in rows else -1 for each in others]
    assert places.tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.text("xyz", max_size=2)), min_size=1))
def test_members_of_a_group_are_folded_in_their_order(members: list[tuple[int, str]]) -> None:
    numbers = {each: at for at, each in enumerate(sorted({group for group, _ in members}))}

    def combined(one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
        both = [
            a + b for a, b in zip(one["text"].to_pylist(), other["text"].to_pylist(), strict=True)
        ]
        return pa.record_batch({"text": pa.array(both, pa.string())})

    texts = folded(
        combined,
        pa.record_batch({"text": [text for _, text in members]}),
        np.array([numbers[group] for group, _ in members]),
    )
    expected = ["".join(t for each, t in members if each == group) for group in sorted(numbers)]
    assert texts["text"].to_pylist() == expected
