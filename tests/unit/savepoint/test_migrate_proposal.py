"""Proposed migrations of real pairs of jobs: what is proposed is right, the rest is asked."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan, column_names
from dstl_core.savepoint.migrate.proposal.matching import PlannedOperator
from dstl_core.savepoint.migrate.proposal.named_columns import added_columns, forgotten_changes
from dstl_core.savepoint.migrate.proposal.plan_columns import PlanColumns
from dstl_core.savepoint.migrate.proposal.plan_names import PlanNames
from dstl_core.savepoint.migrate.proposal.proposal import Proposal, propose
from dstl_core.savepoint.migrate.proposal.proposal_file import propose_file
from dstl_core.savepoint.migrate.proposal.sql_state import operator_columns
from dstl_core.savepoint.read.snapshot import Snapshot
from tests.command_line import run
from tests.golden_files import CHANGED_JOBS as JOBS

__all__ = ["run"]


def plans_of(pair: str) -> tuple[CompiledPlan, CompiledPlan] | None:
    paths = [JOBS / pair / f"{each}.plan.json" for each in ("old", "new")]
    return (CompiledPlan.load(paths[0]), CompiledPlan.load(paths[1])) if paths[0].exists() else None


def proposal_of(pair: str, *, with_plans: bool = True) -> Proposal:
    with_plans = with_plans and pair != "nouid-same"  # its plans were made afterwards
    old, new = (Snapshot.load(JOBS / pair / each) for each in ("old", "new"))
    return propose(old, new, plans=plans_of(pair) if with_plans else None, header={"from": "old"})


def entries_of(proposal: Proposal) -> dict[str, Any]:
    """The proposal without its head, as a reader of YAML gets it from the text."""
    declared = yaml.safe_load(proposal.text)
    assert declared == proposal.declaration
    assert (declared.pop("migration"), declared.pop("from")) == (1, "old")
    return {**declared.pop("operators", {}), **declared}


# Each is what the change of the query means, written by hand. An empty one keeps all as it is.
WITH_PLANS = {
    "agg-add": "4_group-aggregate: {states: {accState: {columns: [f0, f1, f2, 0, null]}}}",
    "agg-avg": "4_group-aggregate: {states: {accState: {columns: [f0, 0, 0, f1]}}}",
    "agg-expr": "4_group-aggregate: {states: {accState: {columns: ['???', f1]}}}",
    "agg-remove": "4_group-aggregate: {states: {accState: {columns: [f0, f2]}}}",
    "agg-rename": "4_group-aggregate: {states: {accState: {columns: ['???', '???']}}}",
    "agg-reorder": "3_group-aggregate: {states: {accState: {columns: [f1, f0, f2]}}}",
    "agg-retract": """
        4_group-aggregate: {states: {accState: {columns: ['???', '???', '???', '???']}}}
        start_empty: [4_group-aggregate/agg1$map]
    """,
    "agg-widen": (
        "4_group-aggregate:"
        " {states: {accState: {columns: [f0, 'cast(f1, BIGINT)', 'cast(f2, BIGINT)']}}}"
    ),
    "crossed": (
        "{8_group-aggregate: {from: 4_group-aggregate}, 4_group-aggregate:"
        " {from: 8_group-aggregate}}"
    ),
    "crossed-filter": (
        "{8_group-aggregate: {from: 4_group-aggregate}, 4_group-aggregate:"
        " {from: 8_group-aggregate}}"
    ),
    "dedup-addcol": (
        "4_deduplicate: {states: {deduplicate-state:"
        " {columns: [f0, null, 'cast(f1, BIGINT)', f2, f3]}}}"
    ),
    "dedup-reorder": (
        "4_deduplicate: {states: {deduplicate-state: {columns: [f0, f2, f1, f3, f4]}}}"
    ),
    "distinct-add": """
        3_group-aggregate:
          from: 4_group-aggregate
          states: {accState: {columns: [f0, 0, f1, empty()]}}
        start_empty:
          [3_group-aggregate/distinctAcc_0, 3_group-aggregate/distinctAcc_0_null_state]
    """,
    "distinct-filter": """
        4_group-aggregate: {states: {accState: {columns: [f0, f1, f2, 0, empty()]}}}
        start_empty:
          [4_group-aggregate/distinctAcc_0, 4_group-aggregate/distinctAcc_0_null_state]
    """,
    "distinct-reorder": """
        3_group-aggregate:
          states:
            accState: {columns: [f1, f2, f0, f4, f3]}
            distinctAcc_0: {from: distinctAcc_1}
            distinctAcc_0_null_state: {from: distinctAcc_1_null_state}
            distinctAcc_1: {from: distinctAcc_0}
            distinctAcc_1_null_state: {from: distinctAcc_0_null_state}
    """,
    "hop": "5_global-window-aggregate: {states: {window-aggs: {columns: [f1, f0, f2]}}}",
    "join-addcol": ("5_join: {from: 6_join, states: {left-records: {map_key: [f0, f1, null]}}}"),
    "join-left": "6_join: {states: {left-records: {value: '???'}}}",
    "join-outer": "6_join: {states: {left-records: {map_key: [f0, f1, null]}}}",
    "join-swap": """
        6_join:
          states: {left-records: {from: right-records}, right-records: {from: left-records}}
    """,
    "key-drop": (
        "4_group-aggregate: {from: '???', key: [f0], states: {accState: {merge: [sum, sum, max]}}}"
    ),
    "key-varchar": "{}",
    "key-widen": "{}",
    "listagg": "3_group-aggregate: {states: {accState: {columns: [f3, f2, f0, f1, 0]}}}",
    "materialize": """
        4_group-aggregate: {states: {accState: {columns: [f0, null, f1]}}}
        6_upsert-materialize: {states: {values: {columns: [f0, f1, '???', f2]}}}
    """,
    "minibatch": "6_global-group-aggregate: {from: 4_group-aggregate}",
    "not-null": "4_group-aggregate: {key: ['???']}",
    "over": """
        4_over-aggregate: {states: {accState: {columns: [f1, f2, f0, '???']}}}
        start_empty: [4_over-aggregate/agg3$map]
    """,
    "plan-shift": "{}",
    "replaced": "4_group-aggregate: {from: '???'}",
    "retract-reorder": """
        4_group-aggregate:
          states:
            accState: {columns: [f1, f2, f3, f0, f4]}
            agg0$map: {from: agg1$map}
            agg2$map: {from: agg0$map}
    """,
    "same-twice": (
        "{8_group-aggregate: {from: 4_group-aggregate}, 4_group-aggregate:"
        " {from: 8_group-aggregate}}"
    ),
    "second-insert": (
        "{8_group-aggregate: {from: 4_group-aggregate}, start_empty: [4_group-aggregate]}"
    ),
    "session-add": "4_window-aggregate: {states: {window-aggs: {columns: [f0, f1, null]}}}",
    "table-renamed": "4_group-aggregate: {from: '???', key: ['???']}",
    "temporal": (
        "6_temporal-join: {from: 7_temporal-join, states: {left: {columns: [f0, f1, null, f2]}}}"
    ),
    "topn-addcol": (
        "3_rank: {states: {data-state-with-append:"
        " {map_key: ['cast(f0, BIGINT)'], columns: [f0, null, 'cast(f1, BIGINT)', f2]}}}"
    ),
    "topn-n": "{}",
    "udaf": "4_group-aggregate: {states: {accState: {columns: ['???', '???', '???']}}}",
    "window-add": "5_global-window-aggregate: {states: {window-aggs: {columns: [f0, f1, null]}}}",
}
OF_DATA_STREAMS = {
    "key-type": "accounts: {key: '???'}",
    "pojo-class": "accounts: {classes: {h3.shop.Account: h3.shop.Client}}",
    "split": "{numbers: {from: '???'}, totals: {from: '???'}}",
    "state-rename": "accounts: {states: {sum: {from: '???'}}}",
    "uid-forgotten": "accounts: {from: '???'}",
    "value-to-map": "accounts: {states: {total: {kind: map, map_key: '???', value: value}}}",
    "nouid-same": "{}",
}
NOTES = {
    "agg-reorder": "nothing: it restores, and reads other values than the old job wrote",
    "crossed": "8_group-aggregate of the old job does the same",
    "join-addcol": "cannot map the state of operator 266aecd05c4c332db4f9caafd3941826",
    "key-type": "StateMigrationException, new key serializer",
    "nouid-same": "types equal, Flink cannot notice a mistake here",
    "plan-shift": "the filter, the window or the limit on the way differs",
    "pojo-class": "could not find class 'h3.shop.Account' in classpath",
    "state-rename": "nothing: it restores, and ignores state 'total'",
    "topn-n": "the filter, the window or the limit on the way differs",
    "value-to-map": "was [VALUE], registered with [MAP]",
    "window-add": "MAX(bonus) is new: it counts from now on only",
}


def test_every_pair_has_an_expectation() -> None:
    assert {each.name for each in JOBS.iterdir() if each.is_dir()} == {
        *WITH_PLANS,
        *OF_DATA_STREAMS,
    }


@pytest.mark.parametrize("pair", [*WITH_PLANS, *OF_DATA_STREAMS])
def test_a_proposal_is_right_or_asks(pair: str) -> None:
    proposal = proposal_of(pair)
    expected = yaml.safe_load({**WITH_PLANS, **OF_DATA_STREAMS}[pair])
    assert entries_of(proposal) == expected
    assert proposal.decisions == str(expected).count("???")


@pytest.mark.parametrize("pair", NOTES)
def test_a_proposal_explains_itself(pair: str) -> None:
    lines = [each.strip(" #") for each in proposal_of(pair).text.splitlines()]
    assert NOTES[pair] in " ".join(lines)


@pytest.mark.parametrize("pair", WITH_PLANS)
def test_without_plans_equal_types_bring_a_warning_and_changed_ones_a_question(pair: str) -> None:
    """No proposal permutes, adds or merges by types alone."""
    proposal = proposal_of(pair, with_plans=False)
    for rules in proposal.declaration.get("operators", {}).values():
        for rule in rules.get("states", {}).values():
            columns = rule.get("columns", [])
            places = [str(each) for each in columns]
            assert all(each == "???" or f"f{at}" in each for at, each in enumerate(places)), columns
        assert str(rules.get("from", "???")) == "???"
    assert "give plans to find" in proposal.text


def test_crossed_ids_are_asked_about_without_plans() -> None:
    entries = entries_of(proposal_of("second-insert", with_plans=False))
    assert entries == {
        "8_group-aggregate": {"from": "???"},
        "4_group-aggregate": {"states": {"accState": {"columns": ["???"]}}},
    }


def test_plans_explain_a_job_that_was_not_compiled() -> None:
    """Its operators have no uid; their names have the ids of nodes, as the plan has them."""
    old, new = (Snapshot.load(JOBS / "nouid-same" / each) for each in ("old", "new"))
    plans = plans_of("nouid-same")
    assert propose(old, new).declaration.get("operators") is None
    rules = propose(old, new, plans=plans).declaration["operators"]
    assert [each["states"] for each in rules.values()] == [{"accState": {"columns": ["f1", "f0"]}}]


def test_a_plan_of_another_session_is_not_used() -> None:
    """Its ids are those of other nodes."""
    old, new = (Snapshot.load(JOBS / "crossed" / each) for each in ("old", "new"))
    good = plans_of("crossed")
    other = plans_of("dedup-reorder")
    assert good is not None
    assert other is not None
    proposal = propose(old, new, plans=(other[0], good[1]), header={"from": "old"})
    assert entries_of(proposal) == {}
    assert "plans.old is not the plan of this savepoint" in proposal.text


# ------------------------------------------------------------------------------ compiled plans


def test_names_of_columns_may_hold_every_sign() -> None:
    text = "`a,b` ROW<`x` INT, `y` MAP<INT, INT>>, `c``d` DECIMAL(10, 2) NOT NULL, `e>` RAW('k,`')"
    assert column_names(f"ROW<{text}>", "here") == ["a,b", "c`d", "e>"]


def test_conditions_and_expressions_have_names_not_positions() -> None:
    old, new = (PlanColumns(each) for each in plans_of("agg-add") or ())
    calls = [
        [call.column.name for call in plan_columns.aggregates(plan_columns.plan.nodes[4])]
        for plan_columns in (old, new)
    ]
    assert calls == [
        ["COUNT(*)", "SUM(amount)", "MAX(amount)"],
        ["COUNT(*)", "SUM(amount)", "MAX(amount)", "COUNT(tag)", "MIN(bonus)"],
    ]


BAD_VALUES: list[Any] = [None, 99, "x", {}]
CALC = {"id": 1, "type": "stream-exec-calc_1"}
BAD_PLANS = {
    "no JSON": "SELECT 1",
    "no nodes": "[]",
    "a node twice": json.dumps({"nodes": [CALC, CALC]}),
    "no type": '{"nodes": [{"id": 1}]}',
    "a circle": json.dumps({"nodes": [CALC], "edges": [{"source": 1, "target": 1}]}),
    "an edge to nowhere": json.dumps({"nodes": [CALC], "edges": [{"source": 2, "target": 1}]}),
    "deep JSON": "[" * 100_000,
    "no column": json.dumps(
        {
            "nodes": [
                {
                    "id": 1,
                    "type": "stream-exec-calc_1",
                    "outputType": "ROW<`a` INT>",
                    "projection": [{"kind": "INPUT_REF", "inputIndex": 7}],
                }
            ]
        }
    ),
}


@pytest.mark.parametrize("text", BAD_PLANS.values(), ids=BAD_PLANS)
def test_a_file_that_is_no_plan_is_one_clear_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.plan.json").write_text(text)
    with pytest.raises(ConfigError, match="give the file that COMPILE PLAN wrote") as error:
        PlanColumns(CompiledPlan.load(tmp_path / "job.plan.json"))
    assert str(error.value).endswith("job.plan.json]")


def test_an_expression_that_uses_itself_many_times_stays_small() -> None:
    """Each node doubles its column; the text of the last one would have 2^80 characters."""
    column = {"kind": "INPUT_REF", "inputIndex": 0}
    double = {"kind": "CALL", "internalName": "$+$1", "operands": [column, column]}
    nodes: list[dict[str, Any]] = [
        {
            "id": 0,
            "type": "stream-exec-table-source-scan_1",
            "outputType": "ROW<`a` INT>",
            "scanTableSource": {"table": {"identifier": "t"}},
        }
    ]
    nodes += [
        {
            "id": number,
            "type": "stream-exec-calc_1",
            "outputType": "ROW<`$f0` INT>",
            "projection": [double],
        }
        for number in range(1, 81)
    ]
    edges = [{"source": each, "target": each + 1} for each in range(80)]
    plan = CompiledPlan.parse(json.dumps({"nodes": nodes, "edges": edges}))
    last_column = PlanColumns(plan).of(plan.nodes[80])[0]
    assert len(last_column.meaning) < 500
    assert len(last_column.name) < 500


@pytest.mark.slow
def test_a_damaged_plan_raises_nothing_else(tmp_path: Path) -> None:
    """Values of a plan are replaced by others, one at a time."""
    shutil.copytree(JOBS / "retract-reorder", tmp_path / "pair")
    old, new = (Snapshot.load(tmp_path / "pair" / each) for each in ("old", "new"))
    plan = json.loads((JOBS / "retract-reorder" / "new.plan.json").read_text())
    good = CompiledPlan.load(JOBS / "retract-reorder" / "old.plan.json")
    for holder, key in list(_places(plan))[::7]:
        before = holder[key]
        for bad in BAD_VALUES:
            holder[key] = bad
            with suppress(ConfigError):
                propose(old, new, plans=(good, CompiledPlan.parse(json.dumps(plan))))
        holder[key] = before


def _places(value: Any) -> Any:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        if key not in ("configuration", "description", "resolvedTable"):
            yield value, key
            if isinstance(value[key], dict | list):
                yield from _places(value[key])


# ------------------------------------------------------------------------------- the declaration


def job_folder(pair: str, tmp_path: Path) -> Path:
    """A folder as a user has it: the savepoint, the template, the plans, and a declaration."""
    shutil.copytree(JOBS / pair, tmp_path / "jobs")
    file = tmp_path / "jobs" / "migration.yaml"
    file.write_text(
        "migration: 1\nfrom: old\nto_template: new\n"
        "plans: {old: old.plan.json, new: new.plan.json}\n"
    )
    return file


def test_a_file_without_rules_is_completed(tmp_path: Path) -> None:
    file = job_folder("agg-reorder", tmp_path)
    proposal = propose_file(file, write=True)
    assert file.read_text() == proposal.text
    migration = Migration.load(file)
    assert migration.from_ == str(file.parent / "old")
    rule = migration.operators["3_group-aggregate"].states["accState"]
    assert [str(each) for each in rule.columns or ()] == ["f1", "f0", "f2"]
    assert migration.undecided == []
    with pytest.raises(ConfigError, match=r"has rules already \(operators\)"):
        propose_file(file, write=True)
    assert [each.name for each in file.parent.iterdir() if "part" in each.name] == []


def test_a_proposal_with_a_decision_is_a_declaration_that_is_not_ready(tmp_path: Path) -> None:
    file = job_folder("key-drop", tmp_path)
    propose_file(file, write=True)
    assert Migration.load(file).undecided == ["operators.4_group-aggregate.from"]


@pytest.mark.parametrize("pair", [*WITH_PLANS, *OF_DATA_STREAMS])
def test_every_proposal_follows_the_format_of_declarations(pair: str) -> None:
    proposal = proposal_of(pair)
    migration = Migration.of(yaml.safe_load(proposal.text))
    assert len(migration.undecided) == proposal.decisions


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("migration: 1\nto_template: new\n", "has no from"),
        ("migration: 1\nfrom: old\n", "has no to_template"),
        ("migration: 1\nfrom: old\nto_template: new\nplans: {old: old.plan.json}\n", "no 'new'"),
    ],
)
def test_what_a_file_lacks_is_named(text: str, problem: str, tmp_path: Path) -> None:
    file = job_folder("agg-add", tmp_path)
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        propose_file(file, write=True)
    assert file.read_text() == text


FORGOTTEN = {
    "agg-reorder": ("{}", "accState has no columns, .* add columns: \\[f1, f0, f2\\]"),
    "crossed": ("{}", "8_group-aggregate has no from, .* add from: 4_group-aggregate"),
    "dedup-reorder": ("{}", "deduplicate-state has no columns"),
    "distinct-reorder": (
        "3_group-aggregate: {states: {accState: {columns: [f1, f2, f0, f4, f3]}}}",
        "distinctAcc_0 has no from, .* add from: distinctAcc_1",
    ),
}


@pytest.mark.parametrize("pair", FORGOTTEN)
def test_what_a_declaration_forgets_is_asked_about(pair: str) -> None:
    operators, question = FORGOTTEN[pair]
    migration = Migration.of({"migration": 1, "operators": yaml.safe_load(operators)})
    new = Snapshot.load(JOBS / pair / "new")
    proposal = proposal_of(pair)
    questions = list(forgotten_changes(migration, proposal, new))
    assert any(re.search(question, each) for each in questions), questions
    # Whoever declares what is proposed is asked nothing.
    declared = Migration.of(dict(proposal.declaration))
    assert list(forgotten_changes(declared, proposal, new)) == []


@pytest.mark.parametrize("pair", ["agg-widen", "key-widen", "key-varchar", "agg-add"])
def test_a_declaration_may_leave_out_what_no_one_can_mistake(pair: str) -> None:
    added = {"agg-add": {"states": {"accState": {"add": {"COUNT(tag)": 0, "MIN(bonus)": None}}}}}
    operators = {"4_group-aggregate": added.get(pair, {})}
    migration = Migration.of({"migration": 1, "operators": operators})
    new = Snapshot.load(JOBS / pair / "new")
    assert list(forgotten_changes(migration, proposal_of(pair), new)) == []


def accumulator(pair: str, which: int) -> Any:
    plans = plans_of(pair)
    assert plans is not None
    snapshot = Snapshot.load(JOBS / pair / ("old", "new")[which])
    columns = PlanColumns(plans[which])
    operator_columns_ = operator_columns(
        snapshot["4_group-aggregate"], columns.plan.nodes[4], columns
    )
    return operator_columns_.rows["accState"]


def test_aggregates_are_added_by_name() -> None:
    old, new = accumulator("agg-add", 0), accumulator("agg-add", 1)
    start = {"COUNT(tag)": "0", "MIN(bonus)": "null"}
    assert added_columns(old, new, start, "here") == [0, 1, 2, "0", "null"]
    old, new = accumulator("agg-avg", 0), accumulator("agg-avg", 1)
    assert added_columns(old, new, {"AVG(amount)": "0"}, "here") == [0, "0", "0", 1]


def test_a_wrong_name_of_an_added_aggregate_is_named() -> None:
    old, new = accumulator("agg-add", 0), accumulator("agg-add", 1)
    with pytest.raises(ConfigError, match=r"here lacks 'MIN\(bonus\)'"):
        added_columns(old, new, {"COUNT(tag)": "0"}, "here")
    defaults = {"COUNT(tag)": "0", "MIN(bonus)": "null", "SUM(amount)": "0"}
    with pytest.raises(ConfigError, match=r"names 'SUM\(amount\)', which is not new"):
        added_columns(old, new, defaults, "here")


@pytest.mark.parametrize("pair", WITH_PLANS)
def test_every_operator_of_a_plan_has_columns_or_none(pair: str) -> None:
    """Sources, sinks and calcs, too: a connector may give them state."""
    for plan, version in zip(plans_of(pair) or (), ("old", "new"), strict=True):
        columns = PlanColumns(plan)
        for operator in Snapshot.load(JOBS / pair / version).operators:
            job_operator = PlannedOperator(operator, columns)
            assert job_operator.node is not None
            assert job_operator.columns is not None
            has_rows = bool(operator.states) and pair != "udaf"  # a user's function has its own
            assert bool(job_operator.columns.rows or job_operator.columns.map_keys) == has_rows


def names_of(pair: str, operators: str) -> PlanNames:
    plans = {each: str(JOBS / pair / f"{each}.plan.json") for each in ("old", "new")}
    declaration = {"migration": 1, "plans": plans, "operators": yaml.safe_load(operators)}
    old, new = (Snapshot.load(JOBS / pair / each) for each in ("old", "new"))
    return PlanNames(Migration.of(declaration), old, new)


@pytest.mark.parametrize(
    ("pair", "operators", "columns"),
    [
        (
            "agg-add",
            "4_group-aggregate: {states: {accState: {add: {COUNT(tag): 0, MIN(bonus): null}}}}",
            ["f0", "f1", "f2", "0", "null"],
        ),
        (
            "dedup-addcol",
            "4_deduplicate: {states: {deduplicate-state:"
            " {columns: [cust, null, 'cast(n, BIGINT)', 'coalesce(item, ''-'')', f3]}}}",
            ["f0", "null", "cast(f1, BIGINT)", "coalesce(f2, '-')", "f3"],
        ),
        (
            "join-addcol",
            "5_join: {from: 6_join, states: {left-records: {map_key: [cust, amount, null]}}}",
            ["f0", "f1", "null"],
        ),
    ],
)
def test_names_of_columns_become_places(pair: str, operators: str, columns: list[str]) -> None:
    names = names_of(pair, operators)
    [rule] = names.resolved().operators.values()
    [state] = rule.states.values()
    places = state.map_key if pair == "join-addcol" else state.columns
    assert isinstance(places, tuple)
    assert [str(each) for each in places] == columns
    assert state.add == {}
    assert names.problems == []


def test_a_declaration_that_forgets_moved_columns_has_problems() -> None:
    [problem] = names_of("agg-reorder", "{}").problems
    assert "accState has no columns, and the plans say that columns changed" in problem


def test_aggregates_are_added_by_name_only_with_plans() -> None:
    declaration = {
        "migration": 1,
        "operators": {"4_group-aggregate": {"states": {"accState": {"add": {"COUNT(tag)": 0}}}}},
    }
    old, new = (Snapshot.load(JOBS / "agg-add" / each) for each in ("old", "new"))
    with pytest.raises(ConfigError, match="no compiled plan explains this state: give plans"):
        PlanNames(Migration.of(declaration), old, new).resolved()


@pytest.mark.parametrize(
    "rules",
    [
        "{columns: [f0, f1, f2, 0, null]}",
        "{add: {COUNT(tag): 0, MIN(bonus): null}}",
        "{columns: ['`COUNT(*)`', '`SUM(amount)`', '`MAX(amount)`', 0, null]}",
    ],
)
def test_a_plan_names_the_columns(rules: str, tmp_path: Path, run: Any) -> None:
    file = job_folder("agg-add", tmp_path)
    file.write_text(
        f"{file.read_text()}operators:\n  4_group-aggregate: {{states: {{accState: {rules}}}}}\n"
    )
    ran = run("migrate", "plan", str(file))
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(each.split()) for each in ran.out.splitlines()]
    columns = [each for each in lines if " <- " in each]
    assert columns == [
        "f0 <- f0 COUNT(*) same",
        "f1 <- f1 SUM(amount) same",
        "f2 <- f2 MAX(amount) same",
        "f3 <- 0 COUNT(tag) new: from now on only",
        "f4 <- null MIN(bonus) new: from now on only",
    ]
    assert lines[-1] == "nothing is lost."


def test_apply_refuses_what_the_plans_say_and_the_file_does_not(tmp_path: Path, run: Any) -> None:
    """By its types the savepoint fits: Flink would restore it, and read a sum as a maximum."""
    file = job_folder("agg-reorder", tmp_path)
    file.write_text(f"{file.read_text()}operators: {{3_group-aggregate: {{}}}}\n")
    ran = run("migrate", "plan", str(file))
    assert ran.code == 1
    assert "accState has no columns, and the plans say that columns changed" in ran.out
    applied = run("migrate", "apply", str(file), str(tmp_path / "out"))
    assert applied.code == 2
    assert not (tmp_path / "out" / "_metadata").exists()


@pytest.mark.parametrize(
    ("share", "says"),
    [
        ("all", "accounts: 128 key groups computed again, and equal"),
        ("0.01", "accounts: 2 key groups computed again, and equal"),
        ("0", "--check is wrong: expected a number above 0, up to 1, or all, got '0'"),
        ("nan", "--check is wrong: expected a number above 0, up to 1, or all, got 'nan'"),
    ],
)
def test_apply_computes_a_share_again(share: str, says: str, tmp_path: Path, run: Any) -> None:
    file = job_folder("pojo-class", tmp_path)
    rule = "accounts: {classes: {h3.shop.Account: h3.shop.Client}}"
    file.write_text(f"migration: 1\nfrom: old\nto_template: new\noperators: {{{rule}}}\n")
    ran = run("migrate", "apply", str(file), str(tmp_path / "out"), "--check", share)
    assert says in ran.out + ran.err
    assert (tmp_path / "out" / "_metadata").exists() == (ran.code == 0)


def test_equal_types_are_warned_of_without_plans(tmp_path: Path, run: Any) -> None:
    file = job_folder("agg-reorder", tmp_path)
    text = file.read_text().splitlines()[:3]
    file.write_text("\n".join([*text, "operators: {3_group-aggregate: {}}", ""]))
    ran = run("migrate", "plan", str(file))
    assert ran.code == 0
    assert "3_group-aggregate/accState: several columns are INT: types equal" in ran.out
