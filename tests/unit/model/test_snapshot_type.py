from __future__ import annotations

import dataclasses

import pytest

from dstl_core.model.snapshot_type import (
    CheckpointMetaData,
    CheckpointOptions,
    CheckpointType,
    SavepointFormatType,
    SavepointType,
)


def test_the_identity_of_a_checkpoint() -> None:
    identity = CheckpointMetaData(7, 1_234)
    assert (identity.checkpoint_id, identity.timestamp) == (7, 1_234)
    assert identity == CheckpointMetaData(7, 1_234)
    with pytest.raises(dataclasses.FrozenInstanceError):
        identity.timestamp = 0  # type: ignore[misc]  # that is the question


def test_options_of_checkpoints_and_savepoints() -> None:
    usual = CheckpointOptions.for_checkpoint_with_default_location()
    assert (usual.checkpoint_type, usual.target_location) == (CheckpointType.CHECKPOINT, None)
    savepoint = CheckpointOptions.for_savepoint("file:///savepoints")
    assert savepoint.checkpoint_type == SavepointType.savepoint(SavepointFormatType.CANONICAL)
    assert savepoint.target_location == "file:///savepoints"
    native = CheckpointOptions.for_savepoint("file:///savepoints", SavepointFormatType.NATIVE)
    assert native.checkpoint_type == SavepointType.savepoint(SavepointFormatType.NATIVE)
