"""Real Flink restores what was read as columns and written from them, and its own savepoint of that
is read again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.columnar_copies import copy_through_columns
from tests.golden_files import SNAPSHOTS, Fixture
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State, TimerService
from tests.integration.flink.model import texts

pytestmark = pytest.mark.flink

KNOWN = re.compile(r"^(string|long|int|double|float|boolean|tuple|list|map|[<>,])*$")


def states(described: list[dict[str, Any]], prefix: str = "") -> list[State]:
    return [
        State(
            state["name"],
            prefix + state["kind"],
            state["type"],
            state.get("keyType"),
            state.get("ns", "void"),
            state.get("ttlMs", 0),
        )
        for state in described
    ]


def operators(fixture: Fixture) -> list[Operator]:
    """The operators of a fixture as the checker declares them."""
    declared = []
    for operator in fixture.descriptor["operators"]:
        timers = [
            TimerService(t["service"], t.get("ns", "void")) for t in operator.get("timers", [])
        ]
        declared.append(
            Operator(
                operator.get("uid"),
                operator.get("keyType"),
                states(operator.get("states", [])),
                timers,
                states(operator.get("operatorStates", []), "op-"),
                None if operator.get("uid") else operator["uidHash"],
            )
        )
    return declared


def is_declarable(fixture: Fixture) -> bool:
    """Whether the checker has all its types (it has no classes of a job)."""
    for operator in operators(fixture):
        declared = [*operator.states, *operator.operator_states]
        types = [operator.key or "", *(state.type for state in declared)]
        types += [state.map_key or "" for state in declared]
        namespaces = {state.ns for state in declared} | {timer.ns for timer in operator.timers}
        if not all(map(KNOWN.match, types)) or not namespaces <= {"void", "timewindow"}:
            return False
    return True


DECLARABLE = [fixture for fixture in SNAPSHOTS if is_declarable(fixture)]
NO_COLUMNS = {
    "x-unaligned-hashmap",
    "a-rocksdb-heaptimers-checkpoint",
    "forst-async-checkpoint",
}
"""In-flight data, and timers in raw keyed state."""
FIXTURES = [fixture for fixture in DECLARABLE if fixture.name not in NO_COLUMNS]


def named(entries: list[Entry]) -> list[Entry]:
    """Without the operator, which is a uid or its hash, and the number of the subtask. The parts of
    a union list come in the order of the hashes of their handles' random names; where a map's keys
    have lone surrogates, the checker's order is another than the dump's.
    """
    kept = [
        {name: value for name, value in entry.items() if name not in ("op", "subtask")}
        for entry in entries
    ]
    for entry in kept:
        if entry["kind"] in ("op-union", "map"):
            entry["value"] = sorted(entry["value"], key=repr)
    return kept


@pytest.mark.parametrize(("backend", "compressed"), [("hashmap", True), ("rocksdb", False)])
@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
def test_flink_restores_what_was_written_from_columns(
    flink: FlinkChecker, tmp_path: Path, fixture: Fixture, backend: str, compressed: bool
) -> None:
    source = Snapshot.load(fixture.snapshot)
    ours = copy_through_columns(source, tmp_path / "ours", compressed=compressed)
    parallelism = 3 if source.operators[0].parallelism != 3 else 2
    if any(each.operator_states for each in operators(fixture)):
        # Lists are dealt out anew if the number of subtasks changes.
        parallelism = max(each.parallelism for each in source.operators)

    restored = flink.restore(
        ours,
        operators(fixture),
        backend=backend,
        parallelism=parallelism,
        savepoint_to=tmp_path / "theirs",
    )

    assert texts(named(restored.entries)) == texts(named(fixture.truth))
    assert restored.savepoint is not None
    again = Snapshot.load(restored.savepoint)
    copied = Snapshot.load(copy_through_columns(again, tmp_path / "again"))
    lines = [line for each in copied.operators for line in each.dump()]
    assert texts(named(lines)) == texts(named(restored.entries))


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_timers_that_were_written_from_columns_fire(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    fixture = next(each for each in FIXTURES if each.name == "a-hashmap-canonical")
    ours = copy_through_columns(Snapshot.load(fixture.snapshot), tmp_path / "ours")
    end_of_time = 2**63 - 1

    expected = flink.restore(fixture.snapshot, operators(fixture), watermark=end_of_time).fired
    fired = flink.restore(
        ours, operators(fixture), backend=backend, parallelism=2, watermark=end_of_time
    ).fired

    assert expected
    assert texts(fired) == texts(expected)
