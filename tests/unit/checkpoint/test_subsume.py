"""Which checkpoints leave the store."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from dstl_core.checkpoint.store.properties import CheckpointProperties, CheckpointRetentionPolicy
from dstl_core.checkpoint.store.recorded import subsumed

KINDS = {
    "c": CheckpointProperties.for_checkpoint(CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION),
    "s": CheckpointProperties.for_savepoint(),
    "t": CheckpointProperties.for_sync_savepoint(terminate=True),
}


@dataclass(frozen=True)
class Held:
    name: str

    @property
    def properties(self) -> CheckpointProperties:
        return KINDS[self.name[0]]


@pytest.mark.parametrize(
    ("held", "num_retained", "leaving"),
    [
        ("", 1, ""),
        ("c1", 1, ""),
        ("c1 c2", 1, "c1"),
        ("c1 c2 c3", 2, "c1"),
        ("c1 c2 c3", 1, "c1 c2"),
        # A savepoint counts, and may leave whatever its age; never the newest.
        ("s1 c2", 1, "s1"),
        ("s1", 1, ""),
        ("c1 s2 c3", 2, "c1"),
        ("s1 s2 c3 c4", 2, "s1 s2"),
        # The newest checkpoint stays although it is too old: later ones may build on it.
        ("c1 s2", 1, ""),
        ("c1 s2 s3", 1, "s2"),
        ("c1 c2 s3 s4", 1, "c1 s3"),
        ("c1 s2 s3 s4", 2, "s2 s3"),
        # After a stop nothing is built any more.
        ("c1 t2", 1, "c1"),
        ("c1 s2 t3", 1, "c1 s2"),
        ("s1 s2 s3", 1, "s1 s2"),
    ],
)
def test_the_table_of_subsumption(held: str, num_retained: int, leaving: str) -> None:
    checkpoints = [Held(name) for name in held.split()]
    assert [each.name for each in subsumed(checkpoints, num_retained)] == leaving.split()
