"""State of jobs in Scala is read as Flink reads it, and no upgrade keeps what Flink 2 refuses."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.errors import SavepointError, UnreadableValueError
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.restores.restore_check import check_restore
from dstl_core.state.tables.compatibility import Verdict
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

JOBS = GOLDEN / "scala-jobs"
OF_SCALA = ["eithers", "opts", "reading"]


def savepoint(job: str) -> Path:
    [path] = (JOBS / job).glob("savepoint-*")
    return path


def jar(job: str) -> str:
    """The class files of its case classes."""
    return str(JOBS / job / "job.jar")


def truth(job: str) -> list[dict[str, Any]]:
    entries_: list[dict[str, Any]] = json.loads((JOBS / job / "truth.json").read_bytes())["entries"]
    return entries_


def without_names(value: Any) -> Any:
    """Fields have numbers without the class files of the job."""
    if isinstance(value, dict) and not set(value) & {"left", "right"}:
        return {f"_{at}": without_names(item) for at, item in enumerate(value.values(), 1)}
    if isinstance(value, dict):
        return {name: without_names(item) for name, item in value.items()}
    return [without_names(item) for item in value] if isinstance(value, list) else value


def entries(lines: Any) -> list[str]:
    return sorted(json.dumps(line, sort_keys=True) for line in lines)


COUNTS = {"orders": 60, "keys": 230, "colls": 54, "enum-gaps": 60}


@pytest.mark.parametrize("job", COUNTS)
def test_a_dump_is_what_flink_holds(job: str, run: Any) -> None:
    ran = run("dump", str(savepoint(job)), "--jar", jar(job))
    dumped = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, ran.err, len(dumped)) == (0, "", COUNTS[job])
    assert entries(dumped) == entries(truth(job))


@pytest.mark.parametrize("job", COUNTS)
def test_fields_have_numbers_without_the_class_files(job: str, run: Any) -> None:
    ran = run("dump", str(savepoint(job)))
    expected = [{name: without_names(item) for name, item in each.items()} for each in truth(job)]
    assert ran.err == ""
    assert entries(map(json.loads, ran.out.splitlines())) == entries(expected)


def test_a_damaged_class_file_costs_the_values_of_its_class(run: Any, tmp_path: Path) -> None:
    """Their values could be read, but with other names than those of the states beside them."""
    damaged = tmp_path / "job.jar"
    with zipfile.ZipFile(jar("orders")) as old, zipfile.ZipFile(damaged, "w") as new:
        for name in old.namelist():
            raw = old.read(name)
            new.writestr(name, raw[: len(raw) // 2] if name == "shop/Line.class" else raw)
    ran = run("dump", str(savepoint("orders")), "--jar", str(damaged))
    held = [each for each in truth("orders") if each.get("state") != "byItem"]
    kept = [each for each in held if each.get("state") != "order" or not each["value"]["lines"]]
    assert entries(map(json.loads, ran.out.splitlines())) == entries(kept)
    assert len(kept) < len(held)
    assert len(ran.err.splitlines()) == 2
    assert all("shop/Line.class" in line for line in ran.err.splitlines())


def without_own_class(line: dict[str, Any]) -> dict[str, Any]:
    """The truth has no class of a whole value or element, only of fields of another class."""
    value: Any = line["value"]
    if isinstance(value, dict):
        return line | {"value": {key: item for key, item in value.items() if key != "@class"}}
    shown = (
        [without_own_class({"value": each})["value"] for each in value]
        if line.get("kind") == "list"
        else value
    )
    return line | {"value": shown}


def test_values_that_chill_wrote_are_what_flink_holds(run: Any) -> None:
    """Sealed traits, sorted collections, ``Any`` and numbers of Scala, in Kryo and beside it."""
    ran = run("dump", str(savepoint("adt")), "--jar", jar("adt"))
    dumped = [json.loads(line) for line in ran.out.splitlines()]
    assert (ran.code, ran.err, len(dumped)) == (0, "", 64)
    assert entries(map(without_own_class, dumped)) == entries(truth("adt"))
    shapes = {
        json.dumps(line["value"].get("@class"))
        for line in dumped
        if line["state"] == "shape" and isinstance(line["value"], dict)
    }
    assert shapes == {'"adt.Circle"', '"adt.Rect"', '"adt.Group"'}


def test_states_beside_kryo_inside_a_type_of_scala_are_read() -> None:
    """The type nests Kryo, which needs the job's classes; the states beside it need none."""
    [operator] = [op for op in Snapshot.load(savepoint("adt")).operators if op.states]
    assert {info.name for info in operator.states} >= {each["state"] for each in truth("adt")}
    states = ("any", "bits", "sorted", "sset", "sym")
    readable = [line for line in operator.dump() if line["state"] in states]
    assert entries(readable) == entries(each for each in truth("adt") if each["state"] in states)


def test_no_upgrade_converts_a_value_that_chill_wrote(tmp_path: Path) -> None:
    """Kryo of Flink 2.x has no chill."""
    source = Snapshot.load(savepoint("adt"), jars=[jar("adt")])
    blocked = ["bits", "holder", "sorted", "sset", "sym"]
    steps = {step.state: step.action for step in SavepointUpgrade(source).plan()}
    assert [name for name, action in sorted(steps.items()) if action == "blocked"] == blocked
    for kept in ("any", "shape", "shapes"):
        drop = [name for name in (*blocked, "any", "shape", "shapes") if name != kept]
        with pytest.raises(UnreadableValueError, match=r"of Flink 2\.x has no serializer for it"):
            SavepointUpgrade(source, drop=drop).write(tmp_path / kept)
        assert not (tmp_path / kept).exists()


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
        load["state"] for load in json.loads(ran.out)["states"] if load["action"] == "blocked"
    ]
    assert (ran.code, sorted(blocked)) == (1, OF_SCALA)
    with pytest.raises(SavepointError, match=r"Flink 2\.x has no type .* states blocked in all: 3"):
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


def test_columns_have_the_names_of_fields() -> None:
    """Types with no ``Option``, which is a list in a dump and null or a value in a column."""
    compared = 0
    for operator in Snapshot.load(savepoint("keys"), jars=[jar("keys")]).operators:
        if operator.key_type is None or "Option" in operator.key_type.serializer.type_name:
            continue
        rows = [row for batch in operator.flat("n").read() for row in batch.to_pylist()]
        held = [
            entry
            for entry in truth("keys")
            if (entry["op"], entry.get("state")) == (operator.label, "n")
        ]
        assert sorted(_as_json(row["state_key"], row["state_value"]) for row in rows) == sorted(
            _as_json(entry["key"], entry["value"]) for entry in held
        )
        compared += len(rows)
    assert compared > 0


def test_an_option_is_null_and_an_enumeration_a_text_in_columns() -> None:
    """``truth`` has ``Option`` as a list of one value or none."""
    [operator] = [
        op for op in Snapshot.load(savepoint("orders"), jars=[jar("orders")]).operators if op.states
    ]
    held = {each["key"]: each["value"] for each in truth("orders") if each.get("state") == "pair"}
    rows = [row for batch in operator.flat("pair").read() for row in batch.to_pylist()]
    assert {row["state_key"]: row["state_value"] for row in rows} == {
        key: {"_1": number, "_2": {**customer, "since": next(iter(customer["since"]), None)}}
        for key, (number, customer) in held.items()
    }
    assert len(rows) > 0


def _as_json(key: Any, value: Any) -> str:
    """A tuple is a struct in a column and a list in a dump."""
    return json.dumps([_listed(key), value])


def _listed(value: Any) -> Any:
    if isinstance(value, dict) and "_1" in value:
        return [_listed(item) for item in value.values()]
    if isinstance(value, dict):
        return {name: _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list) else value
