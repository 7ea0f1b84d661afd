"""State of jobs of PyFlink is read as the job wrote it, in both modes of execution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dstl_core import Snapshot
from dstl_core.codec.pyflink.states import PythonStates
from dstl_core.errors import ConfigError, FormatError
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, snapshot

__all__ = ["run"]

JOBS = GOLDEN / "pyflink-jobs"
COUNTS = {"process": 169, "thread": 50}
CUSTOM = {"@class": "__main__.Custom", "n": 8}
"""What the job stored under the key ``key-3``: an object of a class of its own."""


def savepoint(mode: str) -> str:
    [path] = (JOBS / mode).glob("savepoint-*")
    return str(path)


def truth(mode: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((JOBS / mode / "truth.json").read_bytes())["entries"]
    return entries


def type_text(declared: Any) -> str:
    if isinstance(declared, str):
        return declared
    name, *parts = declared
    inner = parts[0] if name in ("TUPLE", "ROW") else parts
    return f"{name}[{', '.join(map(type_text, inner))}]"


def declared(mode: str) -> dict[str, str]:
    """What the job declares of its states, as ``--type`` takes it."""
    states = json.loads((JOBS / mode / "declared.json").read_bytes())["states"]
    return {
        name: f"map[{type_text(state['k'])}, {type_text(state['type'])}]"
        if "k" in state
        else f"{state['kind']}[{type_text(state['type'])}]"
        for name, state in states.items()
    }


def options(mode: str) -> list[str]:
    return [part for name, text in declared(mode).items() for part in ("--type", f"{name}={text}")]


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def in_order(entries: Any) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in entries)


@pytest.mark.parametrize("mode", COUNTS)
def test_a_dump_is_what_the_job_wrote(mode: str, run: Any) -> None:
    ran = run("dump", savepoint(mode), *options(mode))
    dumped = lines(ran.out)
    own = [each for each in dumped if each.get("value") == CUSTOM]
    assert (ran.code, ran.err) == (0, "")
    assert len(dumped) == COUNTS[mode] + len(own)
    assert in_order(each for each in dumped if each not in own) == in_order(truth(mode))
    assert [each["key"] for each in own] == (["key-3"] if mode == "process" else [])


def test_a_type_for_a_state_of_another_job_is_refused(run: Any) -> None:
    """All states were then shown as those of PyFlink."""
    path = str(snapshot("a-hashmap-canonical"))
    for command in (["dump", path], ["diff", path, path]):
        ran = run(*command, "--type", "cnt=LONG")
        assert (ran.code, ran.out) == (2, "")
        assert "it is one of PyFlink, and the files of other jobs have the types" in ran.err
        assert "(a-keyed/cnt of Long)" in ran.err


def test_a_type_that_nobody_declared_is_a_guess_or_hex(run: Any) -> None:
    """Nothing in the file says whether it is a value or a list, so it stays the stored list."""
    ran = run("dump", savepoint("process"))
    by_state = {
        line["state"]: line for line in lines(ran.out) if line["key"] == "key-4" and "state" in line
    }
    held = {
        entry["state"]: entry
        for entry in truth("process")
        if entry["key"] == "key-4" and "state" in entry
    }
    assert set(by_state) == set(held)
    assert {each["kind"] for each in by_state.values()} == {"list", "map"}
    assert {name for name, each in by_state.items() if each.get("guess") == "PICKLED"} == {
        "plain",
        "events",
        "seen",
    }
    assert by_state["events"]["value"] == held["events"]["value"]
    assert by_state["plain"]["value"] == [held["plain"]["value"]]
    for name in ("v_string", "v_char", "v_dec"):
        assert (by_state[name]["value"], by_state[name]["guess"]) == (
            [held[name]["value"]],
            "STRING",
        )
    assert by_state["v_int"]["value"] == ["0000003c"]
    assert "guess" not in by_state["v_int"]


def test_pickles_of_thread_mode_need_no_type(run: Any) -> None:
    ran = run("dump", savepoint("thread"))
    expected = [
        entry | {"kind": entry["stored"]["kind"]} if "stored" in entry else entry
        for entry in truth("thread")
    ]
    assert in_order(lines(ran.out)) == in_order(expected)


@pytest.mark.parametrize("name", ["total", "python-state-total"])
def test_a_state_has_the_name_that_the_job_gave(name: str, run: Any) -> None:
    ran = run("dump", savepoint("process"), "--state", name, "--type", "total=reducing[LONG]")
    held = [each for each in truth("process") if each.get("state") == "total"]
    assert in_order(lines(ran.out)) == in_order(held)
    assert len(held) == 5


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("totall=LONG", "no operator with keyed state has such a state"),
        ("total=long", "is no type of PyFlink"),
        ("total=map[LONG, LONG]", "is stored as list"),
        ("counts=LONG", "is stored as map"),
    ],
)
def test_a_wrong_type_is_one_sentence(option: str, message: str, run: Any) -> None:
    ran = run("dump", savepoint("process"), "--op", "py", "--type", option)
    assert ran.code == 2
    assert message in ran.err
    assert is_one_sentence(ran.err)


@pytest.mark.parametrize("option", ["total=STRING", "longs=LONG", "v_int=LONG", "plain=INT"])
def test_values_that_are_not_of_the_type_cost_their_state_alone(option: str, run: Any) -> None:
    name = option.partition("=")[0]
    ran = run("dump", savepoint("process"), "--type", option)
    others = [
        line for line in lines(run("dump", savepoint("process")).out) if line.get("state") != name
    ]
    kept = [each for each in lines(ran.out) if each.get("state") != name]
    assert in_order(kept) == in_order(others)
    assert f"python-state-{name}" in ran.err
    assert ran.err.count("\n") == 1


def test_a_pickle_that_would_call_something_costs_its_entry_alone(run: Any, tmp_path: Path) -> None:
    """The name of the class becomes one that a pickle may call, of the same length."""
    raw = (Path(savepoint("process")) / "_metadata").read_bytes()
    calls = raw.replace(
        b"\x8c\x07decimal\x94\x8c\x07Decimal\x94", b"\x8c\x07asyncio\x94\x8c\x07Decimal\x94"
    )
    assert calls != raw
    (tmp_path / "_metadata").write_bytes(calls)
    ran = run("dump", str(tmp_path), "--state", "plain")
    assert "would call asyncio.Decimal; dstl runs nothing that a pickle names" in ran.err
    assert ran.err.count("\n") == 1
    assert sorted(each["key"] for each in lines(ran.out)) == ["key-3", "key-4"]


def test_diff_shows_values_of_python(run: Any, tmp_path: Path) -> None:
    raw = (Path(savepoint("process")) / "_metadata").read_bytes()
    changed = raw.replace("\0\0\0\5sé-9".encode(), "\0\0\0\5sé-8".encode())
    assert changed != raw
    (tmp_path / "_metadata").write_bytes(changed)
    ran = run("diff", savepoint("process"), str(tmp_path), "--json", "--type", "v_string=STRING")
    [line] = [each for each in lines(ran.out) if each.get("state") == "v_string"]
    assert (line["key"], line["before"], line["after"]) == ("key-4", "sé-9", "sé-8")


def test_types_are_an_argument_of_load() -> None:
    loaded = Snapshot.load(savepoint("process"), state_types={"longs": "list[LONG]"})
    [line] = [each for each in loaded["py"].dump("longs") if each["key"] == "key-4"]
    assert (line["kind"], line["value"]) == ("list", [4, 9])


@pytest.mark.parametrize(
    ("mode", "key", "shown"), [("process", "key-4", "key-4"), ("thread", '[1, "k"]', [1, "k"])]
)
def test_a_key_is_found_as_a_dump_shows_it(mode: str, key: str, shown: Any, run: Any) -> None:
    ran = run("dump", savepoint(mode), "--op", "py", "--key", key, *options(mode))
    held = [each for each in truth(mode) if each["key"] == shown]
    assert in_order(lines(ran.out)) == in_order(held)
    assert len(held) > 5
    ran = run("dump", savepoint(mode), "--key", key, "--state", "plain")
    assert [each["state"] for each in lines(ran.out)] == ["plain"]


# --------------------------------------------------------------------------------- columns

PLAIN = {"BYTE": pa.int8(), "SHORT": pa.int16(), "INT": pa.int32(), "LONG": pa.int64()}
PLAIN |= {"BIG_INT": pa.int64(), "BOOLEAN": pa.bool_(), "FLOAT": pa.float32()}
PLAIN |= {
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "CHAR": pa.string(),
    "BIG_DEC": pa.string(),
}


def table_of(state: str | None, types: dict[str, str]) -> pa.Table:
    operator = Snapshot.load(savepoint("process"), state_types=types)["py"]
    reader = operator.keyed() if state is None else operator.flat(state)
    return pa.Table.from_batches(reader.read(), reader.schema)


def as_column(kind: Any, value: Any) -> Any:
    """A value as its column has it: all but scalars are texts."""
    if isinstance(kind, str) and kind in PLAIN:
        return value
    return json.dumps(value, ensure_ascii=False)


def test_a_row_per_key_has_values_of_the_declared_types() -> None:
    states = json.loads((JOBS / "process" / "declared.json").read_bytes())["states"]
    types = declared("process")
    del types["plain"], states["plain"]  # one holds an object of the job
    table = table_of(None, types)
    rows = {row["state_key"]["f0"]: row for row in table.to_pylist()}
    compared = 0
    for line in truth("process"):
        name = line.get("state")
        if name not in states:
            continue
        kind, value = states[name]["type"], line["value"]
        if name == "ttl":
            value = value["v"]
        if states[name]["kind"] == "list":
            expected: Any = [as_column(kind, each) for each in value]
        elif states[name]["kind"] == "map":
            expected = {
                as_column(states[name]["k"], key): as_column(kind, item) for key, item in value
            }
        else:
            expected = as_column(kind, value)
        got = rows[line["key"]][f"python-state-{name}"]
        assert (dict(got) if states[name]["kind"] == "map" else got) == expected, name
        compared += 1
    assert compared > 140


def test_a_state_alone_has_a_row_per_element_or_entry() -> None:
    types = {"longs": "list[LONG]", "counts": "map[STRING, LONG]", "total": "reducing[LONG]"}
    longs = table_of("python-state-longs", types)
    assert longs.schema.field("list_value").type == pa.int64()
    elements = [(row["state_key"]["f0"], row["list_value"]) for row in longs.to_pylist()]
    held = {line["state"]: {} for line in truth("process") if "state" in line}
    for line in truth("process"):
        if "state" in line:
            held[line["state"]][line["key"]] = line["value"]
    assert elements == [(key, n) for key, _ in elements[::2] for n in held["longs"][key]]
    counts = table_of("python-state-counts", types)
    assert {
        (row["state_key"]["f0"], row["map_key"]): row["map_value"] for row in counts.to_pylist()
    } == {(key, name): n for key, pairs in held["counts"].items() for name, n in pairs}
    total = table_of("python-state-total", types)
    assert {row["state_key"]["f0"]: row["state_value"] for row in total.to_pylist()} == held[
        "total"
    ]


@pytest.mark.parametrize(
    ("types", "error", "message"),
    [
        ({"counts": "LONG"}, ConfigError, "is stored as map"),
        ({"longs": "LONG"}, FormatError, "holds more or less than a value"),
        ({"v_int": "LONG"}, FormatError, "ends too early"),
    ],
)
def test_columns_of_another_type_are_one_sentence(
    types: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        table_of(None, types)


def test_a_value_is_decoded_once_for_its_line(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    shown = PythonStates.shown

    def counted(self: PythonStates, name: str, kind: str, value_type: Any, value: Any) -> Any:
        decoded.append(1)
        return shown(self, name, kind, value_type, value)

    monkeypatch.setattr(PythonStates, "shown", counted)
    printed = lines(run("dump", savepoint("process"), *options("process"), "--jobs", "1").out)
    values = [line for line in printed if "value" in line and "kg" in line]
    assert len(values) > 100
    assert len(decoded) == len(values)
