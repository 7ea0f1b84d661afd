"""Operator state over other parallelisms: the tables of real Flink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstl_core.checkpoint.coordination.repartition import (
    java_hash_map_order,
    repartition_operator_state,
)
from dstl_core.errors import ConfigError, RestoreError
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    OperatorStateMetaInfo,
    OperatorStateMode,
    OperatorStreamStateHandle,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "operator-state-redistribution" / "cases.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
SPLIT, UNION, BROADCAST = (
    OperatorStateMode.SPLIT_DISTRIBUTE,
    OperatorStateMode.UNION,
    OperatorStateMode.BROADCAST,
)


def handle(
    name: str, states: dict[str, tuple[OperatorStateMode, list[int]]]
) -> OperatorStreamStateHandle:
    return OperatorStreamStateHandle(
        tuple(
            OperatorStateMetaInfo(state, mode, tuple(offsets))
            for state, (mode, offsets) in states.items()
        ),
        ByteStreamStateHandle(name, b""),
    )


def plain(handles: tuple[OperatorStreamStateHandle, ...]) -> dict[str, Any]:
    """What the golden file says of one subtask."""
    by_stream = {}
    for state_handle in handles:
        assert isinstance(state_handle.stream, ByteStreamStateHandle)
        by_stream[state_handle.stream.handle_name] = {
            state.name: [state.mode.name, list(state.offsets)] for state in state_handle.states
        }
    return by_stream


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_element_goes_where_flink_sends_it(case: dict[str, Any]) -> None:
    previous = [
        [
            handle(
                name, {state: (OperatorStateMode[mode], at) for state, (mode, at) in states.items()}
            )
            for name, states in subtask.items()
        ]
        for subtask in case["before"]
    ]
    repartitioned = repartition_operator_state(previous, case["new_parallelism"])
    assert [plain(handles) for handles in repartitioned] == case["after"]


def letters(
    counts: dict[str, int], mode: OperatorStateMode, new_parallelism: int
) -> list[list[str]]:
    """Elements A0, A1.. of old subtasks A, B.., by new subtask."""
    previous = [[handle(name, {"s": (mode, list(range(n)))})] for name, n in counts.items()]
    repartitioned = repartition_operator_state(previous, new_parallelism)
    return [
        [f"{name}{at}" for name, states in plain(handles).items() for at in states["s"][1]]
        for handles in repartitioned
    ]


def test_the_table_of_split_state() -> None:
    counts = {"A": 4, "B": 3, "C": 2}
    assert letters(counts, SPLIT, 2) == [
        ["A0", "A1", "A2", "A3", "B0"],
        ["B1", "B2", "C0", "C1"],
    ]
    assert letters(counts, SPLIT, 4) == [
        ["A0", "A1", "A2"],
        ["A3", "B0"],
        ["B1", "B2"],
        ["C0", "C1"],
    ]
    assert letters(counts, SPLIT, 3) == [
        ["A0", "A1", "A2", "A3"],
        ["B0", "B1", "B2"],
        ["C0", "C1"],
    ]


@pytest.mark.parametrize("new_parallelism", [1, 2, 3])
def test_the_table_of_union_state(new_parallelism: int) -> None:
    everything = ["A0", "A1", "B0"]
    for own in letters({"A": 2, "B": 1}, UNION, new_parallelism):
        # At the same parallelism a subtask's own part comes first.
        assert sorted(own) == everything


def test_the_table_of_broadcast_state() -> None:
    assert letters({"A": 1, "B": 1}, BROADCAST, 3) == [["A0"], ["B0"], ["A0"]]
    assert letters({"A": 1, "B": 1}, BROADCAST, 1) == [["A0"]]
    assert letters({"A": 1, "B": 1}, BROADCAST, 2) == [["A0"], ["B0"]]


def test_a_subtask_without_state_gets_its_share() -> None:
    assert repartition_operator_state([[], []], 3) == [(), (), ()]
    assert letters({"A": 0, "B": 3}, SPLIT, 3) == [["B0"], ["B1"], ["B2"]]


def test_names_come_in_javas_order() -> None:
    # Of a HashMap<String, ..> in Java; Aa and BB have the same hash.
    assert java_hash_map_order(["x", "a", "Aa", "BB"]) == ["Aa", "BB", "a", "x"]
    assert java_hash_map_order(["BB", "Aa"]) == ["BB", "Aa"]


def test_no_subtasks() -> None:
    with pytest.raises(ConfigError, match="must be 1 or more, got 0"):
        repartition_operator_state([], 0)


def test_elements_with_one_offset_are_not_separated() -> None:
    # As compressed state of Flink 1.18 has them: a handle cannot say which of them it means.
    previous = [[handle("s", {"a": (SPLIT, [50, 50, 90, 90])})]]
    [two, _] = repartition_operator_state(previous, 2)
    assert plain(two) == {"s": {"a": ["SPLIT_DISTRIBUTE", [50, 50]]}}
    assert repartition_operator_state(previous, 1) == [tuple(previous[0])]
    with pytest.raises(RestoreError, match=r"'a' cannot be spread .* several have the offset 50"):
        repartition_operator_state(previous, 4)
