"""Migrations of what is not keyed state, and what a plan says about whole operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ColumnValueError, ConfigError
from dstl_core.savepoint.expressions.expression import parse_expression
from dstl_core.savepoint.expressions.typed_values import arrow_of
from dstl_core.savepoint.expressions.value_conversion import Conversion
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.migrate.migration_plan import CONVERT
from dstl_core.savepoint.migrate.proposal.sql_state import row_of_map_key, row_of_value
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import Snapshot
from tests.golden_files import CHANGED_JOBS as JOBS
from tests.golden_files import snapshot

OPERATOR_STATES = "c-opstate-hashmap"


def migration_of(
    source: Snapshot, declared: dict[str, Any], template: Snapshot | None = None
) -> SavepointMigration:
    return SavepointMigration(Migration.of({"migration": 1, **declared}), source, template)


def values(loaded: Snapshot, operator: str, state: str) -> list[Any]:
    """The values of an operator state: one for each subtask, or one in all."""
    return [each["value"] for each in loaded[operator].dump() if each.get("state") == state]


def elements(loaded: Snapshot, operator: str, state: str) -> list[str]:
    """The elements of an operator state, of all subtasks, in any order."""
    return sorted(str(each) for part in values(loaded, operator, state) for each in part)


def lines(loaded: Snapshot, operator: str) -> list[str]:
    """The entries; a union has no order between its subtasks."""
    every = list(loaded[operator].dump())
    for line in every:
        if line["kind"] == "op-union":
            line["value"].sort()
    return sorted(map(str, every))


def test_lists_unions_and_broadcasts_convert_and_come_back(tmp_path: Path) -> None:
    old = Snapshot.load(snapshot(OPERATOR_STATES))
    source = old
    for to, java, name in (("STRING", "string", "there"), ("BIGINT", "long", "back")):
        cast = {"value": f"cast(value, {to})", "type": java}
        declared = {
            "operators": {
                "c-list": {"states": {"buf": cast}},
                "c-broadcast": {"states": {"rules": cast}},
            }
        }
        migration = migration_of(source, declared)
        assert migration.plan.problems == []
        source = Snapshot.load(migration.write(tmp_path / name))
    forth = Snapshot.load(tmp_path / "there")
    for before, after in zip(
        values(old, "c-list", "buf"), values(forth, "c-list", "buf"), strict=True
    ):
        assert after == [str(each) for each in before] != []
    [rules], [texts] = (values(each, "c-broadcast", "rules") for each in (old, forth))
    assert texts == [[name, str(number)] for name, number in rules] != []
    for operator in ("c-list", "c-broadcast"):
        assert lines(source, operator) == lines(old, operator)


def test_an_element_that_does_not_fit_stops_the_migration(tmp_path: Path) -> None:
    rule = {"value": "cast(value, BIGINT)", "type": "long"}
    declared = {"operators": {"c-list": {"states": {"txt": rule}}}}
    migration = migration_of(Snapshot.load(snapshot(OPERATOR_STATES)), declared)
    with pytest.raises(ColumnValueError, match="Operator state 'txt' does not fit: 9 values of"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


def test_fewer_key_groups_than_subtasks_lose_no_element(tmp_path: Path) -> None:
    old = Snapshot.load(snapshot("o-opstate-p4"))
    migration = migration_of(old, {"max_parallelism": 2})
    migrated = Snapshot.load(migration.write(tmp_path / "out"))
    for label in ("lists", "broadcast"):
        says = f"operator {label} had parallelism 4 and has 2 key groups now"
        assert any(says in each for each in migration.plan.notes)
        operator = migrated[label]
        assert (operator.parallelism, operator.max_parallelism) == (2, 2)
        for info in old[label].operator_states:
            before, after = (elements(each, label, info.name) for each in (old, migrated))
            assert after == before != []
    keyed = [
        [x for x in loaded["broadcast"].dump() if x["kind"] == "value"]
        for loaded in (old, migrated)
    ]
    before, after = (sorted((x["key"], x["value"]) for x in each) for each in keyed)
    assert after == before != []


SQL = ["o-sql-types", "o-sql-topn", "o-sql-session", "o-sql-outer-join-ttl-rocksdb", "o-sql-over"]


def kept_columns(info: StateInfo) -> dict[str, list[str]]:
    """A rule that names each column of the rows in a state."""
    if info.kind.endswith("timer"):
        return {}
    rows = {"columns": row_of_value(info), "map_key": row_of_map_key(info)}
    return {
        name: [f"f{at}" for at in range(len(row.types))]
        for name, row in rows.items()
        if row is not None
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", SQL)
def test_a_rule_that_keeps_each_column_keeps_each_value(name: str, tmp_path: Path) -> None:
    """Nested rows, arrays, maps and bytes of Flink's own go through columns and come back."""
    old = Snapshot.load(snapshot(name))
    operators: dict[str, Any] = {}
    for operator in old.operators:
        states = {info.name: rule for info in operator.states if (rule := kept_columns(info))}
        if states:
            operators[f"hash:{operator.operator_id.hex}"] = {"states": states}
    migration = migration_of(old, {"operators": operators}, old)
    assert migration.plan.problems == []
    assert any(
        state.action == CONVERT
        for operator_plan in migration.plan.operators
        for state in operator_plan.states
    )
    migrated = Snapshot.load(migration.write(tmp_path / "out"))
    before, after = ([x for op in each.operators for x in op.dump()] for each in (old, migrated))
    assert sorted(map(str, after)) == sorted(map(str, before)) != []


def row(*types: LogicalType) -> RowDataSerializer:
    return RowDataSerializer(types)


def nested(*fields: tuple[str, LogicalType]) -> LogicalType:
    return LogicalType(
        "ROW", names=tuple(n for n, _ in fields), children=tuple(t for _, t in fields)
    )


def texts(length: int) -> LogicalType:
    return LogicalType("VARCHAR", length=length)


def test_rows_in_rows_take_new_names_and_wider_types() -> None:
    old = row(nested(("a", LogicalType("INT", False)), ("b", texts(5))), LogicalType("BIGINT"))
    new = row(nested(("x", LogicalType("BIGINT")), ("y", texts(9))), LogicalType("BIGINT"))
    written_rows = [
        {"$row_kind": "+U", "f0": {"$row_kind": "+I", "a": 1, "b": "one"}, "f1": 7},
        {"$row_kind": "+I", "f0": None, "f1": None},
    ]
    column = pa.array(written_rows, arrow_of(old))
    converted = Conversion("here", old, new).apply(column, {}).to_pylist()
    assert converted == [
        {"$row_kind": "+U", "f0": {"$row_kind": "+I", "x": 1, "y": "one"}, "f1": 7},
        {"$row_kind": "+I", "f0": None, "f1": None},
    ]
    flat = row(LogicalType("BIGINT"), LogicalType("INT"))
    taken = tuple(parse_expression(each, "here") for each in ("f1", "f0.a"))
    assert Conversion("here", old, flat, taken).apply(column, {}).to_pylist() == [
        {"$row_kind": "+U", "f0": 7, "f1": 1},
        {"$row_kind": "+I", "f0": None, "f1": None},
    ]


def test_rows_in_rows_that_do_not_fit() -> None:
    old = row(nested(("a", LogicalType("BIGINT")), ("b", texts(5))))
    column = pa.array([], arrow_of(old))
    fewer = row(nested(("a", LogicalType("BIGINT"))))
    with pytest.raises(ConfigError, match=r"does not become .* by itself"):
        Conversion("here", old, fewer).apply(column, {})
    narrow = row(nested(("a", LogicalType("INT")), ("b", texts(5))))
    with pytest.raises(ConfigError, match=r"here\.f0\.a is wrong: BIGINT does not fit into INT"):
        Conversion("here", old, narrow).apply(column, {})


def test_a_constant_that_stands_for_nothing_becomes_null() -> None:
    old = row(LogicalType("INT", False), texts(5))
    stored = [(-1, "a"), (3, "-"), (0, None)]
    kinds = [{"$row_kind": "+I", "f0": number, "f1": text} for number, text in stored]
    column = pa.array(kinds, arrow_of(old))

    def converted(text: str, kind: LogicalType) -> list[Any]:
        rule = (parse_expression(text, "here"),)
        rows = Conversion("here", old, row(kind), rule).apply(column, {}).to_pylist()
        return [each["f0"] for each in rows]

    assert converted("nullif(f0, -1)", LogicalType("INT")) == [None, 3, 0]
    assert converted("nullif(f1, '-')", texts(5)) == ["a", None, None]
    number = "coalesce(nullif(cast(f0, BIGINT), -1), 7)"
    assert converted(number, LogicalType("BIGINT", False)) == [7, 3, 0]
    for text, says in (
        ("nullif(f0, 'x')", "the constant 'x' is no value of type INT"),
        ("nullif(f0, null)", "takes a constant that is not null"),
        ("nullif(f0, f1)", "nullif ends with a constant, got f1"),
    ):
        with pytest.raises(ConfigError, match=says):
            converted(text, LogicalType("INT"))
    rule = (parse_expression("nullif(f0, -1)", "here"),)
    to_not_null = Conversion("here", old, row(LogicalType("INT", False)), rule)
    to_not_null.apply(column, {})
    assert list(to_not_null.misfits.refused.values()) == [1], "a null has no place there"


def test_a_source_that_loses_its_positions_is_named() -> None:
    old = Snapshot.load(snapshot("o-source-coordinator"))
    [label] = [each.label for each in old.operators if each.has_state("SourceReaderState")]
    plan = migration_of(old, {"drop_operators": [label]}).plan
    [note] = [each for each in plan.notes if "IS A SOURCE" in each]
    assert note.startswith(f"OPERATOR {label} IS A SOURCE and its positions go")
    assert migration_of(old, {}).plan.notes == []
    plan = migration_of(old, {"drop_operators": [], "start_empty": [label]}, old).plan
    assert any(f"OPERATOR {label} IS A SOURCE and starts empty" in each for each in plan.notes)


def test_the_state_of_a_coordinator_goes_with_the_first_operator_only() -> None:
    old = Snapshot.load(snapshot("o-source-coordinator"))
    plan = migration_of(old, {"operators": {"count": {"from": ["count", "seq"]}}}).plan
    [problem] = [each for each in plan.problems if "coordinator" in each]
    assert problem.startswith("operator seq has raw operator state or the state of a coordinator")
    plan = migration_of(old, {"operators": {"seq": {"from": ["seq", "count"]}}}).plan
    assert plan.problems == []


def test_a_state_that_the_new_job_registers_late_has_its_type_in_the_rule(tmp_path: Path) -> None:
    """The template was saved before the job asked for ``total``."""
    old, template = (Snapshot.load(JOBS / "state-rename" / each) for each in ("old", "new"))
    declared: dict[str, Any] = {"start_empty": ["accounts/sum"]}
    [problem] = migration_of(old, declared, template).plan.problems
    assert "with type: TYPE if the new job registers it late" in problem
    with pytest.raises(ConfigError, match=r"State 'total' is not in operator .* give its type"):
        _ = migration_of(old, {"operators": {"accounts": {"states": {"total": {}}}}}, template).plan
    for number, (rule, becomes) in enumerate(
        [({"type": "long"}, int), ({"type": "string", "value": "cast(value, STRING)"}, str)]
    ):
        declared["operators"] = {"accounts": {"states": {"total": rule}}}
        migration = migration_of(old, declared, template)
        assert migration.plan.problems == []
        migrated = Snapshot.load(migration.write(tmp_path / str(number)))
        before, after = (sorted_values(each, "total") for each in (old, migrated))
        assert after == {key: becomes(each) for key, each in before.items()} != {}
        assert values(migrated, "accounts", "sum") == []


def sorted_values(loaded: Snapshot, state: str) -> dict[str, Any]:
    return {e["key"]: e["value"] for e in loaded["accounts"].dump() if e.get("state") == state}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["o-rescaled-claim-rocksdb", "o-rescaled-claim-changelog"])
def test_several_handles_of_one_operator_migrate(name: str, tmp_path: Path) -> None:
    """Checkpoints after a rescale, whose subtasks still use files of the subtasks before it."""
    old, label = Snapshot.load(snapshot(name)), "count"
    forth = {"operators": {label: {"key": "cast(key, STRING)"}}}
    migrated = Snapshot.load(migration_of(old, forth).write(tmp_path / "there"))
    before, after = (contents(each, label) for each in (old, migrated))
    assert after == sorted((kind, state, str(key), value) for kind, state, key, value in before)
    back = {"operators": {label: {"key": "cast(key, BIGINT)"}}}
    migrated = Snapshot.load(migration_of(migrated, back).write(tmp_path / "back"))
    assert contents(migrated, label) == before != []


def contents(loaded: Snapshot, operator: str) -> list[tuple[str, str, Any, str]]:
    """Kind, state or timer service, key, and value or time."""
    lines = []
    for line in loaded[operator].dump():
        value = line["ts"] if "ts" in line else line["value"]
        if line["kind"] == "map":
            value = sorted(value)
        name = line.get("state", line.get("service"))
        lines.append((line["kind"], name, line["key"], json.dumps(value)))
    return sorted(lines)


def test_a_template_with_entries_is_read_for_its_types_only(tmp_path: Path) -> None:
    """The new job of this template had read input before its savepoint."""
    old = Snapshot.load(JOBS / "key-type" / "old")
    declared = {"operators": {"accounts": {"drop": ["total"]}}}
    migration = migration_of(old, declared, old)
    [note] = migration.plan.notes
    assert "the template has entries in accounts (" in note
    assert f"note: {note}" in migration.plan_lines()
    migrated = Snapshot.load(migration.write(tmp_path / "out"))
    assert values(migrated, "accounts", "total") == []
    kept = [each for each in old["accounts"].dump() if each.get("state") != "total"]
    assert sorted(map(str, migrated["accounts"].dump())) == sorted(map(str, kept)) != []
    report = json.loads((tmp_path / "out" / "_migration.json").read_bytes())
    assert report["notes"] == [note]
