"""Every writer of operators gives one max parallelism to a vertex, and every check asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dstl_core import Snapshot, check_restore, edit_savepoint, rewrite_savepoint
from dstl_core.errors import ConfigError
from dstl_core.model.checkpoint import OperatorState
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import JobDescription, JobOperator
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.restores.restore_result import RestoreResult
from dstl_core.savepoint.write.folder import SavepointFolder, StateFiles
from dstl_core.state.tables.compatibility import Verdict
from tests.golden_files import CONNECTORS, MAX_PARALLELISM, PLANTED, SNAPSHOTS, Fixture, snapshot

UID = OperatorIdentifier.for_uid
JOB = Fixture(MAX_PARALLELISM).snapshot
ALL = ["src", "first", "keyed", "after"]
SQL = "o-sql-window-topn"
"""Ten operators, four at 1: a global window with keyed state, what follows it, the sink."""


def golden() -> Snapshot:
    return Snapshot.load(JOB)


def numbers(path: str | Path) -> dict[str, int]:
    return {each.label: each.max_parallelism for each in Snapshot.load(path).operators}


class Bootstrap:
    """An operator without state, with the max parallelism that the savepoint gives it."""

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None,
    ) -> OperatorState:
        return OperatorState(identifier.operator_id, 1, max_parallelism, (), uid=str(identifier))


def with_numbers(source: Snapshot, folder: Path, own_numbers: dict[str, int]) -> Snapshot:
    """A copy of a savepoint without files whose operators have other numbers. Operators with fewer
    key groups than subtasks lose subtasks.
    """
    operators = []
    for operator in source.operators:
        number = own_numbers.get(operator.label, operator.max_parallelism)
        parallelism = min(operator.parallelism, number)
        subtasks = operator.state.subtasks[:parallelism]
        operators.append(
            replace(
                operator.state, max_parallelism=number, parallelism=parallelism, subtasks=subtasks
            )
        )
    metadata = replace(source.metadata, operators=tuple(operators))
    return Snapshot.load(SavepointFolder(folder).publish(metadata, {"kind": "test"}))


# --------------------------------------------------------------------------------- writers

EDITS: dict[str, Callable[[SavepointEdit], SavepointEdit]] = {
    "none": lambda edit: edit,
    "rename": lambda edit: edit.change_operator_identifier(UID("after"), UID("last")),
    "remove": lambda edit: edit.remove_operator(UID("first")),
    "split": lambda edit: edit.split_operator(UID("keyed"), UID("apart"), ["count"]),
    "split list": lambda edit: edit.split_operator(UID("after"), UID("apart"), ["sum"]),
    "merge": lambda edit: edit.merge_operators(UID("after"), UID("keyed")),
    "with operator": lambda edit: edit.with_operator(UID("new"), Bootstrap()),
}


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("number", [None, 2, 256])
@pytest.mark.parametrize("name", EDITS)
def test_an_edit_gives_one_number(
    tmp_path: Path, name: str, number: int | None, is_last: bool
) -> None:
    edit = edit_savepoint(golden())
    if number is not None and not is_last:
        edit = edit.with_max_parallelism(number)
    edit = EDITS[name](edit)
    if number is not None and is_last:
        edit = edit.with_max_parallelism(number)
    written = numbers(edit.write(tmp_path / "out"))
    assert len(written) >= 3
    assert set(written.values()) == {number or 128}


@pytest.mark.parametrize(
    "source",
    # Keys that are POJOs have no new key groups, and an unaligned checkpoint is no savepoint.
    [each for each in SNAPSHOTS if each.name not in ("x-keys-hashmap", "x-unaligned-hashmap")],
    ids=str,
)
def test_a_plan_names_every_operator_that_changes(source: Fixture) -> None:
    loaded = Snapshot.load(source.snapshot)
    stored = [each.max_parallelism for each in loaded.operators]
    wanted = 300
    plan = edit_savepoint(loaded).with_max_parallelism(wanted).plan()
    expected = [
        None if number == wanted or (number == 1 and set(stored) != {1}) else [number, wanted]
        for number in stored
    ]
    assert [each.get("max_parallelism") for each in plan] == expected


def of_operators(check: RestoreResult) -> list[str]:
    """The problems and doubts of operators that the job has."""
    lines = [each for each in check.lines if each.state is None and each.fate == "matched"]
    return [f"{each.operator}: {each.reason}" for each in lines]


@pytest.mark.parametrize("path", [snapshot(SQL), CONNECTORS / "c-global" / "savepoint"])
def test_operators_that_must_not_be_parallel_stay_at_one(tmp_path: Path, path: Path) -> None:
    before = numbers(path)
    assert set(before.values()) == {1, 128}
    out = rewrite_savepoint(Snapshot.load(path), tmp_path / "out", max_parallelism=256)
    assert numbers(out) == {label: 1 if number == 1 else 256 for label, number in before.items()}


def test_a_savepoint_whose_operators_are_all_at_one_changes(tmp_path: Path) -> None:
    kept = edit_savepoint(golden()).remove_operator(UID("keyed")).write(tmp_path / "in")
    one = with_numbers(Snapshot.load(kept), tmp_path / "one", dict.fromkeys(ALL, 1))
    out = rewrite_savepoint(one, tmp_path / "out", max_parallelism=256)
    assert numbers(out) == {"src": 256, "first": 256, "after": 256}


def test_an_operator_without_keyed_state_needs_key_groups_for_its_subtasks(tmp_path: Path) -> None:
    edit = edit_savepoint(golden()).remove_operator(UID("keyed")).with_max_parallelism(1)
    with pytest.raises(ConfigError, match=r"smaller than parallelism: 1 < 2 of operator 'first'"):
        edit.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_upgrade_keeps_the_numbers(tmp_path: Path) -> None:
    old = Snapshot.load(snapshot("a-hashmap-canonical-flink1.20.5"))
    written = numbers(SavepointUpgrade(old, "2.2").write(tmp_path / "out"))
    assert written == {each.label: each.max_parallelism for each in old.operators}


# ------------------------------------------------------------------------------- migrations


def migration(old: Snapshot, new: Snapshot | None, **declared: object) -> SavepointMigration:
    return SavepointMigration(Migration.of({"migration": 1, **declared}), old, new)


def rescaled(folder: Path, own_numbers: dict[str, int]) -> Snapshot:
    """The golden savepoint with these numbers; the keys are in their key groups."""
    out = rewrite_savepoint(golden(), folder / "keyed", max_parallelism=own_numbers["keyed"])
    return with_numbers(Snapshot.load(out), folder / "all", own_numbers)


@pytest.mark.parametrize(
    ("stored", "job", "wanted", "expected"),
    [
        pytest.param({}, {}, None, {}, id="kept"),
        pytest.param({}, {}, 256, dict.fromkeys(["first", "keyed", "after"], 256), id="declared"),
        pytest.param({"keyed": 64}, {"keyed": 64}, None, {"keyed": 64}, id="two vertices"),
        pytest.param({"keyed": 64}, {}, None, {}, id="now one vertex"),
        pytest.param({"first": 1}, {"first": 1}, 256, {"keyed": 256, "after": 256}, id="single"),
        pytest.param({}, {"after": 1}, None, {"after": 1}, id="now single"),
        pytest.param({"after": 1}, {}, None, {}, id="now parallel"),
    ],
)
def test_a_migration_gives_one_number(
    tmp_path: Path,
    stored: dict[str, int],
    job: dict[str, int],
    wanted: int | None,
    expected: dict[str, int],
) -> None:
    start = {**dict.fromkeys(ALL, wanted or 128), **job}
    old = rescaled(tmp_path / "old", {**dict.fromkeys(ALL, 128), **stored})
    new = rescaled(tmp_path / "new", start)
    declared = {} if wanted is None else {"max_parallelism": wanted}
    prepared = migration(old, new, **declared)
    assert prepared.plan.problems == []
    assert numbers(prepared.write(tmp_path / "out")) == {**start, **expected}


def test_a_declared_number_that_the_template_lacks_is_a_problem() -> None:
    problems = migration(golden(), golden(), max_parallelism=256).plan.problems
    assert [each.split()[1] for each in problems] == [each.label for each in golden().operators]
    sql = Snapshot.load(snapshot(SQL))
    columns = migration(sql, sql, max_parallelism=128).plan.problems
    assert not any("maxParallelism" in each for each in columns), "those at 1 stay there"


# ---------------------------------------------------------------------------------- checks


def test_the_check_sees_operators_without_keyed_state(tmp_path: Path) -> None:
    bad = with_numbers(golden(), tmp_path / "bad", {"src": 64})
    check = check_restore(bad, golden())
    [line] = [each for each in check.lines if each.verdict is Verdict.UNKNOWN]
    assert line.operator == "src"
    assert "the max parallelism is 64, and 128 in the new job" in line.reason
    assert line.reason.endswith(
        "dstl rewrite --max-parallelism 128 writes that number for all operators"
    )


def test_the_check_sees_a_vertex_with_two_numbers(tmp_path: Path) -> None:
    bad = with_numbers(golden(), tmp_path / "bad", {"after": 256})
    check = check_restore(bad, golden())
    assert not check.is_compatible
    [line] = [each for each in check.lines if each.operator == "keyed" and each.state is None]
    assert line.verdict is Verdict.UNKNOWN
    assert "(keyed 128, first 128, after 256)" in line.reason
    assert "keys can be lost without an error" in line.reason


@pytest.mark.parametrize("path", [snapshot(SQL), JOB, PLANTED / "canonical" / "savepoint"])
def test_what_flink_wrote_is_no_doubt(path: Path) -> None:
    [folder] = [each.parent for each in path.rglob("_metadata")]
    loaded = Snapshot.load(folder)
    assert of_operators(check_restore(loaded, loaded, columns_kept=True)) == []
    job = JobDescription(
        [JobOperator(OperatorIdentifier(each.operator_id)) for each in loaded.operators]
    )
    assert of_operators(check_restore(loaded, job, columns_kept=True)) == []


def test_a_job_that_sets_a_number_is_refused_for_every_operator() -> None:
    job = JobDescription([JobOperator(UID(each), max_parallelism=256) for each in ALL])
    assert of_operators(check_restore(golden(), job)) == [
        f"{operator.label}: max parallelism 128 cannot become 256 on restore; dstl rewrite "
        f"--max-parallelism 256 writes that number for all operators"
        for operator in golden().operators
    ]


@pytest.mark.parametrize(("stored", "wanted"), [(1, 256), (128, 1)])
def test_the_advice_never_names_a_rewrite_that_keeps_the_number(
    tmp_path: Path, stored: int, wanted: int
) -> None:
    single = with_numbers(golden(), tmp_path / "single", {"src": stored})
    job = JobDescription([JobOperator(UID("src"), max_parallelism=wanted)])
    [problem] = [each for each in of_operators(check_restore(single, job)) if each[:4] == "src:"]
    assert problem.endswith(f"give the operator the max parallelism {stored} in the job")


def test_an_unknown_job_doubts_a_vertex_with_two_numbers(tmp_path: Path) -> None:
    bad = with_numbers(golden(), tmp_path / "bad", {"after": 256})
    job = JobDescription([JobOperator(UID(each)) for each in ALL])
    [doubt] = of_operators(check_restore(bad, job))
    assert doubt.startswith("keyed: operators that may run in one vertex")
    heads = JobDescription([JobOperator(UID(each)) for each in ALL], is_complete=False)
    assert of_operators(check_restore(bad, heads)) == [], "a vertex has one head"
