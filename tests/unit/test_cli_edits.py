"""The commands that change: rewrite, gc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dstl_core.savepoint import Snapshot
from tests.command_line import run
from tests.golden_files import as_lines, snapshot

CANONICAL = str(snapshot("a-hashmap-canonical"))
INCREMENTAL = str(snapshot("a-rocksdb-native-incremental"))


__all__ = ["run"]


def test_rewrite_renames_removes_and_rescales(run: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    arguments = ["--rename", "a-keyed=new", "--remove", "sink", "--max-parallelism", "64"]
    code, text, _ = run("rewrite", INCREMENTAL, out, *arguments, "--dry-run")
    assert (code, (tmp_path / "out").exists()) == (0, False)
    assert "rename a-keyed as new" in text
    assert "max parallelism 128 -> 64" in text
    assert "rocksdb files -> canonical" in text
    assert run("rewrite", INCREMENTAL, out, *arguments)[0] == 0
    after = Snapshot.load(out)
    assert [each.uid for each in after.operators] == ["new", "src"]
    assert as_lines({**line, "op": "a-keyed", "kg": 0} for line in after["new"].dump()) == as_lines(
        {**line, "kg": 0} for line in Snapshot.load(INCREMENTAL)["a-keyed"].dump()
    )
    code, _, error = run("rewrite", INCREMENTAL, out)
    assert code == 2
    assert "already there" in error
    assert run("rewrite", INCREMENTAL, out, "--overwrite", "--json")[0] == 0
    assert run("diff", INCREMENTAL, out)[0] == 0


def test_gc_lists(run: Any, tmp_path: Path) -> None:
    run("rewrite", str(snapshot("a-hashmap-canonical-files")), str(tmp_path / "out"))
    code, text, _ = run("gc", str(tmp_path), "--older-than", "0s", "--json")
    found = json.loads(text)
    assert (code, found["garbage"], found["snapshots"]) == (0, [], 1)
    code, _, error = run("gc", str(tmp_path), "--older-than", "soon")
    assert (code, "An age is wrong" in error) == (2, True)
