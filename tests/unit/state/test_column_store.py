import random

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import FormatError
from dstl_core.state.columns.column_store import MAX_LEVELS, ColumnStore
from dstl_core.state.tables.descriptor import ValueStateDescriptor

NAMES = {
    Types.STRING: [*(f"key-{i}" for i in range(50)), "", "ключ", "😀"],
    Types.LONG: [*range(50), -1, 1 << 62, -(1 << 63)],
}
KEY_TYPES = pytest.mark.parametrize("key_type", NAMES, ids=["string", "long"])
STATES = (ValueStateDescriptor("n", Types.LONG), ValueStateDescriptor("t", Types.STRING))


def put(store, rows):
    keys, _ = store.keys(pa.array([key for key, *_ in rows], store.key_type))
    columns = [
        pa.array([row[at] for row in rows], kind)
        for at, kind in ((1, pa.int64()), (2, pa.string()))
    ]
    store.put(keys, pa.Table.from_arrays(columns, schema=store.schema))


def look(store, names):
    keys, numbers = store.keys(pa.array(names, store.key_type))
    looked_up = store.lookup(keys).to_pylist()
    return [(looked_up[number]["n"], looked_up[number]["t"]) for number in numbers]


def random_store(seed, rounds, *, tidy, key_type=Types.STRING):
    chooser = random.Random(seed)
    store, model = ColumnStore(key_type, STATES), {}
    names = NAMES[key_type]
    for _ in range(rounds):
        rows = [
            (name, chooser.choice([None, chooser.randrange(100)]), chooser.choice([None, "a", "ß"]))
            for name in chooser.sample(names, chooser.randrange(1, 20))
        ]
        put(store, rows)
        model.update({name: rest for name, *rest in rows})
        if tidy:
            store.tidy()
    return store, {name: tuple(rest) for name, rest in model.items()}, names


@pytest.mark.parametrize("tidy", [False, True])
@pytest.mark.parametrize("seed", range(5))
@KEY_TYPES
def test_the_newest_row_of_a_key_is_found(key_type, seed, tidy):
    store, model, names = random_store(seed, 40, tidy=tidy, key_type=key_type)
    assert look(store, names) == [model.get(name, (None, None)) for name in names]
    whole = {row["key"]: (row["n"], row["t"]) for row in store.whole().to_pylist()}
    assert whole == {name: row for name, row in model.items() if row != (None, None)}
    if tidy:
        assert len(store.levels) <= MAX_LEVELS


def test_only_the_rows_that_are_chosen_are_replaced():
    store = ColumnStore(Types.STRING, STATES)
    names = [f"key-{at}" for at in range(100)]
    put(store, [(name, 0, "old") for name in names])
    keys, _ = store.keys(pa.array(names))
    states = pa.Table.from_arrays([pa.array(range(100)), pa.nulls(100, pa.string())], ["n", "t"])
    store.put(keys, states, np.arange(100) % 3 == 0)
    assert look(store, names) == [(at, None) if at % 3 == 0 else (0, "old") for at in range(100)]
    store.put(keys, states, np.zeros(100, np.bool_))
    assert len(store.levels) == 2


@KEY_TYPES
def test_keys_with_the_same_hash_are_told_apart(key_type):
    store = ColumnStore(key_type, STATES)
    *names, stranger = NAMES[key_type][:21]
    put(store, [(name, at, str(name)) for at, name in enumerate(names)])
    [level] = store.levels
    level.hashes = np.full(20, 7, np.uint64)
    keys, _ = store.keys(pa.array([*names, stranger]))
    keys.hashes[:] = 7
    looked_up = store.lookup(keys).to_pylist()
    assert [row["t"] for row in looked_up] == [*map(str, names), None]
    put(store, [(name, -at, "new") for at, name in enumerate(names[:9])])
    store.levels[1].hashes = np.full(9, 7, np.uint64)
    whole = {row["key"]: row["n"] for row in store.whole().to_pylist()}
    assert whole == {name: -at if at < 9 else at for at, name in enumerate(names)}


@KEY_TYPES
def test_files_give_back_what_was_saved(tmp_path, key_type):
    store, model, names = random_store(1, 30, tidy=True, key_type=key_type)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    stored = store.save(tmp_path / "a")
    opened = ColumnStore(key_type, STATES, store.seed)
    opened.open(tmp_path / "a", stored)
    put(opened, [(names[1], 5, "new")])
    again = ColumnStore(key_type, STATES, store.seed)
    again.open(tmp_path / "b", opened.save(tmp_path / "b"))
    model[names[1]] = (5, "new")
    assert look(again, names) == [model.get(name, (None, None)) for name in names]
    shared = {each.stat().st_ino for each in (tmp_path / "a").glob("*.arrow")}
    assert shared <= {each.stat().st_ino for each in (tmp_path / "b").glob("*.arrow")}


def test_damaged_files_and_other_states_are_refused(tmp_path):
    store, *_ = random_store(2, 3, tidy=False)
    names = store.save(tmp_path)
    first = next(iter(names))
    other = ColumnStore(Types.STRING, STATES[:1], store.seed)
    with pytest.raises(FormatError, match="other states"):
        other.open(tmp_path, names)
    for suffix in (".npy", ".arrow"):
        path = tmp_path / (first + suffix)
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 1
        for damaged in (whole[: len(whole) // 2], flipped):
            path.write_bytes(damaged)
            with pytest.raises(FormatError, match="damaged"):
                ColumnStore(Types.STRING, STATES, store.seed).open(tmp_path, names)
        path.write_bytes(whole)
        ColumnStore(Types.STRING, STATES, store.seed).open(tmp_path, names)


def test_an_empty_store_has_no_rows():
    store = ColumnStore(Types.STRING, STATES)
    assert look(store, ["a"]) == [(None, None)]
    assert store.whole().num_rows == 0
    assert store.whole().schema.names == ["key", "n", "t"]
