"""Digests of records in any order: whether two places hold the same records, byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.spans import SpanBatch

_U64 = (1 << 64) - 1
_SEED = 0x5DEECE66D
"""One for all: a digest is compared with that of another process, or of a run before a kill."""

StateDigest = tuple[int, int]
"""The number of records, and the sum of a hash of each one, of 64 bits."""


@dataclass
class RecordDigests:
    """The digests of the records of some states.

    A hash covers key group, key, namespace and value of one record. The sum does not depend on the
    order of the records, so every form that stores them has the same one.
    """

    states: dict[str, StateDigest] = field(default_factory=dict)

    def add(self, records: SpanBatch, names: Sequence[str]) -> None:
        """Adds records.

        Args:
            records: Their spans.
            names: The names of the states, by id.
        """
        import numpy as np  # these load the compiler, which who compares digests does not need

        from dstl_core.codec.columnar.kernels.hashing import sum_records
        from dstl_core.codec.columnar.kernels.scan import SPAN_BYTES
        from dstl_core.codec.columnar.types.addresses import address_of

        spans, sums = np.ascontiguousarray(records.spans), np.zeros((len(names), 2), np.int64)
        sum_records(address_of(spans), SPAN_BYTES, len(spans), _SEED, address_of(sums))
        for name, (count, digest) in zip(names, sums.tolist(), strict=True):
            if count:
                self._add(name, count, digest)

    def update(self, other: Mapping[str, Sequence[int]]) -> None:
        for state, (count, digest) in other.items():
            self._add(state, count, digest)

    def _add(self, state: str, count: int, digest: int) -> None:
        before = self.states.get(state, (0, 0))
        self.states[state] = before[0] + count, (before[1] + digest) & _U64
