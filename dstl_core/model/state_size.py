"""Size of a changelog checkpoint: its full state, and the log on top of it."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyGroupsSavepointStateHandle,
    StreamStateHandle,
)

SMALL_LOG_BYTES = 1 << 20
"""A log below this size is not worth a materialization."""


@dataclass(frozen=True)
class StateSize:
    """Bytes of the full state and of the log on top of it, in one checkpoint."""

    materialized: int
    log: int

    @property
    def log_ratio(self) -> float:
        return self.log / max(self.materialized, 1)

    def has_large_log(
        self, ratio: float = 1.0, *, least: float = SMALL_LOG_BYTES, most: float | None = None
    ) -> bool:
        """Whether it is time for a materialization, which folds the log into the base.

        Args:
            ratio: Largest ratio of the log to the full state.
            least: A log of fewer bytes stays as it is, whatever the ratio.
            most: A log of more bytes is large, whatever the ratio; None: there is no such number.
        """
        if most is not None and self.log > most:
            return True
        return self.log >= least and self.log_ratio > ratio

    @classmethod
    def of(cls, metadata: CheckpointMetadata) -> StateSize:
        """Counts each file once, since several subtasks may refer to the same file after a
        rescale.
        """
        base: dict[StreamStateHandle, int] = {}
        log: dict[str, int] = {}
        for handle in logged_handles(metadata):
            for part in handle.materialized:
                if isinstance(part, KeyGroupsSavepointStateHandle):
                    base[part.stream] = part.state_size
            for segment in handle.non_materialized:
                log[segment.state_handle_id] = segment.state_size
        return cls(sum(base.values()), sum(log.values()))


def logged_handles(metadata: CheckpointMetadata) -> list[ChangelogStateBackendHandle]:
    """The handles of all subtasks that consist of a base and a log."""
    return [
        subtask.managed_keyed_state
        for state in metadata.operators
        for subtask in state.subtasks
        if isinstance(subtask.managed_keyed_state, ChangelogStateBackendHandle)
    ]
