"""Union states that multiply with each restore: the report names them, a rewrite shrinks them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.errors import NoSuchStateError
from dstl_core.savepoint.report.contents import UnionCounts
from tests.command_line import is_one_sentence, run
from tests.golden_files import UNION_GROWTH, snapshot

__all__ = ["run"]

RESTORED = str(UNION_GROWTH / "restored")


def test_the_report_names_the_state_and_a_command_that_shrinks_it(run: Any, tmp_path: Path) -> None:
    figures = json.loads(run("report", RESTORED, "--json").out)
    [finding] = [each for each in figures["attention"] if "union" in each["what"]]
    assert finding["operator"] == "writer"
    assert finding["what"].startswith(
        "union state commit_user_state holds 16 equal elements, at parallelism 4: it multiplies "
    )
    program, *arguments = shlex.split(finding["command"])
    assert (program, arguments[2]) == ("dstl", "OUT")
    out = str(tmp_path / "out")
    ran = run(*(out if each == "OUT" else each for each in arguments))
    assert (ran.code, ran.err) == (0, "")
    assert "distinct writer states commit_user_state elements 16 -> 1" in ran.out.splitlines()
    assert Snapshot.load(out)["writer"].union("commit_user_state") == ["6f1c-user"]
    assert "commit_user_state" in Path(RESTORED, "_metadata").read_bytes().decode("latin-1")
    assert Snapshot.load(RESTORED)["writer"].union("commit_user_state") == ["6f1c-user"] * 16


def test_the_report_is_silent_where_every_subtask_stored_its_own_element(run: Any) -> None:
    for path in (UNION_GROWTH / "first", snapshot("c-opstate-hashmap"), snapshot("o-opstate-p4")):
        figures = json.loads(run("report", str(path), "--json").out)
        assert [each for each in figures["attention"] if "union" in each["what"]] == []


@pytest.mark.parametrize(
    ("subtasks", "distinct", "copies"),
    [
        ([[b"a"] * 4] * 4, 1, 4),
        ([[b"a", b"b", b"a", b"b"], [b"b", b"a", b"c", b"a", b"b"]], 3, 2),
        ([[b"a"], [b"a"]], 1, 1),
        ([[b"a", b"a"], [b"b", b"b"]], 2, 0),
        ([[b"a", b"a"], []], 1, 0),
        ([[], []], 0, 0),
    ],
)
def test_copies_are_those_that_every_subtask_has(
    subtasks: list[list[bytes]], distinct: int, copies: int
) -> None:
    counts = UnionCounts(len(subtasks))
    for elements in subtasks:
        counts.add_subtask(elements)
    assert (counts.distinct, counts.copies) == (distinct, copies)


def test_a_subtask_without_state_has_no_copies() -> None:
    counts = UnionCounts(2)
    counts.add_subtask([b"a", b"a"])
    assert counts.copies == 0


def test_only_a_union_state_loses_equal_elements(run: Any, tmp_path: Path) -> None:
    source, out = snapshot("c-opstate-hashmap"), tmp_path / "out"
    [operator] = [each for each in Snapshot.load(source).operators if each.label == "c-list"]
    [name, *_] = [info.name for info in operator.operator_states if info.kind == "op-list"]
    with pytest.raises(NoSuchStateError, match=f"'c-list' has .*got '{name}', an op-list"):
        rewrite_savepoint(Snapshot.load(source), out, distinct=[("c-list", name)])
    ran = run("rewrite", str(source), str(out), "--distinct", f"c-list/{name}")
    assert ran.code == 2
    assert is_one_sentence(ran.err)
    ran = run("rewrite", str(source), str(out), "--distinct", name)
    assert (ran.code, ran.err) == (
        2,
        f"dstl: --distinct is wrong: expected OP/STATE, got {name!r}.\n",
    )


def test_different_elements_and_other_states_stay(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("o-opstate-p4"))
    [(operator, name)] = [
        (operator, info.name)
        for operator in source.operators
        for info in operator.operator_states
        if info.kind == "op-union"
    ][:1]
    out = rewrite_savepoint(source, tmp_path / "out", distinct=[(operator.label, name)])
    before, after = (
        {(line["state"], line.get("subtask")): line["value"] for line in writer.dump()}
        for writer in (operator, Snapshot.load(out)[operator.label])
    )
    assert sorted(after[name, None]) == sorted(before[name, None])  # all are different
    assert {key: value for key, value in after.items() if key[0] != name} == {
        key: value for key, value in before.items() if key[0] != name
    }
