"""Numbers keys by their bytes, in many small batches of records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.byte_index import ByteIndex, Ranges
from dstl_core.codec.columnar.keyed.decoder import KEY, SpanProgram
from dstl_core.codec.columnar.keyed.encoder import EncodedRows, EncodeProgram
from dstl_core.codec.columnar.keyed.places import concatenated, take
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.columnar.types.scratch import scratch_words
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import FormatError

_BYTES_PER_KEY = 64
"""Memory of an index for a key, without the bytes of the key."""


class KeyNumbers:
    """Numbers distinct keys from 0. Only a new key is decoded.

    A key is looked up by its bytes in indexes of the keys that came before. The indexes double in
    size, and become one as soon as many keys were not in the first one.

    Args:
        key_type: The type of the keys.
    """

    def __init__(self, key_type: AnySerializer) -> None:
        self._read = SpanProgram([(KEY, layout_of(key_type))], scan.VALUE_START, ArrowAllocator())
        self._write = EncodeProgram([(KEY, layout_of(key_type))])
        self._indexes: list[ByteIndex] = []
        self._firsts: list[int] = []
        self._ranges: list[Ranges] = []
        self._rows: list[EncodedRows] = []
        self._passed = 0
        self.keys: list[pa.Array] = []
        """The keys, in the order of their numbers."""
        self.count = 0
        self.bytes = 0

    def numbers(self, ranges: Ranges, source: Source) -> Int64s:
        """The number of each key.

        Args:
            ranges: The bytes of the keys, which may repeat.
            source: Has these bytes.

        Raises:
            FormatError: A key is damaged.
        """
        if self._passed > self.count:
            self._merge(len(self._indexes))
        numbers = self._find(ranges)
        unknown = np.flatnonzero(numbers < 0)
        if len(unknown):
            several = take(ranges, unknown)
            index = ByteIndex(several)
            numbers[unknown] = self._add(take(several, index.firsts), source)[index.numbers]
        return numbers

    def _find(self, ranges: Ranges) -> Int64s:
        numbers = np.full(len(ranges), -1, np.int64)
        unknown = np.arange(len(ranges))
        for index, first in zip(self._indexes, self._firsts, strict=True):
            places = index.find(ranges if len(unknown) == len(ranges) else take(ranges, unknown))
            is_here = places >= 0
            numbers[unknown[is_here]] = places[is_here] + first
            unknown = unknown[~is_here]
            if not len(unknown):
                break
            self._passed += len(unknown)
        return numbers

    def _add(self, ranges: Ranges, source: Source) -> Int64s:
        """The numbers of keys whose bytes are in no index."""
        spans = scratch_words(len(ranges), scan.SPAN_WORDS)
        spans[:, scan.VALUE_START], spans[:, scan.VALUE_END] = ranges.starts, ranges.ends
        columns, failure = self._read.run(SpanBatch(spans, source), {KEY}, len(spans))
        if failure is not None:
            raise FormatError("A key is damaged", field="key")
        keys = columns[KEY]
        rows = self._write.encode({KEY: keys}, len(keys))
        # Other bytes may have meant a key that has a number.
        numbers = self._find(rows.ranges)
        new = np.flatnonzero(numbers < 0)
        index = ByteIndex(take(rows.ranges, new))
        numbers[new] = index.numbers + self.count
        if len(index) < len(keys):
            keys = keys.take(pa.array(new[index.firsts]))
            rows = self._write.encode({KEY: keys}, len(keys))
            index = ByteIndex(rows.ranges)
        if len(keys):
            self._keep(keys, rows, index)
        return numbers

    def _keep(self, keys: pa.Array, rows: EncodedRows, index: ByteIndex) -> None:
        self.keys.append(keys)
        self._rows.append(rows)
        self._indexes.append(index)
        self._ranges.append(rows.ranges)
        self._firsts.append(self.count)
        self.count += len(keys)
        self.bytes += keys.nbytes + rows.data.size + _BYTES_PER_KEY * len(keys)
        while len(self._indexes) > 1 and len(self._indexes[-2]) < 2 * len(self._indexes[-1]):
            self._merge(2)

    def _merge(self, indexes: int) -> None:
        """Makes one index of the last ones."""
        self._passed = 0
        if indexes > 1:
            self._ranges[-indexes:] = [concatenated(self._ranges[-indexes:])]
            self._indexes[-indexes:] = [ByteIndex(self._ranges[-1])]
            del self._firsts[1 - indexes :]
