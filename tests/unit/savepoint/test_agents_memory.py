"""The memory of Flink Agents is read without its jar: what the job in ``Agents.java`` kept."""

from __future__ import annotations

from typing import Any

from dstl_core import Snapshot
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

SAVEPOINT = GOLDEN / "agents-job" / "savepoint"
"""Six numbers, dealt out to two keys in turn."""


def value(held: Any) -> dict[str, Any]:
    return {"subKeys": [], "type": "VALUE", "value": held}


def below(*names: str) -> dict[str, Any]:
    return {"subKeys": sorted(names), "type": "OBJECT", "value": None}


def short_term(last: int) -> list[Any]:
    """What the third number of a key left in the memory."""
    return [
        ["", below("visits", "user", "seen", "note")],
        ["note", value([["n", last]])],
        ["seen", value([last, f"s{last}"])],
        ["user", below("name", "score", "is_new")],
        ["user.is_new", value(False)],
        ["user.name", value(f"ü{last}")],
        ["user.score", value(last / 4)],
        ["visits", value(3)],
    ]


def test_the_memory_of_an_agent_is_read(run: Any) -> None:
    ran = run("dump", str(SAVEPOINT))
    assert (ran.code, ran.err) == (0, "")
    dumped = {(line["state"], line.get("key")): line["value"] for line in ran.lines}
    assert dumped == {
        ("shortTermMemory", "user-0"): short_term(4),
        ("shortTermMemory", "user-1"): short_term(5),
        ("sensoryMemory", "user-1"): [["", below("draft")], ["draft", value(None)]],
        ("messageSequenceNumber", "user-0"): 2,
        ("messageSequenceNumber", "user-1"): 2,
        ("currentProcessingKeys", None): ["user-1"],
    }


def test_a_state_of_any_class_is_not_called_unreadable(run: Any) -> None:
    ran = run("inspect", str(SAVEPOINT))
    assert "not readable" not in ran.out
    assert "values of any class: state 'currentProcessingKeys' (java.lang.Object)" in ran.out


def test_an_entry_of_the_memory_is_found_by_its_key() -> None:
    lines = Snapshot.load(SAVEPOINT)["agent"].dump("sensoryMemory")
    assert [line["key"] for line in lines] == ["user-1"]
