"""Decides by the commit log which commits keep their stored output.

A commit of a job that limits its output records the id of the oldest commit that keeps it. So the
limit holds from the moment of the commit. Files that are deleted later, or not at all, decide
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint


def oldest_kept_output(commits: Iterable[CompletedCheckpoint], count: int) -> int:
    """The id of the oldest commit that keeps its output, when the newest commit limits it.

    Args:
        commits: All commits, newest first. They are read as far as they are needed.
        count: Number of epochs of the latest state whose output is kept.
    """
    recorded = [0]

    def read() -> Iterator[CompletedCheckpoint]:
        for commit in commits:
            recorded.append(commit.outputs_from or 0)
            yield commit

    epochs = 0
    for commit in lineage(read()):
        if commit.checkpoint_id < max(recorded):
            break  # an earlier commit ended the output from here on
        epochs += bool(commit.facts.output_files)
        if epochs == count:
            return commit.checkpoint_id
    return max(recorded)


@dataclass(frozen=True)
class KeptOutputs:
    """The commits that keep their stored output: those from an id on, also if a rewind undid them,
    since a table behind the job may have their rows.

    Args:
        first: The id of the oldest one.
    """

    first: int

    @classmethod
    def of(cls, commits: Iterable[CompletedCheckpoint], oldest: int = 0) -> KeptOutputs:
        """Reads the commits.

        Args:
            commits: All commits, newest first.
            oldest: Lowest id that ``keeps`` is asked for. Older commits are not read.
        """
        rest = takewhile(lambda commit: commit.checkpoint_id >= oldest, commits)
        limits = (commit.outputs_from for commit in rest)
        return cls(next((limit for limit in limits if limit is not None), 0))

    def keeps(self, checkpoint_id: int) -> bool:
        """Whether the log keeps the output of a commit."""
        return checkpoint_id >= self.first


def current_outputs(commits: Iterable[CompletedCheckpoint]) -> list[CompletedCheckpoint]:
    """The commits that led to the latest state and keep output, oldest first.

    Args:
        commits: All commits, newest first.
    """
    read = list(commits)
    kept = KeptOutputs.of(read)
    return [
        commit
        for commit in lineage(read)
        if commit.facts.output_files and kept.keeps(commit.checkpoint_id)
    ][::-1]
