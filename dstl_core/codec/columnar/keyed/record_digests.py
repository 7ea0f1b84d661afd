"""Digests of records in any order: whether two places hold the same records, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.spans import SpanBatch
    from dstl_core.codec.columnar.types.program import Int64s

_U64 = (1 << 64) - 1
_SEED = 0x5DEECE66D
"""One for all: a digest is compared with that of another process, or of a run before a kill."""
_GROUP, _VALUE, _MIX = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9

StateDigest = tuple[int, int]
"""The number of records, and the sum of a hash of each one, of 64 bits."""


@dataclass
class RecordDigests:
    """The digests of the records of some states.

    A hash covers key group, key, namespace and value of one record. The sum does not depend on the
    order of the records, so every form that stores them has the same one.
    """

    states: dict[str, StateDigest] = field(default_factory=dict)

    def add(self, state: str, records: SpanBatch, key_groups: Int64s) -> None:
        """Adds some records of a state."""
        self._add(state, len(records), _sum(records, key_groups))

    def update(self, other: Mapping[str, Sequence[int]]) -> None:
        """Adds the digests of other records."""
        for state, (count, digest) in other.items():
            self._add(state, count, digest)

    def _add(self, state: str, count: int, digest: int) -> None:
        before = self.states.get(state, (0, 0))
        self.states[state] = before[0] + count, (before[1] + digest) & _U64


def _sum(records: SpanBatch, key_groups: Int64s) -> int:
    import numpy as np  # these load the compiler, which who compares digests does not need

    from dstl_core.codec.columnar.kernels.hashing import hash_rows
    from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES
    from dstl_core.codec.columnar.types.addresses import address_of

    spans, rows = np.ascontiguousarray(records.spans), len(records)
    keys, values = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
    at = address_of(spans)
    for start, hashes in ((at, keys), (at + 16, values)):
        hash_rows(start, start + 8, SPAN_BYTES, rows, _SEED, address_of(hashes))
    # Sums of products alone would not see two values that change places.
    mixed: Any = keys + key_groups.astype(np.uint64) * np.uint64(_GROUP)
    mixed ^= values * np.uint64(_VALUE)
    mixed *= np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(_GROUP)
    return int(mixed.sum(dtype=np.uint64))
