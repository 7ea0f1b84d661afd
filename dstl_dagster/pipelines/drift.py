"""Commits that Dagster's event log lacks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

import dagster as dg

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.job.coordination.input_windows import commits_of_inputs, key_of
from dstl_dagster.pipelines.pipeline import StatefulPipeline

CHECKED_COMMITS = 100
"""Commits that a check reads. Its cost does not grow with the log."""
_PAGE = 1000
_VERSION = "dagster/data_version"


@dataclass(frozen=True)
class WindowCommit:
    """The commit of an input; ``key`` is that of its partition, if it has one."""

    key: str | None
    commit: CompletedCheckpoint

    @property
    def shown(self) -> str:
        number = f"checkpoint {self.commit.checkpoint_id}"
        return number if self.key is None else f"{self.key} ({number})"


@dataclass(frozen=True)
class Drift:
    """The differences between Dagster's event log and the commit log.

    Args:
        commits: The commits that the latest state stands on, oldest first.
        unreported: Those that Dagster does not show as the latest of their partition, or without
            partitions not at all.
        last: The data version that Dagster shows last; None if it shows nothing.
        foreign: The data version that Dagster shows last, if no commit has it.
    """

    commits: list[WindowCommit]
    unreported: list[WindowCommit]
    last: str | None
    foreign: str | None

    @classmethod
    def of(
        cls,
        instance: dg.DagsterInstance,
        pipeline: StatefulPipeline,
        store: PipelineStore,
        *,
        limit: int | None = CHECKED_COMMITS,
    ) -> Drift:
        """Compares the event log of an instance with a store.

        Args:
            instance: The instance.
            pipeline: The pipeline.
            store: The store.
            limit: How many commits are compared, the newest first; None: all, and without
                partitions those, too, that Dagster shows in the past.
        """
        asset = pipeline.key("checkpoint")
        newest = islice(commits_of_inputs(store), limit)
        commits = [WindowCommit(key_of(each), each) for each in newest][::-1]
        known: set[str | None] = set()
        if commits and commits[-1].key is None:
            # Without partitions, Dagster shows the last one, and the others in the past alone.
            if limit is None:
                known = _versions(instance, asset)
            commits = commits if limit is None else commits[-1:]
        unreported = [
            commit
            for commit in commits
            if commit.commit.data_version not in known
            and _shown(instance, asset, commit.key) != commit.commit.data_version
        ]
        event = instance.get_latest_materialization_event(asset)
        last = None if event is None else _version_of(event.asset_materialization)
        foreign = None if last is None or _is_commit(store, last) else last
        return cls(commits, unreported, last, foreign)


def _shown(instance: dg.DagsterInstance, asset: dg.AssetKey, key: str | None) -> str | None:
    """The data version that Dagster shows for a partition, or for an asset without any."""
    partitions = None if key is None else [key]
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset, asset_partitions=partitions), limit=1
    ).records
    return _version_of(records[0].asset_materialization) if records else None


def _versions(instance: dg.DagsterInstance, asset: dg.AssetKey) -> set[str | None]:
    """The data versions of all events of an asset."""
    versions: set[str | None] = set()
    page = instance.fetch_materializations(asset, limit=_PAGE)
    while page.records:
        versions |= {_version_of(each.asset_materialization) for each in page.records}
        page = instance.fetch_materializations(asset, limit=_PAGE, cursor=page.cursor)
    return versions


def _version_of(event: dg.AssetMaterialization | None) -> str | None:
    return None if event is None else (event.tags or {}).get(_VERSION)


def _is_commit(store: PipelineStore, version: str) -> bool:
    match = re.fullmatch("ck-([0-9]{1,18}):.*", version)
    commit = store.commit_of(int(match[1])) if match is not None else None
    return commit is not None and commit.data_version == version
