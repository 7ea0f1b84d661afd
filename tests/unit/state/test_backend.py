"""Keyed state by key, and its changelog: what a function sees, and what a restore gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.writer import FsStateChangelogWriter
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, Types
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ChangelogError, ConfigError, FormatError, RestoreError
from dstl_core.metrics import Counter, MetricGroup
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    ChangelogStateBackendHandle,
    KeyGroupsSavepointStateHandle,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.changelog_backend import ChangelogKeyedStateBackend, ValueLogging
from dstl_core.state.restore.into_tables import restore_keyed_state
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock

COUNT = ValueStateDescriptor("count", Types.LONG)
NAMES = ListStateDescriptor("names", Types.STRING)
ALL = KeyGroupRange(0, 127)


def backend(
    key: AnySerializer = Types.STRING, groups: KeyGroupRange = ALL
) -> HashMapKeyedStateBackend:
    return HashMapKeyedStateBackend(KeyedState(groups, 128), key)


def contents(state: KeyedState) -> dict[tuple[str, Any], Any]:
    """(state, key) -> value of every entry."""
    return {
        (table.meta.name, key): value
        for key_group in state.key_groups
        for table, (key, _, value) in state.rows(key_group)
    }


# ------------------------------------------------------------------------------------ access


def test_values_are_kept_by_key() -> None:
    keyed = backend()
    count = keyed.get_value_state(COUNT)
    keyed.set_current_key("a")
    assert count.value() is None
    count.update(5)
    keyed.set_current_key("b")
    assert count.value() is None
    count.update(6)
    keyed.set_current_key("a")
    assert count.value() == 5
    count.clear()
    assert count.value() is None
    count.update(7)
    count.update(None)
    assert count.value() is None
    assert contents(keyed.state) == {("count", "b"): 6}


def test_lists_are_kept_by_key() -> None:
    keyed = backend()
    names = keyed.get_list_state(NAMES)
    keyed.set_current_key("a")
    assert names.get() == []
    names.add("x")
    names.add_all(["y", ""])
    names.add_all([])
    assert names.get() == ["x", "y", ""]
    names.update(["z"])
    assert names.get() == ["z"]
    names.update(iter(()))
    assert names.get() == []
    assert contents(keyed.state) == {}


@pytest.mark.parametrize("ttl", [None, StateTtlConfig(1000)], ids=["no ttl", "ttl"])
def test_a_list_takes_no_null(ttl: StateTtlConfig | None) -> None:
    keyed = backend()
    names = keyed.get_list_state(ListStateDescriptor("names", Types.STRING, ttl=ttl))
    keyed.set_current_key("a")
    names.add("x")
    for act in (
        lambda: names.add(None),
        lambda: names.add_all(["y", None]),
        lambda: names.update(["y", None]),
    ):
        with pytest.raises(ConfigError, match="null cannot be added to the list state 'names'"):
            act()
        assert names.get() == ["x"]


def test_state_is_registered_once_and_keeps_its_type() -> None:
    keyed = backend()
    keyed.set_current_key("a")
    keyed.get_value_state(COUNT).update(5)
    assert keyed.get_value_state(COUNT).value() == 5
    with pytest.raises(RestoreError, match="'count' has another type: expected VALUE of Long"):
        keyed.get_value_state(ValueStateDescriptor("count", Types.STRING))
    with pytest.raises(RestoreError, match="got LIST of List<Long>"):
        keyed.get_list_state(ListStateDescriptor("count", Types.LONG))


def test_without_a_key_nothing_is_read_or_written() -> None:
    keyed = backend()
    count, names = keyed.get_value_state(COUNT), keyed.get_list_state(NAMES)
    for act in (
        count.value,
        lambda: count.update(1),
        count.clear,
        names.get,
        lambda: names.add("x"),
        names.clear,
    ):
        with pytest.raises(ConfigError, match="without a current key"):
            act()


def test_keys_that_cannot_be() -> None:
    keyed = backend()
    with pytest.raises(ConfigError, match="A key is null"):
        keyed.set_current_key(None)
    with pytest.raises(FormatError, match="does not fit its type: expected String, got int"):
        keyed.set_current_key(5)
    elsewhere = backend(groups=KeyGroupRange(0, 34))
    with pytest.raises(
        ConfigError, match=r"key group 35 came to the subtask of key groups \[0, 34\]"
    ):
        elsewhere.set_current_key("hello")
    unhashable = backend(Types.MAP(Types.STRING, Types.LONG))
    with pytest.raises(ConfigError, match="cannot be a key"):
        unhashable.set_current_key([("a", 1)])


def test_the_key_type_of_restored_state_holds() -> None:
    keyed = backend(Types.STRING)
    with pytest.raises(RestoreError, match=r"expected String .*got Long"):
        HashMapKeyedStateBackend(keyed.state, Types.LONG)


# --------------------------------------------------------------------------------- changelog


class Job:
    """A changelog on real files, and restores from the handles that it gives."""

    def __init__(self, path: Path) -> None:
        self._folder = Location.parse(path)
        self.storage = FsStateChangelogStorage(
            JobID.for_name("job"), ChangelogOptions.of(base_path=str(path))
        )
        self.resolver = HandleResolver(open_file_io(self._folder), self._folder)

    def start(
        self, handle: ChangelogStateBackendHandle | None = None, **options: Any
    ) -> tuple[HashMapKeyedStateBackend, ChangelogKeyedStateBackend, FsStateChangelogWriter]:
        """A new run on top of a checkpoint."""
        state = KeyedState(ALL, 128) if handle is None else self.restore(handle)
        delegate = HashMapKeyedStateBackend(state, Types.STRING)
        writer = self.storage.create_writer("operator", ALL)
        if handle is not None:
            options |= {"base": handle.materialized, "restored_log": handle.non_materialized}
        return delegate, ChangelogKeyedStateBackend(delegate, writer, **options), writer

    def restore(self, handle: ChangelogStateBackendHandle) -> KeyedState:
        return restore_keyed_state([handle], ALL, 128, self.resolver, BUILT_IN)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def base_of(state: KeyedState) -> KeyGroupsSavepointStateHandle:
    raw, offsets = state.write_canonical()
    return KeyGroupsSavepointStateHandle(offsets, ByteStreamStateHandle("base", raw))


def start_with_base(job: Job, **options: Any) -> tuple[Any, ...]:
    """A run whose base knows the key type and both states, still empty."""
    empty = backend()
    empty.get_value_state(COUNT)
    empty.get_list_state(NAMES)
    handle = ChangelogStateBackendHandle((base_of(empty.state),), (), ALL, 0, 0, 0, "id")
    return job.start(handle, **options)


@pytest.mark.parametrize("logging", list(ValueLogging))
def test_base_and_log_give_the_state_back(job: Job, logging: ValueLogging) -> None:
    delegate, changelog, _ = start_with_base(job, value_logging=logging)
    count, names = delegate.get_value_state(COUNT), delegate.get_list_state(NAMES)
    for key, number in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        delegate.set_current_key(key)
        count.update(number)
        names.add(f"{key}{number}")
    delegate.set_current_key("c")
    count.clear()
    names.update(["only", "these"])
    first = changelog.snapshot(1)
    expected = {
        ("count", "a"): 3,
        ("count", "b"): 2,
        ("names", "a"): ["a1", "a3"],
        ("names", "b"): ["b2"],
        ("names", "c"): ["only", "these"],
    }
    assert contents(job.restore(first)) == contents(delegate.state) == expected
    # A value is logged once for each key, or as often as it was set.
    assert changelog.changes == 5 + (3 if logging is ValueLogging.LAST_PER_CHECKPOINT else 5)

    delegate.set_current_key("a")
    count.update(9)
    second = changelog.snapshot(2)
    assert contents(job.restore(second)) == {**expected, ("count", "a"): 9}
    # The first handle is what it was.
    assert contents(job.restore(first)) == expected


def test_a_snapshot_without_changes_adds_no_log(job: Job) -> None:
    _, changelog, _ = start_with_base(job)
    handle = changelog.snapshot(1)
    assert handle.non_materialized == ()
    assert handle.checkpointed_size == 0


def test_runs_follow_each_other(job: Job) -> None:
    delegate, changelog, _ = start_with_base(job)
    delegate.set_current_key("a")
    delegate.get_list_state(NAMES).add("first")
    handle = changelog.snapshot(1)
    changelog.close()

    delegate, changelog, _ = job.start(handle)
    names = delegate.get_list_state(NAMES)
    delegate.set_current_key("a")
    assert names.get() == ["first"]
    names.add("second")
    delegate.get_value_state(ValueStateDescriptor("new", Types.STRING)).update("x")
    again = changelog.snapshot(2)
    assert len(again.non_materialized) == 2
    assert contents(job.restore(again)) == {
        ("names", "a"): ["first", "second"],
        ("new", "a"): "x",
    }


def test_after_a_materialization_the_log_above_it_stands_alone(job: Job) -> None:
    delegate, changelog, _ = start_with_base(job)
    count = delegate.get_value_state(COUNT)
    delegate.set_current_key("a")
    count.update(1)
    before = changelog.snapshot(1)
    changelog.notify_checkpoint_complete(1)

    up_to = changelog.init_materialization()
    base = base_of(delegate.state)
    delegate.set_current_key("b")
    count.update(2)
    during = changelog.snapshot(2)
    assert contents(job.restore(during)) == {("count", "a"): 1, ("count", "b"): 2}
    changelog.notify_checkpoint_complete(2)

    changelog.materialized(base, 7, up_to)
    after = changelog.snapshot(3)
    assert after.materialized == (base,)
    assert after.materialization_id == 7
    assert contents(job.restore(after)) == {("count", "a"): 1, ("count", "b"): 2}
    changelog.notify_checkpoint_complete(3)
    changelog.truncate(up_to)
    for handle in (before, during, after, changelog.snapshot(4)):
        assert contents(job.restore(handle))[("count", "a")] == 1


def test_an_aborted_checkpoints_changes_are_part_of_the_next(job: Job) -> None:
    delegate, changelog, _ = start_with_base(job)
    delegate.set_current_key("a")
    delegate.get_value_state(COUNT).update(1)
    changelog.snapshot(1)
    changelog.notify_checkpoint_aborted(1)
    delegate.set_current_key("b")
    delegate.get_value_state(COUNT).update(2)
    assert contents(job.restore(changelog.snapshot(2))) == {("count", "a"): 1, ("count", "b"): 2}


def test_a_log_that_refuses_half_way_loses_no_change(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    delegate, changelog, writer = start_with_base(job)
    count = delegate.get_value_state(COUNT)
    for number in range(10):
        delegate.set_current_key(f"{number}")
        count.update(number)
    real, calls = writer.append, []

    def full(key_group: int, value: bytes) -> None:
        calls.append(key_group)
        if len(calls) == 5:
            raise ChangelogError("Uploads do not catch up.")
        real(key_group, value)

    monkeypatch.setattr(writer, "append", full)
    with pytest.raises(ChangelogError, match="do not catch up"):
        changelog.snapshot(1)
    handle = changelog.snapshot(2)
    assert contents(job.restore(handle)) == {("count", f"{n}"): n for n in range(10)}


def test_metrics_of_snapshots_and_materializations(job: Job) -> None:
    metrics, clock = MetricGroup(), ManualClock()
    delegate, changelog, _ = start_with_base(job, metrics=metrics, clock=clock)
    sizes = metrics.add_group("ChangelogStateBackend").metrics()
    folding = metrics.add_group("ChangelogMaterialization").metrics()

    def values(group: dict[str, Any]) -> list[float]:
        return [each.count if isinstance(each, Counter) else each() for each in group.values()]

    assert list(sizes) == [
        "lastFullSizeOfMaterialization",
        "lastIncSizeOfMaterialization",
        "lastFullSizeOfNonMaterialization",
        "lastIncSizeOfNonMaterialization",
    ]
    assert list(folding) == [
        "startedMaterialization",
        "completedMaterialization",
        "failedMaterialization",
        "lastDurationOfMaterialization",
    ]
    assert values(sizes) == [0, 0, 0, 0]
    assert values(folding) == [0, 0, 0, -1]

    delegate.set_current_key("a")
    delegate.get_value_state(COUNT).update(1)
    handle = changelog.snapshot(1)
    [base], [log] = handle.materialized, handle.non_materialized
    assert values(sizes) == [base.state_size, base.state_size, log.state_size, log.state_size]
    changelog.snapshot(2)  # the same log: nothing is new
    assert values(sizes) == [base.state_size, base.state_size, log.state_size, 0]

    materialization = changelog.start_materialization(forced=True)
    assert materialization is not None
    changelog.fail_materialization(materialization)
    assert values(folding) == [1, 0, 1, -1]
    up_to = changelog.init_materialization()
    clock.advance(250)
    changelog.materialized(base_of(delegate.state), 1, up_to)
    assert values(folding) == [2, 1, 1, 250]
    changelog.snapshot(3)
    assert values(sizes)[2:] == [0, 0]


def test_a_log_without_a_base_does_not_know_its_key_type(job: Job) -> None:
    delegate, changelog, _ = job.start()
    delegate.set_current_key("a")
    delegate.get_value_state(COUNT).update(1)
    handle = changelog.snapshot(1)
    with pytest.raises(RestoreError, match="The type of the key is unknown"):
        job.restore(handle)


def test_a_key_of_another_type_is_refused_with_what_to_do() -> None:
    state = KeyedState(KeyGroupRange(0, 127), 128)
    HashMapKeyedStateBackend(state, Types.STRING)
    said = r"expected String \(from the restored state\), got Long; declare the stored type as key_"
    with pytest.raises(RestoreError, match=said):
        HashMapKeyedStateBackend(state, Types.LONG)
