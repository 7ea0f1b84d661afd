"""A check and a report with a folder for their work go on after a kill: the same answer, and no
unit twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, report_snapshot, verify_snapshot
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.report import contents
from dstl_core.savepoint.verify import range_check
from dstl_core.savepoint.write.work_record import WORK_FOLDER
from dstl_core.storage.file_io import FsspecFileIO
from tests.command_line import run
from tests.golden_files import GOLDEN, snapshot

__all__ = ["run"]

_KILLED = 77
SOURCE = snapshot("a-rocksdb-native-incremental")
OLDER = snapshot("a-rocksdb-canonical")


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 8_000)


def _counted(monkeypatch: pytest.MonkeyPatch, log: Path, kind: type[Any]) -> None:
    """Notes each unit that is done, of this process and its forks."""
    done = kind.__call__

    def noted(own: Any, unit: Any) -> Any:
        with log.open("a") as lines:
            lines.write(f"{unit.handle} {unit.key_groups}\n")
        return done(own, unit)

    monkeypatch.setattr(kind, "__call__", noted)


def _killed_after(bytes_done: int, call: Callable[[Any], object]) -> None:
    process = os.fork()
    if process:
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == _KILLED
        return
    total = 0

    def advance(done: int) -> None:
        nonlocal total
        total += done
        if total >= bytes_done:
            os._exit(_KILLED)

    try:
        call(advance)
    finally:
        os._exit(1)


def _verified(**options: Any) -> Any:
    return verify_snapshot(Snapshot.load(SOURCE), **options).to_json()


def _reported(**options: Any) -> Any:
    compared = Snapshot.load(OLDER)
    return dict(report_snapshot(Snapshot.load(SOURCE), compare=compared, **options).figures)


WORK: dict[str, tuple[Callable[..., Any], type[Any]]] = {
    "verify": (_verified, range_check.RangeCheck),
    "report": (_reported, contents._CountUnit),
}


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("name", WORK)
def test_only_the_unit_in_flight_is_done_twice(
    name: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, kind = WORK[name]
    log, work = tmp_path / "log", tmp_path / "work"
    _counted(monkeypatch, log, kind)
    expected = call(work=work)
    assert expected == call()
    every = log.read_text().splitlines()
    every = [*dict.fromkeys(every)]
    assert len(every) > 5
    size = sum(each.state.state_size for each in Snapshot.load(SOURCE).operators)
    log.write_text("")
    _killed_after(size // 2, lambda advance: call(work=work, on_progress=advance))
    before = len(log.read_text().splitlines())
    assert 1 < before < len(every)
    assert call(work=work, jobs=jobs) == expected
    assert len(log.read_text().splitlines()) <= len(every) + 1
    assert not any(work.iterdir())


def test_every_count_is_kept(tmp_path: Path) -> None:
    """Times, windows, maps, lists, numbers and timers, and keys that are shown."""
    for name in ("d-windows-hashmap", "e-ttl-hashmap", "o-ttl-maps-rocksdb", "o-sql-window-topn"):
        own = Snapshot.load(snapshot(name))
        work = tmp_path / name
        expected = report_snapshot(own, show_keys=True, at_ms=1).figures
        _killed_after(
            sum(each.state.state_size for each in own.operators),
            lambda advance, own=own, work=work: report_snapshot(
                own, show_keys=True, at_ms=1, work=work, on_progress=advance
            ),
        )
        assert report_snapshot(own, show_keys=True, at_ms=1, work=work).figures == expected


def _damaged(copy: Path, place: int = -1) -> Path:
    """A copy with a table file that is damaged."""
    shutil.copytree(GOLDEN / "a-rocksdb-native-incremental", copy)
    [folder] = [each.parent for each in copy.rglob("_metadata")]
    handle = Snapshot.load(folder)["a-keyed"].keyed_handles[place]
    assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
    [(_, table), *_] = handle.shared + handle.private
    assert isinstance(table, RelativeFileStateHandle)
    file = folder / table.relative_path
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 3] ^= 1
    file.write_bytes(raw)
    return folder


def test_a_store_without_times_needs_a_moment_for_a_report_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FsspecFileIO, "modified_ms", lambda *_: None)
    assert _reported()
    with pytest.raises(ConfigError, match=r"gives files no times.*\(at_ms\)\."):
        _reported(work=tmp_path / "work")
    assert _reported(work=tmp_path / "work", at_ms=1)
    assert _verified(work=tmp_path / "work")["ok"]


def test_damage_is_found_by_the_run_that_goes_on(tmp_path: Path) -> None:
    own, work = Snapshot.load(_damaged(tmp_path / "copy")), tmp_path / "work"
    expected = verify_snapshot(own).to_json()
    assert not expected["ok"]
    size = sum(each.state.state_size for each in own.operators)
    _killed_after(size // 2, lambda advance: verify_snapshot(own, advance, work=work))
    assert verify_snapshot(own, work=work).to_json() == expected


@pytest.mark.parametrize("is_damaged", [False, True], ids=["whole", "damaged"])
def test_processes_that_go_on_compare_a_file_with_its_sha256(
    tmp_path: Path, is_damaged: bool
) -> None:
    """A process that goes on in the midst of a file reads what is missing for its digest."""
    [tables] = (GOLDEN / "many-table-files").glob("savepoint-*")
    edit_savepoint(Snapshot.load(tables)).with_files("canonical").write(tmp_path / "copy")
    [file, _] = [each for each in (tmp_path / "copy").iterdir() if each.name[0] != "_"]
    if is_damaged:
        raw = file.read_bytes()
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    own, work = Snapshot.load(tmp_path / "copy"), tmp_path / "work"
    expected = verify_snapshot(own).to_json()
    assert expected["ok"] is not is_damaged
    assert expected["digests_checked"] == 2
    size = sum(each.state.state_size for each in own.operators)
    _killed_after(size // 2, lambda advance: verify_snapshot(own, advance, work=work, jobs=2))
    assert verify_snapshot(own, work=work, jobs=2).to_json() == expected


def test_what_a_record_left_that_was_being_deleted_is_not_believed(tmp_path: Path) -> None:
    whole, damaged = Snapshot.load(SOURCE), Snapshot.load(_damaged(tmp_path / "copy", 0))
    work = tmp_path / "work"
    size = sum(each.state.state_size for each in whole.operators)
    _killed_after(size // 2, lambda advance: verify_snapshot(whole, advance, work=work))
    (work / WORK_FOLDER / "work.json").unlink()
    _killed_after(1, lambda advance: verify_snapshot(damaged, advance, work=work))
    assert verify_snapshot(damaged, work=work).to_json() == verify_snapshot(damaged).to_json()


def test_other_work_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work"
    _killed_after(1, lambda advance: _verified(work=work, on_progress=advance))
    with pytest.raises(SavepointError, match=r"had another input.*delete .*_dstl_work"):
        verify_snapshot(Snapshot.load(OLDER), work=work)
    with pytest.raises(SavepointError, match="had other options"):
        _reported(work=work)
    assert (work / WORK_FOLDER).is_dir()
    assert _verified(work=work)["ok"]


@pytest.mark.parametrize("name", ["verify", "report"])
def test_a_file_that_was_written_anew_since_is_refused(name: str, tmp_path: Path) -> None:
    """Units that are done would be believed of other bytes."""
    folder = shutil.copytree(SOURCE, tmp_path / "source")
    work = tmp_path / "work"
    call = verify_snapshot if name == "verify" else report_snapshot
    _killed_after(1, lambda moved: call(Snapshot.load(folder), work=work, on_progress=moved))
    largest = max(folder.iterdir(), key=lambda own: own.stat().st_size)
    os.utime(largest, ns=(0, 0))
    with pytest.raises(SavepointError, match=r"was written anew since .*_dstl_work to begin"):
        call(Snapshot.load(folder), work=work)
    assert (work / WORK_FOLDER).is_dir()


def test_a_copy_is_another_snapshot(tmp_path: Path) -> None:
    """Its metadata is the same, and its files may be damaged."""
    folders = []
    for name in ("one", "other"):
        shutil.copytree(GOLDEN / "a-rocksdb-native-incremental", tmp_path / name)
        folders += [each.parent for each in (tmp_path / name).rglob("_metadata")]
    one, other = map(Snapshot.load, folders)
    assert one.file.sha256 == other.file.sha256
    work = tmp_path / "work"
    _killed_after(1, lambda advance: verify_snapshot(one, advance, work=work))
    with pytest.raises(SavepointError, match="had other options"):
        verify_snapshot(other, work=work)
    with pytest.raises(SavepointError, match="had other options"):
        verify_snapshot(Snapshot.load(folders[0], allow_roots=[str(tmp_path)]), work=work)
    assert verify_snapshot(Snapshot.load(folders[0]), work=work).to_json()["ok"]


def test_the_command_line_goes_on(run: Any, tmp_path: Path) -> None:
    work = tmp_path / "work"
    _killed_after(1, lambda advance: _verified(work=work, on_progress=advance))
    code, out, _ = run("verify", str(SOURCE), "--work", str(work))
    assert (code, "no problems" in out) == (0, True)
    assert not any(work.iterdir())
    page = tmp_path / "page.html"
    assert run("report", str(SOURCE), "-o", str(page), "--work", str(work))[0] == 0
    assert page.stat().st_size
