"""Metadata of a commit for Dagster: numbers, tables, a chart, schema and lineage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.model.state_size import StateSize
from dstl_dagster import metadata as show
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.translator import DstlAssetKind

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
    from dstl_core.spark.job.stateful_job import StatefulJob

SHOWN_COMMITS = 100
"""Commits that the table and the chart of a checkpoint are made of."""
EPOCH_KINDS: tuple[DstlAssetKind, ...] = ("state", "changelog", "checkpoint")


@dataclass(frozen=True)
class EpochMetadata:
    """Metadata of the assets that epochs make.

    Args:
        pipeline: The pipeline.
        job: The same, on its state.
        store: Its folder.
        run_id: The Dagster run that reports.
    """

    pipeline: StatefulPipeline
    job: StatefulJob
    store: PipelineStore
    run_id: str

    def of_commit(
        self, kind: DstlAssetKind, commit: CompletedCheckpoint, *, committed_before: bool
    ) -> dict[str, Any]:
        """Of one asset in one partition."""
        history = self.store.recent(SHOWN_COMMITS, until=commit.checkpoint_id)
        common = {
            "dstl/checkpoint_id": commit.checkpoint_id,
            "dstl/committed_before": committed_before,
            "dstl/run": dg.MetadataValue.dagster_run(self.run_id),
            "dstl/log_chart": show.log_chart(history),
        }
        match kind:
            case "state":
                return {**common, **show.epoch_metadata(commit)}
            case "changelog":
                numbers = show.epoch_metadata(commit)
                return {**common, "dstl/epoch_log_bytes": numbers["dstl/epoch_log_bytes"]}
            case _:
                details = show.checkpoint_metadata(commit, self.store.path_of(commit))
                return {**common, **details, "dstl/commits": show.epochs_table(history)}

    def of_state(self, upstream: dg.AssetKey | None) -> dict[DstlAssetKind, dict[str, Any]]:
        """What is the same for all partitions: schema, lineage, sizes of the latest state."""
        snapshot = self.job.snapshot()
        size = StateSize.of(snapshot.metadata)
        found: dict[DstlAssetKind, dict[str, Any]] = {
            "state": {"dagster/column_schema": show.column_schema(snapshot, self.pipeline.uid)},
            "changelog": {"dstl/log_bytes": size.log, "dstl/handles": show.handles_table(snapshot)},
            "checkpoint": {"dstl/state_bytes": size.materialized, "dstl/log_bytes": size.log},
        }
        if self.pipeline.lineage and upstream is not None:
            lineage = show.column_lineage(self.pipeline.lineage, upstream)
            found["state"]["dagster/column_lineage"] = lineage
        return found

    def events(
        self, key: str, commit: CompletedCheckpoint, assets: Mapping[DstlAssetKind, dg.AssetKey]
    ) -> Iterator[dg.AssetMaterialization]:
        """The materializations of a partition, with its own data version."""
        for kind, asset in assets.items():
            yield dg.AssetMaterialization(
                asset,
                partition=key,
                metadata=self.of_commit(kind, commit, committed_before=False),
                tags={"dagster/data_version": commit.data_version},
            )
