"""Size of a changelog checkpoint: its full state, and the log on top of it."""

from __future__ import annotations

from dataclasses import dataclass

from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.handle import (
    ChangelogStateBackendHandle,
    KeyGroupsSavepointStateHandle,
    StreamStateHandle,
)


@dataclass(frozen=True)
class StateSize:
    """Bytes of the full state and of the log on top of it, in one checkpoint."""

    materialized: int
    log: int

    @property
    def log_ratio(self) -> float:
        return self.log / max(self.materialized, 1)

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
