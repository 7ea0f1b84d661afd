"""Finds the snapshot of a check or an asset when it runs."""

from __future__ import annotations

from collections.abc import Callable

from dstl_core.errors import StateFileNotFoundError
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, Location
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.snapshot_assets import latest_savepoint

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


def latest_below(name: str) -> SnapshotSource:
    """The newest of the savepoints that Flink made below a savepoint folder of the storage."""

    def find(storage: DstlStorageResource) -> str:
        root = Location.parse(storage.savepoint(name))
        file_io = open_file_io(root)
        found = [
            (status.modified_ms or 0, str(status.location))
            for status in (
                each
                for folder in file_io.list_folder(root)
                if folder.is_folder
                for each in file_io.list_folder(folder.location)
            )
            if status.location.name == METADATA_FILE_NAME
        ]
        if not found:
            raise StateFileNotFoundError(f"There is no savepoint below {root}; take one first.")
        return str(Location.parse(max(found)[1]).parent)

    return find
