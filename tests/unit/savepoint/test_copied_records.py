"""Records that are copied are read back by their digests: no damage of them is published.

The store damages a file, or the writer is wrong: in a record, in its key group, in an offset. All
state is large here, so kernels read it.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.runs import Runs, runs_of
from dstl_core.codec.raw_timers import StoredRun
from dstl_core.errors import SavepointError
from dstl_core.model.handle import KeyGroupRangeOffsets
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
from dstl_core.savepoint.read import keyed_copy, stored_columns
from dstl_core.savepoint.write import folder
from dstl_core.savepoint.write.folder import KeyedForm
from dstl_core.state.backends import heap_timers
from dstl_core.state.columns.keyed_sections import KeyedStream
from dstl_core.state.restore import kernel_sizes
from tests.golden_files import snapshot
from tests.rotten_store import HOW, rotten_store

OUT = "rotten://s/out"
SOURCES = {"canonical": "x-lsm-rocksdb-incremental", "native": "a-hashmap-canonical"}
HEAP_TIMERS = "a-rocksdb-heaptimers-checkpoint"
REFUSED = "nothing was published"


@pytest.fixture(autouse=True)
def _all_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "DATA_INLINE_THRESHOLD", 0)
    for name in ("FROM_BYTES", "LOADED_FROM_BYTES"):
        monkeypatch.setattr(kernel_sizes, name, 0)


def edit(form: KeyedForm = "canonical") -> SavepointEdit:
    """All state in another form, of an operator with another uid."""
    source = Snapshot.load(snapshot(SOURCES[form]))
    [label] = [each.label for each in source.operators if each.keyed_handles]
    one, two = map(OperatorIdentifier.for_uid, (label, "renamed"))
    return edit_savepoint(source).with_format(form).change_operator_identifier(one, two)


def edit_beside_timers() -> SavepointEdit:
    """State in RocksDB's files with timers on the heap, of which one state leaves."""
    one, two = map(OperatorIdentifier.for_uid, ("a-keyed", "apart"))
    source = edit_savepoint(Snapshot.load(snapshot(HEAP_TIMERS)))
    native = source.with_format("native").with_files("copy")
    return native.split_operator(one, two, ["cnt"])


@pytest.mark.parametrize("how", HOW)
def test_timers_on_the_heap_that_the_store_damages_are_not_published(how: str) -> None:
    with rotten_store(None) as files:
        edit_beside_timers().write(OUT, "overwrite")
        count = len(files.written)
    for victim in range(count):
        with rotten_store(victim, how) as files:
            with pytest.raises(SavepointError, match=REFUSED):
                edit_beside_timers().write(OUT, "overwrite")
            assert files.store == {}


def _with_another_time(run: StoredRun) -> StoredRun:
    return StoredRun(run.count, run.data[:-1] + b"x")


def _without_timers(run: StoredRun) -> StoredRun:
    return StoredRun(0, b"")


@pytest.mark.parametrize("damage", [_with_another_time, _without_timers])
def test_timers_on_the_heap_are_compared_with_those_that_were_read(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[StoredRun], StoredRun]
) -> None:
    whole, count = heap_timers.stored_timers, itertools.count()

    def wrong(spans: Any, prefix: int) -> Iterator[tuple[int, StoredRun]]:
        for key_group, run in whole(spans, prefix):
            yield key_group, damage(run) if next(count) == 5 else run

    monkeypatch.setattr(heap_timers, "stored_timers", wrong)
    with rotten_store(None) as files:
        with pytest.raises(SavepointError, match=REFUSED):
            edit_beside_timers().write(OUT, "overwrite")
        assert files.store == {}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("form", "keeps_compression"), [("canonical", False), ("canonical", True), ("native", False)]
)
def test_what_the_store_damages_is_not_published(
    form: KeyedForm, keeps_compression: bool, how: str
) -> None:
    with rotten_store(None) as files:
        edit(form).write(OUT, "overwrite", keep_compression=keeps_compression)
        assert f"{OUT}/_metadata" in files.store
        count = len(files.written)
    assert count
    for victim in range(count):
        with rotten_store(victim, how) as files:
            with pytest.raises(SavepointError, match=REFUSED):
                edit(form).write(OUT, "overwrite", keep_compression=keeps_compression)
            assert files.store == {}


def _once(damage: Callable[..., Any]) -> Callable[..., Any]:
    """Runs of records, of which the first that can be damaged are."""
    is_done = False

    def damaged(spans: Any, state: int, buckets: Any, groups: Any, count: int, prefix: int) -> Runs:
        nonlocal is_done
        arguments = (spans, state, buckets, groups, count, prefix)
        got = None if is_done or len(spans) < 2 else damage(*arguments)
        is_done |= got is not None
        return runs_of(*arguments) if got is None else got

    return damaged


def _without_one(spans: Any, state: int, buckets: Any, groups: Any, *rest: int) -> Runs:
    return runs_of(spans[1:], state, buckets[1:], groups[1:], *rest)


def _one_twice(spans: Any, state: int, buckets: Any, groups: Any, *rest: int) -> Runs:
    rows = np.append(np.arange(len(spans)), 0)
    return runs_of(np.ascontiguousarray(spans[rows]), state, buckets[rows], groups[rows], *rest)


def _one_in_place_of_another(
    spans: Any, state: int, buckets: Any, groups: Any, *rest: int
) -> Runs | None:
    if groups[0] != groups[1]:
        return None
    rows = np.arange(len(spans))
    rows[0] = 1
    return runs_of(np.ascontiguousarray(spans[rows]), state, buckets, groups, *rest)


def _values_exchanged(spans: Any, state: int, buckets: Any, groups: Any, *rest: int) -> Runs | None:
    one, two = (
        ctypes.string_at(
            int(span[scan.VALUE_START]), int(span[scan.VALUE_END] - span[scan.VALUE_START])
        )
        for span in spans[:2]
    )
    if one == two:
        return None
    changed = spans.copy()
    changed[[0, 1], scan.VALUE_START] = spans[[1, 0], scan.VALUE_START]
    changed[[0, 1], scan.VALUE_END] = spans[[1, 0], scan.VALUE_END]
    return runs_of(changed, state, buckets, groups, *rest)


def _another_key_group(
    spans: Any, state: int, buckets: Any, groups: Any, *rest: int
) -> Runs | None:
    """That of the first record, so every record is in the section that its key names."""
    if (groups == groups[0]).all():
        return None
    return runs_of(
        spans, state, np.full_like(buckets, buckets[0]), np.full_like(groups, groups[0]), *rest
    )


def _another_section(spans: Any, state: int, buckets: Any, groups: Any, *rest: int) -> Runs | None:
    if (buckets == buckets[0]).all():
        return None
    return runs_of(spans, state, buckets[::-1].copy(), groups, *rest)


def _another_state(spans: Any, state: int, *rest: Any) -> Runs:
    return runs_of(spans, state ^ 1, *rest)


def _a_bit(place: int) -> Callable[..., Runs]:
    def damage(*arguments: Any) -> Runs:
        runs = runs_of(*arguments)
        raw = bytearray(runs.data)
        raw[place] ^= 1
        return Runs(pa.py_buffer(bytes(raw)), runs.bounds)

    return damage


NONSENSE = {
    "a record is missing": _without_one,
    "a record comes twice": _one_twice,
    "a record comes in place of another": _one_in_place_of_another,
    "values are exchanged": _values_exchanged,
    "another key group": _another_key_group,
    "another section": _another_section,
    "another state": _another_state,
    "a bit of the state's id": _a_bit(1),
    "a bit of a length": _a_bit(5),
    "a bit of the last record": _a_bit(-1),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_what_the_writer_gets_wrong_is_not_published(
    nonsense: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_copy, "runs_of", _once(NONSENSE[nonsense]))
    with rotten_store(None) as files:
        with pytest.raises(SavepointError, match=REFUSED):
            edit().write(OUT, "overwrite")
        assert files.store == {}


@pytest.mark.parametrize("nonsense", ["exchanged", "one too far", "one is gone"])
def test_a_wrong_offset_is_not_published(nonsense: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of_stream = KeyedStream.offsets.fget
    assert of_stream is not None

    def wrong(stream: KeyedStream) -> KeyGroupRangeOffsets:
        own = of_stream(stream)
        offsets = list(own.offsets)
        one, two, *_ = [at for at, offset in enumerate(offsets) if offset]
        if nonsense == "exchanged":
            offsets[one], offsets[two] = offsets[two], offsets[one]
        elif nonsense == "one too far":
            offsets[one] += 1
        else:
            offsets[two] = 0
        return KeyGroupRangeOffsets(own.key_group_range, tuple(offsets))

    monkeypatch.setattr(KeyedStream, "offsets", property(wrong))
    with rotten_store(None) as files:
        with pytest.raises(SavepointError, match=REFUSED):
            edit().write(OUT, "overwrite")
        assert files.store == {}


def test_no_value_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record was compared as bytes, so nobody has to know its type."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a record was decoded")

    monkeypatch.setattr(stored_columns.StateDecoder, "decode", refuse)
    with rotten_store(None) as files:
        edit().write(OUT, "overwrite")
        assert f"{OUT}/_metadata" in files.store
