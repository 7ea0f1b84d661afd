"""Which checkpoints leave the store when it holds too many.

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
    """The checkpoints that are too many, oldest first.

    Savepoints count as well, and any of them but the newest may leave. The newest checkpoint that
    is no savepoint stays, whatever its age, because later ones may build on it; unless the newest
    of all stopped the job.

    Args:
        checkpoints: All that the store holds, oldest first.
        num_retained: How many it may hold.
    """
    left: list[_Checkpoint] = []
    if not checkpoints:
        return left
    newest = checkpoints[-1]
    real = [each for each in checkpoints if not each.properties.is_savepoint]
    for each in checkpoints[:-1]:
        if len(checkpoints) - len(left) <= num_retained:
            break
        stays = not newest.properties.is_synchronous and bool(real) and each is real[-1]
        if not stays:
            left.append(each)
    return left
