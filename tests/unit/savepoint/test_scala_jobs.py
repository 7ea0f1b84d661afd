"""State of jobs in Scala is read as Flink reads it, and no upgrade keeps what Flink 2 refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.errors import SavepointError
from dstl_core.savepoint.check.restore_check import check_restore
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.state.tables.compatibility import Verdict
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

JOBS = GOLDEN / "scala-jobs"
OF_SCALA = ["eithers", "opts", "reading"]


def savepoint(job: str) -> Path:
    [path] = (JOBS / job).glob("savepoint-*")
    return path


def without_names(value: Any) -> Any:
    """A savepoint has no names of fields; Flink has them from the classes of the job."""
    if isinstance(value, dict):
        return [without_names(item) for item in value.values()]
    return [without_names(item) for item in value] if isinstance(value, list) else value


def entries(lines: Any) -> list[str]:
    return sorted(
        json.dumps({name: without_names(item) for name, item in line.items()}, sort_keys=True)
        for line in lines
    )


@pytest.mark.parametrize(("job", "count"), [("orders", 60), ("keys", 230), ("colls", 54)])
def test_values_are_those_that_flink_holds(job: str, count: int) -> None:
    truth = json.loads((JOBS / job / "truth.json").read_bytes())["entries"]
    loaded = Snapshot.load(savepoint(job))
    found = entries(line for operator in loaded.operators for line in operator.dump())
    assert len(found) == count
    assert found == entries(truth)


def test_states_beside_kryo_inside_a_type_of_scala_are_read() -> None:
    """The type nests Kryo, which needs the job's classes; the state beside it needs none."""
    truth = json.loads((JOBS / "adt" / "truth.json").read_bytes())["entries"]
    [operator] = [op for op in Snapshot.load(savepoint("adt")).operators if op.states]
    assert {info.name for info in operator.states} >= {each["state"] for each in truth}
    readable = [line for line in operator.dump() if line.get("state") == "bits"]
    assert len(readable) == 8
    assert entries(readable) == entries(each for each in truth if each.get("state") == "bits")


@pytest.mark.parametrize("job", ["canonical", "native", "rocksdb"])
def test_what_check_calls_incompatible_blocks_the_upgrade(
    job: str, run: Any, tmp_path: Path
) -> None:
    path = savepoint(job)
    loaded = Snapshot.load(path)
    checked = check_restore(loaded, loaded, to="2.2")
    refused = [
        line.state
        for line in checked.lines
        if line.verdict is Verdict.INCOMPATIBLE and line.state is not None
    ]
    assert sorted(refused) == OF_SCALA

    ran = run("upgrade", str(path), "--to", "2.2", "--plan", "--json")
    blocked = [
        each["state"] for each in json.loads(ran.out)["states"] if each["action"] == "blocked"
    ]
    assert (ran.code, sorted(blocked)) == (1, OF_SCALA)
    with pytest.raises(SavepointError, match=r"Flink 2\.0 removed .* states blocked in all: 3"):
        SavepointUpgrade(loaded).write(tmp_path / "refused")
    assert not (tmp_path / "refused").exists()

    out = Snapshot.load(SavepointUpgrade(loaded, drop=OF_SCALA).write(tmp_path / "out"))
    kept = entries(line for operator in out.operators for line in operator.dump())
    every = [line for operator in loaded.operators for line in operator.dump()]
    assert kept == entries(each for each in every if each.get("state") not in OF_SCALA)
    assert (len(every), len(kept)) == (52, 31)
    assert check_restore(out, out, to="2.2").is_compatible


def test_an_operator_without_states_has_no_stream_that_names_its_keys(tmp_path: Path) -> None:
    """Flink 2 has no class for keys of Scala, and writes no stream without states itself."""
    loaded = Snapshot.load(savepoint("keys"))
    steps = SavepointUpgrade(loaded).plan()
    drop = [f"{step.operator}/{step.state}" for step in steps if step.action == "blocked"]
    out = SavepointUpgrade(loaded, drop=drop).write(tmp_path / "out")
    kept = {each.label for each in Snapshot.load(out).operators if each.keyed_handles}
    assert kept == {"7a70d3f3dc54f5f4255bb2cadf67d7a6"}, "the operator with keys of integers"


def test_columns_hold_what_records_hold() -> None:
    """Types with no ``Option``, which is a list in a dump and null or a value in a column."""
    compared = 0
    for operator in Snapshot.load(savepoint("keys")).operators:
        if operator.key_type is None or "Option" in operator.key_type.serializer.type_name:
            continue
        rows = [row for batch in operator.flat("n").read() for row in batch.to_pylist()]
        dumped = [line for line in operator.dump() if line.get("state") == "n"]
        columns = sorted(
            json.dumps(without_names([row["state_key"], row["state_value"]])) for row in rows
        )
        assert columns == sorted(
            json.dumps(without_names([line["key"], line["value"]])) for line in dumped
        )
        compared += len(rows)
    assert compared > 0
