"""What a dry run says, judged by what the real run does."""

from __future__ import annotations

import json
import tempfile
from collections import namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, LocalEngine, Snapshot, StatefulJob, aggregates
from dstl_core.savepoint.edit import keyed_units, rewriting, trial
from dstl_core.savepoint.read import stored_records
from dstl_core.storage import local_files
from tests.command_line import run
from tests.golden_files import CHANGED_JOBS, UPGRADE_JOBS, snapshot

__all__ = ["run"]
SOURCE = "a-rocksdb-native-incremental"
_Usage = namedtuple("_Usage", "total used free")


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A savepoint with 20,000 keys."""
    base = tmp_path_factory.mktemp("even")
    schema = pa.schema({"k": pa.string(), "v": pa.int64()})
    totals = {"total": aggregates.sum("v")}
    operator = AggregateOperator("a-keyed", "k", totals, schema=schema)
    job = StatefulJob(LocalEngine(), "even", str(base), operator)
    keys = [f"key {number}" for number in range(20_000)]
    job.run(pa.table({"k": keys, "v": [*range(20_000)]}, schema), input_id="1")
    return job.savepoint(str(base / "savepoint"))


def _written(folder: Path) -> int:
    """Bytes of state, in files and inside of the metadata."""
    return sum(operator.state.state_size for operator in Snapshot.load(folder).operators)


def _told_and_read(
    command: list[str], run: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[dict[str, Any], int]:
    """The forecast of a command, and the bytes that it reads."""
    _, text, _ = run(*command, "--dry-run", "--json")
    assert not Path(command[2]).exists()
    read, read_regular = 0, local_files.read_regular

    def counted(path: str, start: int, end: int | None) -> bytes:
        nonlocal read
        data = read_regular(path, start, end)
        read += len(data)
        return data

    with monkeypatch.context() as context:
        context.setattr(local_files, "read_regular", counted)
        run(*command)
    return json.loads(text)["forecast"], read


@pytest.mark.parametrize(
    ("options", "share"),
    [
        (("--copy", "--rename", "a-keyed=renamed"), 0.0),
        (("--format", "native"), 0.1),
        (("--canonical", "--max-parallelism", "100"), 0.1),
    ],
)
def test_the_bytes_that_a_real_run_reads_and_writes(
    options: tuple[str, ...],
    share: float,
    tmp_path: Path,
    run: Any,
    even: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keyed_units, "BYTES_AT_ONCE", 150_000)  # three of some units
    source, out = str(snapshot(SOURCE)) if "--copy" in options else even, tmp_path / "out"
    told, read = _told_and_read(["rewrite", source, str(out), *options], run, monkeypatch)
    assert told["bytes_read"] == pytest.approx(read, rel=0.25)
    assert told["bytes_written"] == pytest.approx(_written(out), rel=share)
    assert told["is_exact"] == ("--copy" in options)
    assert told["processes"] == 1
    assert 10 << 20 < told["memory"] < 8 << 30


def test_pieces_of_large_key_groups_are_read_once_more_where_a_file_is_shared(
    tmp_path: Path, run: Any, even: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that is too large for memory is kept in pieces, if another process makes the file of
    them, or if it is a file of RocksDB. Otherwise they go into the file as they come.
    """
    native = str(tmp_path / "native")
    run("rewrite", even, native, "--format", "native")
    monkeypatch.setattr(rewriting, "RECORDED_FROM_BYTES", 0)

    def told(large: int, *options: str) -> int:
        monkeypatch.setattr(stored_records, "LARGE_BYTES", large)
        command = ("rewrite", native, str(tmp_path / "out"), "--canonical", *options)
        return int(json.loads(run(*command, "--dry-run", "--json")[1])["forecast"]["bytes_read"])

    whole, pieces, shared = told(1 << 30), told(10_000), told(10_000, "--jobs", "3")
    out = tmp_path / "out"
    read_regular, read = local_files.read_regular, 0

    def counted(path: str, start: int, end: int | None) -> bytes:
        nonlocal read
        data = read_regular(path, start, end)
        read += len(data) if path.startswith(str(out)) else 0
        return data

    monkeypatch.setattr(local_files, "read_regular", counted)
    run("rewrite", native, str(out), "--canonical")
    assert pieces == whole
    assert read == pytest.approx(_written(out), rel=0.1)
    assert shared == pytest.approx(whole + _written(out), rel=0.1)


def test_the_temporary_file_that_a_real_run_has(
    tmp_path: Path, run: Any, even: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_units, "BYTES_AT_ONCE", 150_000)
    monkeypatch.setattr(
        keyed_units, "sections_for", partial(keyed_units.sections_for, memory=50_000)
    )
    rewrite = ("rewrite", even, str(tmp_path / "out"), "--canonical", "--max-parallelism", "10")
    told = json.loads(run(*rewrite, "--dry-run", "--json")[1])["forecast"]["temporary_bytes"]
    spill = tmp_path / "spill"
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda prefix, dir: spill.open("w+b"))
    run(*rewrite)
    assert 0.7 * told < spill.stat().st_size <= 1.1 * told


def test_an_upgrade_and_a_migration_say_it(tmp_path: Path, run: Any) -> None:
    job, pair = UPGRADE_JOBS / "carts", CHANGED_JOBS / "key-type"
    [path] = job.glob("savepoint-*")
    upgrade = ("upgrade", path, tmp_path / "out", "--jar", job / "job.jar")
    migrate = ("migrate", "apply", "examples/migrate/key-type.yaml", tmp_path / "out")
    places = ("--from", pair / "old", "--to-template", pair / "new")
    for command in (upgrade, (*migrate, *places)):
        code, text, errors = run(*map(str, command), "--dry-run")
        assert code == 0, errors
        assert "of memory a process" in text
        assert text.endswith("nothing was written\n")
        assert not (tmp_path / "out").exists()


def test_a_disk_that_is_too_small_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any
) -> None:
    monkeypatch.setattr(trial.shutil, "disk_usage", lambda path: _Usage(10, 10, 0))
    places = (str(snapshot(SOURCE)), str(tmp_path / "out"))
    code, _, errors = run("rewrite", *places, "--canonical", "--dry-run")
    assert code == 2
    assert "The disk of the output is too small: expected" in errors


def test_an_output_that_the_real_run_refuses_is_refused(tmp_path: Path, run: Any) -> None:
    source, out = str(snapshot(SOURCE)), tmp_path / "out"
    assert run("rewrite", source, str(out))[0] == 0
    code, _, errors = run("rewrite", source, str(out), "--dry-run")
    assert (code, "A snapshot is already there" in errors) == (2, True)
    assert run("rewrite", source, str(out), "--dry-run", "--overwrite")[0] == 0
    code, _, errors = run("rewrite", source, str(out / "_metadata"), "--dry-run")
    assert (code, "_metadata' is a file, where a folder is expected" in errors) == (2, True)
