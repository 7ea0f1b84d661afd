"""What commit records say of epochs: the same JSON as ever, and every field documented."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from dstl_core.checkpoint.store.epoch_facts import (
    EpochFacts,
    InputFacts,
    KeyFacts,
    OperatorFacts,
    SourceFacts,
)
from dstl_core.errors import FormatError, UnsupportedVersionError
from tests.golden_files import PIPELINE

PARTS = (EpochFacts, InputFacts, KeyFacts, OperatorFacts, SourceFacts)
SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "formats" / "commit.schema.json").read_bytes()
)
RECORDS = [json.loads(each.read_bytes()) for each in sorted(PIPELINE.glob("*/_dstl/log/*.json"))]
COMMITTED = [each for each in RECORDS if "facts" in each["payload"]]

OPERATOR = {
    "rows": 3,
    "changes": 2,
    "changed_keys": 2,
    "keys_gained": -1,
    "log_bytes": 100,
    "output_rows": 1,
    "output_files": ["a.parquet"],
    "late_rows": 1,
    "late_files": ["late.parquet"],
    "warmth": {"warm": 1, "cold": 1},
    "restore_ms": 5,
    "apply_ms": 6,
    "persist_ms": 7,
    "back_pressure_ms": 0,
    "failed_uploads": 0,
    "retries": 0,
}
WORK = {
    "seconds": 1.5,
    "restored_from": 3,
    "watermarks": {"u": -1},
    "changes": 2,
    "changed_keys": 2,
    "log_bytes": 100,
    "output_rows": 1,
    "output_files": ["a.parquet", "late.parquet"],
    "operators": {"u": OPERATOR},
}
INPUT = {"id": "monday", "rows": 3, "hash_sum": "00000000000000ff", "fingerprint_version": 2}
KINDS: dict[str, dict[str, Any]] = {
    "start": {"source": None, "materialization_id": 0, "materialized_bytes": 0},
    "start for a first input": {
        "source": None,
        "materialization_id": 0,
        "materialized_bytes": 0,
        "implied": True,
    },
    "start from a savepoint": {
        "source": {"savepoint": "file:/s", "sha256": "ab"},
        "materialization_id": 1,
        "materialized_bytes": 700,
    },
    "epoch": {"input": INPUT, **WORK},
    "epoch that names its columns": {
        "input": {**INPUT, "columns": {"k": "string", "v": "bigint"}},
        **WORK,
    },
    "epoch with notes": {
        "input": INPUT,
        **WORK,
        "notes": {"w": {"at": [1, None]}},
    },
    "epoch that counts its keys": {
        "input": INPUT,
        **WORK,
        "keys": {"u": {"count": 7, "states": ["n", "total"]}},
    },
    "epoch with a histogram": {
        "input": INPUT,
        **WORK,
        "definitions": {"u": {"h": "histogram(column='v', bounds=(1.0,))"}},
    },
    "epoch that did nothing": {
        "input": {"id": 7, "rows": 0, "hash_sum": "0" * 16, "fingerprint_version": 2},
        "seconds": 0.0,
        "restored_from": 3,
        "watermarks": {},
        "changes": 0,
        "changed_keys": 0,
        "log_bytes": 0,
        "output_rows": 0,
        "output_files": [],
        "operators": {},
    },
    "drain": WORK,
    "materialization": {
        "restored_from": 3,
        "watermarks": {"u": 4},
        "log_bytes_before": 0,
        "materialization_id": 2,
        "materialized_bytes": 0,
    },
    "materialization beside epochs": {
        "restored_from": 3,
        "watermarks": {},
        "log_bytes_before": 90,
        "of_checkpoint": 2,
        "materialized_bytes": 700,
    },
    "migration": {"restored_from": 3, "watermarks": {"u": 4}, "materialized_bytes": 0},
    "erasure": {"restored_from": 3, "watermarks": {"u": 4}},
    "stop": {"restored_from": 3, "watermarks": {}, "savepoint": "file:/s"},
    "resume": {"restored_from": 3, "watermarks": {}},
}
"""What a record of each kind holds."""


def written(kind: str) -> dict[str, Any]:
    return {"kind": kind.split()[0], "attempt": "5f", "metadata_bytes": 9, **KINDS[kind]}


def test_records_of_an_earlier_release_are_read_whole() -> None:
    assert {each["payload"]["facts"]["kind"] for each in COMMITTED} == {
        "start",
        "epoch",
        "materialization",
        "savepoint",
    }
    for record in COMMITTED:
        stored = record["payload"]["facts"]
        assert EpochFacts.from_json(stored).to_json() == stored


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_of_each_kind_has_the_fields_that_it_always_had(kind: str) -> None:
    assert EpochFacts.from_json(written(kind)).to_json() == written(kind)


def test_an_epoch_is_read_as_values() -> None:
    facts = EpochFacts.from_json(written("epoch"))
    assert facts.kind == "epoch" and facts.input is not None
    assert (facts.input.id, facts.input.rows) == ("monday", 3)
    assert facts.output_files == ("a.parquet", "late.parquet")
    assert facts.operators["u"].warmth == {"warm": 1, "cold": 1}
    assert replace(facts, attempt="60") != facts


def test_a_record_without_a_job_says_nothing() -> None:
    assert EpochFacts().to_json() == {}
    assert EpochFacts.from_json({}) == EpochFacts()


def test_the_rule_of_the_first_fingerprints_is_not_written() -> None:
    old = {name: value for name, value in INPUT.items() if name != "fingerprint_version"}
    facts = EpochFacts.from_json({"input": old})
    assert facts.input is not None and facts.input.fingerprint_version == 1
    assert facts.to_json() == {"input": old}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (5, "is damaged: expected an object, got 5, field facts"),
        ({"kind": "pause"}, "expected one of start, epoch, .*, got 'pause', field facts.kind"),
        ({"changes": True}, "expected a whole number, got True, field facts.changes"),
        ({"changes": 1.5}, "expected a whole number, got 1.5, field facts.changes"),
        ({"seconds": "1"}, "expected a number, got '1', field facts.seconds"),
        ({"implied": 1}, "expected true or false, got 1, field facts.implied"),
        ({"notes": []}, r"expected an object, got \[\], field facts.notes"),
        ({"attempt": 5}, "expected text, got 5, field facts.attempt"),
        ({"input": {**INPUT, "id": None}}, "expected text or a whole number, got None, field"),
        ({"input": {"id": 1}}, "lacks a field, field facts.input.rows"),
        ({"output_files": "a"}, "expected a list of names, got 'a', field facts.output_files"),
        ({"output_files": ["a", 1]}, r"expected a list of names, got \['a', 1\]"),
        ({"watermarks": {"u": None}}, "expected a whole number, got None, field facts.water.*u"),
        ({"operators": {"u": {"rows": []}}}, r"got \[\], field facts.operators.u.rows"),
        ({"attempt": {"x": "y" * 500}}, r"got \{'x': 'y{50,60}\.\.\., field facts.attempt"),
    ],
)
def test_a_wrong_field_is_named_in_one_sentence(body: Any, message: str) -> None:
    with pytest.raises(FormatError, match=f"^Commit record 5 .*{message}"):
        EpochFacts.from_json(body, "Commit record 5")


def test_a_field_of_another_release_is_named() -> None:
    with pytest.raises(
        UnsupportedVersionError,
        match=r"Commit record 5 has an unknown field facts.input.color; use the release of dstl",
    ):
        EpochFacts.from_json({"input": {**INPUT, "color": "red"}}, "Commit record 5")


# ----------------------------------------------------------------------------- documentation

TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "str | int": {"type": ["string", "integer"]},
    "str | None": {"type": "string"},
    "int | None": {"type": "integer"},
    "tuple[str, ...]": {"type": "array", "items": {"type": "string"}},
    "Mapping[str, Any]": {"type": "object"},
    "Mapping[str, str] | None": {"type": "object", "additionalProperties": {"type": "string"}},
    "Mapping[str, int]": {"type": "object", "additionalProperties": {"type": "integer"}},
    "Mapping[str, Mapping[str, str]]": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {"type": "string"},
        },
    },
    "Mapping[str, tuple[str, ...]] | None": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "string"}},
    },
    "Mapping[str, OperatorFacts]": {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/OperatorFacts"},
    },
    "Mapping[str, KeyFacts]": {
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/KeyFacts"},
    },
    "Kind | None": {
        "enum": [
            "start",
            "epoch",
            "drain",
            "materialization",
            "migration",
            "erasure",
            "savepoint",
            "stop",
            "resume",
        ]
    },
    "InputFacts | None": {"oneOf": [{"$ref": "#/$defs/InputFacts"}, {"type": "null"}]},
    "SourceFacts | None": {"oneOf": [{"$ref": "#/$defs/SourceFacts"}, {"type": "null"}]},
}


def described(part: type) -> dict[str, str]:
    """The description of each field in the docstrings of a class and its bases."""
    texts = [inspect.cleandoc(each.__doc__ or "").partition("Args:")[2] for each in part.__mro__]
    entries = [
        entry
        for text in texts
        for entry in re.findall(r"^    (\w+): (.*(?:\n        .*)*)", text, re.M)
    ]
    return {name: re.sub(r"\s+", " ", text).replace("``", "`") for name, text in entries}


def test_the_output_of_an_operator_and_its_late_rows_are_found_by_name() -> None:
    first = OperatorFacts(
        output_rows=3, output_files=("a", "b"), late_rows=1, late_files=("c",), rows=9
    )
    facts = EpochFacts(operators={"u": first, "v.late": replace(first, output_files=("d",))})
    assert facts.output_of("u") == (3, ("a", "b"))
    assert facts.output_of("u.late") == (1, ("c",))
    assert facts.output_of("v.late") == (3, ("d",))
    assert facts.output_of("v.late.late") == (1, ("c",))
    assert facts.output_of("v") == facts.output_of("late") == (0, ())


@pytest.mark.parametrize("part", PARTS)
def test_every_field_is_documented(part: Any) -> None:
    own = SCHEMA["$defs"][part.__name__]
    texts = described(part)
    assert own["properties"] == {
        field.name: {"description": texts[field.name], **TYPES[str(field.type)]}
        for field in fields(part)
    }
    required = [
        field.name
        for field in fields(part)
        if field.default is MISSING and field.default_factory is MISSING
    ]
    assert own.get("required", []) == required
    assert own["additionalProperties"] is False


def test_records_are_as_the_documentation_says() -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    for committed in COMMITTED:
        check.validate(committed)
    [record, *_] = COMMITTED
    for kind in KINDS:
        check.validate({**record, "payload": {**record["payload"], "facts": written(kind)}})
    wrong = {**record["payload"], "facts": {**written("epoch"), "color": "red"}}
    assert not check.is_valid({**record, "payload": wrong})
