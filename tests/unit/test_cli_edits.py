"""The commands that change: rewrite, gc."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.command_line import run
from tests.golden_files import as_lines, snapshot

CANONICAL = str(snapshot("a-hashmap-canonical"))
INCREMENTAL = str(snapshot("a-rocksdb-native-incremental"))


__all__ = ["run"]


@pytest.mark.slow
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
    assert "--overwrite" in error
    assert "mode=" not in error
    assert run("rewrite", INCREMENTAL, out, "--overwrite", "--json")[0] == 0
    assert run("diff", INCREMENTAL, out)[0] == 0


@pytest.mark.slow
def test_rewrite_splits_and_merges(run: Any, tmp_path: Path) -> None:
    apart, back = str(tmp_path / "apart"), str(tmp_path / "back")
    timers = "_timer_state/event_user-timers"
    splits = [f"--split=a-keyed/{state}=away" for state in ("cnt", "names", timers)]
    code, text, _ = run("rewrite", INCREMENTAL, apart, *splits, "--dry-run")
    assert (code, (tmp_path / "apart").exists()) == (0, False)
    assert f"split a-keyed to away states {timers}, cnt, names" in text
    assert run("rewrite", INCREMENTAL, apart, *splits)[0] == 0
    split, source = Snapshot.load(apart), Snapshot.load(INCREMENTAL)
    assert {each.name for each in split["away"].states} == {"cnt", "names", timers}
    assert split["away"].uid == "away"
    assert not {each.name for each in split["a-keyed"].states} & {"cnt", "names", timers}

    code, text, _ = run("rewrite", apart, back, "--merge", "away=a-keyed")
    assert (code, "merge away into a-keyed" in text) == (0, True)
    assert as_lines(Snapshot.load(back)["a-keyed"].dump()) == as_lines(source["a-keyed"].dump())
    assert run("diff", INCREMENTAL, back)[0] == 0


def test_rewrite_doubles_no_state(run: Any, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for arguments, message in [
        (["--split=a-keyed/cnt=one", "--split=a-keyed/cnt=two"], "is moved twice"),
        (["--split=a-keyed/nothing=one"], "State 'nothing' is not in operator 'a-keyed'"),
        (["--split=nobody/cnt=one"], "nobody"),
        (["--split=a-keyed=one"], "expected OP/STATE=NEW"),
        (["--split=a-keyed/cnt=sink"], "already contains sink"),
        (["--merge=a-keyed=nobody"], "nobody"),
        (["--merge=a-keyed=a-keyed"], "with itself"),
        (["--merge=a-keyed"], "expected OP=INTO"),
    ]:
        code, _, error = run("rewrite", CANONICAL, out, *arguments)
        assert (code, message in error) == (2, True), error
    assert not (tmp_path / "out").exists()


def test_gc_lists(run: Any, tmp_path: Path) -> None:
    run("rewrite", str(snapshot("a-hashmap-canonical-files")), str(tmp_path / "out"))
    code, text, _ = run("gc", str(tmp_path), "--older-than", "0s", "--json")
    report = json.loads(text)
    assert (code, report["garbage"], report["snapshots"]) == (0, [], 1)
    code, _, error = run("gc", str(tmp_path), "--older-than", "soon")
    assert (code, "An age is wrong" in error) == (2, True)
