"""Values that wait for a store are the last ones of their keys, however many of them wait."""

import random

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.spans import Source
from dstl_core.codec.serializers import Types, serialize_to_bytes
from dstl_core.errors import FormatError
from dstl_core.state.columns import gathered_states
from dstl_core.state.columns.column_store import MAX_LEVELS, ColumnStore
from dstl_core.state.columns.gathered_states import GatheredStates
from dstl_core.state.tables.descriptor import ValueStateDescriptor

STATES = (ValueStateDescriptor("n", Types.LONG), ValueStateDescriptor("t", Types.STRING))
VALUES = {"n": [None, *range(9)], "t": [None, "a", "ß", ""]}


def as_bytes(keys, *, long_lengths=False):
    """The bytes of some texts. Java reads a length of two bytes, too, where it would write one."""
    parts = [serialize_to_bytes(Types.STRING, key) for key in keys]
    if long_lengths:
        parts = [bytes([part[0] | 0x80, 0]) + part[1:] for part in parts]
    source = Source(b"".join(parts), ())
    ends = source.base + np.cumsum([len(part) for part in parts])
    return Ranges(ends - [len(part) for part in parts], ends), source


@pytest.mark.parametrize("most", [1, 3_000, 1 << 20], ids=["one by one", "some", "all at once"])
@pytest.mark.parametrize("least", [5, 1 << 20], ids=["old ones dropped", "all kept"])
def test_the_last_value_of_a_key_is_kept(monkeypatch, most, least):
    monkeypatch.setattr(gathered_states, "MOST_WAITING_BYTES", most)
    monkeypatch.setattr(gathered_states, "_LEAST_ROWS", least)
    chooser = random.Random(most)
    store, model = ColumnStore(Types.STRING, STATES), {}
    gathered = GatheredStates(store, Types.STRING)
    for number in range(120):
        name = chooser.choice(["n", "t"])
        keys = [f"key {chooser.randrange(number + 1)}" for _ in range(chooser.randrange(1, 20))]
        values = [chooser.choice(VALUES[name]) for _ in keys]
        column = pa.array(values, store.schema.field(name).type)
        gathered.add(name, *as_bytes(keys, long_lengths=number % 3 == 2), column)
        for key, value in zip(keys, values, strict=True):
            model.setdefault(key, {"n": None, "t": None})[name] = value
    gathered.put()
    assert len(store.levels) <= MAX_LEVELS
    kept = {row.pop("key"): row for row in store.whole().to_pylist()}
    assert kept == {
        key: row for key, row in model.items() if any(value is not None for value in row.values())
    }


def test_a_damaged_key_is_a_format_error():
    gathered = GatheredStates(ColumnStore(Types.STRING, STATES), Types.STRING)
    keys, source = as_bytes(["key"])
    with pytest.raises(FormatError, match="A key is damaged"):
        gathered.add("n", Ranges(keys.starts, keys.ends - 1), source, pa.array([1]))
