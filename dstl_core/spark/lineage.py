"""Which inputs the latest state stands on.

Every commit names the one that it was restored from. After a rewind some commits are in the log,
but not in the lineage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError

RESTORED_FROM = "restored_from"


def lineage(history: Sequence[CompletedCheckpoint]) -> list[CompletedCheckpoint]:
    """The commits that led to the latest one, oldest first."""
    by_id = {each.checkpoint_id: each for each in history}
    found: list[CompletedCheckpoint] = []
    each = history[-1] if history else None
    while each is not None:
        found.append(each)
        before = each.facts.get(RESTORED_FROM, each.parent)
        each = None if before is None else by_id.get(int(before))
    return found[::-1]


def commit_of(line: Sequence[CompletedCheckpoint], input_id: str | int) -> int | None:
    """The place of the commit of an input."""
    for at in reversed(range(len(line))):
        stored = line[at].facts.get("input")
        if stored is not None and stored["id"] == input_id:
            return at
    return None


def check_order_of_inputs(line: Sequence[CompletedCheckpoint], input_id: str | int) -> None:
    """Raises ConfigError if an id is not behind all that were committed."""
    inputs: list[Any] = [each.facts["input"]["id"] for each in line if "input" in each.facts]
    if not inputs:
        return
    last = inputs[-1]
    check_type(last, input_id)
    if input_id < last:
        raise ConfigError(
            f"The input {input_id!r} comes after {last!r} was committed, and state does not "
            f"go back by itself; give rewind=True to go back to before {input_id!r} (later inputs "
            f"have to be run again), or run it in a pipeline of another name, started from an "
            f"earlier savepoint."
        )


def check_type(last: Any, input_id: str | int) -> None:
    """Raises ConfigError if two ids cannot be compared."""
    if type(last) is not type(input_id):
        raise ConfigError(
            f"Input ids of one pipeline are of one type: expected {type(last).__name__}, got "
            f"{type(input_id).__name__}."
        )


def before_input(line: Sequence[CompletedCheckpoint], input_id: str | int) -> CompletedCheckpoint:
    """The commit whose state holds no input from ``input_id`` on.

    Raises:
        ConfigError: There is none.
    """
    for at in reversed(range(len(line))):
        stored = line[at].facts.get("input")
        if stored is not None:
            check_type(stored["id"], input_id)
            if stored["id"] >= input_id:
                continue
        elif any(
            "input" in each.facts and each.facts["input"]["id"] >= input_id for each in line[:at]
        ):
            continue
        return line[at]
    raise ConfigError(f"There is no checkpoint before the input {input_id!r} to go back to.")
