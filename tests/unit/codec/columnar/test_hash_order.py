import numpy as np
import pytest

from dstl_core.state.columns.column_store import order_of, places_of

ENDS = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]


def random_hashes(seed, count, *, spread=64):
    chooser = np.random.default_rng(seed)
    hashes = chooser.integers(0, 1 << spread, count, np.uint64)
    return np.concatenate([hashes, np.array(ENDS, np.uint64), hashes[: count // 7]])


@pytest.mark.parametrize("spread", [64, 63, 20, 3], ids=lambda bits: f"{bits} bits")
@pytest.mark.parametrize("count", [0, 1, 30, 5_000])
def test_hashes_are_sorted_as_unsigned_numbers_and_equal_ones_keep_their_order(count, spread):
    hashes = random_hashes(count, count, spread=spread)
    assert order_of(hashes).tolist() == np.argsort(hashes, kind="stable").tolist()
    assert order_of(hashes[:0]).tolist() == []
    assert order_of(hashes[::2]).tolist() == np.argsort(hashes[::2], kind="stable").tolist()


@pytest.mark.parametrize("wanted", [0, 1, 40, 3_000])
def test_the_place_of_a_hash_is_that_of_a_binary_search(wanted):
    hashes = np.sort(random_hashes(1, 2_000))
    for sorted_hashes in (hashes, hashes[:0], hashes[5:-5]):
        some = np.sort(np.concatenate([random_hashes(2, wanted), hashes[:wanted:3]]))
        assert (
            places_of(some, sorted_hashes).tolist() == np.searchsorted(sorted_hashes, some).tolist()
        )
    assert places_of(hashes[:1], hashes).tolist() == [0]
