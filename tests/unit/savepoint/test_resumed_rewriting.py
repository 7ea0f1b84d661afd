"""A rewriting that is killed goes on where it was: the same bytes, and no unit twice."""

from __future__ import annotations

import itertools
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dstl_core import Snapshot, verify_snapshot
from dstl_core.codec.serializers.primitives import LongSerializer
from dstl_core.codec.state_meta import KeyedBackendHeader
from dstl_core.errors import ConfigError, DstlError, FormatError, SavepointError, StorageError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.access.units import Unit
from dstl_core.savepoint.edit import keyed_units, recorded_units, rewriting
from dstl_core.savepoint.edit.keyed_units import Sections, SectionsForm
from dstl_core.savepoint.edit.recorded_units import Recorded, Streamed
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, edit_savepoint
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.read import entry_reader
from dstl_core.savepoint.verify import range_check
from dstl_core.savepoint.write import folder as folders
from dstl_core.savepoint.write import work_record
from dstl_core.storage.file_io import FsspecFileIO
from dstl_core.storage.location import SIDECAR_FILE_NAME, Location
from tests.golden_files import CHANGED_JOBS, UPGRADE_JOBS, as_lines, snapshot
from tests.written_corpus import DECLARATIONS

_KILLED = 77
_CREATING = ("write_new", "write_over")
WHOLE, SHARED = 2, 3
"""Processes for two streams: each one writes a whole one, or all share their units."""
Write = Callable[..., str]


def _edit(name: str = "a-rocksdb-native-incremental", **options: Any) -> SavepointEdit:
    edit = edit_savepoint(Snapshot.load(snapshot(name))).with_files(
        options.get("files", "canonical")
    )
    number = options.get("max_parallelism")
    return edit if number is None else edit.with_max_parallelism(number)


def _upgrade() -> SavepointUpgrade:
    job = UPGRADE_JOBS / "carts"
    [path] = job.glob("savepoint-*")
    return SavepointUpgrade(Snapshot.load(path, jars=[job / "job.jar"]))


def _migration(pair: str) -> SavepointMigration:
    old, new = (Snapshot.load(CHANGED_JOBS / pair / version) for version in ("old", "new"))
    return SavepointMigration(Migration.load(DECLARATIONS / f"{pair}.yaml"), old, new)


WORK: dict[str, Callable[[], Any]] = {
    "canonical": _edit,
    "other key groups": partial(_edit, max_parallelism=200),
    "copied files": partial(_edit, files="copy"),
    "upgrade": _upgrade,
    "migration": partial(_migration, "pojo-class"),
    "migration with another key": partial(_migration, "key-type"),
}


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small state is work in many units and goes into files, which have the same names in every
    run.
    """
    monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)
    monkeypatch.setattr(folders, "_RECORDED_COPY_BYTES", 0)
    for module in (keyed_units, entry_reader):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", 40_000)
    for module in (folders, recorded_units):
        monkeypatch.setattr(module, "DATA_INLINE_THRESHOLD", 100)
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: "a1" * size)


def _tree(folder: Path) -> dict[str, bytes]:
    files = (each for each in folder.rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


def _killed_at(place: int, write: Callable[[], object]) -> bool:
    """Runs in a process that ends at a storage operation; whether it got as far as that. Each write
    has two places: before it, and after the first of its bytes.
    """
    process = os.fork()
    if process:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == _KILLED
    try:
        places = itertools.count()

        def here() -> None:
            if next(places) == place:
                os._exit(_KILLED)

        def ended(method: Callable[..., Any]) -> Callable[..., Any]:
            def run(files: Any, location: Any, *data: Any) -> Any:
                here()
                return method(files, location, *data)

            return run

        def begun(method: Callable[..., None]) -> Callable[..., None]:
            def run(files: Any, location: Any, data: Any, **options: Any) -> None:
                def parts() -> Iterator[bytes]:
                    for part in [data] if isinstance(data, bytes) else data:
                        yield bytes(part)
                        here()

                here()
                method(files, location, parts(), **options)

            return run

        for name in _CREATING:
            setattr(FsspecFileIO, name, begun(getattr(FsspecFileIO, name)))
        for name in ("replace", "publish_once", "delete", "delete_folder"):
            setattr(FsspecFileIO, name, ended(getattr(FsspecFileIO, name)))
        write()
        os._exit(0)
    except DstlError as error:
        os._exit(_KILLED if "processes was killed" in str(error) else 1)
    finally:
        os._exit(1)


def _survives_kills(name: str, tmp_path: Path, every: int, jobs: int = 1) -> None:
    make, out = WORK[name], tmp_path / "out"
    make().write(tmp_path / "expected")
    expected, kills = _tree(tmp_path / "expected"), 0
    for place in itertools.count(0, every):
        if not _killed_at(place, lambda: make().write(out, jobs=jobs)):
            break
        kills += 1
        make().write(out, jobs=jobs)
        assert _tree(out) == expected, place
        shutil.rmtree(out)
    assert kills > 1
    assert _tree(out) == expected


@pytest.mark.parametrize("name", WORK)
def test_a_run_goes_on_after_a_kill_at_some_storage_operation(name: str, tmp_path: Path) -> None:
    _survives_kills(name, tmp_path, 60 if name == "copied files" else 7)


def test_streams_that_are_kept_have_the_timers_beside_them(tmp_path: Path) -> None:
    """Files of RocksDB have ids of their own in every run, so contents are compared."""
    source = Snapshot.load(snapshot("a-rocksdb-heaptimers-checkpoint"))
    edit = edit_savepoint(source).with_format("native").with_max_parallelism(17)
    edit.write(tmp_path / "expected")
    expected = as_lines(Snapshot.load(tmp_path / "expected")["a-keyed"].dump())
    out, streams_kept = tmp_path / "out", 0
    for place in itertools.count(0, 5):
        if not _killed_at(place, lambda: edit.write(out)):
            break
        streams_kept += len([*out.rglob("stream-*")])
        edit.write(out)
        written = Snapshot.load(out)
        assert as_lines(written["a-keyed"].dump()) == expected, place
        assert all(each.raw_keyed_state for each in written["a-keyed"].state.subtasks)
        shutil.rmtree(out)
    assert streams_kept


@pytest.mark.parametrize("jobs", [WHOLE, SHARED])
@pytest.mark.parametrize("name", ["canonical", "upgrade"])
def test_a_pool_goes_on_after_a_kill_at_some_storage_operation(
    name: str, jobs: int, tmp_path: Path
) -> None:
    _survives_kills(name, tmp_path, 4, jobs)


@pytest.mark.soak
@pytest.mark.parametrize("jobs", [1, WHOLE, SHARED])
@pytest.mark.parametrize("name", WORK)
def test_a_run_goes_on_after_a_kill_at_any_storage_operation(
    name: str, jobs: int, tmp_path: Path
) -> None:
    _survives_kills(name, tmp_path, 1, jobs)


class _Speculating:
    """Runs units here, each in a first try. When one writes, a second try of it begins beside it:
    it is ended while it writes, or is done first, and counts.
    """

    def __init__(self, workers: int, ends: bool) -> None:
        self.workers, self._ends = workers, ends
        self.seconds = 0

    def __call__(self, task: Callable[[Unit], Any], units: Sequence[Unit]) -> Any:
        for unit in units:
            yield unit, self._result(task, unit)

    def _result(self, task: Callable[[Unit], Any], unit: Unit) -> Any:
        second = list[Any]()

        def begins(data: Any, undo: Callable[[], object]) -> Iterator[bytes]:
            for part in [data] if isinstance(data, bytes) else data:
                yield bytes(part)
                if not second:
                    second.append(None)
                    undo()
                    second[:] = [self._second_try(task, unit)]

        with pytest.MonkeyPatch.context() as patch:
            _pass(patch, lambda data: begins(data, patch.undo))
            first = task(unit)
        return first if self._ends or not second else second[0]

    def _second_try(self, task: Callable[[Unit], Any], unit: Unit) -> Any:
        def run() -> Any:
            token = work_record.TRY.set(1)
            try:
                return task(unit)
            finally:
                work_record.TRY.reset(token)

        self.seconds += 1
        if not self._ends:
            return run()
        process = os.fork()
        if process:
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == _KILLED
            return None

        def ends(_: Any) -> Iterator[bytes]:
            yield b"begun"
            os._exit(_KILLED)

        _pass(pytest.MonkeyPatch(), ends)
        try:
            run()
        finally:
            os._exit(1)


def _pass(patch: pytest.MonkeyPatch, through: Callable[[Any], Iterator[bytes]]) -> None:
    """Has the bytes of each file that is written pass through something."""

    def passed(method: Callable[..., None]) -> Callable[..., None]:
        def write(files: Any, location: Any, data: Any, **options: Any) -> None:
            method(files, location, through(data), **options)

        return write

    for name in _CREATING:
        patch.setattr(FsspecFileIO, name, passed(getattr(FsspecFileIO, name)))


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("files", ["canonical", "native"])
def test_two_tries_of_a_task_do_not_meet(
    files: str, workers: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Spark makes them, where it speculates, or takes an executor for lost."""
    edit, out = _edit(), tmp_path / "out"
    if files == "native":
        edit = _edit("a-rocksdb-canonical", files="copy").with_format("native")
    runner = _Speculating(workers, ends)
    edit.write(tmp_path / "expected")
    edit.write(out, jobs=runner)
    assert runner.seconds
    one, two = (Snapshot.load(tmp_path / folder) for folder in ("expected", "out"))
    assert not verify_snapshot(two).findings
    for operator in one.operators:
        assert as_lines(two[operator.label].dump()) == as_lines(operator.dump())
    assert len(_tree(out)) == len(_tree(tmp_path / "expected"))


@pytest.mark.parametrize("files", ["canonical", "native"])
@pytest.mark.parametrize("jobs", [WHOLE, SHARED])
def test_any_process_writes_the_same(files: str, jobs: int, tmp_path: Path) -> None:
    edit = _edit()
    if files == "native":
        edit = _edit("a-rocksdb-canonical", files="copy").with_format("native")
    for folder, processes in {"expected": 1, "out": jobs}.items():
        edit.write(tmp_path / folder, jobs=processes)
    assert not [*(tmp_path / "out").glob(work_record.WORK_FOLDER)]
    if files == "canonical":
        assert _tree(tmp_path / "out") == _tree(tmp_path / "expected")
    one, two = (Snapshot.load(tmp_path / folder) for folder in ("expected", "out"))
    assert not verify_snapshot(two).findings
    for operator in one.operators:
        assert as_lines(two[operator.label].dump()) == as_lines(operator.dump())


def test_processes_share_streams_that_would_keep_one_of_them_busy() -> None:
    header = KeyedBackendHeader(LongSerializer(), (), compressed=False)

    def shared(sizes: list[int], workers: int) -> set[int]:
        streams = [
            keyed_units.NewStream(header, KeyGroupRange(0, 9), 10, size << 20) for size in sizes
        ]
        whole = [Unit(at, each.key_groups, each.size) for at, each in enumerate(streams)]
        return {unit.handle for unit in keyed_units._shared_units(streams, whole, workers)}

    assert shared([10, 10], 2) == shared([10, 10, 10, 10], 2) == shared([10], 1) == set()
    assert shared([10], 2) == {0}
    assert shared([70, 30], 2) == {0}
    assert len(shared([10, 10, 10], 2)) == 1
    assert shared([10, 10, 10], 8) == {0, 1, 2}


class _Units:
    """Notes each unit that is done, by this process and its forks, and may kill the process that
    does one.
    """

    def __init__(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log, self._killing = log, 0
        done = keyed_units.copied_sections

        def copied(sources: Any, streams: Any, unit: Any) -> Any:
            with log.open("a") as lines:
                lines.write(f"{unit.handle} {unit.key_groups}\n")
            if len(self.done) == self._killing:
                os._exit(_KILLED)
            return done(sources, streams, unit)

        monkeypatch.setattr(keyed_units, "copied_sections", copied)

    @property
    def done(self) -> list[str]:
        return self._log.read_text().splitlines()

    def killed_in(self, number: int, write: Callable[[], object]) -> None:
        """Writes in a process that ends in a unit. Those before it are noted."""
        self._log.write_text("")
        self._killing = number
        assert _killed_at(-1, write)
        self._killing = 0
        assert len(self.done) == number


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Units:
    return _Units(tmp_path / "log", monkeypatch)


@pytest.mark.parametrize("jobs", [1, 2])
def test_only_the_unit_in_flight_is_done_twice(jobs: int, tmp_path: Path, units: _Units) -> None:
    out = tmp_path / "out"
    _edit().write(tmp_path / "expected")
    every = units.done
    assert len(every) == len({*every}) > 3
    units.killed_in(len(every) - 1, lambda: _edit().write(out))
    _edit().write(out, jobs=jobs)
    assert len(units.done) == len(every) + 1
    assert _tree(out) == _tree(tmp_path / "expected")


def test_bytes_of_a_file_that_was_begun_are_not_believed(
    tmp_path: Path, units: _Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_units, "BYTES_AT_ONCE", 10_000)
    out = tmp_path / "out"
    _edit().write(tmp_path / "expected")
    every = units.done
    units.killed_in(4, lambda: _edit().write(out))
    [begun] = [own for own in out.iterdir() if own.is_file()]
    raw = begun.read_bytes()
    begun.write_bytes(bytes([*raw[:-1], raw[-1] ^ 1]))
    _edit().write(out)
    assert len(units.done) == len(every) + 2
    assert _tree(out) == _tree(tmp_path / "expected")


def test_units_are_not_looked_for_elsewhere_in_the_file_that_is_written(tmp_path: Path) -> None:
    """Bytes that others take the place of, as if a unit before them had another size now, or as
    they are read.
    """
    location = Location.parse(tmp_path / "out")
    entries = work_record.Entries(location.child(work_record.WORK_FOLDER), continues=True)
    [unit] = keyed_units.units_of_range(0, KeyGroupRange(0, 0), 1)
    recorded = Recorded(lambda _: Sections([b""]), entries, 1, SectionsForm(), returns=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_bytes(b"headdata")
    digest = xxhash.xxh3_128_hexdigest(b"data")
    facts = {"sizes": [4], "report": None, work_record.PLACE: ["file", 4, digest]}
    entries.keep(recorded.name(unit), facts)
    for at in (("file", 4), ("other", 3)):
        result = recorded.kept(unit, at)
        assert isinstance(result, Streamed)
        assert [*result.pieces] == [(0, b"data")]
    assert recorded.kept(unit, ("file", 3)) is None
    changing = recorded.kept(unit)
    assert isinstance(changing, Streamed)
    (tmp_path / "out" / "file").write_bytes(b"headDATA")
    with pytest.raises(StorageError, match="gone or damaged"):
        list(changing.pieces)
    assert entries.get(recorded.name(unit)) is None


def _unfinished(out: Path) -> None:
    assert _killed_at(8, lambda: _edit().write(out))
    assert (out / work_record.WORK_FOLDER).is_dir()


def test_work_of_another_plan_input_or_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    _unfinished(out)
    before = _tree(out)
    with pytest.raises(SavepointError, match=r"had other options.*delete .*_dstl_work"):
        _edit(max_parallelism=200).write(out)
    with pytest.raises(SavepointError, match="had another input"):
        _edit("a-rocksdb-canonical").write(out, mode="overwrite")
    with (
        monkeypatch.context() as patch,
        pytest.raises(SavepointError, match=r"version 0\.1\.0, got 9"),
    ):
        patch.setattr(work_record, "__version__", "9")
        _edit().write(out)
    assert _tree(out) == before
    _edit().write(out)


def _own_source(tmp_path: Path) -> Path:
    return shutil.copytree(snapshot("a-rocksdb-native-incremental"), tmp_path / "source")


def _rewriting_of(source: Path, author: str) -> Any:
    loaded = Snapshot.load(source)
    if author == "edit":
        return edit_savepoint(loaded).with_files("canonical")
    rule = {"value": "cast(value, STRING)", "type": "string"}
    declared = {"migration": 1, "operators": {"a-keyed": {"states": {"cnt": rule}}}}
    return SavepointMigration(Migration.of(declared), loaded)


def _written_anew(source: Path) -> None:
    """The largest file of state has other bytes, as many as before."""
    files = [own for own in source.iterdir() if own.name != "_metadata"]
    largest = max(files, key=lambda own: own.stat().st_size)
    raw = largest.read_bytes()
    largest.write_bytes(bytes([*raw[:-1], raw[-1] ^ 1]))
    os.utime(largest, ns=(0, 0))


@pytest.mark.parametrize("author", ["edit", "migration"])
def test_a_source_that_is_written_anew_while_it_is_read_is_refused(
    author: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After all of it was read, so that nothing but this check sees it."""
    source, out = _own_source(tmp_path), tmp_path / "out"
    original = rewriting.read_back

    def later(*arguments: Any) -> Any:
        _written_anew(source)
        return original(*arguments)

    monkeypatch.setattr(rewriting, "read_back", later)
    with pytest.raises(SavepointError, match=r"was written anew while it was read: .*nothing is"):
        _rewriting_of(source, author).write(out)
    assert _tree(out) == {}


@pytest.mark.parametrize("author", ["edit", "migration"])
def test_a_run_does_not_go_on_with_a_source_that_was_written_anew(
    author: str, tmp_path: Path
) -> None:
    source, out = _own_source(tmp_path), tmp_path / "out"
    saved = shutil.copytree(source, tmp_path / "saved")
    _rewriting_of(source, author).write(tmp_path / "expected")
    assert _killed_at(8, lambda: _rewriting_of(source, author).write(out))
    before = _tree(out)
    _written_anew(source)
    with pytest.raises(SavepointError, match=r"since an unfinished run had begun: .*_dstl_work to"):
        _rewriting_of(source, author).write(out)
    assert before and _tree(out) == before
    for file in saved.iterdir():
        shutil.copy2(file, source)
    _rewriting_of(source, author).write(out)
    assert _tree(out) == _tree(tmp_path / "expected")


def test_an_upgrade_with_another_jar_is_refused(tmp_path: Path) -> None:
    out, job = tmp_path / "out", UPGRADE_JOBS / "carts"
    [path] = job.glob("savepoint-*")
    assert _killed_at(8, lambda: _upgrade().write(out))
    with zipfile.ZipFile(tmp_path / "more.jar", "w") as jar:
        jar.writestr("shop/New.class", b"")
    jars = [job / "job.jar", tmp_path / "more.jar"]
    with pytest.raises(SavepointError, match="had other options"):
        SavepointUpgrade(Snapshot.load(path, jars=jars)).write(out)


def test_a_damaged_record_is_refused_with_the_way_out(tmp_path: Path) -> None:
    out = tmp_path / "out"
    _unfinished(out)
    (out / work_record.WORK_FOLDER / "work.json").write_bytes(b"{")
    with pytest.raises(FormatError, match=r"is damaged .*; delete .*_dstl_work to begin anew"):
        _edit().write(out)


def test_an_entry_with_damaged_facts_is_not_believed() -> None:
    entries = work_record.Entries(Location.parse("memory://facts/out"), continues=True)
    entries.keep("unit", {"sizes": [10]}, [b"data"])
    place = entries.folder.child("unit")
    raw = entries.file_io.read_bytes(place)
    assert entries.get("unit") == work_record.Entry({"sizes": [10]}, b"data")
    entries.file_io.replace(place, raw.replace(b"10", b"11"))
    assert entries.get("unit") is None


def test_a_refusal_before_the_work_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="got 0"):
        _edit().write(out, jobs=0)
    assert not out.exists()
    out.mkdir()
    (out / SIDECAR_FILE_NAME).write_text("{")
    with pytest.raises(FormatError, match="damaged"):
        _edit().write(out, run_key="run")
    assert _tree(out) == {SIDECAR_FILE_NAME: b"{"}


def test_a_folder_that_cannot_be_made_is_said() -> None:
    with pytest.raises(StorageError, match=r"Cannot write to file:/proc/out: No such file"):
        _edit().write("/proc/out")


def test_a_file_that_is_written_again_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(folders, "DATA_INLINE_THRESHOLD", 0)

    def is_full(*_: object) -> None:
        raise StorageError("full")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="full"):
        patch.setattr(folders.SavepointFolder, "publish", is_full)
        _edit().write(out)
    checked: list[object] = []
    check = range_check.RangeCheck.__call__

    def noted(*own: Any) -> Any:
        checked.append(own)
        return check(*own)

    monkeypatch.setattr(range_check.RangeCheck, "__call__", noted)
    with monkeypatch.context() as patch, pytest.raises(StorageError, match="full"):
        patch.setattr(folders.SavepointFolder, "publish", is_full)
        _edit().write(out)
    assert not checked
    state = max((own for own in out.iterdir() if own.is_file()), key=lambda own: own.stat().st_size)
    state.write_bytes(b"")
    _edit().write(out)
    assert checked


def test_one_of_two_runs_on_one_output_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    seen = []

    def refused(done: int) -> None:
        with pytest.raises(SavepointError, match=r"Another run writes .*out: wait"):
            _edit().write(out)
        seen.append(done)

    _edit().write(out, on_progress=refused)
    assert seen
    with pytest.raises(SavepointError, match="already there"):
        _edit().write(out)


def test_a_worker_that_dies_costs_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _edit().write(tmp_path / "expected")
    out, done = tmp_path / "out", keyed_units.copied_sections
    is_kept = get_context("fork").Event()

    def dies(sources: Any, streams: Any, unit: Any) -> Any:
        if unit.key_groups.start_key_group > 20:
            assert is_kept.wait(60)
            os._exit(1)
        return done(sources, streams, unit)

    def keep(entries: work_record.Entries, name: str, *facts: Any) -> None:
        kept(entries, name, *facts)
        if name.startswith("unit-"):
            is_kept.set()

    kept = work_record.Entries.keep

    with monkeypatch.context() as patch, pytest.raises(DstlError, match="was killed"):
        patch.setattr(keyed_units, "copied_sections", dies)
        patch.setattr(work_record.Entries, "keep", keep)
        _edit().write(out, jobs=2)
    assert any((out / work_record.WORK_FOLDER).glob("unit-*"))
    _edit().write(out, jobs=2)
    assert _tree(out) == _tree(tmp_path / "expected")


def test_a_refusal_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise SavepointError("refused")

    out = tmp_path / "out"
    monkeypatch.setattr(rewriting, "read_back", refused)
    with pytest.raises(SavepointError, match="refused"):
        _edit().write(out)
    assert _tree(out) == {}


def test_a_later_run_takes_work_on_an_object_store_over(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = map("{:016x}".format, itertools.count())
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: next(owners))
    folder = Location.parse("memory://taken/out")
    [first, second] = [work_record.open_record(folder, "s", "p", begins=True) for _ in range(2)]
    assert first is not None and second is not None and second.continues
    second.check_owner()
    with pytest.raises(DstlError, match=r"Another run writes memory:.* goes on with the work"):
        first.check_owner()


@pytest.mark.parametrize("plan", [None, "p"])
def test_work_that_nobody_can_go_on_with_is_begun_anew(plan: str | None, tmp_path: Path) -> None:
    folder = Location.parse(tmp_path / "out")
    dead = work_record.open_record(folder, "s", None, begins=True)
    assert dead is not None
    half = tmp_path / "out" / dead.names.new()
    half.write_bytes(b"half")
    dead.entries.keep("unit", {})
    dead.close(is_done=False)
    record = work_record.open_record(folder, "other", plan, begins=True)
    assert record is not None and not record.continues
    assert record.entries.get("unit") is None
    assert not half.exists()
    record.close(is_done=True)
    assert not any((tmp_path / "out").iterdir())


def test_a_run_that_ends_leaves_the_record_of_one_that_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Location.parse(tmp_path / "out")
    begun: list[work_record.WorkRecord] = []

    def begins_first(path: str) -> None:
        monkeypatch.undo()
        other = work_record.open_record(folder, "s", "p", begins=True)
        assert other is not None
        begun.append(other)
        os.rmdir(path)

    ends = work_record.open_record(folder, "s", "p", begins=True)
    assert ends is not None
    ends.entries.keep("unit", {})
    monkeypatch.setattr(work_record.os, "rmdir", begins_first)
    ends.close(is_done=True)
    [record] = begun
    assert not record.continues
    record.check_owner()
    with pytest.raises(SavepointError, match="Another run writes"):
        work_record.open_record(folder, "s", "p", begins=True)
    record.close(is_done=True)
    assert not any((tmp_path / "out").iterdir())


def test_a_run_whose_record_was_deleted_by_hand_leaves_that_of_another(tmp_path: Path) -> None:
    folder = Location.parse(tmp_path / "out")
    first = work_record.open_record(folder, "s", "p", begins=True)
    shutil.rmtree(tmp_path / "out")
    other = work_record.open_record(folder, "s", "p", begins=True)
    assert first is not None
    assert other is not None
    first.close(is_done=True)
    other.check_owner()
    shutil.rmtree(tmp_path / "out")
    other.close(is_done=True)  # raises nothing, though nothing is there
    assert not [*tmp_path.iterdir()]


def test_a_process_that_is_forked_while_a_lock_is_taken_does_not_keep_it(tmp_path: Path) -> None:
    folder = Location.parse(tmp_path)
    record = work_record.open_record(folder, "s", "p", begins=True)
    assert record is not None
    reading, writing = os.pipe()
    held = set(work_record._HELD)
    work_record._HELD.clear()  # as before it is noted
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    work_record._HELD.update(held)
    record.close(is_done=False)
    again = work_record.open_record(folder, "s", "p", begins=True)
    assert again is not None
    again.close(is_done=True)
    os.close(writing)
    os.waitpid(child, 0)
    os.close(reading)


def test_a_run_whose_work_was_taken_over_deletes_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = map("{:016x}".format, itertools.count())
    monkeypatch.setattr(work_record.secrets, "token_hex", lambda size: next(owners))
    folder = "memory://fenced/out"

    def taken_over(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)
        _edit().write(folder)
        raise SavepointError("other files than mine")

    monkeypatch.setattr(rewriting, "read_back", taken_over)
    with pytest.raises(DstlError, match="Another run writes memory:"):
        _edit().write(folder)
    assert not verify_snapshot(Snapshot.load(folder)).findings
