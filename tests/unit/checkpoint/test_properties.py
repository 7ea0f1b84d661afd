"""Retention and types: Flink's tables."""

from __future__ import annotations

import pytest

from dstl_core.checkpoint.store.properties import (
    CheckpointProperties,
    CheckpointRetentionPolicy,
    JobStatus,
)
from dstl_core.model.snapshot_type import (
    CheckpointOptions,
    CheckpointType,
    SavepointFormatType,
    SavepointType,
    SharingFilesStrategy,
)

POLICY = CheckpointRetentionPolicy
# Discarded when subsumed, finished, cancelled, failed, suspended; forced.
TABLE = [
    (CheckpointProperties.for_checkpoint(POLICY.NEVER_RETAIN_AFTER_TERMINATION), "TTTTT F"),
    (CheckpointProperties.for_checkpoint(POLICY.RETAIN_ON_FAILURE), "TTTFT F"),
    (CheckpointProperties.for_checkpoint(POLICY.RETAIN_ON_CANCELLATION), "TTFFF F"),
    (CheckpointProperties.for_savepoint(), "FFFFF T"),
    (CheckpointProperties.for_sync_savepoint(terminate=True), "FFFFF T"),
    (CheckpointProperties.for_unclaimed_snapshot(), "FFFFF F"),
]


@pytest.mark.parametrize(("properties", "expected"), TABLE)
def test_the_table_of_retention(properties: CheckpointProperties, expected: str) -> None:
    statuses = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED, JobStatus.SUSPENDED)
    flags = [properties.discard_subsumed, *(properties.discard_on_job(each) for each in statuses)]
    letters_of_flags = "".join("T" if flag else "F" for flag in flags)
    assert f"{letters_of_flags} {'T' if properties.forced else 'F'}" == expected


def test_types() -> None:
    # is_savepoint, is_synchronous, should_drain, files that may be shared
    table = {
        CheckpointType.CHECKPOINT: (False, False, False, "FORWARD_BACKWARD"),
        CheckpointType.FULL_CHECKPOINT: (False, False, False, "FORWARD"),
        SavepointType.savepoint(SavepointFormatType.CANONICAL): (True, False, False, "NO_SHARING"),
        SavepointType.suspend(SavepointFormatType.NATIVE): (True, True, False, "NO_SHARING"),
        SavepointType.terminate(SavepointFormatType.CANONICAL): (True, True, True, "NO_SHARING"),
    }
    for kind, (savepoint, synchronous, drain, sharing) in table.items():
        assert (kind.is_savepoint, kind.is_synchronous) == (savepoint, synchronous)
        assert kind.should_drain is drain
        assert kind.sharing_files_strategy is SharingFilesStrategy[sharing]
    assert [str(kind) for kind in table] == [
        "Checkpoint",
        "Full Checkpoint",
        "Savepoint",
        "Suspend Savepoint",
        "Terminate Savepoint",
    ]


def test_the_unclaimed_one_is_marked() -> None:
    properties = CheckpointProperties.for_unclaimed_snapshot()
    assert properties.unclaimed
    assert properties.is_savepoint
    assert not CheckpointProperties.for_savepoint().unclaimed


def test_options() -> None:
    default = CheckpointOptions.for_checkpoint_with_default_location()
    assert (default.checkpoint_type, default.target_location) == (CheckpointType.CHECKPOINT, None)
    savepoint = CheckpointOptions.for_savepoint("file:/s")
    assert savepoint.checkpoint_type.is_savepoint
    assert savepoint.target_location == "file:/s"
