"""From the commit that a table stands at to the latest one: what was undone, and what came."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError


@dataclass(frozen=True)
class CommitsBetween:
    """The commits between the position of a reader and the latest one.

    Args:
        until: The latest commit.
        shared: Commits that both stand on, newest first; none for a reader without a position.
        undone: Commits that the reader has seen and a rewind undid, oldest first.
        applied: Commits that the reader lacks, oldest first.
    """

    until: CompletedCheckpoint
    shared: Sequence[CompletedCheckpoint]
    undone: Sequence[CompletedCheckpoint]
    applied: Sequence[CompletedCheckpoint]

    @classmethod
    def since(cls, commits: Iterable[CompletedCheckpoint], position: int | None) -> CommitsBetween:
        """Reads the log.

        Args:
            commits: All commits, newest first; at least one.
            position: The checkpoint id that the reader stands at; None if it has read nothing.

        Raises:
            ConfigError: The log has no such commit.
        """
        read = list(commits)
        line = list(lineage(read))
        if position is None:
            return cls(line[0], (), (), line[::-1])
        older = [each for each in read if each.checkpoint_id <= position]
        if not older or older[0].checkpoint_id != position:
            raise ConfigError(
                f"The table stands at checkpoint {position}, which the pipeline does not have: "
                f"another pipeline of the same name filled it, or the pipeline began anew; give a "
                f"new table."
            )
        held = list(lineage(older))
        latest_ids = {each.checkpoint_id for each in line}
        common = next((each.checkpoint_id for each in held if each.checkpoint_id in latest_ids), 0)
        return cls(
            line[0],
            [each for each in line if each.checkpoint_id <= common],
            [each for each in held if each.checkpoint_id > common][::-1],
            [each for each in line if each.checkpoint_id > common][::-1],
        )

    @property
    def common(self) -> int:
        """Id of the newest commit that both stand on; 0 if there is none."""
        return self.shared[0].checkpoint_id if self.shared else 0
