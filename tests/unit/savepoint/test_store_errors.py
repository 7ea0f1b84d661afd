"""A store that fails is no fault of a snapshot: the error surfaces, and nothing is read again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from dstl_core import Snapshot, verify_snapshot
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.errors import StorageError
from dstl_core.savepoint.access.column_lines import ColumnLines
from dstl_core.savepoint.access.summary import snapshot_summary
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_columns import StateDecoders, check_range
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import report_figures
from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.testing import FaultyFileIO
from dstl_core.testing.faulty_file_io import Fault
from tests.golden_files import snapshot

FILES = "a-hashmap-canonical-files"


def with_failing_read(number: int) -> tuple[Snapshot, Callable[[], int]]:
    """A real savepoint whose store gives no answer to one read; and the count of reads."""
    healthy = Snapshot.load(snapshot(FILES))
    numbers = count()
    last = [0]

    def fails() -> bool:
        last[0] = next(numbers)
        return last[0] == number

    io: FileIO = FaultyFileIO(
        open_file_io(healthy.folder), lambda: Fault.NONE, pause=lambda ms: None, read_fails=fails
    )
    loaded = Snapshot(healthy.file, io, HandleResolver(io, healthy.folder), healthy.registry)
    return loaded, lambda: last[0] + 1


def keyed(loaded: Snapshot) -> OperatorSnapshot:
    return next(each for each in loaded.operators if each.keyed_handles)


def checked(operator: OperatorSnapshot) -> object:
    handle = operator.keyed_handles[0]
    return check_range(operator, handle, handle.key_group_range, StateDecoders(EXACT_OPTIONS))


def lines(operator: OperatorSnapshot) -> object:
    handle = operator.keyed_handles[0]
    return ColumnLines(operator, None).lines(handle, handle.key_group_range)


@pytest.mark.parametrize("read", [checked, lines])
def test_state_is_not_read_by_record_because_a_store_fails(
    read: Callable[[OperatorSnapshot], object],
) -> None:
    loaded, reads = with_failing_read(-1)
    read(keyed(loaded))
    assert reads() >= 1
    for number in range(reads()):
        failing, _ = with_failing_read(number)
        with pytest.raises(StorageError, match="no answer"):
            read(keyed(failing))


def test_a_check_ends_when_the_store_fails_and_calls_nothing_damaged() -> None:
    loaded, reads = with_failing_read(-1)
    assert verify_snapshot(loaded).findings == []
    assert reads() >= 5
    for number in range(reads()):
        failing, _ = with_failing_read(number)
        with pytest.raises(StorageError, match="no answer"):
            verify_snapshot(failing)


def in_full(loaded: Snapshot) -> object:
    return report_figures(loaded, contents=CountOptions(0))


def compared(loaded: Snapshot) -> object:
    return report_figures(loaded, Snapshot.load(snapshot(FILES)))


@pytest.mark.parametrize("look", [snapshot_summary, in_full, compared])
def test_no_state_is_called_not_readable_because_a_store_fails(
    look: Callable[[Snapshot], object],
) -> None:
    loaded, reads = with_failing_read(-1)
    look(loaded)
    assert reads() > 4
    for number in range(0, reads(), 2):
        failing, _ = with_failing_read(number)
        with pytest.raises(StorageError, match="no answer"):
            look(failing)
