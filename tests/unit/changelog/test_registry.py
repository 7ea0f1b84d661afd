"""Reference counts of segment files: TaskChangelogRegistryImplTest of Flink, and the rest."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dstl_core.changelog.registry import TaskChangelogRegistry
from dstl_core.model.handle import FileStateHandle
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

pytestmark = pytest.mark.usefixtures("memory_files")

LOCATION = Location.parse("memory://job/dstl/segment")
HANDLE = FileStateHandle(str(LOCATION), 10)


def registry() -> TaskChangelogRegistry:
    files = open_file_io(LOCATION)
    files.write_new(LOCATION, b"0123456789")
    return TaskChangelogRegistry(files)


def is_there() -> bool:
    return open_file_io(LOCATION).size(LOCATION) is not None


def test_a_file_goes_with_its_last_reference() -> None:
    found = registry()
    found.start_tracking(HANDLE, 2)
    found.release(HANDLE)
    assert is_there()
    assert found.tracked == {HANDLE.path: 1}
    found.release(HANDLE)
    assert not is_there()
    assert found.tracked == {}


def test_a_file_that_a_checkpoint_owns_stays() -> None:
    found = registry()
    found.start_tracking(HANDLE, 2)
    found.stop_tracking(HANDLE)
    found.release(HANDLE)
    found.release(HANDLE)
    assert is_there()


def test_an_unknown_file_is_not_touched() -> None:
    found = registry()
    found.release(HANDLE)
    found.stop_tracking(HANDLE)
    assert is_there()


def test_a_file_that_is_gone_is_no_error() -> None:
    found = registry()
    found.start_tracking(HANDLE, 1)
    open_file_io(LOCATION).delete(LOCATION)
    found.release(HANDLE)
    assert found.tracked == {}


def test_a_failed_delete_is_a_warning_and_the_file_is_left_for_gc(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A folder stands where the file was: no delete of a file removes it.
    folder = FileStateHandle(f"file:{tmp_path}", 10)
    found = TaskChangelogRegistry(open_file_io(Location.parse(tmp_path)))
    found.start_tracking(folder, 1)
    with caplog.at_level(logging.WARNING):
        found.release(folder)
    assert found.tracked == {}
    assert "could not delete an unused segment" in caplog.text
