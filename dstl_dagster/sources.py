"""Which snapshot a check or an asset looks at, found when it runs."""

from __future__ import annotations

from collections.abc import Callable

from dstl_dagster.pipeline import StatefulPipeline
from dstl_dagster.snapshot_assets import latest_savepoint
from dstl_dagster.storage_resource import DstlStorageResource

SnapshotSource = Callable[[DstlStorageResource], str]
"""Finds the path of a snapshot."""


def checkpoint_of(pipeline: StatefulPipeline) -> SnapshotSource:
    """The latest committed checkpoint of a pipeline."""

    def find(storage: DstlStorageResource) -> str:
        store = pipeline.store(storage)
        return store.path_of(store.require_latest())

    return find


def savepoint_of(pipeline: StatefulPipeline) -> SnapshotSource:
    """The latest savepoint of a pipeline."""
    return lambda storage: latest_savepoint(pipeline, storage)


def snapshot_at(place: str) -> SnapshotSource:
    """A savepoint by name, or any snapshot by path."""
    return lambda storage: storage.path_of(place)
