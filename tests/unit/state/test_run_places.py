"""Places of more runs than memory holds, against lists of Python."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from dstl_core.codec.serializers import Types
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import StorageError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.columns import run_places
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from dstl_core.state.columns.run_places import RunPlaces
from tests.full_disk import full_disk


@pytest.mark.parametrize("held", [1, 3, 1000])
def test_all_places_of_a_key_group_are_there(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(run_places, "_HELD", held)
    source = random.Random(held)
    expected: dict[int, list[tuple[int, int, int]]] = {key_group: [] for key_group in range(9)}
    places = RunPlaces()
    for step in range(600):
        words = source.getrandbits(64), source.getrandbits(64), source.getrandbits(64)
        key_group = source.randrange(8)
        expected[key_group].append(words)
        places.add(key_group, *words)
        if step % 97 == 0:  # places may be asked for before all are there
            assert sorted(places.of(key_group)) == sorted(expected[key_group])
    for key_group, known in expected.items():
        assert sorted(places.of(key_group)) == sorted(known)
    places.close()
    assert not [*places.of(0)]


def test_memory_holds_few_of_many_places() -> None:
    places, key_groups, count = RunPlaces(), 100, 100_000
    tracemalloc.start()
    try:
        for number in range(count):
            places.add(number % key_groups, number, number, number)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 24 * count / 10
    assert sum(1 for _ in places.of(7)) == count // key_groups
    places.close()


def test_a_full_disk_is_named_while_runs_are_added() -> None:
    """Not where they are read, and not hidden by what closing the file tries once more."""
    state = StateMetaInfoSnapshot.key_value("n", KeyedStateType.VALUE, Types.LONG)
    header = KeyedStateEncoder(Types.STRING, [state], 1).header
    added: list[int] = []
    with (
        pytest.raises(StorageError, match="set TMPDIR to a folder on a larger disk"),
        KeyedSections(header, KeyGroupRange(0, 0), 1, memory=0) as sections,
        full_disk(4096),
    ):
        for number in range(200):  # 2,400 bytes of records, and 4,656 of places
            sections.add_run(0, 0, bytes(12))
            added.append(number)
    assert 100 < len(added) < 200
