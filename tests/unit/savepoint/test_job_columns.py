"""Values of the job's classes in columns: JSON texts with the jar, bytes without it."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from dstl_core import Snapshot
from tests.golden_files import UPGRADE_JOBS
from tests.unit.savepoint.test_job_values import plain, savepoint


def rows(job: str, state: str, *, jar: bool) -> tuple[pa.Schema, list[dict[str, Any]]]:
    folder = UPGRADE_JOBS / job
    snapshot = Snapshot.load(savepoint(folder), jars=[folder / "job.jar"] if jar else [])
    [operator] = [each for each in snapshot.operators if each.keyed_handles]
    reader = operator.keyed() if state == "keyed" else operator.flat(state)
    return reader.schema, [row for batch in reader.read() for row in batch.to_pylist()]


def truth(job: str, state: str) -> dict[str, Any]:
    entries = json.loads((UPGRADE_JOBS / job / "truth.json").read_bytes())["entries"]
    return {each["key"]: each["value"] for each in entries if each.get("state") == state}


def test_a_state_alone() -> None:
    schema, table = rows("sessions", "session", jar=True)
    assert schema.field("state_value").type == pa.string()
    values = {row["state_key"]: plain(json.loads(row["state_value"])) for row in table}
    assert values == {key: plain(value) for key, value in truth("sessions", "session").items()}


def test_a_row_per_key_with_lists_of_the_job() -> None:
    schema, table = rows("sessions", "keyed", jar=True)
    assert schema.field("events").type == pa.string()
    values = {row["state_key"]: plain(json.loads(row["events"])) for row in table}
    assert values == {key: plain(value) for key, value in truth("sessions", "events").items()}


def test_without_the_jar_values_stay_bytes() -> None:
    schema, table = rows("sessions", "session", jar=False)
    assert schema.field("state_value").type == pa.binary()
    assert all(row["state_value"].startswith(b"\x57\x01") for row in table)
