"""Declared migrations: what real Flink's new job holds is what the migrated savepoint holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstl_core.errors import (
    ColumnValueError,
    ConfigError,
    NoSuchOperatorError,
    SavepointError,
    SnapshotExistsError,
)
from dstl_core.savepoint.edit.rewriting import Output
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.keyed_migration import KeyedMigration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.migrate.migration_plan import OperatorMigration
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan
from dstl_core.savepoint.migrate.proposal.proposal import propose
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import SavepointFolder
from tests.golden_files import CHANGED_JOBS as JOBS
from tests.golden_files import GOLDEN, snapshot

ROOT = Path(__file__).parents[3]
# What the new job holds after the old job's input, by real Flink 2.2.1.
EXPECTED: dict[str, list[dict[str, Any]]] = json.loads(
    (GOLDEN / "migrated-jobs" / "expected.json").read_bytes()
)


def migration_of(pair: str, declared: dict[str, Any], **options: Any) -> SavepointMigration:
    old, new = (Snapshot.load(JOBS / pair / each) for each in ("old", "new"))
    return SavepointMigration(Migration.of({"migration": 1, **declared}), old, new, **options)


def contents(folder: str | Path, *, places: bool = False) -> list[str]:
    """The entries as texts, without the names of operators, and without key groups."""
    kept_texts = []
    for operator in Snapshot.load(folder).operators:
        for line in operator.dump():
            kept = {name: each for name, each in line.items() if places or name not in ("op", "kg")}
            kept_texts.append(text_of(kept))
    return sorted(kept_texts)


def text_of(entry: dict[str, Any]) -> str:
    if entry["kind"] == "map":
        entry["value"] = sorted(entry["value"], key=json.dumps)
    return json.dumps(entry, sort_keys=True)


def texts(entries: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(map(text_of, entries))


@pytest.mark.slow
@pytest.mark.parametrize("pair", sorted(EXPECTED))
def test_the_new_job_gets_its_state(pair: str, tmp_path: Path) -> None:
    declared = Migration.load(ROOT / "examples" / "migrate" / f"{pair}.yaml")
    old, new = (Snapshot.load(JOBS / pair / each) for each in ("old", "new"))
    migration = SavepointMigration(declared, old, new, recompute=1.0)
    assert migration.plan.problems == []
    written = Snapshot.load(migration.write(tmp_path / "out"))
    keyed = {each.label: each.max_parallelism for each in written.operators if each.keyed_handles}
    assert migration.recomputed == keyed
    assert contents(tmp_path / "out") == texts(EXPECTED[pair])
    for operator in written.operators:
        target = new[f"hash:{operator.operator_id.hex}"]
        metas = {info.name: info.meta for info in target.states}
        assert {info.name: info.meta for info in operator.states} == (metas if metas else {})
    report = json.loads((tmp_path / "out" / "_migration.json").read_bytes())
    assert all(each["after"] <= each["before"] for each in report["states"])
    assert report["check"] == "compatible"
    with pytest.raises(SnapshotExistsError):
        migration.write(tmp_path / "out")
    migration.write(tmp_path / "out", mode="overwrite")
    assert contents(tmp_path / "out") == texts(EXPECTED[pair])


def test_there_and_back_gives_the_same_state(tmp_path: Path) -> None:
    forth = migration_of("key-type", {"operators": {"accounts": {"key": "cast(key, BIGINT)"}}})
    forth.write(tmp_path / "there")
    old, new = JOBS / "key-type" / "old", Snapshot.load(tmp_path / "there")
    declared = {"migration": 1, "operators": {"accounts": {"key": "cast(key, STRING)"}}}
    back = SavepointMigration(Migration.of(declared), new, Snapshot.load(old))
    back.write(tmp_path / "back")
    assert contents(tmp_path / "back", places=True) == contents(old, places=True)
    assert contents(tmp_path / "there", places=True) != contents(old, places=True)


@pytest.mark.slow
def test_the_same_migration_gives_the_same_bytes(tmp_path: Path) -> None:
    declared = {"operators": {"4_group-aggregate": {"key": ["cast(f0, BIGINT)"]}}}
    written = []
    for name in ("one", "two"):
        migration_of("key-widen", declared).write(tmp_path / name)
        [operator] = [
            candidate
            for candidate in Snapshot.load(tmp_path / name).operators
            if candidate.keyed_handles
        ]
        handles = operator.keyed_handles
        written.append([operator.snapshot.resolver.read(each.stream) for each in handles])  # type: ignore[union-attr]
    assert written[0] == written[1]


def test_an_aggregate_of_distinct_values_starts_empty(tmp_path: Path) -> None:
    """As the rows of a real job with DISTINCT have it: their RAW columns hold one byte 0."""
    old, new = (Snapshot.load(JOBS / "distinct-add" / each) for each in ("old", "new"))
    plans = [
        CompiledPlan.load(JOBS / "distinct-add" / f"{version}.plan.json")
        for version in ("old", "new")
    ]
    proposal = propose(old, new, plans=(plans[0], plans[1]))
    assert proposal.decisions == 0
    migration = SavepointMigration(Migration.of(dict(proposal.declaration)), old, new)
    aggregate = Snapshot.load(migration.write(tmp_path / "out"))["3_group-aggregate"]
    before = {each["key"][1]: each["value"] for each in old["4_group-aggregate"].dump()}
    real = Snapshot.load(snapshot("x-sql-distinct-minibatch-hashmap"))
    [empty] = {
        json.dumps(line["value"][-1])
        for operator in real.operators
        for line in operator.dump()
        if line.get("state") == "accState"
    }
    assert {each["key"][1]: each["value"] for each in aggregate.dump()} == {
        key: ["+I", count, 0, total, json.loads(empty)] for key, (_, count, total) in before.items()
    }


def test_a_result_that_the_new_job_would_not_restore_is_not_published(tmp_path: Path) -> None:
    migration = migration_of("agg-add", columns("f0", "f1", "f2", 0, None))
    assert migration.plan.problems == []
    migration.template = Snapshot.load(JOBS / "agg-add" / "old")  # somebody replaced the template
    with pytest.raises(SavepointError, match=r"would not restore .*incompatible: .* accState"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


FORMS = [
    "a-hashmap-p3-max17",
    "a-hashmap-native",
    "a-rocksdb-checkpoint-incremental",
    "a-hashmap-changelog-checkpoint-files",
    "a-hashmap-canonical-flink1.20.5",
    "a-rocksdb-checkpoint-incremental-flink2.0.2",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_state_migrates(name: str, tmp_path: Path) -> None:
    """Parallelism 3, native, incremental, a changelog, older Flink; there and back."""
    source = Snapshot.load(snapshot(name))
    for sql, java, path in (("STRING", "string", "texts"), ("BIGINT", "long", "numbers")):
        rule = {"value": f"cast(value, {sql})", "type": java}
        declared = {"operators": {"a-keyed": {"states": {"cnt": rule, "red": rule}}}}
        migration = SavepointMigration(Migration.of({"migration": 1, **declared}), source)
        assert migration.plan.problems == []
        source = Snapshot.load(migration.write(tmp_path / path))
        assert source["a-keyed"].state_info("cnt").type.lower() == java
    assert contents(tmp_path / "numbers", places=True) == contents(snapshot(name), places=True)
    assert contents(tmp_path / "texts") != contents(snapshot(name))


def test_keys_that_are_no_numbers_stop_the_migration(tmp_path: Path) -> None:
    declared = {"migration": 1, "operators": {"a-keyed": {"key": "cast(key, BIGINT)"}}}
    migration = SavepointMigration(Migration.of(declared), Snapshot.load(snapshot(FORMS[1])))
    with pytest.raises(ColumnValueError, match=r"does not fit: \d+ values of .*cast_or_null"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


AGGREGATE = "4_group-aggregate"


def columns(*expressions: object) -> dict[str, Any]:
    return {"operators": {AGGREGATE: {"states": {"accState": {"columns": list(expressions)}}}}}


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        (columns("f0", "f1", "f2", 0), "the new row has 5 columns"),
        (columns("f0", "f1", "f2", 0, "f9"), "there is no old column 'f9'"),
        (columns("f0", "f1", "f2", 0, "'x'"), "the constant 'x' is no value of type INT"),
        (columns("f0", "f1", "f2", 1.5, None), "the constant 1.5 is no value of type BIGINT"),
        (columns("f0", "f1", "f2", 0, "f0"), "BIGINT does not fit into INT in all cases"),
        (columns("f0", "f1", "f2", 0, "cast(f0, DATE)"), "never cast to DATE"),
        (columns("f0", "f1", "f2", 0, "???"), "a person has to decide"),
        (columns("f0", "f1", "f2", 0, "empty()"), "empty() is for a column of type RAW, got INT"),
        (columns("f0", "f1", "f2", 0, "sum(f1)"), "over the elements of a list state"),
        ({}, "does not become RowData"),
    ],
)
def test_a_wrong_declaration_is_found_before_anything_is_written(
    declared: dict[str, Any], says: str, tmp_path: Path
) -> None:
    migration = migration_of("agg-add", declared)
    assert any(says in each for each in migration.plan.problems), migration.plan.problems
    with pytest.raises(SavepointError, match="not ready"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ({"operators": {AGGREGATE: {"colums": []}}}, "has an unknown key 'colums'"),
        ({"operators": {"5_x": {}}}, "Operator '5_x' is not in the snapshot"),
        ({"operators": {AGGREGATE: {"states": {"acc": {}}}}}, "State 'acc' is not in operator"),
        (
            {"operators": {AGGREGATE: {"states": {"accState": {"from": "x"}}}}},
            "State 'x' is not in the old operator",
        ),
        (
            {
                "operators": {
                    AGGREGATE: {"states": {"accState": {"from": "accState"}}, "drop": ["accState"]}
                }
            },
            "name it once",
        ),
        ({"drop_operators": [AGGREGATE]}, "is dropped and becomes another one"),
        ({"drop_operators": ["a", "a"]}, "names 'a' twice"),
        ({"start_empty": ["a"]}, "start_empty names 'a'"),
        ({"migration": 2}, "no known version"),
        (columns("f0 +"), "is not an expression"),
        (columns("eval(f0)"), "expected one of the functions"),
        ({"operators": {AGGREGATE: {"on_collision": "add"}}}, "expected sum, min"),
    ],
)
def test_a_declaration_of_what_is_not_there(declared: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, NoSuchOperatorError), match=re.escape(says)):
        _ = migration_of("agg-add", declared).plan


def test_a_name_that_stands_twice(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("migration: 1\noperators:\n  a: {}\n  a: {}\n")
    with pytest.raises(ConfigError, match=r"names 'a' twice in one place \(line 4\)"):
        Migration.load(path)


def test_a_value_that_does_not_fit_is_counted(tmp_path: Path) -> None:
    """The keys are 'ada', 'bob', ..: no numbers. Keys are shown only if that is asked for."""
    declared = {"operators": {AGGREGATE: {"key": ["cast(f0, BIGINT)"]}}}
    pair = JOBS / "key-varchar" / "old", JOBS / "key-widen" / "new"
    old, new = map(Snapshot.load, pair)
    for show, text in ((False, r"5 values of .*--show-keys"), (True, r"keys: .*ada")):
        migration = SavepointMigration(
            Migration.of({"migration": 1, **declared}), old, new, show_keys=show
        )
        with pytest.raises(ColumnValueError, match=text) as error:
            migration.write(tmp_path / str(show))
        assert ("ada" in str(error.value)) is show
        assert not (tmp_path / str(show) / "_metadata").exists()


def test_keys_that_become_one_need_a_rule(tmp_path: Path) -> None:
    declared: dict[str, Any] = {AGGREGATE: {"from": "3_group-aggregate", "key": ["f0"]}}
    migration = migration_of("key-drop", {"operators": declared})
    with pytest.raises(SavepointError, match="a key comes more than once"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


def test_state_without_a_place_is_named() -> None:
    problems = migration_of("state-rename", {}).plan.problems
    assert any("add start_empty: [accounts/sum]" in each for each in problems)
    assert any("add drop: [total] to operator accounts" in each for each in problems)
    problems = migration_of("uid-forgotten", {}).plan.problems
    assert any("add drop_operators" in each for each in problems)


def test_the_plan_as_a_person_reads_it() -> None:
    declared = columns("f0", "f1", "f2", 0, None)
    text = "\n".join(migration_of("agg-add", declared).plan_lines())
    assert text.startswith("old -> new   4 operators kept, 1 changed, 0 dropped, 0 start empty")
    assert "f3 <- 0      new: from now on only" in text
    assert "without the migration Flink would say: StateMigrationException" in text
    assert text.endswith("nothing is lost.")


def values_of(folder: str | Path, state: str) -> dict[str, Any]:
    lines = Snapshot.load(folder)["a-keyed"].dump()
    return {each["key"]: each["value"] for each in lines if each.get("state") == state}


def test_kinds_of_state_change_and_change_back(tmp_path: Path) -> None:
    """A list is counted, a map is summed, a field is taken, a value becomes a map and a list."""
    folder = snapshot("a-hashmap-canonical")
    states = {
        "cnt": {"from": "names", "value": "count(value)"},
        "red": {"from": "m", "value": "sum(value)"},
        "m": {"from": "cnt", "kind": "map", "map_key": "cast(value, STRING)", "value": "value"},
        "names": {"from": "cnt", "kind": "list", "value": "'x'"},
    }
    declared = {"migration": 1, "operators": {"a-keyed": {"states": states, "drop": ["red"]}}}
    source = Snapshot.load(folder)
    SavepointMigration(Migration.of(declared), source, source).write(tmp_path / "out")
    names, maps, counts = (values_of(folder, each) for each in ("names", "m", "cnt"))
    values = {each: values_of(tmp_path / "out", each) for each in states}
    assert values["cnt"] == {key: len(each) for key, each in names.items()}
    assert values["red"] == {key: sum(n for _, n in each) for key, each in maps.items()}
    assert values["m"] == {key: [[str(each), each]] for key, each in counts.items()}
    assert values["names"] == {key: ["x"] for key in counts}


def test_lists_of_keys_that_become_one_are_joined(tmp_path: Path) -> None:
    folder = snapshot("a-hashmap-canonical")
    rule = {"key": "coalesce(null, 'one')", "drop": ["agg"], "on_collision": "sum"}
    declared = {"migration": 1, "operators": {"a-keyed": rule}}
    source = Snapshot.load(folder)
    SavepointMigration(Migration.of(declared), source, source).write(tmp_path / "out")
    names, counts = (values_of(folder, each) for each in ("names", "cnt"))
    values = {each: values_of(tmp_path / "out", each) for each in ("names", "cnt")}
    assert values["cnt"] == {"one": sum(counts.values())}
    assert sorted(values["names"]["one"]) == sorted(n for each in names.values() for n in each)


def test_a_merge_that_its_type_does_not_have() -> None:
    rule = {"from": "3_group-aggregate", "key": ["f0"]}
    for merge, says in (("sum", "2 rules"), ("error", "error stands alone")):
        rules = [merge, merge] + ["max"] * (merge == "error")
        states = {"accState": {"merge": rules}}
        declared = {"operators": {AGGREGATE: {**rule, "states": states}}}
        problems = migration_of("key-drop", declared).plan.problems
        assert any(says in each for each in problems), problems


def test_one_operator_becomes_two_and_two_become_one_again(tmp_path: Path) -> None:
    pair = JOBS / "split"
    declared = Migration.load(ROOT / "examples" / "migrate" / "split.yaml")
    old, new = Snapshot.load(pair / "old"), Snapshot.load(pair / "new")
    two = SavepointMigration(declared, old, new).write(tmp_path / "two")
    assert {"totals", "numbers"} <= {each.label for each in Snapshot.load(two).operators}
    back = {"migration": 1, "operators": {"accounts": {"from": ["totals", "numbers"]}}}
    one = SavepointMigration(Migration.of(back), Snapshot.load(two), old).write(tmp_path / "one")
    assert contents(one, places=True) == contents(pair / "old", places=True)
    assert len(contents(one)) == len(EXPECTED["split"]) > 0


POJO = "classes: {h3.shop.Account: h3.shop.Client}"


def pojo_migration(rest: str) -> SavepointMigration:
    rule = yaml.safe_load(f"{{{POJO}, {rest}}}")
    return migration_of("pojo-class", {"operators": {"accounts": rule}})


def test_fields_of_a_class_swap_though_the_types_have_the_same_bytes(tmp_path: Path) -> None:
    swapped = "fields: {h3.shop.Client: {n: 'cast(total, INT)', total: {from: n}}}"
    pojo_migration(swapped).write(tmp_path / "out")
    before = snapshot_values(JOBS / "pojo-class" / "old")
    after = snapshot_values(tmp_path / "out")
    assert len(before) == 5
    assert after == {
        key: {**order, "n": order["total"], "total": order["n"]} for key, order in before.items()
    }


def snapshot_values(folder: Path) -> dict[str, dict[str, Any]]:
    entries = Snapshot.load(folder)["accounts"].dump()
    return {each["key"]: each["value"] for each in entries if each.get("state") == "acc"}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("fields: {h3.shop.Client: {title: {from: name}}}", "has no field 'title'; it has: n,"),
        ("fields: {h3.shop.Client: {name: {from: nope}}}", "there is no old column 'nope'"),
        ("fields: {h3.shop.Nobody: {name: {from: name}}}", "has POJO class h3.shop.Nobody; it"),
    ],
)
def test_unknown_fields_and_classes_are_refused(rest: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, SavepointError), match=re.escape(message)):
        pojo_migration(rest).write(tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"shop.Acount": "h3.shop.Client"}, "old operator has POJO class shop.Acount; it has: h3"),
        ({"h3.shop.Account": "shop.Clint"}, "new operator has POJO class shop.Clint; it has: h3"),
    ],
)
def test_unknown_classes_to_rename_are_refused(classes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        migration_of("pojo-class", {"operators": {"accounts": {"classes": classes}}}).plan_lines()


def test_a_new_class_needs_the_template() -> None:
    declared = {"migration": 1, "operators": {"accounts": {"classes": {"a.B": "a.C"}}}}
    with pytest.raises(ConfigError, match=r"classes needs to_template, which has the new"):
        old = Snapshot.load(JOBS / "pojo-class" / "old")
        SavepointMigration(Migration.of(declared), old).plan_lines()


def test_records_that_are_not_those_of_the_source_are_found(tmp_path: Path) -> None:
    swapped = "fields: {h3.shop.Client: {n: 'cast(total, INT)', total: {from: n}}}"
    plan = plan_of_accounts(swapped)
    pojo_migration("states: {}").write(tmp_path / "out")
    written = Snapshot.load(tmp_path / "out")["accounts"]
    work = KeyedMigration(plan, Output(SavepointFolder(tmp_path / "other")), 128, 1)
    every = {each["kg"] for each in written.dump()}
    assert set(work.differing(written, range(128))) == every
    same = KeyedMigration(
        plan_of_accounts("states: {}"), Output(SavepointFolder(tmp_path / "other")), 128, 1
    )
    assert same.differing(written, range(128)) == []


def plan_of_accounts(rest: str) -> OperatorMigration:
    return next(each for each in pojo_migration(rest).plan.operators if each.label == "accounts")


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_is_between_nothing_and_all(share: float) -> None:
    with pytest.raises(ConfigError, match=r"recompute is wrong: expected a share from 0 to 1"):
        migration_of("pojo-class", {}, recompute=share)
