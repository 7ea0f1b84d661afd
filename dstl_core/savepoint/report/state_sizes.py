"""Entries and bytes of each state of a snapshot, to see over several snapshots what grows."""

from __future__ import annotations

from typing import Any

from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.report.contents import operator_contents
from dstl_core.savepoint.report.count_options import CountOptions


def state_sizes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Counts every record of a snapshot, in bounded memory.

    Returns:
        A dictionary per state with ``operator`` (its uid or hash), ``state``, ``kind``,
        ``entries`` and ``bytes``. A value, a list, an entry of a map and a timer is an entry; of
        operator state it is an element. Bytes are those of stored keys and values, before
        compression; None for operator state.

    Raises:
        FormatError: The state is damaged.
        StateFileNotFoundError: A file is missing.
    """
    rows = []
    for operator in snapshot.operators:
        contents = operator_contents(operator, CountOptions(at_ms=0))
        for state in (*contents["states"], *contents["operator_states"]):
            is_keyed = "key_bytes" in state
            rows.append(
                {
                    "operator": operator.label,
                    "state": state["name"],
                    "kind": state["kind"],
                    "entries": state["entries"],
                    "bytes": state["key_bytes"] + state["value_bytes"] if is_keyed else None,
                }
            )
    return sorted(rows, key=lambda row: (row["operator"], row["state"], row["kind"]))
