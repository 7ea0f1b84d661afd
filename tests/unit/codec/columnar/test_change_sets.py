"""Change sets over columns: the same bytes as the reference, whatever is in them."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.codec.change_format import read_change_set, write_change_set
from dstl_core.codec.columnar.changes import batches as change_batches
from dstl_core.codec.columnar.changes import sets as change_sets
from dstl_core.codec.columnar.changes.batches import (
    CHANGE_SCHEMA,
    ChangeBatches,
    check_change_set,
)
from dstl_core.codec.columnar.changes.columns import change_columns
from dstl_core.codec.columnar.changes.sets import ChangeColumns, encode_change_set
from dstl_core.codec.columnar.kernels.pointers import CHECKED, checked_build
from dstl_core.codec.data_io import DataOutput
from dstl_core.errors import FormatError, InvariantViolation
from dstl_core.model.change import StateChange
from dstl_core.model.key_group import KeyGroupRange
from tests.unit.codec.java_bytes import i32

ALL = KeyGroupRange(0, 32767)
KERNELS = {
    change_sets: (
        "_count",
        "_bucket",
        "_fill_buckets",
        "_java_capacity",
        "_java_order",
        "_write_headers",
        "_scatter",
    ),
    change_batches: ("_open_set", "_open_group", "_read_group", "_read_changes"),
}


@pytest.fixture(params=["compiled", "checked"])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kernels as they ship, and the same as Python with every load and store checked."""
    if request.param == "checked":
        for module, names in KERNELS.items():
            checked = {name: checked_build(getattr(module, name)) for name in names}
            for name, function in checked.items():
                # Kernels that call kernels have to find the checked ones too.
                function.__globals__.update(checked)
                monkeypatch.setattr(module, name, function)
    return str(request.param)


def reference(changes: list[StateChange]) -> bytes:
    out = DataOutput()
    write_change_set(out, changes)
    return out.to_bytes()


def columns(changes: list[StateChange]) -> ChangeColumns:
    offsets = np.cumsum([0, *(len(each.change) for each in changes)], dtype=np.int64)
    data = np.frombuffer(b"".join(each.change for each in changes), np.uint8)
    return ChangeColumns(np.array([c.key_group for c in changes], np.int32), offsets, data)


def random_changes(rng: Random) -> list[StateChange]:
    step = rng.choice([1, 1, 7, 16, 64])
    top = rng.choice([1, 12, 13, 14, 25, 49, 128, 400])
    groups = [-1] * rng.randrange(2) + [group * step for group in range(top)]
    return [
        StateChange(rng.choice(groups), rng.randbytes(rng.choice([0, 0, 1, 5, 100])))
        for _ in range(rng.randrange(1, rng.choice([5, 40, 400])))
    ]


def decode(
    body: bytes, offset: int = 0, *, rows: int = 1_000, size: int = 1 << 16, groups: object = ALL
) -> list[StateChange]:
    batches = ChangeBatches(groups, rows, size)  # type: ignore[arg-type]
    decoded = []
    for batch in [*batches.add_set(np.frombuffer(body, np.uint8), offset, 3), *batches.flush()]:
        batch.validate(full=True)
        assert batch.schema == CHANGE_SCHEMA
        assert 0 < batch.num_rows <= rows
        decoded += map(StateChange, batch[0].to_pylist(), batch[2].to_pylist())
    return decoded


def test_encoding_equals_the_reference(build: str) -> None:
    for seed in range(300 if build == "compiled" else 40):
        rng = Random(seed)
        changes = random_changes(rng)
        cuts = sorted({0, len(changes), *(rng.randrange(len(changes)) for _ in range(2))})
        parts = [columns(changes[a:b]) for a, b in pairwise(cuts)]
        assert bytes(encode_change_set(parts, ALL)) == reference(changes), seed


@pytest.mark.slow
def test_decoding_equals_the_reference_for_any_size_of_batch(build: str) -> None:
    for seed in range(200 if build == "compiled" else 30):
        rng = Random(seed)
        body = rng.randbytes(9) + reference(random_changes(rng)) + rng.randbytes(9)
        expected = list(read_change_set(body, 9))
        rows, size = rng.choice([1, 3, 1_000]), rng.choice([1, 150, 1 << 16])
        assert decode(body, 9, rows=rows, size=size) == expected, seed
        check_change_set(np.frombuffer(body, np.uint8), 9)


def test_decoding_a_range_keeps_metadata_and_that_range() -> None:
    changes = [StateChange(group, b"%d" % group) for group in (-1, 5, 6, 7, 8, 6)]
    decoded = decode(reference(changes), groups=KeyGroupRange(6, 7))
    assert decoded == [
        StateChange(-1, b"-1"),
        StateChange(6, b"6"),
        StateChange(6, b"6"),
        StateChange(7, b"7"),
    ]


def test_several_sets_share_a_batch_and_are_told_apart() -> None:
    batches = ChangeBatches(ALL, 100, 1 << 16)
    for number in (4, 5):
        body = reference([StateChange(1, b"a"), StateChange(1, b"b")])
        assert list(batches.add_set(np.frombuffer(body, np.uint8), 0, number)) == []
    [batch] = batches.flush()
    assert batch.column("sequence_number").to_pylist() == [4, 4, 5, 5]
    assert list(batches.flush()) == []


def test_a_value_larger_than_a_batch_gets_one_of_its_own() -> None:
    body = reference([StateChange(0, b"x"), StateChange(0, bytes(1_000)), StateChange(0, b"y")])
    batches = ChangeBatches(ALL, 100, 10)
    flushed = [*batches.add_set(np.frombuffer(body, np.uint8), 0, 0), *batches.flush()]
    assert [batch.column("value").to_pylist() for batch in flushed] == [
        [b"x"],
        [bytes(1_000)],
        [b"y"],
    ]


# -------------------------------------------------------------------------------- damage

SOUND = i32(3) + i32(1, -1, 1) + b"M" + i32(2, 1, 2) + b"yy" + i32(0) + i32(1, 17, 1) + b"x"


def error_of(read: object, *args: object) -> tuple[object, ...] | None:
    try:
        read(*args)  # type: ignore[operator]
    except FormatError as error:
        context = error.context
        return type(error), context.get("offset"), context.get("field"), context.get("got")
    return None


def test_cutting_anywhere_raises_what_the_reference_raises(build: str) -> None:
    assert error_of(lambda: list(read_change_set(SOUND, 0))) is None
    for size in range(len(SOUND)):
        expected = error_of(lambda size=size: list(read_change_set(SOUND[:size], 0)))
        if size:
            assert expected is not None
            assert error_of(decode, SOUND[:size]) == expected, size
        body = np.frombuffer(SOUND[:size], np.uint8)
        assert error_of(check_change_set, body, 0) is not None


def test_flipping_any_byte_decodes_as_the_reference_or_raises_what_it_raises(build: str) -> None:
    for position in range(len(SOUND)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            damaged = SOUND[:position] + bytes([value]) + SOUND[position + 1 :]
            expected = error_of(lambda damaged=damaged: list(read_change_set(damaged, 0)))
            assert error_of(decode, damaged) == expected, (position, value)
            if expected is None:
                in_range = [c for c in read_change_set(damaged, 0) if c.key_group < 32768]
                assert decode(damaged) == in_range


@pytest.mark.parametrize("offset", [-1, len(SOUND), 2**40])
def test_a_set_outside_its_body(offset: int, build: str) -> None:
    assert error_of(decode, SOUND, offset) is not None


def test_the_checked_build_refuses_what_lies_outside() -> None:
    array = np.zeros(8, np.uint8)
    load, store, copy = (CHECKED[name] for name in ("load_i32", "store_i32", "copy_bytes"))
    store(array, 4, -2)
    assert load(array, 4) == -2
    copy(array, 0, np.frombuffer(b"ab", np.uint8), 0, 2)
    assert array.tobytes() == b"ab\0\0\xff\xff\xff\xfe"
    for act in (
        lambda: load(array, 5),
        lambda: load(array, -1),
        lambda: store(array, 5, 0),
        lambda: copy(array, 7, array, 0, 2),
        lambda: copy(array, 0, array, 7, 2),
        lambda: copy(array, 0, array, 0, -1),
    ):
        with pytest.raises(InvariantViolation, match="left its array"):
            act()


# ---------------------------------------------------------------- columns that do not fit


@pytest.mark.parametrize(
    "bad",
    [
        ChangeColumns(np.array([3], np.int32), np.array([0, 9], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([3], np.int32), np.array([4, 2], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([3], np.int32), np.array([-1, 2], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([3], np.int32), np.array([0], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([6], np.int32), np.array([0, 1], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([-2], np.int32), np.array([0, 1], np.int64), np.zeros(8, np.uint8)),
        ChangeColumns(np.array([1], np.int32), np.array([0, 1], np.int64), np.zeros(8, np.uint8)),
    ],
)
def test_unchecked_columns_are_refused_before_anything_is_written(
    bad: ChangeColumns, build: str
) -> None:
    with pytest.raises(InvariantViolation, match="unchecked"):
        encode_change_set([bad], KeyGroupRange(2, 5))


@pytest.mark.parametrize(("slot", "value"), [(1, 9), (1, 0), (2, 2)])
def test_columns_that_change_between_the_passes_are_found(
    slot: int, value: int, build: str
) -> None:
    good = columns([StateChange(0, b"ab"), StateChange(1, b"cd")])
    counts, sizes = np.zeros(3, np.int64), np.zeros(3, np.int64)
    seen, told = np.empty(3, np.int64), np.zeros(2, np.int64)
    lowest = np.int64(0)
    size = np.int64(len(good.data))
    assert change_sets._count(
        good.key_groups, good.offsets, size, lowest, counts, sizes, seen, told
    )
    out = np.empty(4 + 2 * 8 + 2 * 4 + 4, np.uint8)
    cursors, ends = np.zeros(3, np.int64), np.zeros(3, np.int64)
    order = np.array([0, 1], np.int64)
    assert change_sets._write_headers(order, lowest, counts, sizes, cursors, ends, out)
    offsets = good.offsets.copy()
    offsets[slot] = value
    whole = change_sets._scatter(good.key_groups, offsets, good.data, lowest, cursors, ends, out)
    assert not (whole and np.array_equal(cursors, ends))


# ----------------------------------------------------------------------- columns of users


VALUES = [b"", b"a", b"bcd", b"\0\xff"]
GROUPS = [3, 0, 5, 3]


@pytest.mark.parametrize(
    "values",
    [
        VALUES,
        pa.array(VALUES, pa.binary()),
        pa.array(VALUES, pa.large_binary()),
        pa.array(VALUES, pa.binary_view()),
        pa.array([b"x", *VALUES, b"y"], pa.binary()).slice(1, 4),
        pa.array([b"x", *VALUES, b"y"], pa.large_binary()).slice(1, 4),
        pa.chunked_array([pa.array(VALUES[:1]), pa.array(VALUES[1:])]),
    ],
    ids=["list", "binary", "large", "view", "slice", "large slice", "chunked"],
)
@pytest.mark.parametrize(
    "groups",
    [
        GROUPS,
        np.array(GROUPS, np.int64),
        np.array(GROUPS, np.uint8),
        np.array([0, 9, *GROUPS], np.int32)[2:],
        pa.array(GROUPS, pa.int16()),
        pa.chunked_array([pa.array(GROUPS[:3]), pa.array(GROUPS[3:])]),
    ],
    ids=["list", "int64", "uint8", "numpy slice", "arrow", "chunked"],
)
def test_columns_as_users_have_them(groups: object, values: object) -> None:
    parts = change_columns(groups, values, KeyGroupRange(0, 5))  # type: ignore[arg-type]
    changes = [StateChange(g, v) for g, v in zip(GROUPS, VALUES, strict=True)]
    assert bytes(encode_change_set(parts, KeyGroupRange(0, 5))) == reference(changes)


def test_values_of_one_width() -> None:
    matrix = np.arange(8, dtype=np.uint8).reshape(4, 2)
    fixed = pa.array([bytes(row) for row in [b"__", *matrix]], pa.binary(2)).slice(1)
    expected = reference([StateChange(g, bytes(r)) for g, r in zip(GROUPS, matrix, strict=True)])
    for values in (matrix, np.asfortranarray(matrix), fixed):
        parts = change_columns(GROUPS, values, KeyGroupRange(0, 5))
        assert bytes(encode_change_set(parts, KeyGroupRange(0, 5))) == expected


def test_empty_columns() -> None:
    for values in ([], pa.array([], pa.binary()), np.empty((0, 4), np.uint8)):
        parts = change_columns(np.empty(0, np.int64), values, ALL)
        assert sum(len(part) for part in parts) == 0


@pytest.mark.parametrize(
    ("groups", "values", "problem"),
    [
        ([1, 2], [b"x"], "differ in length: 2 key groups, 1 values"),
        ([1], [b"x", b"y"], "differ in length: 1 key groups, 2 values"),
        ([1, 6], [b"x", b"y"], r"expected \[0, 5\], got 6 in row 1 of the batch"),
        ([-1], [b"x"], r"got -1 in row 0"),
        (np.array([2**32 + 1]), [b"x"], "got 4294967297"),
        ([1.0], [b"x"], "column of integers, got 1 dimensions of float64"),
        ([[1]], [b"x"], "2 dimensions"),
        (pa.array([1, None]), [b"x", b"y"], "1 null key groups"),
        ([1, 2], pa.array([b"x", None]), "1 null values"),
        ([1], ["text"], "must be binary, got string"),
        ([1], [7], "must be binary, got int64"),
        ([1, 2], [b"x", 7], "not bytes"),
        ([1], pa.array(["text"]), "must be binary, got string"),
        ([1], np.array([b"x"]), "matrix of uint8"),
        ([1], np.array([[1]]), "matrix of uint8"),
    ],
)
def test_columns_that_are_refused(groups: object, values: object, problem: str) -> None:
    with pytest.raises(Exception, match=problem) as caught:
        change_columns(groups, values, KeyGroupRange(0, 5))  # type: ignore[arg-type]
    assert type(caught.value).__name__ in ("ConfigError", "ChangelogError")
