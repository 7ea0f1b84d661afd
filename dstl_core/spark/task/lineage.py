"""Which inputs the latest state stands on.

Every commit names the one that it was restored from. After a rewind some commits are in the log,
but not in the lineage. Along a lineage the ids of commits and of inputs grow. So whoever looks for
one goes through the commits newest first, and stops as soon as it is clear; old commits are read
only if somebody asks for an old input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError


def lineage(commits: Iterable[CompletedCheckpoint]) -> Iterator[CompletedCheckpoint]:
    """The commits that led to the latest one; given and returned newest first."""
    wanted: int | None = None
    for each in commits:
        if wanted is not None and each.checkpoint_id > wanted:
            continue
        if wanted is not None and each.checkpoint_id < wanted:
            return  # it was restored from a snapshot that is no commit
        yield each
        restored_from = each.facts.restored_from
        wanted = each.parent if restored_from is None else restored_from
        if wanted is None:
            return


@dataclass(frozen=True, slots=True)
class InputPlace:
    """Where an input stands in a lineage.

    Args:
        latest: The latest commit.
        commit: That of the input; None if it was not committed.
        last_input: Id of the last input that was committed; None if there was none.
    """

    latest: CompletedCheckpoint
    commit: CompletedCheckpoint | None
    last_input: Any


def find_input(line: Iterable[CompletedCheckpoint], input_id: str | int) -> InputPlace | None:
    """Looks for an input in a lineage, newest first; None if that is empty."""
    latest = last = None
    for each in line:
        latest = latest or each
        stored = each.facts.input
        if stored is None:
            continue
        last = stored.id if last is None else last
        if stored.id == input_id:
            return InputPlace(latest, each, last)
        if not _is_of_type(last, input_id) or _comes_before(stored.id, input_id):
            break
    return None if latest is None else InputPlace(latest, None, last)


def check_order_of_inputs(last: Any, input_id: str | int) -> None:
    """Raises ConfigError if an id is not behind the last one that was committed."""
    if last is None:
        return
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
    if not _is_of_type(last, input_id):
        raise ConfigError(
            f"Input ids of one pipeline are of one type: expected {type(last).__name__}, got "
            f"{type(input_id).__name__}."
        )


def _is_of_type(last: Any, input_id: str | int) -> bool:
    return type(last) is type(input_id)


def _comes_before(stored: Any, input_id: Any) -> bool:
    """Whether an id comes before another one of its type."""
    return bool(stored < input_id)


def before_input(line: Iterable[CompletedCheckpoint], input_id: str | int) -> CompletedCheckpoint:
    """The last commit of a lineage, newest first, whose state holds no input from ``input_id`` on.

    Raises:
        ConfigError: There is none.
    """
    found = None
    for each in line:
        stored = each.facts.input
        if stored is None:
            found = found or each
            continue
        check_type(stored.id, input_id)
        if _comes_before(stored.id, input_id):
            return found or each
        found = None
    if found is None:
        raise ConfigError(f"There is no checkpoint before the input {input_id!r} to go back to.")
    return found
