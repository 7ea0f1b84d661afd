"""Functions of jobs under test, by row and by column, with a plain Spark reference."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.serializers import Types
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.state.tables.descriptor import ValueStateDescriptor

TOTAL = ValueStateDescriptor("total", Types.LONG)
LAST = ValueStateDescriptor("last", Types.STRING)
OUTPUT = pa.schema([("k", pa.string()), ("total", pa.int64())])
SCHEMA = "k string, v long, t string"


class TotalsByRow(KeyedProcessFunction):
    """Sum and last text of each key; a text that is null clears it. Gives the running sums."""

    def open(self, runtime_context):
        self._total = runtime_context.get_state(TOTAL)
        self._last = runtime_context.get_state(LAST)

    def process_element(self, value, ctx):
        self._total.update((self._total.value() or 0) + value["v"])
        if value["t"] is None:
            self._last.clear()
        else:
            self._last.update(value["t"])
        yield {"k": value["k"], "total": self._total.value()}


class TotalsByColumn(KeyedColumnFunction):
    """The same on columns; gives the sums after the batch."""

    states = (TOTAL, LAST)

    def process_batch(self, keys, state, rows):
        index = rows.column("key_index").to_numpy()
        total = pc.fill_null(state.column("total"), 0).to_numpy().copy()
        np.add.at(total, index, rows.column("v").to_numpy())
        last = np.full(len(keys), -1, np.int64)
        last[index] = np.arange(len(index))  # the rows come in order
        new = pa.RecordBatch.from_arrays(
            [pa.array(total), rows.column("t").take(pa.array(last))], names=["total", "last"]
        )
        return ColumnResult(new, pa.RecordBatch.from_arrays([keys, new[0]], schema=OUTPUT))


def random_batch(seed, count=300):
    chooser = random.Random(seed)
    keys = [f"key-{i}" for i in range(60)] + ["", "ключ", "😀", "x" * 300]
    values = chooser.sample(range(1, 100_000), count)
    return [
        (chooser.choice(keys), value, chooser.choice([None, "a", "ß", "😀", "y" * 50]))
        for value in values
    ]


def plain(batches):
    """What the state has to be, by hand; rows apply in order of ``v``."""
    state = {}
    for rows in batches:
        for key, value, text in sorted(rows, key=lambda row: row[1]):
            state[key] = (state.get(key, (0, None))[0] + value, text)
    return state


def random_windowed_batch(seed, begin, count=300):
    """Rows ``(key, value, time)`` whose times go back and forth from ``begin``."""
    chooser = random.Random(seed)
    return [
        (f"key-{chooser.randrange(20)}", number, begin + chooser.randrange(-1500, 1500))
        for number in range(count)
    ]
