"""Key-group ranges cover all key groups exactly once, for every parallelism."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dstl_core.model.key_group import (
    UPPER_BOUND_MAX_PARALLELISM,
    KeyGroupRange,
    assign_to_key_group,
    compute_default_max_parallelism,
    compute_key_group_range_for_operator_index,
    compute_operator_index_for_key_group,
)

MAX_PARALLELISMS = st.integers(1, 600) | st.sampled_from([1000, 4096, 32767, 32768])


@given(MAX_PARALLELISMS, st.data())
def test_ranges_partition_the_key_groups(max_parallelism: int, data: st.DataObject) -> None:
    parallelism = data.draw(st.integers(1, min(max_parallelism, 300)))
    next_group = 0
    for index in range(parallelism):
        own = compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        assert own.start_key_group == next_group
        assert len(own) >= max_parallelism // parallelism
        for group in (own.start_key_group, own.end_key_group):
            owner = compute_operator_index_for_key_group(max_parallelism, parallelism, group)
            assert owner == index
        next_group = own.end_key_group + 1
    assert next_group == max_parallelism


@given(st.integers(-(2**40), 2**40), MAX_PARALLELISMS)
def test_every_hash_has_a_key_group(java_hash: int, max_parallelism: int) -> None:
    group = assign_to_key_group(java_hash, max_parallelism)
    assert 0 <= group < max_parallelism
    assert assign_to_key_group(java_hash & 0xFFFFFFFF, max_parallelism) == group


@given(st.integers(1, UPPER_BOUND_MAX_PARALLELISM))
def test_the_default_max_parallelism_leaves_room(parallelism: int) -> None:
    computed = compute_default_max_parallelism(parallelism)
    assert 128 <= computed <= UPPER_BOUND_MAX_PARALLELISM
    assert computed & (computed - 1) == 0
    assert computed >= min(parallelism + parallelism // 2, UPPER_BOUND_MAX_PARALLELISM)


RANGES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda ends: KeyGroupRange.of(*ends))


@given(RANGES, RANGES)
def test_intersection_is_that_of_sets(one: KeyGroupRange, other: KeyGroupRange) -> None:
    common = one.get_intersection(other)
    assert set(common) == set(one) & set(other)
    assert common == other.get_intersection(one)
    assert len(common) == len(set(common))
