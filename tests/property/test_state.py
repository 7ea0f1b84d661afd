"""Keyed state against dictionaries: whatever a program does, a restore gives what is there."""

from __future__ import annotations

import copy
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.changelog.upload import StateChangeFsUploader, StateChangeUploadScheduler
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.codec.serializers import Types, serialize_to_bytes
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.errors import FormatError, StorageError, UploadFailedError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.key_group import (
    KeyGroupRange,
    assign_to_key_group,
    compute_key_group_range_for_operator_index,
)
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend, ValueLogging
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.rescale import cut, with_max_parallelism
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from tests.property.strategies import KEYS, TYPES, Typed

GROUPS = 16
ALL = KeyGroupRange(0, GROUPS - 1)
COUNT = ValueStateDescriptor("count", Types.LONG)
NAMES = ListStateDescriptor("names", Types.STRING)

Contents = dict[tuple[str, Any], Any]


def contents(state: KeyedState) -> Contents:
    by_place: Contents = {}
    for key_group in state.key_groups:
        for table, (key, _, value) in state.rows(key_group):
            assert (table.meta.name, key) not in by_place
            by_place[table.meta.name, key] = value
    return by_place


def handle_of(state: KeyedState) -> KeyGroupsSavepointStateHandle:
    raw, offsets = state.write_canonical()
    return KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("base", raw))


# ---------------------------------------------------------------- base and log of one subtask

STEPS = st.tuples(
    st.sampled_from(
        [
            *["update"] * 5,
            *["add"] * 5,
            *["add all", "set list", "clear value", "clear list"],
            *["checkpoint", "checkpoint", "abort", "fail"],
            *["start materialization", "end materialization", "restart"],
        ]
    ),
    st.integers(0, 5),
    st.integers(0, 9),
)
PROGRAMS = st.tuples(
    st.sampled_from(list(ValueLogging)),
    st.sampled_from([1, 200, 10_000]),
    st.lists(STEPS, min_size=20, max_size=80),
)


class Disk(FsspecFileIO):
    """An in-memory file system that can be full."""

    full = False

    def write_new(self, location: Location, data: Any) -> None:
        if self.full:
            raise StorageError(f"Cannot write {location}: No space left on device.")
        super().write_new(location, data)


class Subtask:
    """A changelog backend, its restarts, and the dictionary that it has to equal."""

    def __init__(self, logging: ValueLogging, threshold: int) -> None:
        self._logging = logging
        self._threshold = threshold
        self.folder = Location.parse(f"memory://{uuid4().hex}/job")
        self.disk = Disk("memory")
        self._registry = TaskChangelogRegistry(FileDiscarder(self.disk.delete))
        self._resolver = HandleResolver(open_file_io(self.folder), self.folder)
        self.expected: Contents = {}
        self.checkpoints: list[tuple[ChangelogStateBackendHandle, Contents]] = []
        self._ids = 0
        empty = HashMapKeyedStateBackend(KeyedState(ALL, GROUPS), Types.STRING)
        empty.get_value_state(COUNT)
        empty.get_list_state(NAMES)
        base = handle_of(empty.state)
        self._start(ChangelogStateBackendHandle((base,), (), ALL, 0, 0, 0, "start"))

    def _start(self, handle: ChangelogStateBackendHandle) -> None:
        uploader = StateChangeFsUploader(self.disk, self.folder.child("dstl"), self._registry)
        self._writer = FsStateChangelogWriter(
            uuid4(),
            ALL,
            StateChangeUploadScheduler.direct_scheduler(uploader),
            self._registry,
            preemptive_persist_threshold=self._threshold,
        )
        self._backend = HashMapKeyedStateBackend(self.restore(handle), Types.STRING)
        self._changelog = ChangelogKeyedStateBackend(
            self._backend,
            self._writer,
            base=handle.materialized,
            restored_log=handle.non_materialized,
            materialization_id=handle.materialization_id,
            value_logging=self._logging,
        )
        self._values = self._backend.get_value_state(COUNT)
        self._lists = self._backend.get_list_state(NAMES)
        self._last = handle
        self._at_last = dict(contents(self._backend.state))
        self._materializing: Any = None

    def restore(self, handle: ChangelogStateBackendHandle) -> KeyedState:
        return restore_keyed_state([handle], ALL, GROUPS, self._resolver)

    def step(self, name: str, key_number: int, number: int) -> None:
        key = f"key-{key_number}"
        self._backend.set_current_key(key)
        texts = [f"{number}-{each}" for each in range(number % 4)]
        value_place, list_place = ("count", key), ("names", key)
        match name:
            case "update":
                self._values.update(number)
                self.expected[value_place] = number
            case "clear value":
                self._values.clear()
                self.expected.pop(value_place, None)
            case "add":
                self._lists.add(f"{number}")
                self.expected.setdefault(list_place, []).append(f"{number}")
            case "add all" if texts:
                self._lists.add_all(texts)
                self.expected.setdefault(list_place, []).extend(texts)
            case "set list":
                self._lists.update(texts)
                self.expected.pop(list_place, None)
                if texts:
                    self.expected[list_place] = list(texts)
            case "clear list":
                self._lists.clear()
                self.expected.pop(list_place, None)
            case "checkpoint" | "abort":
                self._checkpoint(completes=name == "checkpoint")
            case "fail":
                self._fail()
            case "start materialization" | "end materialization":
                self._materialize(name)
            case "restart":
                self._changelog.close()
                self._start(self._last)
                self.expected = copy.deepcopy(self._at_last)

    def _checkpoint(self, *, completes: bool) -> None:
        self._ids += 1
        handle = self._changelog.snapshot(self._ids)
        assert contents(self.restore(handle)) == self.expected
        if not completes:
            self._changelog.notify_checkpoint_aborted(self._ids)
            return
        self._changelog.notify_checkpoint_complete(self._ids)
        self._last, self._at_last = handle, copy.deepcopy(self.expected)
        self.checkpoints.append((handle, copy.deepcopy(self.expected)))

    def _fail(self) -> None:
        """The disk is full while the next checkpoint is taken; nothing must get lost by it."""
        self._ids += 1
        self.disk.full = True
        try:
            self._changelog.snapshot(self._ids)
        except UploadFailedError:
            self._changelog.notify_checkpoint_aborted(self._ids)
        finally:
            self.disk.full = False

    def _materialize(self, name: str) -> None:
        if name == "start materialization":
            up_to = self._changelog.init_materialization()
            self._materializing = (up_to, handle_of(self._backend.state))
        elif self._materializing is not None:
            (up_to, base), self._materializing = self._materializing, None
            self._ids += 1
            self._changelog.materialized(base, self._ids, up_to)
            # The log below may go once a checkpoint stands on the new base.
            self._checkpoint(completes=True)
            self._changelog.truncate(up_to)

    def finish(self) -> None:
        assert contents(self._backend.state) == self.expected
        self._checkpoint(completes=True)
        self._changelog.close()
        # Whatever was truncated, restarted or closed: every completed checkpoint restores.
        for handle, expected in self.checkpoints:
            assert contents(self.restore(handle)) == expected


@pytest.mark.slow
@given(PROGRAMS)
def test_base_and_log_equal_the_state_that_was_changed_directly(
    program: tuple[ValueLogging, int, list[tuple[str, int, int]]],
) -> None:
    logging, threshold, steps = program
    subtask = Subtask(logging, threshold)
    try:
        for step in steps:
            subtask.step(*step)
        subtask.finish()
    finally:
        subtask.disk.delete_folder(subtask.folder.parent)


# -------------------------------------------------------------------- canonical form, rescale


@st.composite
def states(draw: st.DrawFn, max_parallelism: int = 128) -> KeyedState:
    """A state with some value, list and map states of drawn types under keys of one type."""
    key_type, key_values = draw(st.sampled_from(KEYS))
    state = KeyedState(KeyGroupRange(0, max_parallelism - 1), max_parallelism)
    keys = draw(st.lists(key_values, max_size=6))
    for number in range(draw(st.integers(1, 3))):
        _add_table(draw, state, f"state-{number}", (key_type, key_values), keys)
    return state


def _add_table(draw: st.DrawFn, state: KeyedState, name: str, key: Typed, keys: list[Any]) -> None:
    value_type, values = draw(TYPES)
    kind = draw(st.sampled_from([KeyedStateType.VALUE, KeyedStateType.LIST, KeyedStateType.MAP]))
    stored: st.SearchStrategy[Any] = values.map(lambda value: serialize_to_bytes(value_type, value))
    whole = value_type
    if kind is KeyedStateType.LIST:
        whole = Types.LIST(value_type)
        stored = st.lists(stored, min_size=1, max_size=3).map(b",".join)
    elif kind is KeyedStateType.MAP:
        whole = Types.MAP(Types.LONG, value_type)
        user_keys = st.integers(0, 3).map(lambda number: number.to_bytes(8, "big"))
        pairs = st.just(b"\1") | stored.map(lambda value: b"\0" + value)
        stored = st.dictionaries(user_keys, pairs, min_size=1, max_size=3)
    table = state.table(StateMetaInfoSnapshot.key_value(name, kind, whole), key[0])
    for own_key in keys:
        group = assign_to_key_group(key[0].java_hash(own_key), state.max_parallelism)
        table.group(group)[serialize_to_bytes(key[0], own_key) + b"\0"] = draw(stored)


def entries(state: KeyedState) -> dict[tuple[str, bytes], Any]:
    """Every stored entry by state and scope, without its key group."""
    return {
        (table.meta.name, scope): stored
        for table in state.tables.values()
        for scopes in table.groups.values()
        for scope, stored in scopes.items()
    }


def restored(handles: list[KeyGroupsSavepointStateHandle], like: KeyedState) -> KeyedState:
    folder = Location.parse("memory://nothing")
    resolver = HandleResolver(open_file_io(folder), folder)
    return restore_keyed_state(handles, like.key_groups, like.max_parallelism, resolver)


@given(states())
def test_a_canonical_stream_round_trips(state: KeyedState) -> None:
    again = restored([handle_of(state)], state)
    assert entries(again) == entries(state)
    assert again.write_canonical() == state.write_canonical()
    for key_group in state.key_groups:
        assert len(list(again.rows(key_group))) == len(list(state.rows(key_group)))


@given(states(), st.data())
def test_a_cut_stream_is_a_format_error(state: KeyedState, data: st.DataObject) -> None:
    handle = handle_of(state)
    raw = handle.stream.data  # type: ignore[union-attr]
    size = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(FormatError):
        restored(
            [KeyGroupsSavepointStateHandle(handle.offsets, ByteStreamStateHandle("h", raw[:size]))],
            state,
        )


@given(states())
def test_rescaling_there_and_back_keeps_the_contents(state: KeyedState) -> None:
    moved = state
    for max_parallelism in (4096, 17, 128):
        moved = with_max_parallelism(moved, max_parallelism)
        parts = [
            handle_of(cut(moved, compute_key_group_range_for_operator_index(max_parallelism, 3, i)))
            for i in range(3)
        ]
        moved = restored(parts, moved)
        assert entries(moved) == entries(state)
        for table in moved.tables.values():
            for key_group, scopes in table.groups.items():
                for scope in scopes:
                    key, _ = table.codec.decode_scope(scope)
                    code = table.codec.key_serializer.java_hash(key)
                    assert assign_to_key_group(code, max_parallelism) == key_group
