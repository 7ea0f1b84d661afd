"""What every changelog writer has to do, whatever it writes to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.changelog import FsStateChangelogStorage, InMemoryStateChangelogStorage
from dstl_core.changelog.interfaces import StateChangelogStorage, StateChangelogWriter
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ChangelogError, ChangesTruncatedError, ConfigError, WriterClosedError
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.model.sequence import SequenceNumber
from dstl_core.testing import MemoryFileIO

KEY_GROUPS = KeyGroupRange(2, 9)
ZERO = SequenceNumber(0)


@dataclass
class Subject:
    """A storage with one writer."""

    storage: StateChangelogStorage
    writer: StateChangelogWriter

    def changes(self, from_: SequenceNumber = ZERO) -> dict[int, list[bytes]]:
        """What a checkpoint from a number on holds, by key group."""
        handle = self.writer.persist(from_, 1).result(30).job_manager_owned_snapshot
        assert handle.key_group_range == KEY_GROUPS
        assert handle.state_size == sum(
            len(state_change.change)
            for state_change in self.storage.create_reader().get_changes(handle)
        )
        by_key_group: dict[int, list[bytes]] = {}
        for change in self.storage.create_reader().get_changes(handle):
            by_key_group.setdefault(change.key_group, []).append(change.change)
        return by_key_group


@pytest.fixture(
    params=["memory", "filesystem, direct", "filesystem, batches", "filesystem, tiny threshold"]
)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    storage: StateChangelogStorage
    if request.param == "memory":
        storage = InMemoryStateChangelogStorage()
    else:
        options = ChangelogOptions.of(
            base_path="s3://bucket/base",
            persist_delay_ms=1,
            preemptive_persist_threshold=30 if "tiny" in request.param else 1_000_000,
        )
        storage = FsStateChangelogStorage(
            JobID.for_name("job"),
            options,
            MemoryFileIO(),
            scheduler=StateChangeUploadScheduler.direct_scheduler
            if "direct" in request.param
            else None,
        )
    writer = storage.create_writer("operator", KEY_GROUPS)
    yield Subject(storage, writer)
    writer.close()
    storage.close()


def test_write_and_read(subject: Subject) -> None:
    # StateChangelogStorageTest.testWriteAndRead of Flink.
    rng = Random(7)
    written: dict[int, list[bytes]] = {}
    for key_group in KEY_GROUPS:
        for _ in range(20):
            change = rng.randbytes(405)
            subject.writer.append(key_group, change)
            written.setdefault(key_group, []).append(change)
        subject.writer.next_sequence_number()
    assert subject.changes(subject.writer.initial_sequence_number()) == written


def test_numbers_start_at_zero_and_move_with_appends_only(subject: Subject) -> None:
    writer = subject.writer
    assert writer.initial_sequence_number() == ZERO
    assert writer.next_sequence_number() == writer.next_sequence_number() == ZERO
    writer.append(2, b"x")
    after = writer.next_sequence_number()
    assert after > ZERO
    assert writer.next_sequence_number() == after
    assert writer.initial_sequence_number() == ZERO


def test_changes_of_a_group_and_metadata_keep_their_order(subject: Subject) -> None:
    for number in range(100):
        subject.writer.append(2 + number % 8, b"%d" % number)
        if number % 10 == 0:
            subject.writer.append_meta(b"meta %d" % number)
    by_key_group = subject.changes()
    assert by_key_group.pop(-1) == [b"meta %d" % number for number in range(0, 100, 10)]
    for key_group, changes in by_key_group.items():
        assert changes == [b"%d" % number for number in range(100) if 2 + number % 8 == key_group]


def test_empty_changes_are_changes(subject: Subject) -> None:
    subject.writer.append(2, b"")
    subject.writer.append_meta(b"")
    assert subject.writer.next_sequence_number() > ZERO
    assert subject.changes() == {2: [b""], -1: [b""]}


def test_a_persist_holds_all_from_its_number_on(subject: Subject) -> None:
    subject.writer.append(2, b"a")
    number = subject.writer.next_sequence_number()
    subject.writer.append(2, b"b")
    assert subject.changes(number) == {2: [b"b"]}
    assert subject.changes() == {2: [b"a", b"b"]}
    assert subject.changes(subject.writer.next_sequence_number()) == {}


def test_an_aborted_checkpoint_loses_nothing(subject: Subject) -> None:
    subject.writer.append(2, b"a")
    assert subject.changes() == {2: [b"a"]}
    subject.writer.reset(ZERO, subject.writer.next_sequence_number(), 1)
    assert subject.changes() == {2: [b"a"]}


def test_a_confirmed_checkpoint_can_be_extended(subject: Subject) -> None:
    subject.writer.append(2, b"a")
    assert subject.changes() == {2: [b"a"]}
    subject.writer.confirm(ZERO, subject.writer.next_sequence_number(), 1)
    subject.writer.append(2, b"b")
    assert subject.changes() == {2: [b"a", b"b"]}


def test_truncated_changes_are_gone_and_the_rest_stays(subject: Subject) -> None:
    subject.writer.append(2, b"a")
    number = subject.writer.next_sequence_number()
    subject.writer.append(2, b"b")
    subject.writer.truncate(number)
    subject.writer.truncate(number)
    with pytest.raises(ChangesTruncatedError, match=f"requested: 0, truncated: {number}"):
        subject.writer.persist(ZERO, 1)
    assert subject.changes(number) == {2: [b"b"]}


def test_bounds_are_checked(subject: Subject) -> None:
    writer = subject.writer
    writer.append(2, b"a")
    number = writer.next_sequence_number()
    writer.truncate(number)
    with pytest.raises(ChangelogError, match="cannot be truncated to 0"):
        writer.truncate(ZERO)
    with pytest.raises(ChangelogError, match="cannot be truncated"):
        writer.truncate(number.next())
    with pytest.raises(ChangelogError, match="not yet appended"):
        writer.persist(number.next(), 1)
    for from_, to in ((number, ZERO), (number, number.next())):
        with pytest.raises(ChangelogError, match="Invalid confirm range"):
            writer.confirm(from_, to, 1)


@pytest.mark.parametrize("key_group", [-2, -1, 0, 1, 10, 2**31, 77])
def test_key_groups_outside_the_range_are_refused(subject: Subject, key_group: int) -> None:
    with pytest.raises(ChangelogError, match=rf"expected \[2, 9\], got {key_group}"):
        subject.writer.append(key_group, b"x")
    with pytest.raises(ChangelogError, match=rf"expected \[2, 9\], got {key_group} in row 1"):
        subject.writer.append_batch([2, key_group], [b"a", b"x"])
    assert subject.changes() == {}


@pytest.mark.parametrize("key_group", [2.5, "2", None])
def test_only_integers_are_key_groups(subject: Subject, key_group: Any) -> None:
    with pytest.raises(ConfigError, match="has to be an integer"):
        subject.writer.append(key_group, b"x")
    with pytest.raises(ConfigError, match="must be a column of integers"):
        subject.writer.append_batch(key_group, [b"x"])
    assert subject.changes() == {}


class Odd:
    """An integer that no dictionary takes for one."""

    def __index__(self) -> int:
        return 3

    def __int__(self) -> int:
        return 3


def test_integers_of_any_kind_are_one_key_group(subject: Subject) -> None:
    for key_group in (Odd(), 3, Odd()):
        subject.writer.append(key_group, b"x")  # type: ignore[arg-type]
    assert subject.changes() == {3: [b"x", b"x", b"x"]}


@pytest.mark.parametrize("number", [0, None, "0"])
@pytest.mark.parametrize(
    "use",
    [
        lambda writer, number: writer.persist(number, 1),
        lambda writer, number: writer.confirm(number, ZERO, 1),
        lambda writer, number: writer.confirm(ZERO, number, 1),
        lambda writer, number: writer.truncate(number),
        lambda writer, number: writer.truncate_and_close(number),
    ],
)
def test_only_sequence_numbers_are_bounds(
    subject: Subject, use: Callable[[StateChangelogWriter, Any], object], number: object
) -> None:
    subject.writer.append(2, b"x")
    with pytest.raises(ConfigError, match="has to be a SequenceNumber"):
        use(subject.writer, number)
    assert subject.changes() == {2: [b"x"]}


@pytest.mark.parametrize("sizes", [{"batch_rows": 0}, {"batch_rows": -1}, {"batch_bytes": 0}])
def test_batches_need_room(subject: Subject, sizes: dict[str, int]) -> None:
    subject.writer.append(2, b"x")
    handle = subject.writer.persist(ZERO, 1).result(30).job_manager_owned_snapshot
    with pytest.raises(ConfigError, match="A batch is too small"):
        next(subject.storage.create_reader().read_batches(handle, **sizes))


def test_metadata_has_no_key_group_that_a_change_could_name(subject: Subject) -> None:
    subject.writer.append_meta(b"meta")
    with pytest.raises(ChangelogError, match=r"expected \[2, 9\], got -1"):
        subject.writer.append(-1, b"forged")
    assert subject.changes() == {-1: [b"meta"]}


@pytest.mark.parametrize("value", [None, "text", 7, [b"x"]])
def test_only_bytes_are_changes(subject: Subject, value: object) -> None:
    for append in (
        lambda: subject.writer.append(2, value),
        lambda: subject.writer.append_meta(value),
    ):  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="has to be bytes"):
            append()
    assert subject.changes() == {}


def test_bytes_that_could_change_are_copied(subject: Subject) -> None:
    buffer = bytearray(b"before")
    subject.writer.append(2, buffer)
    subject.writer.append_meta(memoryview(buffer))
    buffer[:] = b"after!"
    assert subject.changes() == {2: [b"before"], -1: [b"before"]}


def test_numpy_integers_are_key_groups(subject: Subject) -> None:
    subject.writer.append(np.int32(3), b"a")  # type: ignore[arg-type]
    subject.writer.append(3, b"b")
    assert subject.changes() == {3: [b"a", b"b"]}


# --------------------------------------------------------------------------------- batches


def test_a_batch_is_its_changes_one_by_one(subject: Subject) -> None:
    rng = Random(3)
    groups = [rng.randrange(2, 10) for _ in range(300)]
    values = [rng.randbytes(rng.randrange(20)) for _ in groups]
    subject.writer.append(5, b"before")
    subject.writer.append_batch(pa.array(groups, pa.int32()), pa.array(values, pa.binary()))
    subject.writer.append(5, b"after")
    expected: dict[int, list[bytes]] = {5: [b"before"]}
    for key_group, value in zip(groups, values, strict=True):
        expected.setdefault(key_group, []).append(value)
    expected[5].append(b"after")
    assert subject.changes() == expected


def test_an_empty_batch_is_nothing(subject: Subject) -> None:
    subject.writer.append_batch(np.empty(0, np.int32), pa.array([], pa.binary()))
    assert subject.writer.next_sequence_number() == ZERO


def test_a_batch_is_not_used_after_the_call(subject: Subject) -> None:
    groups, values = np.full(100, 4, np.int32), np.full((100, 3), 65, np.uint8)
    subject.writer.append_batch(groups, values)
    groups[:], values[:] = 5, 66
    assert subject.changes() == {4: [b"AAA"] * 100}


def test_a_batch_that_does_not_fit_appends_nothing(subject: Subject) -> None:
    with pytest.raises(ConfigError, match="differ in length"):
        subject.writer.append_batch([2, 3], [b"x"])
    assert subject.changes() == {}


# --------------------------------------------------------------------------------- reading


def test_a_part_of_the_key_groups_and_all_metadata(subject: Subject) -> None:
    for key_group in KEY_GROUPS:
        subject.writer.append(key_group, b"%d" % key_group)
    subject.writer.append_meta(b"meta")
    handle = subject.writer.persist(ZERO, 1).result(30).job_manager_owned_snapshot
    part = handle.get_intersection(KeyGroupRange(4, 5))
    assert part is not None
    read = [each.change for each in subject.storage.create_reader().get_changes(part)]
    assert sorted(read) == [b"4", b"5", b"meta"]


def test_batches_hold_what_the_iterator_gives(subject: Subject) -> None:
    for number in range(50):
        subject.writer.append(2 + number % 3, b"%d" % number)
        if number % 20 == 0:
            subject.writer.next_sequence_number()
    handle = subject.writer.persist(ZERO, 1).result(30).job_manager_owned_snapshot
    reader = subject.storage.create_reader()
    batches = list(reader.read_batches(handle, batch_rows=7))
    assert all(0 < batch.num_rows <= 7 for batch in batches)
    table = pa.Table.from_batches(batches)
    expected = [(each.key_group, each.change) for each in reader.get_changes(handle)]
    columns = table.column("key_group").to_pylist(), table.column("value").to_pylist()
    assert list(zip(*columns, strict=True)) == expected
    numbers = table.column("sequence_number").to_pylist()
    assert numbers == sorted(numbers)
    assert numbers[0] == 0


# ------------------------------------------------------------------------ close and threads

USES: list[Callable[[StateChangelogWriter], object]] = [
    lambda writer: writer.append(2, b"x"),
    lambda writer: writer.append_meta(b"x"),
    lambda writer: writer.append_batch([2], [b"x"]),
    lambda writer: writer.next_sequence_number(),
    lambda writer: writer.persist(ZERO, 1),
    lambda writer: writer.confirm(ZERO, ZERO, 1),
    lambda writer: writer.reset(ZERO, ZERO, 1),
    lambda writer: writer.truncate(ZERO),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("close", ["close", "truncate_and_close"])
def test_a_closed_writer_says_so(
    subject: Subject, use: Callable[[StateChangelogWriter], object], close: str
) -> None:
    subject.writer.append(2, b"x")
    subject.writer.append_meta(b"x")
    if close == "close":
        subject.writer.close()
    else:
        subject.writer.truncate_and_close(ZERO)
    subject.writer.close()
    with pytest.raises(WriterClosedError, match="that is closed"):
        use(subject.writer)


OWNERS_USES: list[Callable[[StateChangelogWriter], object]] = [
    *USES,
    lambda writer: writer.append(np.int64(2), b"x"),  # type: ignore[arg-type]  # as users do
    lambda writer: writer.append(2, bytearray(b"x")),  # type: ignore[arg-type]  # as users do
    lambda writer: writer.initial_sequence_number(),
    lambda writer: writer.drain(),
    lambda writer: writer.truncate_and_close(ZERO),
    lambda writer: writer.close(),
]


@pytest.mark.parametrize("use", OWNERS_USES)
@pytest.mark.parametrize("before", [{}, {2: [b"a"]}, {2: [b"a", b"b"], 5: [b"c"]}])
def test_a_writer_belongs_to_one_thread(
    subject: Subject, use: Callable[[StateChangelogWriter], object], before: dict[int, list[bytes]]
) -> None:
    for key_group, values in before.items():
        for value in values:
            subject.writer.append(key_group, value)
    with ThreadPoolExecutor(1) as pool, pytest.raises(ChangelogError, match="does not own it"):
        pool.submit(use, subject.writer).result()
    assert subject.changes() == before


def test_every_method_of_a_writer_is_used_in_these_tests() -> None:
    methods = {name for name in vars(StateChangelogWriter) if not name.startswith("_")}
    used = {name for use in OWNERS_USES for name in use.__code__.co_names}
    assert methods <= used


def test_a_done_future_tells_its_result_to_anybody(subject: Subject) -> None:
    subject.writer.append(2, b"x")
    future = subject.writer.persist(ZERO, 1)
    future.result(30)
    seen: list[object] = []
    future.add_done_callback(seen.append)
    assert seen == [future]
    assert future.exception() is None
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(future.result, 30).result() == future.result()
