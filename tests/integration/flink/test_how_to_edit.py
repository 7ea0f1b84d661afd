"""The how-to "Change a 1 TB job without copying it": its commands run, and real Flink restores what
they write.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core import Snapshot
from tests.docs.fences import ROOT, blocks_of
from tests.docs.running import PageRun
from tests.golden_files import Fixture, snapshot
from tests.integration.flink.checker import Entry, FlinkChecker, Operator
from tests.integration.flink.model import texts
from tests.integration.flink.test_columnar_savepoints import named, operators
from tests.integration.flink.test_edits_without_data import digests

pytestmark = pytest.mark.flink

PAGE = "docs/how-to/edit-without-copying.md"
JOB = "94ee8bb4a62d2cde06306c091e999da9"
UPDATE: Entry = {"key": "a new one", "state": "m", "do": "put", "map_key": "x", "value": 7}


def test_flink_restores_what_the_page_writes(
    flink: FlinkChecker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: None
) -> None:
    monkeypatch.chdir(tmp_path)
    PageRun(tmp_path).run(blocks_of(PAGE, (ROOT / PAGE).read_text()))
    golden = snapshot("a-rocksdb-checkpoint-incremental")
    truth = Fixture(golden.parents[2]).truth
    [old] = operators(Fixture(golden.parents[2]))
    accounts = replace(old, uid="accounts")
    before = digests(tmp_path / JOB)

    check(flink, tmp_path / "renamed", accounts, truth, "NO_CLAIM")
    check(flink, tmp_path / "out" / "shared", accounts, truth, "NO_CLAIM")
    check(flink, tmp_path / "out" / "copied", accounts, truth, "CLAIM")
    assert not (tmp_path / "out" / "copied" / "_metadata").exists()

    left = [state for state in old.states if state.name != "names"]
    states = [replace(s, name="visits") if s.name == "cnt" else s for s in left]
    expected = [
        {**entry, "state": "visits"} if entry.get("state") == "cnt" else entry
        for entry in truth
        if entry.get("state") != "names"
    ]
    check(flink, tmp_path / "states", replace(old, states=states), expected, "NO_CLAIM")
    assert digests(tmp_path / JOB) == before


def check(
    flink: FlinkChecker, path: Path, operator: Operator, expected: list[Entry], claim: str
) -> None:
    """It is restored at another parallelism, and the job goes on from its own checkpoints."""
    restored = flink.restore(
        path,
        [operator],
        backend="rocksdb",
        parallelism=3,
        updates=[{"op": operator.uid, **UPDATE}],
        checkpoints=2,
        claim_mode=claim,
    )
    assert texts(named(restored.entries)) == texts(named(expected))
    last = Snapshot.load(restored.checkpoints[-1])
    new = [line for line in last[str(operator.uid)].dump() if line["key"] == UPDATE["key"]]
    assert [line["value"] for line in new] == [[["x", 7]]]
    assert len(list(last[str(operator.uid)].dump())) == len(expected) + 1
