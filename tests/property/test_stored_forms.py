"""The heap backend's own form and changelogs: columns and the record-wise code give the same
records, and refuse the same damage.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.change_payload import (
    StateChangeOperation,
    data_change,
    metadata_change,
)
from dstl_core.codec.columnar.changes.change_spans import HEAD_BYTES
from dstl_core.codec.serializers import Types, VoidNamespaceSerializer
from dstl_core.codec.state_meta import BackendStateType, StateMetaInfoSnapshot
from dstl_core.errors import DstlError
from dstl_core.model.change import META_KEY_GROUP
from dstl_core.model.handle import ChangelogStateBackendHandle, InMemoryChangelogStateHandle
from dstl_core.state.restore import changelog_columns, into_sections
from tests.examples import examples
from tests.kernel_sizes import NEVER, kernels_from
from tests.stored_forms import (
    RANGE,
    StoredForm,
    changelog_forms,
    heap_forms,
    records_of_sections,
    records_of_tables,
)


def never(*_args, **_kwargs):
    raise AssertionError("read record by record")


def assert_same(form):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(into_sections, "restore_keyed_state", never)
        stored = form.opened()
        patch.setattr(changelog_columns, "_EVENTS_AT_ONCE", 1)
        in_parts = form.opened()
    expected = records_of_tables(form.restored())
    for sections in (stored, in_parts):
        assert (records_of_sections(sections) if sections is not None else {}) == expected


@pytest.mark.slow
@given(heap_forms())
def test_the_heaps_own_form(form):
    assert_same(form)


@pytest.mark.slow
@given(changelog_forms())
def test_changelogs(form):
    assert_same(form)
    assert in_batches(form) == records_of_tables(form.restored())


def one_by_one(form):
    with pytest.MonkeyPatch.context() as patch:
        kernels_from(patch, NEVER)
        return records_of_tables(form.restored())


def in_batches(form):
    """The records of tables into which the log was replayed in batches."""
    with pytest.MonkeyPatch.context() as patch:
        kernels_from(patch, 0)
        return records_of_tables(form.restored())


def outcome(read):
    """Records, or what was refused."""
    try:
        return read()
    except DstlError as error:
        return type(error), str(error)


def assert_same_outcome(form):
    def by_columns():
        stored = form.opened()
        return {} if stored is None else records_of_sections(stored)

    assert outcome(by_columns) == outcome(lambda: records_of_tables(form.restored()))


@pytest.mark.slow
@given(heap_forms(), st.data())
@settings(max_examples=examples(50))
def test_damage_to_the_heaps_own_form(form, data):
    stream = form.handle.stream
    first = form.handle.offsets.offsets[0]
    for _ in range(10):
        raw = bytearray(stream.data)
        at = data.draw(st.integers(first, len(raw) - 1))
        if data.draw(st.booleans()):
            raw[at] = data.draw(st.integers(0, 255))
        else:
            del raw[at:]
        damaged = replace(form.handle, stream=replace(stream, data=bytes(raw)))
        assert_same_outcome(replace(form, handle=damaged))


@pytest.mark.slow
@given(changelog_forms(), st.data())
@settings(max_examples=examples(50))
def test_damage_to_changelogs(form, data):
    [log] = form.handle.non_materialized
    places = [at for at, (group, _) in enumerate(log.changes) if group != META_KEY_GROUP]
    if not places:
        return
    for _ in range(10):
        changes = list(log.changes)
        place = data.draw(st.sampled_from(places))
        key_group, raw = changes[place]
        at = data.draw(st.integers(0, len(raw) - 1))
        byte = bytes([data.draw(st.integers(0, 255))])
        cut = data.draw(st.booleans())
        changes[place] = key_group, raw[:at] if cut else raw[:at] + byte + raw[at + 1 :]
        damaged = replace(log, changes=tuple(changes))
        broken = replace(form, handle=replace(form.handle, non_materialized=(damaged,)))
        assert_same_outcome(broken)
        batched = outcome(partial(in_batches, broken))
        single = outcome(partial(one_by_one, broken))
        if cut and at < HEAD_BYTES:  # the sentence of a batch has both fields of the head
            assert batched[0] is single[0]
        else:
            assert batched == single


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_every_flag_but_zero_is_the_same_null_in_a_map(flag):
    meta = StateMetaInfoSnapshot(
        "pairs",
        BackendStateType.KEY_VALUE,
        (("KEYED_STATE_TYPE", "MAP"),),
        (
            ("VALUE_SERIALIZER", Types.MAP(Types.INT, Types.LONG)),
            ("NAMESPACE_SERIALIZER", VoidNamespaceSerializer()),
        ),
    )
    key, void, user_key = b"\0\0\0\x09", b"\0", b"\0\0\0\x07"
    pairs = b"\0\0\0\1" + user_key + bytes([flag])
    changes = (
        (META_KEY_GROUP, metadata_change(0, meta)),
        (5, data_change(StateChangeOperation.ADD, 0, key + void, pairs)),
    )
    log = InMemoryChangelogStateHandle(changes, RANGE, 0, 1, "log")
    handle = ChangelogStateBackendHandle((), (log,), RANGE, 1, 1, 0, "handle")
    form = StoredForm(handle, Types.INT, 128)
    wanted = {"KEY_VALUE pairs": [(b"\x05" + key + void + user_key, b"\1")]}
    assert records_of_sections(form.opened()) == wanted
    assert records_of_tables(form.restored()) == wanted
