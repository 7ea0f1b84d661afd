"""The command line on a real S3 server, and on snapshots whose files moved."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import s3fs
import typer.main

from dstl_core.cli.app import app
from dstl_core.savepoint.read import entry_reader
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, SNAPSHOTS, as_lines
from tests.golden_files import snapshot as golden
from tests.s3_server import S3Server

__all__ = ["run"]

TABLES = "x-lsm-rocksdb-incremental"


@pytest.fixture
def store(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket with the checkpoint of a job, for commands that take credentials from the
    environment.
    """
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    files = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    root = GOLDEN / TABLES
    for path in root.rglob("*"):
        if path.is_file():
            files.put_file(str(path), f"{bucket}/{path.relative_to(root)}")
    return f"{bucket}/{golden(TABLES).relative_to(root)}"


@pytest.mark.slow
def test_several_processes_read_a_store(
    run: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_reader, "BYTES_AT_ONCE", 1 << 10)
    [fixture] = [each for each in SNAPSHOTS if each.name == TABLES]
    ran = run("dump", store, "--jobs", "2")
    assert ran.code == 0
    assert as_lines(ran.lines) == as_lines(fixture.truth)
    assert run("verify", store, "--jobs", "2").out.startswith("no problems: ")


@pytest.mark.slow
def test_a_report_goes_to_a_store(run: Any, store: str, s3: S3Server, bucket: str) -> None:
    for _ in range(2):  # the second one replaces the first
        ran = run("report", store, "-o", f"{bucket}/reports/today.html")
        assert (ran.code, ran.out) == (0, f"written: {bucket}/reports/today.html\n")
    files = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    page = files.cat_file(f"{bucket}/reports/today.html").decode()
    assert page.startswith("<!doctype html>")
    assert store in page
    ran = run("report", store, "-o", "no-such-store://b/today.html")
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "No file system for the scheme 'no-such-store'" in ran.err


def test_a_migration_reads_files_that_moved(run: Any, tmp_path: Path) -> None:
    source = golden("a-rocksdb-checkpoint-incremental")
    job = tmp_path / "moved" / source.parent.name
    shutil.copytree(source.parent, job)
    elsewhere = tmp_path / "elsewhere"
    (job / "shared").rename(elsewhere)
    file = tmp_path / "m.yaml"
    file.write_text(
        f"migration: 1\nfrom: {job / source.name}\noperators: {{a-keyed: {{drop: [cnt]}}}}\n"
    )
    ran = run("migrate", "apply", str(file), str(tmp_path / "out"))
    assert ran.code == 2
    assert "--relocate" in ran.err or "no such file" in ran.err
    old = next(
        handle.path.rpartition("/shared/")[0] + "/shared"
        for handle in _shared_handles(job / source.name)
    )
    ran = run(
        "migrate", "apply", str(file), str(tmp_path / "out"), "--relocate", f"{old}={elsewhere}"
    )
    assert ran.code == 0, ran.err
    states = {line.get("state") for line in run("dump", str(tmp_path / "out")).lines}
    whole = {line.get("state") for line in run("dump", str(source)).lines}
    assert states == whole - {"cnt"}


def _shared_handles(folder: Path) -> list[Any]:
    from dstl_core import Snapshot
    from dstl_core.model.handle import FileStateHandle

    [operator] = [each for each in Snapshot.load(folder).operators if each.keyed_handles]
    return [
        stream
        for handle in operator.keyed_handles
        for _, stream in handle.shared  # type: ignore[attr-defined]  # handles of RocksDB
        if isinstance(stream, FileStateHandle)
    ]


ELSEWHERE_IS_NOTHING = {"gc", "warm", "erase"}
"""Commands that read no state, or that of a pipeline, which has its files in its folder."""


def test_every_command_that_reads_takes_the_options_for_files_elsewhere() -> None:
    group = typer.main.get_command(app)
    migrate = group.commands["migrate"]  # type: ignore[attr-defined]  # a group
    commands = {**group.commands, **migrate.commands}  # type: ignore[attr-defined]  # as above
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands.items()
        if name not in ELSEWHERE_IS_NOTHING | {"migrate"}
    }
    needed = {"--allow-root", "--relocate", "--changelog-base"}
    assert {name: needed - own for name, own in options.items() if needed - own} == {}
