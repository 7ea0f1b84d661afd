"""Finds the inputs that led to the latest state.

Along a lineage the ids of commits and of inputs ascend. So a search reads the commits newest first
and stops early; it reads old commits only for an old input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class InputPlace:
    """The place of an input in a lineage.

    Args:
        latest: The latest commit.
        commit: The commit of the input; None if it was not committed.
        last_input: Id of the last committed input; None if there is none.
    """

    latest: CompletedCheckpoint
    commit: CompletedCheckpoint | None
    last_input: Any


def find_input(line: Iterable[CompletedCheckpoint], input_id: str | int) -> InputPlace | None:
    """Finds an input in a lineage, newest first; None if the lineage is empty."""
    latest = last = None
    for commit in line:
        latest = latest or commit
        stored = commit.facts.input
        if stored is None:
            continue
        last = stored.id if last is None else last
        if stored.id == input_id:
            return InputPlace(latest, commit, last)
        if not _is_of_type(last, input_id) or _comes_before(stored.id, input_id):
            break
    return None if latest is None else InputPlace(latest, None, last)


def check_nothing_undone(line: Iterable[CompletedCheckpoint], input_id: str | int) -> None:
    """Raises ConfigError if a migration went back in a lineage, newest first, and no epoch since.

    The inputs that it undid would be left out without a word.
    """
    for commit in line:
        restored = commit.facts.restored_from
        if commit.facts.input is not None:
            return
        if commit.facts.kind == "migration" and restored != commit.parent:
            raise ConfigError(
                f"The input {input_id!r} would leave inputs out: a migration went back to "
                f"checkpoint {restored}, and undid those after it. Run the first of them with "
                f"rewind=True, and then the later ones."
            )


def check_order_of_inputs(last: Any, input_id: str | int) -> None:
    """Raises ConfigError if an id does not come after the last committed one."""
    if last is None:
        return
    check_type(last, input_id)
    if input_id < last:
        raise ConfigError(
            f"The input {input_id!r} comes before the last committed one, {last!r}, and state does "
            f"not go back by itself; give rewind=True to go back to before {input_id!r} (later "
            f"inputs have to be run again), or run it in a pipeline of another name, started from "
            f"an earlier savepoint."
        )


def check_type(last: Any, input_id: str | int) -> None:
    """Raises ConfigError if two ids cannot be compared."""
    if not _is_of_type(last, input_id):
        raise ConfigError(
            f"All input ids of a pipeline have one type: expected {type(last).__name__}, got "
            f"{type(input_id).__name__}."
        )


def _is_of_type(last: Any, input_id: str | int) -> bool:
    """Whether two ids are both texts or both numbers; NumPy and enums have subclasses of them."""
    return isinstance(last, str) == isinstance(input_id, str)


def _comes_before(stored: Any, input_id: Any) -> bool:
    """Whether an id comes before another one of its type."""
    return bool(stored < input_id)


def commit_before(line: Iterable[CompletedCheckpoint], input_id: str | int) -> CompletedCheckpoint:
    """The last commit of a lineage, newest first, that has no input from ``input_id`` on.

    Raises:
        ConfigError: There is no such commit.
    """
    candidate = None
    for commit in line:
        stored = commit.facts.input
        if stored is None:
            candidate = candidate or commit
            continue
        check_type(stored.id, input_id)
        if _comes_before(stored.id, input_id):
            return candidate or commit
        candidate = None
    if candidate is None:
        raise ConfigError(f"There is no checkpoint before the input {input_id!r} to go back to.")
    return candidate
