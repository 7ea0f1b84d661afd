"""The order of hashes, and places in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dstl_core.codec.columnar.kernels.hashing import order_hashes, place_hashes
from dstl_core.codec.columnar.types.addresses import address_of

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
_MOST_BITS = 22
_FEW = 32
"""With fewer than one of this number of hashes, searching each one is faster than one pass."""


def order_of(hashes: Hashes) -> Places:
    """The positions of hashes in ascending order; equal hashes keep theirs."""
    hashes = np.ascontiguousarray(hashes)
    rows = len(hashes)
    bits = min(max(1, rows.bit_length()), _MOST_BITS)
    ends = np.zeros((1 << bits) + 1, np.int64)
    order, in_order = np.empty(rows, np.int64), np.empty(rows, np.uint64)
    order_hashes(
        address_of(hashes),
        rows,
        64 - bits,
        address_of(ends),
        address_of(order),
        address_of(in_order),
    )
    return order


def places_of(wanted: Hashes, hashes: Hashes) -> Places:
    """For each hash, the position of the first one in ``hashes`` that is not below it.

    Args:
        wanted: Hashes in ascending order.
        hashes: Hashes in ascending order.
    """
    if len(wanted) * _FEW < len(hashes):
        return np.searchsorted(hashes, wanted).astype(np.int64)
    wanted, hashes = np.ascontiguousarray(wanted), np.ascontiguousarray(hashes)
    places = np.empty(len(wanted), np.int64)
    place_hashes(
        address_of(wanted), len(wanted), address_of(hashes), len(hashes), address_of(places)
    )
    return places
