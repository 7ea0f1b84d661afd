"""Metadata of a commit for Dagster: numbers, tables, a chart, schema and lineage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.job.downstream.stored_files import (
    first_rows,
    keeps_output,
    output_files,
    read_schema,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.state_size import StateSize
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster import metadata as show
from dstl_dagster.charts import epoch_charts, key_group_chart
from dstl_dagster.pipelines.epochs_page import EpochsPage
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.pipelines.state_profile import StateSample, committed_keys
from dstl_dagster.translator import DstlAssetKind

if TYPE_CHECKING:
    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint

ByKind = dict[DstlAssetKind, dict[str, Any]]
"""Metadata of the assets of an epoch."""
SHOWN_COMMITS = 100
"""Commits that the table and the chart of a checkpoint are made of."""
PREVIEW_ROWS = 5
_CHARTS: dict[DstlAssetKind, tuple[str, ...]] = {
    "state": ("dstl/log_chart", "dstl/keys_chart", "dstl/seconds_chart"),
    "changelog": ("dstl/log_chart", "dstl/log_total_chart"),
    "checkpoint": ("dstl/log_chart", "dstl/log_total_chart", "dstl/state_chart"),
}
EPOCH_KINDS: tuple[DstlAssetKind, ...] = ("state", "changelog", "checkpoint")


def epoch_keys(pipeline: StatefulPipeline) -> list[dg.AssetKey]:
    """The assets that an epoch makes: state, changelog, checkpoint, and each output."""
    outputs = [pipeline.key("output", operator=uid) for uid in pipeline.outputs]
    return [*(pipeline.key(kind) for kind in EPOCH_KINDS), *outputs]


@dataclass(frozen=True)
class EpochMetadata:
    """Metadata of the assets that epochs make.

    The epoch is committed, so nothing that shows it fails its run: what cannot be shown is a
    warning, and its reason stands in the metadata.

    Args:
        pipeline: The pipeline.
        store: Its folder.
        run_id: The Dagster run that reports.
        upstream: The asset that the columns of the state are made of.
        warn: Takes the warnings.
    """

    pipeline: StatefulPipeline
    store: PipelineStore
    run_id: str
    upstream: dg.AssetKey | None = None
    warn: Callable[[str], object] = field(default=lambda text: None, kw_only=True)

    def events(
        self,
        key: str | None,
        commit: CompletedCheckpoint,
        *,
        committed_before: bool = False,
        profiled: bool = True,
        tags: Mapping[str, str] | None = None,
    ) -> Iterator[dg.AssetMaterialization]:
        """The materializations of a partition, with its own data version; none of an output that
        the epoch did not store.

        ``profiled`` reads a sample of the state, which takes longer than a small epoch.
        """
        shown = self.of_commit(commit, committed_before=committed_before, profiled=profiled)
        by_key = {self.pipeline.key(kind): shown[kind] for kind in EPOCH_KINDS}
        for uid in self.pipeline.outputs:
            if not commit.facts.stores(uid):
                continue  # the pipeline had no such output then
            by_key[self.pipeline.key("output", operator=uid)] = self._of_output(commit, uid)
        for asset_key, metadata in by_key.items():
            yield dg.AssetMaterialization(
                asset_key,
                partition=key,
                metadata=metadata,
                tags={"dagster/data_version": commit.data_version, **(tags or {})},
            )

    def of_commit(
        self, commit: CompletedCheckpoint, *, committed_before: bool, profiled: bool = True
    ) -> ByKind:
        """The metadata of each asset: counts of the epoch, and contents of its checkpoint."""
        common = {
            "dstl/checkpoint_id": commit.checkpoint_id,
            "dstl/committed_before": committed_before,
            "dstl/run": dg.MetadataValue.dagster_run(self.run_id),
        }
        numbers = show.epoch_metadata(commit)
        path = self.store.path_of(commit)
        by_kind: ByKind = {
            "state": {**common, **numbers},
            "changelog": {**common, "dstl/epoch_log_bytes": numbers["dstl/epoch_log_bytes"]},
            "checkpoint": {
                **common,
                **show.checkpoint_metadata(commit, path),
                "dstl/retention": self._retention(),
                "dstl/report": dg.MetadataValue.asset(self.pipeline.key("report")),
                "dstl/report_with": dg.MetadataValue.md(f"`dstl report {path} -o report.html`"),
            },
        }
        recent = cache(lambda: self.store.recent(SHOWN_COMMITS, until=commit.checkpoint_id))
        of_snapshot = self._shown("contents", lambda: self._of_snapshot(commit, profiled))
        log_bytes = of_snapshot.get("changelog", {}).get("dstl/log_bytes")
        page = self._shown(
            "epochs",
            lambda: {
                "checkpoint": EpochsPage.of(self.store, recent(), log_bytes).metadata(
                    is_last=profiled
                )
            },
        )
        charts = self._shown("charts", lambda: _charts(recent(), log_bytes))
        for part in (of_snapshot, page, charts):
            for kind, more in part.items():
                by_kind[kind] |= more
        if self.pipeline.lineage and self.upstream is not None:
            lineage = show.column_lineage(self.pipeline.lineage, self.upstream)
            by_kind["state"]["dagster/column_lineage"] = lineage
        return by_kind

    def _retention(self) -> str:
        """What is kept, as the pipeline says."""
        pipeline = self.pipeline
        kept = f"at least {pipeline.num_retained} checkpoints"
        return kept if pipeline.retain is None else f"{kept}, and those of {pipeline.retain}"

    def _shown(
        self, what: str, make: Callable[[], ByKind], kind: DstlAssetKind = "checkpoint"
    ) -> ByKind:
        """What a function makes of a committed epoch, or why it makes nothing."""
        try:
            return make()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self.warn(f"The epoch is committed, and its {what} cannot be shown: {reason}")
            return {kind: {f"dstl/{what}": f"none: {reason}"}}

    def _of_output(self, commit: CompletedCheckpoint, uid: str) -> dict[str, Any]:
        """Rows, columns and, where that is allowed, the first rows of what an operator gave."""
        rows, _ = commit.facts.output_of(uid)
        metadata: dict[str, Any] = {
            "dstl/checkpoint_id": commit.checkpoint_id,
            "dstl/run": dg.MetadataValue.dagster_run(self.run_id),
            "dagster/partition_row_count": rows,
            "dagster/uri": str(self.store.layout.output(commit.checkpoint_id)),
        }
        of_rows = self._shown("rows", lambda: {"output": self._of_rows(commit, uid)}, "output")
        return metadata | of_rows["output"]

    def _of_rows(self, commit: CompletedCheckpoint, uid: str) -> dict[str, Any]:
        """Columns and first rows of stored output; nothing if it is gone."""
        metadata: dict[str, Any] = {}
        files = output_files(self.store, commit, uid)
        if files and all(keeps_output(self.store, [commit])):
            metadata["dagster/column_schema"] = show.arrow_columns(read_schema(files[0]))
            if self.pipeline.show_keys:
                metadata["dstl/preview"] = show.rows_table(first_rows(files[0], PREVIEW_ROWS))
        return metadata

    def _of_snapshot(self, commit: CompletedCheckpoint, profiled: bool) -> ByKind:
        """Schema and sizes; nothing for a checkpoint that is no longer retained."""
        try:
            snapshot = Snapshot.load(self.store.path_of(commit), serializers=self.pipeline.registry)
        except FileNotFoundError:
            return {}
        if snapshot.file.sha256 != commit.metadata_sha256:
            self.store.metadata_of(commit)  # raises an error that says so
        size = StateSize.of(snapshot.metadata)
        by_kind: ByKind = {
            "state": {"dagster/column_schema": show.column_schema(snapshot, self.pipeline.uid)},
            "changelog": {"dstl/log_bytes": size.log, "dstl/handles": show.handles_table(snapshot)},
            "checkpoint": {
                "dstl/state_bytes": size.materialized,
                "dstl/log_bytes": size.log,
                **key_group_chart(snapshot.metadata, OperatorID.for_uid(self.pipeline.uid)),
            },
        }
        counted = committed_keys(commit, self.pipeline.uid)
        by_kind["state"] |= counted
        if profiled:
            profile = self._shown("profile", lambda: self._profile(snapshot, counted))
            for kind, more in profile.items():
                by_kind[kind] |= more
        return by_kind

    def _profile(self, snapshot: Snapshot, counted: Mapping[str, int]) -> ByKind:
        """A sample of the state. State without columns, e.g. of a serializer that only Java knows,
        has none.
        """
        sample = StateSample.of(snapshot, self.pipeline.uid)
        of_checkpoint = sample.histograms()
        if self.pipeline.show_keys:
            of_checkpoint |= sample.largest()
        return {"state": {**(counted or sample.count())}, "checkpoint": of_checkpoint}


def _charts(commits: Sequence[CompletedCheckpoint], log_bytes: int | None) -> ByKind:
    drawn = epoch_charts(commits, log_bytes)
    return {kind: {name: drawn[name] for name in names} for kind, names in _CHARTS.items()}
