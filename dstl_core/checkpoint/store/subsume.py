"""Selects the checkpoints that leave the store when it has too many.

Source: ``CheckpointSubsumeHelper`` of Flink 2.2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from dstl_core.checkpoint.store.properties import CheckpointProperties


class _HasProperties(Protocol):
    @property
    def properties(self) -> CheckpointProperties: ...


_Checkpoint = TypeVar("_Checkpoint", bound=_HasProperties)


def subsumed(checkpoints: Sequence[_Checkpoint], num_retained: int) -> list[_Checkpoint]:
    """The checkpoints beyond the retained number, oldest first.

    Savepoints count, and each but the newest may leave. The newest checkpoint that is not a
    savepoint stays at any age, because later checkpoints may reference its files. It leaves only if
    the newest of all stopped the job.

    Args:
        checkpoints: All checkpoints in the store, oldest first.
        num_retained: Number of checkpoints that the store may have.
    """
    left: list[_Checkpoint] = []
    if not checkpoints:
        return left
    newest = checkpoints[-1]
    real = [each for each in checkpoints if not each.properties.is_savepoint]
    for checkpoint in checkpoints[:-1]:
        if len(checkpoints) - len(left) <= num_retained:
            break
        stays = not newest.properties.is_synchronous and bool(real) and checkpoint is real[-1]
        if not stays:
            left.append(checkpoint)
    return left
