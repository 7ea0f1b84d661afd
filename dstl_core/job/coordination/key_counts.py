"""Counts the keys of functions on columns from commit to commit, without reading their state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import KeyFacts
from dstl_core.functions import KeyedColumnFunction
from dstl_core.job.spec.operators import Operator


def no_keys(operators: Iterable[Operator]) -> dict[str, KeyFacts]:
    """The keys of a pipeline that starts without state, by uid of the operator."""
    return {uid: KeyFacts(count=0, states=names) for uid, names in _counting(operators).items()}


def keys_before(parent: CompletedCheckpoint, operators: Iterable[Operator]) -> dict[str, KeyFacts]:
    """The keys before an epoch, by uid of the operator, where they are known.

    A key that has a value only in a state that the function no longer declares would be counted
    twice. So the count ends when a state is given up.

    Args:
        parent: The commit whose state the epoch restores.
        operators: The operators of the job.
    """
    counts = {}
    for uid, names in _counting(operators).items():
        known = parent.facts.keys.get(uid)
        if known is not None and set(known.states) <= set(names):
            counts[uid] = KeyFacts(count=known.count, states=names)
    return counts


def keys_kept(parent: CompletedCheckpoint, operators: Iterable[Operator]) -> Mapping[str, KeyFacts]:
    """The keys after a commit that has the state of its parent, by uid of the operator."""
    known, uids = parent.facts.keys, {each.uid for each in operators}
    return {uid: each for uid, each in known.items() if uid in uids}


def _counting(operators: Iterable[Operator]) -> dict[str, tuple[str, ...]]:
    return {
        operator.uid: tuple(state.name for state in operator.function.states)
        for operator in operators
        if isinstance(operator.function, KeyedColumnFunction)
    }
