"""What a job would find: matched, dropped and new operators, and types by Flink's rules."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dstl_core import Snapshot, check_restore
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.avro import AvroSerializer
from dstl_core.codec.serializers.optional_map import OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint import JobDescription, JobOperator, JobState
from dstl_core.savepoint.restores.restore_result import RestoreResult
from dstl_core.state.tables.compatibility import (
    Verdict,
    compatibility_of,
    compatibility_of_state,
)
from tests.golden_files import snapshot

UID = OperatorIdentifier.for_uid


def golden(name: str = "a-hashmap-canonical") -> Snapshot:
    return Snapshot.load(snapshot(name))


def problems(check: RestoreResult) -> list[str]:
    return [each.reason for each in check.lines if each.verdict is Verdict.INCOMPATIBLE]


def test_the_same_job_takes_everything() -> None:
    check = check_restore(golden(), golden("a-rocksdb-canonical"))
    assert {each.fate for each in check.operators} == {"matched"}
    assert {each.fate for each in check.lines} == {"matched"}
    assert problems(check) == []


def test_operators_are_matched_dropped_and_new() -> None:
    check = check_restore(golden(), JobDescription([JobOperator(UID("other"))]))
    fates = {each.operator: each.fate for each in check.operators}
    assert fates["a-keyed"] == "dropped"
    assert fates["other"] == "new"
    [line] = [each for each in check.lines if each.operator == "a-keyed"]
    assert (line.verdict, line.fate) == (Verdict.INCOMPATIBLE, "dropped")
    assert "drops the state with --allowNonRestoredState" in line.reason
    assert check_restore(golden(), JobDescription([]), drop=["a-keyed"]).lines[0].fate == "dropped"


def test_kinds_types_keys_and_max_parallelism_are_compared() -> None:
    keyed = golden()["a-keyed"]
    info = next(each for each in keyed.states if each.kind == "list")
    job = JobDescription(
        [
            JobOperator(
                UID("a-keyed"),
                Types.LONG,
                [JobState(info.name, "value"), JobState("fresh", "value", Types.INT)],
                max_parallelism=256,
            )
        ]
    )
    check = check_restore(golden(), job)
    text = "\n".join(problems(check))
    assert "the kind changed from list to value" in text
    assert "key: the type changed from String to Long" in text
    assert "max parallelism 128 cannot become 256" in text
    assert "state 'fresh' of operator 'a-keyed' is new and starts empty" in check.notes
    ignored = {each.state for each in check.lines if each.fate == "dropped" and each.state}
    declared = {each.name for each in keyed.states if "_timer_state" not in each.name}
    assert declared - {info.name} <= ignored
    assert info.name not in ignored


def test_a_rest_plan_names_heads_of_chains_only() -> None:
    keyed = golden()["a-keyed"]
    rest = {"plan": {"nodes": [{"id": keyed.operator_id.hex, "parallelism": 2}]}}
    check = check_restore(golden(), rest)
    assert [(each.operator, each.fate) for each in check.operators] == [("a-keyed", "matched")]
    assert "a job plan names the first operator of each chain only" in check.notes
    assert {each.fate for each in check.lines} == {"unknown"}
    reasons = {each.operator: each.reason for each in check.lines}
    assert reasons["a-keyed"].startswith("the job does not show its states")
    others = {each.label for each in golden().operators} - {"a-keyed"}
    assert {name for name in reasons if "not known whether" in reasons[name]} == others
    assert check.verdict is Verdict.UNKNOWN


def test_a_running_job_and_its_description_are_one_question() -> None:
    keyed = golden()["a-keyed"]
    rest = {"plan": {"nodes": [{"id": keyed.operator_id.hex, "parallelism": 2}]}}
    described = check_restore(golden(), JobDescription.from_rest_plan(rest))
    assert check_restore(golden(), rest) == described


@pytest.mark.parametrize("options", [{"unchanged": ["a"]}, {"main": "a.B"}])
def test_options_of_a_jar_do_not_fit_a_snapshot(options: Any) -> None:
    with pytest.raises(ConfigError, match="go with the jar of a job"):
        check_restore(golden(), golden(), **options)


@pytest.mark.parametrize("rest", [{}, {"plan": {}}, {"plan": {"nodes": [{"id": "x"}]}}])
def test_another_document_is_an_error(rest: Any) -> None:
    with pytest.raises(ConfigError, match="job plan"):
        JobDescription.from_rest_plan(rest)


def pojo(*fields: tuple[str, Any]) -> PojoSerializer:
    return PojoSerializer("a.B", tuple(OptionalSnapshot(name, name, each) for name, each in fields))


def avro(*types: str) -> AvroSerializer:
    fields = [{"name": f"f{index}", "type": each} for index, each in enumerate(types)]
    schema = {"type": "record", "name": "User", "fields": fields}
    return AvroSerializer("com.example.User", json.dumps(schema))


COLOR = Types.ENUM("a.Color", "RED", "GREEN")


@pytest.mark.parametrize(
    ("stored", "wanted", "verdict", "reason"),
    [
        (Types.LONG, Types.LONG, Verdict.COMPATIBLE_AS_IS, ""),
        (Types.INT, Types.LONG, Verdict.INCOMPATIBLE, "from Integer to Long"),
        (Types.LIST(Types.INT), Types.LIST(Types.LONG), Verdict.INCOMPATIBLE, "Integer to Long"),
        (
            pojo(("a", Types.INT)),
            pojo(("a", Types.INT), ("b", Types.INT)),
            Verdict.AFTER_MIGRATION,
            "new fields get their default: b",
        ),
        (
            pojo(("a", Types.INT), ("b", Types.INT)),
            pojo(("a", Types.INT)),
            Verdict.AFTER_MIGRATION,
            "removed fields are dropped: b",
        ),
        (
            pojo(("a", Types.INT)),
            pojo(("a", Types.LONG)),
            Verdict.INCOMPATIBLE,
            "field 'a': the type changed",
        ),
        (pojo(), replace(pojo(), pojo_class="a.C"), Verdict.INCOMPATIBLE, "type changed"),
        (COLOR, Types.ENUM("a.Color", "RED", "GREEN", "BLUE"), Verdict.COMPATIBLE_AS_IS, ""),
        (COLOR, Types.ENUM("a.Color", "RED"), Verdict.INCOMPATIBLE, "lost constants: GREEN"),
        (Types.TUPLE(Types.INT), Types.TUPLE(Types.INT, Types.INT), Verdict.INCOMPATIBLE, "type"),
        (TtlSerializer(Types.INT), Types.INT, Verdict.AFTER_MIGRATION, "is removed"),
        (
            Types.LIST(Types.INT),
            Types.LIST(TtlSerializer(Types.INT)),
            Verdict.AFTER_MIGRATION,
            "is added",
        ),
        (Types.INT, TtlSerializer(Types.LONG), Verdict.INCOMPATIBLE, "from Integer to Long"),
        (avro(), avro("int"), Verdict.INCOMPATIBLE, "com.example.User cannot read"),
        (avro("int"), avro("int", "long"), Verdict.INCOMPATIBLE, "cannot read the stored one"),
        (avro("int", "long"), avro("int"), Verdict.AFTER_MIGRATION, "the Avro schema changed"),
    ],
)
def test_evolution_of_types(stored: Any, wanted: Any, verdict: Verdict, reason: str) -> None:
    compatibility = compatibility_of(stored, wanted)
    assert compatibility.verdict is verdict
    assert reason in compatibility.reason


ONE, TWO = pojo(("a", Types.INT)), pojo(("a", Types.INT), ("b", Types.INT))


@pytest.mark.parametrize(
    ("wanted", "is_map", "verdict", "reason"),
    [
        (Types.MAP(ONE, ONE), True, Verdict.COMPATIBLE_AS_IS, ""),
        (Types.MAP(ONE, TWO), True, Verdict.AFTER_MIGRATION, "new fields get their default: b"),
        (Types.MAP(TWO, ONE), True, Verdict.INCOMPATIBLE, "user keys of map state cannot migrate"),
        (Types.MAP(Types.INT, ONE), True, Verdict.INCOMPATIBLE, "the type changed"),
        (Types.MAP(TWO, ONE), False, Verdict.AFTER_MIGRATION, "new fields get their default: b"),
    ],
)
def test_user_keys_of_map_state_do_not_migrate(
    wanted: Any, is_map: bool, verdict: Verdict, reason: str
) -> None:
    """A map that is the value of value state does, keys and all."""
    compatibility = compatibility_of_state(Types.MAP(ONE, ONE), wanted, is_map=is_map)
    assert compatibility.verdict is verdict
    assert reason in compatibility.reason
