"""What the records of a commit log say of a pipeline's checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.checkpoint.completed_checkpoint import (
    CompletedCheckpoint,
    first_free_id,
    in_flight_of,
)
from dstl_core.storage.commit_log import CommitLog, LogRecord


class RecordedCheckpoints:
    """A view of a commit log, as far as this process has read it.

    Args:
        log: The log.
        on_claimed: Called with each snapshot whose files became the pipeline's own.
    """

    def __init__(self, log: CommitLog, on_claimed: Callable[[CompletedCheckpoint], None]) -> None:
        self._log = log
        self._on_claimed = on_claimed
        self._seen = 0
        self.commits: list[CompletedCheckpoint] = []
        """All commits, oldest first, retired ones too."""
        self.held: list[CompletedCheckpoint] = []
        """What the pipeline can restore from, as far as no later record discards it."""
        self.ids: set[int] = set()
        """Checkpoint ids that a record has used up."""
        self.next_id = 1
        """The first id behind all that the records name."""
        self.in_flight = 1
        """How many ids beyond ``next_id`` the latest owner may use."""

    def read(self) -> None:
        """Takes in the records that the log has got since the last look."""
        for record in self._log.records_after(self._seen):
            self._take(record)
            self._seen += 1

    def _take(self, record: LogRecord) -> None:
        match record.type:
            case "claim":
                self.in_flight = in_flight_of(record)
            case "commit":
                checkpoint = CompletedCheckpoint.of(record)
                self.commits.append(checkpoint)
                self.held.append(checkpoint)
            case "restore":
                checkpoint = CompletedCheckpoint.of(record)
                self.held.append(checkpoint)
                if not checkpoint.properties.unclaimed:
                    self._on_claimed(checkpoint)
            case "discard":
                kept = set(record.payload.get("kept_ids", ()))  # what was subsumed is gone, too
                self.held = [each for each in self.held if each.checkpoint_id in kept]
        first_free = first_free_id(record)
        if record.type in ("commit", "abort", "savepoint"):
            self.ids.add(first_free - 1)
        self.next_id = max(self.next_id, first_free)
