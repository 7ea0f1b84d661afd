"""What the Dagster UI shows of a checkpoint."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint

MAX_ROWS = 50


def checkpoint_metadata(
    checkpoint: CompletedCheckpoint, path: str, sizes: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Metadata of an asset that a checkpoint stands for.

    Args:
        checkpoint: The commit.
        path: Its folder.
        sizes: Bytes of the full state and of the log.
    """
    metadata: dict[str, Any] = {
        "dagster/uri": path,
        "dstl/checkpoint_id": checkpoint.checkpoint_id,
        "dstl/data_version": checkpoint.data_version,
        "dstl/committed": dg.MetadataValue.timestamp(checkpoint.committed_ms / 1000),
    }
    if sizes is not None:
        metadata |= {"dstl/state_bytes": sizes[0], "dstl/log_bytes": sizes[1]}
    return metadata


def epochs_table(checkpoints: list[CompletedCheckpoint]) -> dg.TableMetadataValue:
    """The latest commits as a table."""
    rows = [_row(checkpoint.checkpoint_id, checkpoint.facts) for checkpoint in checkpoints]
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows[-MAX_ROWS:]])


def _row(checkpoint_id: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    source = facts.get("input", {})
    return {
        "checkpoint": checkpoint_id,
        "kind": facts.get("kind", ""),
        "input": str(source.get("id", "")),
        "rows": int(source.get("rows", 0)),
        "keys_changed": int(facts.get("changed_keys", 0)),
        "log_bytes": int(facts.get("log_bytes", 0)),
    }
