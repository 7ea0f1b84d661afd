"""Looks for purged entries in what is left, before anybody can see it."""

from __future__ import annotations

from collections import Counter

from dstl_core.errors import SavepointError, error_context
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle
from dstl_core.savepoint.purge.purge import Purge
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.timer_queues import with_timer_queues


def check_purged(operator: OperatorCatalog, purge: Purge) -> None:
    """Looks for what was purged in all keyed state of an operator, in every file.

    Raises:
        SavepointError: Something is left. The message names no key.
    """
    left: Counter[str] = Counter()
    with error_context(location=str(operator.snapshot.folder), operator=operator.label):
        operator = with_timer_queues(operator)
        for handle in operator.keyed_handles:
            if isinstance(handle, IncrementalRemoteKeyedStateHandle):
                left.update(found_in_tables(operator, purge, handle))
            else:
                left.update(purge.found(operator, handle))
    wrong = ", ".join(f"{count:,} in {name!r}" for name, count in left.items() if count)
    if wrong:
        raise SavepointError(
            f"Entries that should have gone are still there, so nothing was published: {wrong} of "
            f"operator {operator.label!r}; the source did not change."
        )


def found_in_tables(
    operator: OperatorCatalog, purge: Purge, handle: IncrementalRemoteKeyedStateHandle
) -> Counter[str]:
    """The purged entries in files of RocksDB, older versions and deletions included, by state."""
    from dstl_core.savepoint.purge.purged_tables import PurgedTables  # loads kernels

    return PurgedTables(purge, operator.snapshot.tables).found(handle)
