"""A rewrite leaves all elements of a list or union state out, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.errors import NoSuchStateError
from dstl_core.savepoint import OperatorSnapshot
from dstl_core.savepoint.edit.element_edits import DistinctElements, EmptiedStates
from tests.command_line import run
from tests.golden_files import UNION_GROWTH, snapshot

__all__ = ["run"]


def contents(operator: OperatorSnapshot) -> list[tuple[str, Any]]:
    """States and their values. The elements of a union state have no order."""
    return [
        (line["state"], sorted(line["value"]) if isinstance(line["value"], list) else line["value"])
        for line in operator.dump()
    ]


@pytest.mark.parametrize("kind", ["op-list", "op-union"])
def test_other_states_and_other_operators_stay(tmp_path: Path, kind: str) -> None:
    source = Snapshot.load(snapshot("o-opstate-p4"))
    operator, name = next(
        (operator, info.name)
        for operator in source.operators
        for info in operator.operator_states
        if info.kind == kind
    )
    before = contents(operator)
    assert any(state == name for state, _ in before)
    out = rewrite_savepoint(
        source, tmp_path / "out", edits=[EmptiedStates([(operator.label, name)])]
    )
    after = Snapshot.load(out)
    assert contents(after[operator.label]) == [
        (state, [] if state == name else value) for state, value in before
    ]
    for other in source.operators:
        if other.label != operator.label:
            assert contents(after[other.label]) == contents(other)


def test_the_command_says_how_many_elements_go(run: Any, tmp_path: Path) -> None:
    ran = run(
        "rewrite",
        str(UNION_GROWTH / "restored"),
        str(tmp_path / "out"),
        "--empty-state=writer/commit_user_state",
    )
    assert (ran.code, ran.err) == (0, "")
    assert "empty writer states commit_user_state elements 16 -> 0" in ran.out.splitlines()
    assert Snapshot.load(tmp_path / "out")["writer"].union("commit_user_state") == []


@pytest.mark.parametrize(
    ("edit", "operator", "state", "sentence"),
    [
        (EmptiedStates, "c-broadcast", "rules", "out of none, got 'rules', an op-broadcast state"),
        (EmptiedStates, "c-broadcast", "last", "out of none, got 'last', a value state"),
        (EmptiedStates, "src", "last", "out of none, got no state 'last'"),
        (EmptiedStates, "c-list", "tx", "out of 'buf', 'offs', 'txt', got no state 'tx'"),
        (DistinctElements, "c-list", "buf", "a union state out of 'offs', got 'buf', an op-list"),
    ],
)
def test_a_state_without_such_elements_is_refused_by_its_kind(
    edit: Any, operator: str, state: str, sentence: str
) -> None:
    source = Snapshot.load(snapshot("c-opstate-hashmap"))
    with pytest.raises(NoSuchStateError, match=f"Operator '{operator}' has .*{sentence}"):
        edit_savepoint(source, edit([(operator, state)]))
