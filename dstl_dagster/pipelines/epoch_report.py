"""Reports each epoch to Dagster when it commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.job.downstream.stored_files import check_stored
from dstl_dagster.pipelines.epoch_metadata import EpochMetadata, epoch_keys
from dstl_dagster.pipelines.run_options import CHECKPOINT_TAG
from dstl_dagster.pipelines.windows import AGAIN

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint

Events = Iterator[dg.MaterializeResult | dg.AssetMaterialization | dg.Output[Any]]
BACKFILL_TAG = "dagster/backfill"

_REPORTED = {"__source_asset_observation__": True}
"""Metadata of an output for which Dagster makes no event of its own: its mark for assets that have
reported themselves. Dagster does not document it; decision 21 names the test that watches it.
"""


class EpochReport:
    """The events of the epochs of one run.

    A run of one input reports it as the result of its op, and Dagster records its upstream
    versions. Dagster reports the partitions of a longer run at the end, all with one data version.
    So this class reports each of them when it commits, for all assets of the epoch, and the results
    of the op report nothing.

    Args:
        context: Context of the op.
        metadata: What is shown of an epoch.
        keys: Partition keys of the run, in order; None for an asset without partitions.
    """

    def __init__(
        self, context: dg.AssetExecutionContext, metadata: EpochMetadata, keys: Sequence[str | None]
    ) -> None:
        self._context = context
        self._metadata = metadata
        has_partitions = context.assets_def.partitions_def is not None
        asked = list(context.partition_keys) if has_partitions else [None]
        self._left = len(keys)
        self._is_one = list(keys) == asked and len(keys) == 1
        self._results: list[dg.MaterializeResult] = []
        self._latest = 0

    def epoch(
        self, key: str | None, commit: CompletedCheckpoint, committed_before: bool
    ) -> Iterator[dg.AssetMaterialization]:
        """The materializations of one window. Only the last one of a run is profiled.

        Raises:
            ConfigError: It was committed before without an output that the run is to make.
        """
        self._left -= 1
        pipeline = self._metadata.pipeline
        for uid in pipeline.outputs:
            if pipeline.key("output", operator=uid) in self._context.selected_asset_keys:
                check_stored(pipeline.name, uid, [commit], AGAIN)
        self._latest = max(self._latest, commit.checkpoint_id)
        tags = {}
        backfill = self._context.run.tags.get(BACKFILL_TAG)
        if backfill is not None:
            tags[BACKFILL_TAG] = backfill
        for event in self._metadata.events(
            key,
            commit,
            committed_before=committed_before,
            profiled=not self._left,
            tags=tags,
        ):
            if self._is_one and event.asset_key in self._context.selected_asset_keys:
                self._results.append(
                    dg.MaterializeResult(
                        event.asset_key,
                        metadata=event.metadata,
                        data_version=dg.DataVersion(commit.data_version),
                    )
                )
            else:
                yield event

    def outputs(self) -> Events:
        """The results of the op: what comes after it in the run can begin."""
        tags = {CHECKPOINT_TAG: str(self._latest)}
        self._context.instance.add_run_tags(self._context.run.run_id, tags)
        if self._is_one:
            yield from self._results
            return
        assets = self._context.assets_def
        for key in epoch_keys(self._metadata.pipeline):
            if key in self._context.selected_asset_keys:
                name = assets.get_output_name_for_asset_key(key)
                yield dg.Output(None, name, metadata=_REPORTED)
