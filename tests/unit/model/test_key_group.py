"""Values by real Flink: MathUtils.murmurHash, KeyGroupRangeAssignment, KeyGroupRange."""

from __future__ import annotations

import pytest

from dstl_core.errors import ConfigError
from dstl_core.model.key_group import (
    KeyGroupRange,
    assign_to_key_group,
    compute_default_max_parallelism,
    compute_key_group_range_for_operator_index,
    compute_operator_index_for_key_group,
    key_group_prefix_bytes,
    murmur_hash,
)


@pytest.mark.parametrize(
    ("code", "murmur", "key_group"),
    [
        (0, 593689054, 94),
        (1, 68075478, 86),
        (2, 1085422463, 127),
        (-1, 1982413648, 80),
        (42, 1134849565, 29),
        (127, 1931274395, 27),
        (128, 132521001, 41),
        (1000, 3506311, 7),
        (2147483647, 1653689534, 62),
        (-2147483648, 1718298732, 108),
        (96354, 74834163, 115),
        (99162322, 1715862179, 35),
    ],
)
def test_murmur_hash_and_key_group(code: int, murmur: int, key_group: int) -> None:
    assert murmur_hash(code) == murmur
    assert assign_to_key_group(code, 128) == key_group
    # Only the low 32 bits of a hash count, whatever its sign.
    assert murmur_hash(code & 0xFFFFFFFF) == murmur
    assert murmur_hash(code + 2**32) == murmur


def test_murmur_hash_of_the_two_inputs_with_special_results() -> None:
    """The finalizer is a bijection, so each of these results has exactly one input, found by
    running it backwards: 0x80000000 (which has no positive counterpart) and -1.
    """
    assert murmur_hash(inverse_murmur(0x80000000)) == 0
    assert murmur_hash(inverse_murmur(0xFFFFFFFF)) == 1


def inverse_murmur(h: int) -> int:
    mask = 0xFFFFFFFF

    def unxor(value: int, shift: int) -> int:
        result = value
        for _ in range(32 // shift + 1):
            result = value ^ result >> shift
        return result

    def rotr(value: int, bits: int) -> int:
        return (value >> bits | value << 32 - bits) & mask

    h = unxor(h, 16) * pow(0xC2B2AE35, -1, 2**32) & mask
    h = unxor(h, 13) * pow(0x85EBCA6B, -1, 2**32) & mask
    h = unxor(h, 16) ^ 4
    h = rotr((h - 0xE6546B64) * pow(5, -1, 2**32) & mask, 13)
    h = rotr(h * pow(0x1B873593, -1, 2**32) & mask, 15)
    return h * pow(0xCC9E2D51, -1, 2**32) & mask


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "ranges"),
    [
        (128, 1, [(0, 127)]),
        (128, 3, [(0, 42), (43, 85), (86, 127)]),
        (128, 7, [(0, 18), (19, 36), (37, 54), (55, 73), (74, 91), (92, 109), (110, 127)]),
        (
            128,
            10,
            [
                *[(0, 12), (13, 25), (26, 38), (39, 51), (52, 63)],
                *[(64, 76), (77, 89), (90, 102), (103, 115), (116, 127)],
            ],
        ),
        (10, 3, [(0, 3), (4, 6), (7, 9)]),
        (5, 2, [(0, 2), (3, 4)]),
        (4, 4, [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
)
def test_ranges_of_subtasks(
    max_parallelism: int, parallelism: int, ranges: list[tuple[int, int]]
) -> None:
    ranges_computed = [
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, index)
        for index in range(parallelism)
    ]
    assert [(each.start_key_group, each.end_key_group) for each in ranges_computed] == ranges
    for index, key_groups in enumerate(ranges_computed):
        for key_group in key_groups:
            owner = compute_operator_index_for_key_group(max_parallelism, parallelism, key_group)
            assert owner == index


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [
        *[(1, 128), (85, 128), (86, 256), (171, 256), (200, 512), (1000, 2048)],
        *[(20000, 32768), (21845, 32768), (32768, 32768)],
    ],
)
def test_default_max_parallelism(parallelism: int, expected: int) -> None:
    assert compute_default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize("parallelism", [-1, 0, 32769])
def test_default_max_parallelism_of_an_impossible_parallelism(parallelism: int) -> None:
    with pytest.raises(ConfigError, match=f"not within bounds: {parallelism}"):
        compute_default_max_parallelism(parallelism)


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "problem"),
    [
        (0, 1, "between 1 and 32768"),
        (32769, 1, "between 1 and 32768"),
        (128, 0, "not within bounds: 0"),
        (128, -1, "not within bounds: -1"),
        (32768, 32769, "not within bounds: 32769"),
        (4, 5, "must not be smaller than parallelism"),
    ],
)
def test_impossible_parallelisms(max_parallelism: int, parallelism: int, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        compute_key_group_range_for_operator_index(max_parallelism, parallelism, 0)


@pytest.mark.parametrize("index", [-1, 3, 100])
def test_a_subtask_that_is_not_there_has_no_range(index: int) -> None:
    with pytest.raises(ConfigError, match="subtask"):
        compute_key_group_range_for_operator_index(128, 3, index)


@pytest.mark.parametrize(("max_parallelism", "size"), [(1, 1), (128, 1), (129, 2), (32768, 2)])
def test_prefix_bytes(max_parallelism: int, size: int) -> None:
    assert key_group_prefix_bytes(max_parallelism) == size


def test_a_range_is_inclusive_at_both_ends() -> None:
    key_groups = KeyGroupRange(2, 4)
    assert list(key_groups) == [2, 3, 4]
    assert len(key_groups) == key_groups.number_of_key_groups == 3
    assert [key_groups.contains(each) for each in range(1, 6)] == [False, True, True, True, False]
    assert str(key_groups) == "[2, 4]"


def test_the_empty_range() -> None:
    assert KeyGroupRange.of(3, 2) is KeyGroupRange.EMPTY
    assert KeyGroupRange(0, -1) == KeyGroupRange.EMPTY
    assert len(KeyGroupRange.EMPTY) == 0
    assert list(KeyGroupRange.EMPTY) == []
    assert not KeyGroupRange.EMPTY.contains(0)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (1, 0), (-2, -1)])
def test_impossible_ranges(start: int, end: int) -> None:
    with pytest.raises(ConfigError, match="Not a key-group range"):
        KeyGroupRange(start, end)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ((0, 5), (3, 9), (3, 5)),
        ((0, 5), (6, 9), (0, -1)),
        ((0, 9), (3, 4), (3, 4)),
        ((3, 3), (3, 3), (3, 3)),
        ((0, -1), (0, 9), (0, -1)),
    ],
)
def test_intersection(
    one: tuple[int, int], other: tuple[int, int], common: tuple[int, int]
) -> None:
    left, right = KeyGroupRange(*one), KeyGroupRange(*other)
    assert left.get_intersection(right) == right.get_intersection(left) == KeyGroupRange(*common)
