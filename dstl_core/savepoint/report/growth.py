"""How each keyed state grew from one snapshot to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from dstl_core.errors import DAMAGED
from dstl_core.savepoint.access.units import Jobs
from dstl_core.savepoint.compare.diff import count_changes
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.columns.progress import Advance, no_progress

Contents = Mapping[str, dict[str, Any]]


def state_growth(
    older: Snapshot,
    snapshot: Snapshot,
    before: Contents,
    after: Contents,
    on_progress: Advance = no_progress,
    jobs: Jobs = 1,
) -> Iterator[dict[str, Any]]:
    """Entries and bytes of each state in both snapshots, and its new, gone and changed entries.

    Args:
        older: The snapshot to compare with.
        snapshot: The snapshot that may have grown.
        before: The contents of the older snapshot's operators, by hash.
        after: The same for the newer snapshot.
        on_progress: Called with the bytes of state of both that were compared.
        jobs: Number of processes that compare keyed state; None: all cores if it is large.

    Yields:
        The states of each operator. The figures of a state that cannot be compared are None, and
        ``problem`` says why.
    """
    ours = {each.operator_id: each for each in older.operators}
    theirs = {each.operator_id: each for each in snapshot.operators}
    for operator_id in dict.fromkeys([*theirs, *ours]):
        one, two = ours.get(operator_id), theirs.get(operator_id)
        operator = two or one
        assert operator is not None  # one of the snapshots has the id
        sizes = [_by_state(side.get(operator_id.hex)) for side in (before, after)]
        label = operator.label
        try:
            changes = [asdict(each) for each in count_changes(one, two, on_progress, jobs)]
        except DAMAGED as error:
            yield {"operator": label, "state": None, "problem": str(error)}
            continue
        for change in changes:
            yield {
                "operator": label,
                **change,
                "before": sizes[0].get((change["state"], change["kind"])),
                "after": sizes[1].get((change["state"], change["kind"])),
                "problem": None,
            }


def _by_state(contents: dict[str, Any] | None) -> dict[tuple[str, str], dict[str, int]]:
    states = [] if contents is None else contents["states"]
    return {
        (figures["name"], figures["kind"]): {
            "entries": figures["entries"],
            "bytes": figures["key_bytes"] + figures["value_bytes"],
        }
        for figures in states
    }
