"""Checkpoint ids. Source of the interface: ``CheckpointIDCounter`` of Flink 2.2.1."""

from __future__ import annotations

from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.errors import CheckpointError


class CheckpointIDCounter:
    """Hands out the ids of one owner, ascending over all owners of a pipeline.

    Invariant: an id is at most ``in_flight`` above the ids in the log, so that the next owner can
    skip it.
    """

    def __init__(self, store: CompletedCheckpointStore) -> None:
        self._store = store
        self._next = 1

    def get(self) -> int:
        return max(self._next, self._store.next_checkpoint_id())

    def get_and_increment(self) -> int:
        """Takes an id.

        Raises:
            CheckpointError: Too many checkpoints are in flight.
            StorageError: Earlier aborts could not be recorded.
            FencedError: Another owner has claimed the pipeline.
        """
        # After another owner's claim the known ids belong to that owner.
        self._store.check_known_claim()
        if self.get() >= self._store.id_limit():
            self._store.record_aborts()
        taken, limit = self.get(), self._store.id_limit()
        if taken >= limit:
            raise CheckpointError(
                f"Too many checkpoints are in flight: expected an id below {limit}, got {taken}; "
                f"wait until one of them ends.",
                checkpoint_id=taken,
            )
        self._next = taken + 1
        return taken

    def set_count(self, next_id: int) -> None:
        """Continues from an id, unless a higher one was used."""
        self._next = max(self._next, next_id)
