"""The open set: single changes and columns in any order give the bytes of the reference."""

from __future__ import annotations

from random import Random

import pytest

from dstl_core.changelog.change_buffer import ChangeBuffer
from dstl_core.codec.columnar.changes.columns import change_columns
from dstl_core.model.change import StateChange
from dstl_core.model.key_group import KeyGroupRange
from tests.unit.codec.columnar.test_change_sets import reference

ALL = KeyGroupRange(0, 32767)


def append(buffer: ChangeBuffer, change: StateChange) -> None:
    if change.key_group < 0:
        buffer.append_meta(change.change)
    else:
        known = buffer.appends.get(change.key_group)
        (known or buffer.open_group(change.key_group))(change.change)


def random_changes(rng: Random) -> list[StateChange]:
    # Sizes around those at which Java's map grows, and steps that crowd its buckets.
    step = rng.choice([1, 1, 16, 64])
    top = rng.choice([13, 14, 25, 30, 49, 97, 128, 500])
    metadata = rng.random() < 0.3
    return [
        StateChange(
            -1 if metadata and rng.random() < 0.1 else rng.randrange(top) * step,
            rng.randbytes(rng.choice([0, 0, 1, 5])),
        )
        for _ in range(rng.randrange(1, rng.choice([15, 30, 200, 1000])))
    ]


@pytest.mark.slow
def test_any_mixture_of_singles_and_columns_and_their_undoing() -> None:
    for seed in range(600):
        rng = Random(seed)
        changes = random_changes(rng)
        buffer = ChangeBuffer()
        assert not buffer
        mixed = rng.random() < 0.5
        at = 0
        while at < len(changes):
            stop = at
            if mixed and rng.random() < 0.3:
                most = at + rng.choice([1, 5, 50])
                while stop < min(most, len(changes)) and changes[stop].key_group >= 0:
                    stop += 1
            if stop > at:
                batch = changes[at:stop]
                [columns] = change_columns(
                    [each.key_group for each in batch], [each.change for each in batch], ALL
                )
                if rng.random() < 0.2:
                    buffer.add_columns(columns)
                    buffer.take_back_columns()
                buffer.add_columns(columns)
                at = stop
            else:
                append(buffer, changes[at])
                if rng.random() < 0.1:
                    buffer.take_back(changes[at].key_group)
                    append(buffer, changes[at])
                at += 1
        assert buffer
        assert bytes(buffer.encode(ALL)) == reference(changes), seed


def test_undoing_all_leaves_an_empty_buffer() -> None:
    buffer = ChangeBuffer()
    append(buffer, StateChange(3, b"x"))
    append(buffer, StateChange(-1, b"m"))
    buffer.take_back(-1)
    buffer.take_back(3)
    assert not buffer
    assert buffer.appends == {}
