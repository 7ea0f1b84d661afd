"""Converts serialized values to columns and back, for non-keyed state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import Failure, SpanProgram
from dstl_core.codec.columnar.keyed.encoder import EncodeProgram
from dstl_core.codec.columnar.keyed.sections import Section
from dstl_core.codec.columnar.keyed.spans import Source, SpanBatch
from dstl_core.codec.columnar.types.layouts import Layout
from dstl_core.codec.columnar.types.output_columns import ArrowAllocator

_VALUE = "value"


def decode_elements(layout: Layout, elements: Sequence[bytes]) -> tuple[pa.Array, Failure | None]:
    """Decodes values to a column, or returns the failure of a value that it cannot hold."""
    program = SpanProgram([(_VALUE, layout)], scan.VALUE_START, ArrowAllocator())
    data = b"".join(elements)
    source = Source(data, [Section(0, 0, len(data), 0)])
    sizes = np.array([len(each) for each in elements], np.int64)
    ends = np.cumsum(sizes) + source.base
    spans = np.zeros((len(elements), scan.SPAN_WORDS), np.int64)
    spans[:, scan.VALUE_START], spans[:, scan.VALUE_END] = ends - sizes, ends
    columns, failure = program.run(SpanBatch(spans, source), {_VALUE}, len(elements))
    return columns.get(_VALUE), failure


def encode_elements(layout: Layout, column: pa.Array) -> list[memoryview]:
    """Encodes each value of a column.

    Raises:
        ColumnValueError: The column holds a value that its type does not allow.
    """
    encoded = EncodeProgram([(_VALUE, layout)]).encode({_VALUE: column}, len(column))
    raw, base = memoryview(encoded.data), encoded.data.address
    bounds = zip((encoded.starts - base).tolist(), (encoded.ends - base).tolist(), strict=True)
    return [raw[start:end] for start, end in bounds]
