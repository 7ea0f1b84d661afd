"""Reference counts of segment files: TaskChangelogRegistryImplTest of Flink, and the rest."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dstl_core.changelog.discarder import FileDiscarder
from dstl_core.changelog.registry import LocalChangelogRegistry, TaskChangelogRegistry
from dstl_core.errors import ChangelogError
from dstl_core.model.handle import FileStateHandle
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

pytestmark = pytest.mark.usefixtures("memory_files")

LOCATION = Location.parse("memory://job/dstl/segment")
HANDLE = FileStateHandle(str(LOCATION), 10)


def registry() -> TaskChangelogRegistry:
    files = open_file_io(LOCATION)
    files.write_new(LOCATION, b"0123456789")
    return TaskChangelogRegistry(FileDiscarder(files.delete))


def is_there() -> bool:
    return open_file_io(LOCATION).size(LOCATION) is not None


def test_a_file_goes_with_its_last_reference() -> None:
    files_registry = registry()
    files_registry.start_tracking(HANDLE, 2)
    files_registry.release(HANDLE)
    assert is_there()
    assert files_registry.tracked == {HANDLE.path: 1}
    files_registry.release(HANDLE)
    assert not is_there()
    assert files_registry.tracked == {}


def test_a_file_that_a_checkpoint_owns_stays() -> None:
    files_registry = registry()
    files_registry.start_tracking(HANDLE, 2)
    files_registry.stop_tracking(HANDLE)
    files_registry.release(HANDLE)
    files_registry.release(HANDLE)
    assert is_there()


def test_an_unknown_file_is_not_touched() -> None:
    files_registry = registry()
    files_registry.release(HANDLE)
    files_registry.stop_tracking(HANDLE)
    assert is_there()


def test_a_file_that_is_gone_is_no_error() -> None:
    files_registry = registry()
    files_registry.start_tracking(HANDLE, 1)
    open_file_io(LOCATION).delete(LOCATION)
    files_registry.release(HANDLE)
    assert files_registry.tracked == {}


def test_a_failed_delete_is_a_warning_and_the_file_is_left_for_gc(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A folder stands where the file was: no delete of a file removes it.
    folder = FileStateHandle(f"file:{tmp_path}", 10)
    files_registry = TaskChangelogRegistry(
        FileDiscarder(open_file_io(Location.parse(tmp_path)).delete)
    )
    files_registry.start_tracking(folder, 1)
    with caplog.at_level(logging.WARNING):
        files_registry.release(folder)
    assert files_registry.tracked == {}
    assert "an unused segment is left for gc" in caplog.text


# ----------------------------------------------------------------------------- beyond Flink


def test_a_tracked_file_needs_a_reference() -> None:
    with pytest.raises(ChangelogError, match="at least one reference to be tracked, got 0"):
        registry().start_tracking(HANDLE, 0)


def test_a_discarded_file_and_its_count_are_gone() -> None:
    files_registry = registry()
    files_registry.start_tracking(HANDLE, 2)
    files_registry.discard(HANDLE)
    assert not is_there()
    assert files_registry.tracked == {}


def test_a_file_that_is_never_finished_is_reported_at_the_close() -> None:
    files_registry = registry()
    files_registry.start_writing(HANDLE.path)
    files_registry.start_writing("memory://job/dstl/finished")
    files_registry.start_tracking(FileStateHandle("memory://job/dstl/finished", 1), 1)
    files_registry.close()
    assert files_registry.orphans == (HANDLE.path,)
    files_registry.discard_unfinished(HANDLE.path)
    assert files_registry.orphans == ()
    assert not is_there()


def test_the_registry_of_nobody_does_nothing() -> None:
    registry()
    nobody = TaskChangelogRegistry.NO_OP
    nobody.start_writing(HANDLE.path)
    nobody.start_tracking(HANDLE, 0)
    nobody.release(HANDLE)
    nobody.discard(HANDLE)
    nobody.discard_unfinished(HANDLE.path)
    nobody.stop_tracking(HANDLE)
    assert nobody.tracked == {}
    assert is_there()


# ------------------------------------------------------------------------ local copies


def local_registry() -> tuple[LocalChangelogRegistry, set[str]]:
    """A registry, and the files that it has not deleted."""
    files = {f"memory://local/h{i}" for i in (1, 2, 3)}

    def delete(location: Location) -> None:
        files.discard(str(location))

    return LocalChangelogRegistry(FileDiscarder(delete)), files


H1, H2, H3 = (FileStateHandle(f"memory://local/h{i}", 1) for i in (1, 2, 3))


def test_registry_normal() -> None:
    # LocalChangelogRegistryTest of Flink.
    local_files, files = local_registry()
    local_files.register(H1, 1)
    local_files.register(H2, 1)
    local_files.register(H2, 2)
    local_files.register(H3, 2)
    assert local_files.discard_up_to_checkpoint(2) == {H1.path}
    assert files == {H2.path, H3.path}
    assert local_files.discard_up_to_checkpoint(3) == {H2.path, H3.path}
    assert files == set()


def test_an_older_checkpoint_does_not_shorten_a_life() -> None:
    local_files, files = local_registry()
    local_files.register(H1, 5)
    local_files.register(H1, 3)
    local_files.discard_up_to_checkpoint(5)
    assert H1.path in files


def test_two_files_cannot_have_one_path() -> None:
    local_files, _ = local_registry()
    local_files.register(H1, 1)
    with pytest.raises(ChangelogError, match="Two local changelog files have one path"):
        local_files.register(FileStateHandle(H1.path, 2), 1)


def test_closing_forgets_and_deletes_nothing() -> None:
    local_files, files = local_registry()
    local_files.register(H1, 1)
    local_files.close()
    assert local_files.discard_up_to_checkpoint(9) == frozenset()
    assert len(files) == 3


def test_without_local_recovery_nothing_is_registered() -> None:
    nobody = LocalChangelogRegistry.NO_OP
    nobody.register(H1, 1)
    assert nobody.discard_up_to_checkpoint(9) == frozenset()
