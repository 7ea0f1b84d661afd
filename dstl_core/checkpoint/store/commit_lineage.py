"""Finds the commits that led to the latest state.

Every commit has the id of the commit that it was restored from. After a rewind some commits are in
the log, but not in the lineage. Along a lineage the ids of commits ascend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint


def not_undone(checkpoints: Iterable[CompletedCheckpoint]) -> Iterator[CompletedCheckpoint]:
    """The checkpoints that no rewind has undone; arguments and results are newest first.

    A rewind restores an earlier checkpoint. It undoes those between that one and its own.
    """
    restored: int | None = None
    for checkpoint in checkpoints:
        if restored is not None and checkpoint.checkpoint_id > restored:
            continue
        yield checkpoint
        if checkpoint.facts.restored_from is not None:
            restored = checkpoint.facts.restored_from


def lineage(commits: Iterable[CompletedCheckpoint]) -> Iterator[CompletedCheckpoint]:
    """The commits that led to the latest one; arguments and results are newest first."""
    wanted: int | None = None
    for commit in not_undone(commits):
        if wanted is not None and commit.checkpoint_id > wanted:
            continue  # it was discarded
        if wanted is not None and commit.checkpoint_id < wanted:
            return  # it was restored from a snapshot that is not a commit
        yield commit
        restored_from = commit.facts.restored_from
        wanted = commit.parent if restored_from is None else restored_from
        if wanted is None:
            return
