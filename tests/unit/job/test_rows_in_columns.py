"""Which functions by row have their state in columns, and that they do not notice it."""

from itertools import count

import pytest

from dstl_core.errors import RestoreError, StateMigrationError, StorageError, UserFunctionError
from dstl_core.functions import KeyedProcessFunction, RichMapFunction
from dstl_core.job.task import subtask as subtasks_module
from dstl_core.job.task.assigned_state import decode_assigned
from dstl_core.job.task.restore import Assigned
from dstl_core.job.task.rows_in_columns import RowsInColumns, open_rows
from dstl_core.model.snapshot_type import CheckpointType
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.ttl import StateTtlConfig
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import FaultyFileIO
from dstl_core.testing.faulty_file_io import Fault
from tests.unit.job.subtasks import LAST, ByColumn, ByRow, ByRowInTables, Subtask

IN_COLUMNS, IN_TABLES = True, False


@pytest.fixture
def opened(monkeypatch):
    """Whether the state of each opened subtask is in columns."""
    modes, open_subtask = [], subtasks_module.open_subtask

    def noted(task, subtask):
        running = open_subtask(task, subtask)
        modes.append(isinstance(running, RowsInColumns))
        return running

    monkeypatch.setattr("tests.unit.job.subtasks.open_subtask", noted)
    return modes


class Asks(ByRow):
    """Asks for more states than ``ByRow``."""

    def __init__(self, *others):
        self.others = others
        self.opened = self.closed = 0

    def open(self, runtime_context):
        self.opened += 1
        super().open(runtime_context)
        for name, descriptor in self.others:
            getattr(runtime_context, name)(descriptor)

    def close(self):
        self.closed += 1


class WithTimers(ByRow):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(5)
        return super().process_element(value, ctx)

    def on_timer(self, timestamp, ctx):
        return ()


class Mapped(RichMapFunction):
    def open(self, runtime_context):
        self.last = runtime_context.get_state(LAST)

    def map(self, value):
        was = self.last.value()
        self.last.update(value["d"])
        return {"k": value["k"], "was": was}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (ByRow(), IN_COLUMNS),
        (Mapped(), IN_COLUMNS),
        (Asks(("get_state", ValueStateDescriptor("n", "int"))), IN_COLUMNS),
        (Asks(("get_state", LAST)), IN_COLUMNS),
        (Asks(("get_state", ValueStateDescriptor("s", "string"))), IN_COLUMNS),
        (Asks(("get_state", ValueStateDescriptor("s", "decimal(9,2)"))), IN_COLUMNS),
        (Asks(("get_state", ValueStateDescriptor("s", "array<string>"))), IN_TABLES),
        (
            Asks(("get_state", ValueStateDescriptor("t", "bigint", ttl=StateTtlConfig(10**6)))),
            IN_TABLES,
        ),
        (Asks(("get_list_state", ListStateDescriptor("l", "bigint"))), IN_TABLES),
        (Asks(("get_reducing_state", ReducingStateDescriptor("r", max, "bigint"))), IN_TABLES),
        (WithTimers(), IN_TABLES),
    ],
    ids=[
        "number",
        "map",
        "two numbers",
        "twice",
        "string",
        "decimal",
        "array",
        "ttl",
        "list",
        "reducing",
        "timers",
    ],
)
def test_where_the_state_is_and_that_values_are_the_same(tmp_path, opened, function, expected):
    subtask = Subtask(tmp_path, function)
    assert subtask.run(1.0, 2.0)[2] == [None, None]
    assert subtask.run(3.0, 4.0, 5.0)[2] == [1.0, 2.0, None]
    assert opened == [expected] * 2
    if isinstance(function, Asks):
        assert (function.opened, function.closed) == (2, 2)


def test_a_log_of_every_update_is_in_tables(tmp_path, opened):
    logging = Subtask(tmp_path, ByRow())
    logging.value_logging = ValueLogging.EVERY
    logging.run(1.0)
    assert opened == [IN_TABLES]


def test_state_that_outgrows_the_memory_of_rocksdb_goes_to_its_database(tmp_path, opened):
    values = [float(at) for at in range(1000)]
    subtask = Subtask(tmp_path, ByRow(), EmbeddedRocksDBStateBackend())
    assert subtask.run(*values)[2] == [None] * 1000
    [handle] = subtask.handles
    subtask.backend = rocksdb_with(handle.state_size)
    assert subtask.run(1.0) == ("cold", 1, [0.0])
    assert subtask.run(2.0) == ("warm", 1, [1.0])
    subtask.backend = EmbeddedRocksDBStateBackend()
    assert subtask.run(*values) == ("cold", 1000, [2.0, *values[1:]])
    assert opened == [IN_COLUMNS, IN_TABLES, IN_TABLES, IN_COLUMNS]


def test_a_log_above_a_base_does_not_count_as_state(tmp_path, opened):
    values = [float(at) for at in range(1000)]
    subtask = Subtask(tmp_path, ByRow(), EmbeddedRocksDBStateBackend())
    subtask.run(*values, kind=CheckpointType.FULL_CHECKPOINT)
    subtask.run(*values)
    [handle] = subtask.handles
    assert handle.non_materialized_size > 0
    subtask.backend = rocksdb_with(handle.materialized_size + 1)
    assert subtask.run(3.0)[2] == [0.0]
    subtask.backend = rocksdb_with(handle.materialized_size)
    assert subtask.run(4.0)[2] == [3.0]
    assert opened == [IN_COLUMNS, IN_COLUMNS, IN_COLUMNS, IN_TABLES]


def rocksdb_with(memory):
    """The backend whose databases may use this number of bytes of memory."""
    backend = EmbeddedRocksDBStateBackend(cache_bytes=memory - 3, write_buffer_bytes=1)
    assert backend.memory_bytes == memory
    return backend


def test_a_function_goes_from_columns_to_tables_and_back(tmp_path, opened):
    subtask, totals = Subtask(tmp_path, ByRow()), []
    for value, function in enumerate((ByRow(), ByRowInTables(), ByRow(), ByColumn(), ByRow())):
        subtask.function = function
        totals += subtask.run(float(value))[2]
    assert totals == [None, 0.0, 1.0, 2.0, 3.0]
    by_column = False
    assert opened == [IN_COLUMNS, IN_TABLES, IN_COLUMNS, by_column, IN_COLUMNS]


def test_state_that_the_function_no_longer_has_is_kept_in_tables(tmp_path, opened):
    class Two(ByRow):
        def open(self, runtime_context):
            super().open(runtime_context)
            self.other = runtime_context.get_state(ValueStateDescriptor("other", "bigint"))

        def process_element(self, value, ctx):
            self.other.update(int(value["d"]) + (self.other.value() or 0))
            return super().process_element({"k": value["k"], "d": float(self.other.value())}, ctx)

    subtask = Subtask(tmp_path, Two())
    subtask.run(1.0)
    subtask.function = ByRow()
    assert subtask.run(5.0)[2] == [1.0]
    subtask.function = Two()
    assert subtask.run(2.0)[2] == [5.0]
    assert subtask.run(4.0)[2] == [3.0]
    assert opened == [IN_COLUMNS, IN_TABLES, IN_COLUMNS, IN_COLUMNS]


def test_a_type_that_cannot_change_is_refused_as_in_tables(tmp_path):
    class AsLong(KeyedProcessFunction):
        def open(self, runtime_context):
            self.last = runtime_context.get_state(ValueStateDescriptor("last", "bigint"))

        def process_element(self, value, ctx):
            self.last.update(1)

    subtask = Subtask(tmp_path, ByRow())
    subtask.run(1.0)
    subtask.function = AsLong()
    with pytest.raises(
        UserFunctionError, match=r"AsLong\.open raised StateMigrationError"
    ) as failure:
        subtask.run(2.0)
    assert isinstance(failure.value.__cause__, StateMigrationError)


def test_damaged_state_is_an_error_of_the_restore(tmp_path):
    subtask = Subtask(tmp_path, ByRow())
    subtask.run(1.0)
    for path in (tmp_path / "local").rglob("*.arrow"):
        path.write_bytes(b"")
    for path in tmp_path.rglob("*"):
        if path.is_file() and "local" not in path.parts:
            path.unlink()
    for function in (ByRow(), ByRowInTables()):
        subtask.function = function
        with pytest.raises((RestoreError, FileNotFoundError)) as failure:
            subtask.run(2.0)
        assert "open raised" not in str(failure.value)


def test_a_store_that_fails_once_is_an_error_and_not_state_for_tables(tmp_path):
    subtask = Subtask(tmp_path, ByRow())
    subtask.run(1.0)
    subtask.local = tmp_path / "another machine"
    task, file_io = subtask.task(), open_file_io(Location.parse(tmp_path))
    reads = count()
    failing = FaultyFileIO(
        file_io, lambda: Fault.NONE, pause=lambda ms: None, read_fails=lambda: next(reads) == 0
    )
    resolver = HandleResolver(failing, task.job.layout.root)
    with pytest.raises(StorageError, match="no answer"):
        open_rows(task, 0, Assigned(decode_assigned(task.assigned[0]), resolver))
    assert next(reads) == 1


@pytest.mark.parametrize("late", ["late", "last"])
def test_a_state_that_is_asked_for_too_late_is_refused(tmp_path, late):
    class Late(ByRow):
        def open(self, runtime_context):
            super().open(runtime_context)
            self.context = runtime_context

        def process_element(self, value, ctx):
            self.context.get_state(LAST)
            self.context.get_state(ValueStateDescriptor(late, "string"))

    with pytest.raises(UserFunctionError) as failure:
        Subtask(tmp_path, Late()).run(1.0)
    assert (
        f"asks for the state '{late}' of type String after it was opened; expected one of the "
        f"states of its open(): 'last' (Double); ask for it there."
    ) in str(failure.value)


def test_time_without_timers(tmp_path):
    times = []

    class Times(ByRow):
        def process_element(self, value, ctx):
            service = ctx.timer_service()
            times.append((service.current_watermark(), service.current_processing_time()))
            service.delete_event_time_timer(1)
            if value["d"] < 0:
                service.register_processing_time_timer(1)
            return super().process_element(value, ctx)

    subtask = Subtask(tmp_path, Times())
    subtask.run(1.0)
    assert times == [(-(2**63), 0)]
    with pytest.raises(UserFunctionError, match=r"registers a timer, and has no on_timer\(\)"):
        subtask.run(-1.0)


def test_a_value_that_does_not_fit_is_refused(tmp_path):
    class Huge(ByRow):
        def process_element(self, value, ctx):
            self.last.update("no number")

    with pytest.raises(UserFunctionError, match=r"Huge\.process_element raised"):
        Subtask(tmp_path, Huge()).run(1.0)
