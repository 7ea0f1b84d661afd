"""``dstl ls``, and what a command says about a folder that only holds snapshots."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dstl_core.clock import SystemClock
from tests.command_line import is_one_sentence, run
from tests.golden_files import snapshot

__all__ = ["run"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A job with three checkpoints, whose folder of state also has a ``_metadata``, and a
    savepoint beside it.
    """
    checkpoint = snapshot("a-hashmap-checkpoint")
    for number in (1, 2, 10):
        shutil.copytree(checkpoint, tmp_path / "job" / f"chk-{number}")
    shutil.copytree(checkpoint, tmp_path / "job" / "shared" / "not-searched")
    shutil.copytree(snapshot("a-hashmap-canonical"), tmp_path / "savepoint")
    hour_ago = SystemClock().now_ms() / 1000 - 3700
    os.utime(tmp_path / "savepoint" / "_metadata", (hour_ago, hour_ago))
    (tmp_path / "link").symlink_to(tmp_path / "savepoint")
    return tmp_path


def test_ls_lists_snapshots_by_number(run: Any, base: Path) -> None:
    ran = run("ls", str(base))
    assert (ran.code, ran.err) == (0, "")
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0][:3] == ["snapshot", "kind", "checkpoint"]
    assert [row[0] for row in rows[1:]] == ["job/chk-1", "job/chk-2", "job/chk-10", "savepoint"]
    assert "Savepoint CANONICAL" in ran.out.splitlines()[-1]
    assert "1 h ago" in ran.out.splitlines()[-1]
    assert "21.6 KiB" in ran.out.splitlines()[-1]


def test_json_has_exact_values(run: Any, base: Path) -> None:
    ran = run("ls", str(base), "--json")
    assert (ran.code, ran.err) == (0, "")
    last = ran.lines[-1]
    metadata = base / "savepoint" / "_metadata"
    assert last.pop("modified_ms") == pytest.approx(metadata.stat().st_mtime * 1000, abs=1)
    assert last == {
        "path": f"file:{base}/savepoint",
        "name": "savepoint",
        "kind": "Savepoint",
        "format": "CANONICAL",
        "version": 6,
        "checkpoint_id": 1,
        "operators": 3,
        "bytes": 22157,
        "metadata_bytes": metadata.stat().st_size,
        "problem": None,
    }


def test_a_snapshot_that_cannot_be_read_is_listed(run: Any, base: Path) -> None:
    (base / "job" / "chk-2" / "_metadata").write_bytes(b"PAR1 nothing of ours")
    ran = run("ls", str(base))
    assert ran.code == 1
    assert is_one_sentence(ran.err)
    assert "Not a Flink _metadata file" in ran.err
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == [
        "job/chk-1",
        "job/chk-2",
        "job/chk-10",
        "savepoint",
    ]
    assert run("ls", str(base), "--json").lines[1]["problem"] in ran.err


def test_a_folder_without_snapshots(run: Any, tmp_path: Path) -> None:
    ran = run("ls", str(tmp_path))
    assert (ran.code, ran.out) == (0, "no snapshots\n")
    ran = run("ls", str(tmp_path / "missing"))
    assert ran.code == 2
    assert "There is no such folder" in ran.err


def test_a_command_names_the_snapshots_below_a_folder(run: Any, base: Path) -> None:
    ran = run("inspect", str(base))
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "There is no snapshot" in ran.err
    below = "Snapshots below it: job/chk-1, job/chk-2, job/chk-10, ..; `dstl ls` lists them all."
    assert below in ran.err


# ------------------------------------------------------------------------ stores out of reach


class Broken(MemoryFileSystem):
    """A file system whose client library is missing."""

    protocol = "brokenfs"
    cachable = False

    def __init__(self, **options: Any) -> None:
        raise OSError("no client library\n" + "dlopen failed\n" * 1000)


def test_a_missing_package_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adlfs", None)
    ran = run("inspect", "abfs://container/savepoint")
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "install adlfs: pip install 'dstl-core[azure]'" in ran.err


def test_a_client_that_does_not_start_is_one_short_sentence(run: Any) -> None:
    fsspec.register_implementation("brokenfs", Broken, clobber=True)
    ran = run("inspect", "brokenfs://host/savepoint")
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    assert "does not start on this machine (no client library)" in ran.err
    assert len(ran.err) < 400
