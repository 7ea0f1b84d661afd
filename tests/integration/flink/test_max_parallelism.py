"""Real Flink restores jobs whose chained operators must agree on their max parallelism."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.write.folder import SavepointFolder
from tests.golden_files import MAX_PARALLELISM, Fixture
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.model import Model, texts

pytestmark = pytest.mark.flink

BACKENDS = ("hashmap", "rocksdb")
UID = OperatorIdentifier.for_uid
SUM = [State("sum", "op-list", "long")]
COUNT = State("count", "value", "long")
FIRST = Operator("first", operator_states=SUM, source_uid="src")
KEYED = Operator("keyed", "long", [COUNT], timers=[TimerService()])
AFTER = Operator("after", operator_states=SUM, chained_to="keyed")
JOB = [FIRST, KEYED, AFTER]
"""The job of the golden savepoint: ``keyed`` and ``after`` share a vertex."""


def golden() -> Snapshot:
    return Snapshot.load(Fixture(MAX_PARALLELISM).snapshot)


def check_counts(entries: list[Entry]) -> None:
    """All 100 keys count 4, as the job's input says, and the sums have no lost element."""
    counts = {each["key"]: each["value"] for each in entries if each.get("state") == "count"}
    assert counts == dict.fromkeys(range(100), 4)
    for label in ("first", "after"):
        lists = [each["value"] for each in entries if each["op"] == label]
        assert sum(map(sum, lists)) == sum(number for number in range(400))


def splits(snapshot: Snapshot, out: Path) -> str:
    edit = edit_savepoint(snapshot).split_operator(UID("keyed"), UID("apart"), ["count"])
    return edit.with_max_parallelism(256).write(out)


def merges(snapshot: Snapshot, out: Path) -> str:
    splits(snapshot, out.with_name("split"))
    edit = edit_savepoint(Snapshot.load(out.with_name("split")))
    edit = edit.merge_operators(UID("apart"), UID("keyed"))
    return edit.write(out)


def migrates(snapshot: Snapshot, out: Path) -> str:
    declared = Migration.of({"migration": 1, "max_parallelism": 256})
    return SavepointMigration(declared, snapshot).write(out)


EDITS: dict[str, Callable[[Snapshot, Path], str]] = {
    "rewrite": lambda snapshot, out: rewrite_savepoint(snapshot, out, max_parallelism=256),
    "split": splits,
    "merge": merges,
    "migrate": migrates,
}


@pytest.fixture(scope="module", params=EDITS)
def edited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    edit = EDITS[request.param]
    return edit(golden(), tmp_path_factory.mktemp(request.param) / "out")


@pytest.mark.parametrize("max_parallelism", [None, 256], ids=["unset", "set"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_vertex_gets_one_number(
    flink: FlinkChecker, edited: str, backend: str, parallelism: int, max_parallelism: int | None
) -> None:
    job = JOB
    if UID("apart").operator_id in {each.operator_id for each in Snapshot.load(edited).operators}:
        apart = Operator("apart", "long", [COUNT])
        job = [FIRST, apart, replace(AFTER, chained_to="apart"), replace(KEYED, states=[])]

    restored = flink.restore(
        edited, job, backend=backend, parallelism=parallelism, max_parallelism=max_parallelism
    )

    check_counts(restored.entries)


def with_numbers(out: Path, numbers: dict[str, int]) -> str:
    """The rewritten savepoint with other numbers of some operators, as no writer leaves it."""
    written = Snapshot.load(rewrite_savepoint(golden(), out / "good", max_parallelism=256))
    operators = tuple(
        replace(
            operator.state, max_parallelism=numbers.get(operator.label, operator.max_parallelism)
        )
        for operator in written.operators
    )
    metadata = replace(written.metadata, operators=operators)
    return SavepointFolder(out / "bad").publish(metadata, {"kind": "test"})


@pytest.mark.parametrize("label", ["src", "first", "after"])
def test_flink_compares_operators_without_keyed_state(
    flink: FlinkChecker, tmp_path: Path, label: str
) -> None:
    bad = with_numbers(tmp_path, {label: 128})
    with pytest.raises(FlinkRestoreError, match="Max parallelism mismatch"):
        flink.restore(bad, JOB, parallelism=2, max_parallelism=256)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_vertex_with_two_numbers_loses_keys_or_fails(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    """The fact behind the rule: the last operator of the chain decides."""
    bad = with_numbers(tmp_path, {"after": 128})
    with pytest.raises(FlinkRestoreError, match="key group"):
        flink.restore(bad, JOB, backend=backend, parallelism=1)


SINGLE = Operator("single", "string", [State("n", "value", "long")], max_parallelism=1)
LISTED = Operator("listed", operator_states=SUM, max_parallelism=1)
PARALLEL = replace(SINGLE, uid="parallel", max_parallelism=None)
UPDATES: list[Entry] = [
    {"op": uid, "key": f"key-{number}", "state": "n", "do": "update", "value": number}
    for uid in ("single", "parallel")
    for number in range(50)
] + [{"op": "listed", "state": "sum", "do": "add", "value": 7}]


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators_that_must_not_be_parallel_stay_at_one(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    job = [SINGLE, LISTED, PARALLEL]
    taken = flink.restore(
        None, job, backend=backend, updates=UPDATES, savepoint_to=tmp_path
    ).savepoint
    assert taken is not None
    out = rewrite_savepoint(Snapshot.load(taken), tmp_path / "out", max_parallelism=256)

    restored = flink.restore(out, job, backend=backend, max_parallelism=256)

    models = [Model(each, SINGLE.states) for each in ("single", "parallel")]
    for model in models:
        model.apply(each for each in UPDATES if each["op"] == model.op)
    expected = [entry for model in models for entry in model.entries()]
    expected.append({"op": "listed", "kind": "op-list", "state": "sum", "subtask": 0, "value": [7]})
    assert texts(restored.entries, "kg") == texts(expected)


@pytest.mark.parametrize("label", ["single", "listed"])
def test_flink_refuses_another_number_where_the_job_sets_one(
    flink: FlinkChecker, tmp_path: Path, label: str
) -> None:
    job = [SINGLE, LISTED]
    taken = flink.restore(None, job, updates=[], savepoint_to=tmp_path).savepoint
    assert taken is not None
    loaded = Snapshot.load(taken)
    others = [each.label for each in loaded.operators if each.max_parallelism != 1]
    alone = rewrite_savepoint(loaded, tmp_path / "alone", remove=others)
    # All operators of this savepoint are at 1, so all of them change.
    out = rewrite_savepoint(Snapshot.load(alone), tmp_path / "out", max_parallelism=256)
    with pytest.raises(FlinkRestoreError, match="Max parallelism mismatch"):
        flink.restore(out, [each for each in job if each.uid == label], strict=False)
