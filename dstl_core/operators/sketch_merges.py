"""Merges of sketches: bytes of Apache DataSketches, which Spark and users of Flink also read.

A sketch belongs to one key. Only keys that already have a sketch are merged, one by one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite, isnan
from typing import Any

import datasketches
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.collections import java_double_text
from dstl_core.errors import ConfigError, FormatError
from dstl_core.operators.aggregate_merge import Columns, Merge
from dstl_core.operators.list_merges import lists_joined, owners_of
from dstl_core.operators.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.state.held.key_batch import one_array

_ERRORS = (ValueError, IndexError, RuntimeError)
"""Errors that the library raises for bytes that are not a sketch."""


class SketchMerge(Merge):
    """A sketch of the values of a key."""

    parts = ("sketch",)

    def __init__(self, uid: str, name: str) -> None:
        super().__init__(uid, name, {"": Types.BYTES})

    def merge(self, held: Columns, parts: Columns) -> Columns:
        [old], [new] = held, parts
        both = pc.and_(old.is_valid(), new.is_valid())
        if not pc.any(both).as_py():
            return [pc.coalesce(new, old)]
        with self._of_bytes():
            merged = [
                self._merged(one, other)
                for one, other in zip(
                    old.filter(both).to_pylist(), new.filter(both).to_pylist(), strict=True
                )
            ]
        return [pc.replace_with_mask(pc.coalesce(new, old), both, pa.array(merged, pa.binary()))]

    @contextmanager
    def _of_bytes(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise FormatError(
                f"The state {self.name!r} of operator {self.uid!r} is not a sketch of Apache "
                f"DataSketches ({error})"
            ) from error

    @abstractmethod
    def _merged(self, one: bytes, other: bytes) -> bytes:
        """The sketch of the values of both."""


class DistinctSketch(SketchMerge):
    """An HLL sketch."""

    def __init__(self, uid: str, name: str, lg_k: int) -> None:
        super().__init__(uid, name)
        self.lg_k = lg_k

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.present
        once = pa.table({"number": rows.numbers, "value": hashable(rows.column)})
        once = once.group_by(["number", "value"], use_threads=False).aggregate([])
        distinct = RowsOfKeys(once.column("number").to_numpy(), rows.keys)
        [lists] = distinct.lists(one_array(once.column("value")))
        sketches = [None if values is None else self._of(values) for values in lists.to_pylist()]
        return [pa.array(sketches, pa.binary())]

    def _of(self, values: Sequence[Any]) -> bytes:
        sketch = datasketches.hll_sketch(self.lg_k, datasketches.HLL_8)
        for value in values:
            sketch.update(value)
        raw: bytes = sketch.serialize_compact()
        return raw

    def _merged(self, one: bytes, other: bytes) -> bytes:
        sketches = [datasketches.hll_sketch.deserialize(each) for each in (one, other)]
        # A union that is smaller than one of its sketches may lose all values of that one.
        union = datasketches.hll_union(max(each.lg_config_k for each in sketches))
        for each in sketches:
            union.update(each)
        merged: bytes = union.get_result(datasketches.HLL_8).serialize_compact()
        return merged

    @property
    def final_type(self) -> pa.DataType:
        return pa.int64()

    def final(self, held: Columns) -> pa.Array:
        """The estimates; 0 for a key without values."""
        with self._of_bytes():
            found = [0 if each is None else round(_estimate(each)) for each in held[0].to_pylist()]
        return pa.array(found, pa.int64())


def _estimate(sketch: bytes) -> float:
    found: float = datasketches.hll_sketch.deserialize(sketch).get_estimate()
    return found


class QuantileSketch(SketchMerge):
    """A KLL sketch of doubles."""

    def __init__(self, uid: str, name: str, k: int, probabilities: Sequence[float]) -> None:
        super().__init__(uid, name)
        self.k = k
        self._probabilities = list(probabilities)

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        rows = rows.where(pc.invert(pc.is_nan(rows.column)))
        order = np.argsort(rows.numbers, kind="stable")
        values = rows.column.to_numpy()[order]
        ends = np.cumsum(np.bincount(rows.numbers, minlength=rows.keys))
        pieces = np.split(values, ends[:-1]) if rows.keys else []
        sketches = [self._of(piece) if len(piece) else None for piece in pieces]
        return [pa.array(sketches, pa.binary())]

    def _of(self, values: npt.NDArray[np.float64]) -> bytes:
        sketch = datasketches.kll_doubles_sketch(self.k)
        sketch.update(values)
        raw: bytes = sketch.serialize()
        return raw

    def _merged(self, one: bytes, other: bytes) -> bytes:
        sketch = datasketches.kll_doubles_sketch(self.k)
        for each in (one, other):
            sketch.merge(datasketches.kll_doubles_sketch.deserialize(each))
        merged: bytes = sketch.serialize()
        return merged

    @property
    def final_type(self) -> pa.DataType:
        return pa.list_(pa.float64())

    def final(self, held: Columns) -> pa.Array:
        """The quantiles; null for a key without values."""
        with self._of_bytes():
            found = [
                None if each is None else self._quantiles(each) for each in held[0].to_pylist()
            ]
        return pa.array(found, self.final_type)

    def _quantiles(self, sketch: bytes) -> list[float]:
        found: Any = datasketches.kll_doubles_sketch.deserialize(sketch)
        return [float(each) for each in found.get_quantiles(self._probabilities, True)]


class Histogram(Merge):
    """The number of values in each bucket. A batch has the buckets that are not empty."""

    parts = ("buckets", "counts")

    def __init__(self, uid: str, name: str, bounds: Sequence[float]) -> None:
        super().__init__(uid, name, {"": Types.LIST(Types.LONG)})
        self.bounds = tuple(bounds)

    @property
    def definition(self) -> str:
        return f"a histogram with the bounds {', '.join(str(each + 0.0) for each in self.bounds)}"

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        rows = rows.of(rows.column.cast(pa.float64(), safe=False)).present
        # NaN is larger than any bound.
        where = np.searchsorted(np.array(self.bounds), rows.column.to_numpy(), side="right")
        pairs = np.stack([rows.numbers, where], axis=1)
        places, counts = np.unique(pairs, axis=0, return_counts=True)
        of_buckets = RowsOfKeys(places[:, 0], rows.keys)
        return of_buckets.lists(pa.array(places[:, 1], pa.int32()), pa.array(counts))

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return lists_joined(parts, numbers, keys)

    def merge(self, held: Columns, parts: Columns) -> Columns:
        buckets = len(self.bounds) + 1
        total = np.zeros((len(held[0]), buckets), np.int64)
        for numbers, counts in (self.parts_of(held), parts):
            where, what = (pc.list_flatten(each).to_numpy() for each in (numbers, counts))
            np.add.at(total, (owners_of(numbers), where), what)
        offsets = np.arange(0, total.size + 1, buckets).astype(np.int32)
        empty = pa.array(~total.any(axis=1))
        return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(total.ravel()), mask=empty)]

    def parts_of(self, held: Columns) -> Columns:
        buckets, stored = len(self.bounds) + 1, held[0]
        there = stored.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.list_value_length(stored.drop_null())
        if not pc.all(pc.equal(sizes, buckets), min_count=0).as_py():
            raise ConfigError(
                f"The state {self.name!r} of operator {self.uid!r} has another number of "
                f"buckets than the histogram, {buckets}; keep its bounds, or give the "
                f"aggregate another name."
            )
        bounds = pa.array(np.concatenate([[0], np.cumsum(there * buckets)]), pa.int32())
        numbers = pa.array(np.tile(np.arange(buckets, dtype=np.int32), int(there.sum())))
        counts = pc.list_flatten(stored)
        return [pa.ListArray.from_arrays(bounds, each) for each in (numbers, counts)]


def hashable(values: pa.Array) -> pa.Array:
    """Values as the longs or texts whose hashes a sketch counts, as Spark does.

    Source: ``hll_sketch_agg`` of Spark 4.3.0 takes longs, texts and bytes. Other values are texts
    as Spark writes them. The library takes no bytes: those that are UTF-8 are its texts, and others
    are texts of hexadecimal digits.
    """
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.int64())
    if pa.types.is_date32(kind):
        return values.cast(pa.int32()).cast(pa.int64())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    if pa.types.is_timestamp(kind):
        texts = pc.strftime(values.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
        return pc.replace_substring_regex(texts, r"\.?0+$", "")
    if pa.types.is_float32(kind):
        # The shortest digits that tell the float from others, as a double.
        return _texts(values, lambda number: _java_text(float(str(np.float32(number)))))
    if pa.types.is_floating(kind):
        return _texts(values, _java_text)
    if pa.types.is_decimal(kind):
        return _texts(values, lambda number: f"{number:f}")
    return _texts(values.cast(pa.binary()), _text_of_bytes)


def _text_of_bytes(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return f"\0{raw.hex()}"


def _texts(values: pa.Array, text_of: Callable[[Any], str]) -> pa.Array:
    """The text of each value; each distinct value is converted once."""
    coded = values.dictionary_encode()
    texts = [text_of(value) for value in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)


def _java_text(number: float) -> str:
    """The text of ``Double.toString``."""
    if isfinite(number):
        return java_double_text(number)
    return "NaN" if isnan(number) else "Infinity" if number > 0 else "-Infinity"
