"""Operator state of Flink 1.18 whose elements share chunks: read, judged and rewritten."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.restores.restore_check import check_restore
from dstl_core.state.tables.compatibility import Verdict
from tests.command_line import run
from tests.golden_files import COMPRESSED_OPERATOR_STATE

__all__ = ["run"]

OPERATOR = "b29ed8d5f86bace1e426523538f9d5e5"
BY_FLINK = [COMPRESSED_OPERATOR_STATE / version for version in ("1.18.0", "1.18.1")]
SPLITS = [
    {
        "op": OPERATOR,
        "kind": "op-list",
        "state": "splits",
        "subtask": subtask,
        "value": [f"split-{subtask}-{number}" for number in range(6)],
    }
    for subtask in range(2)
]


def offsets(path: str | os.PathLike[str]) -> list[tuple[int, ...]]:
    operator = Snapshot.load(path)[OPERATOR]
    return [
        info.offsets for _, handle, _ in operator.operator_state_readers() for info in handle.states
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", BY_FLINK, ids=lambda path: path.name)
def test_every_way_of_writing_gives_each_element_its_place(
    run: Any, path: Path, tmp_path: Path
) -> None:
    assert [len(set(each)) for each in offsets(path)] == [1, 1]
    assert run("dump", str(path)).lines == SPLITS
    assert run("verify", str(path)).code == 0
    for arguments in (
        ("rewrite",),
        ("rewrite", "--rename", f"{OPERATOR}=source"),
        ("upgrade", "--to", "2.2"),
    ):
        command, *options = arguments
        out = str(tmp_path / "-".join(arguments).replace("=", "-"))
        assert run(command, str(path), out, *options).code == 0
        label = "source" if "--rename" in arguments else OPERATOR
        assert run("dump", out).lines == [each | {"op": label} for each in SPLITS]
        if label == OPERATOR:
            assert [len(set(each)) for each in offsets(out)] == [6, 6]
            assert run("check", out, "--expect", out, "--to", "2.2").code == 0


@pytest.mark.parametrize("path", BY_FLINK, ids=lambda path: path.name)
def test_a_check_and_a_plan_of_an_upgrade_see_them(run: Any, path: Path, tmp_path: Path) -> None:
    ran = run("check", str(path), "--expect", str(path), "--to", "2.2")
    assert ran.code == 1
    assert f"incompatible: {OPERATOR} op-list splits: elements share compressed chunks" in ran.out
    ran = run("upgrade", str(path), "--plan")
    assert (ran.code, ran.err) == (0, "")
    assert "each element gets a place of its own" in ran.out


def test_a_state_that_may_be_lost_may_also_be_read_wrong(tmp_path: Path) -> None:
    source = Snapshot.load(BY_FLINK[0])
    assert check_restore(source, source).verdict is Verdict.INCOMPATIBLE
    dropped = check_restore(source, source, drop=[f"{OPERATOR}/splits"])
    assert dropped.verdict is Verdict.COMPATIBLE_AS_IS


def test_an_upgrade_in_one_call_converts_them_once(tmp_path: Path) -> None:
    upgrade = SavepointUpgrade(Snapshot.load(BY_FLINK[1]), "2.2")
    [step] = upgrade.plan()
    assert (step.action, step.old, step.new) == ("convert", "String", "String")
    out = upgrade.write(tmp_path / "out")
    assert offsets(out) == offsets(rewrite_savepoint(Snapshot.load(BY_FLINK[1]), tmp_path / "r"))
