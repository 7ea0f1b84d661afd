"""Finds the snapshot of a check or an asset when it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dstl_core.codec.serializers import SerializerRegistry
from dstl_core.errors import StateFileNotFoundError
from dstl_core.state.tables.named_objects import registry_from
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import METADATA_FILE_NAME, Location, further_roots
from dstl_dagster.option_kinds import check_options
from dstl_dagster.pipelines.pipeline import StatefulPipeline
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.snapshot_assets import latest_savepoint
from dstl_dagster.snapshots.typed_source import SnapshotSource, TypedSource


def checkpoint_of(pipeline: StatefulPipeline) -> SnapshotSource:
    """The latest committed checkpoint of a pipeline."""
    check_options("checkpoint_of", checkpoint_of, locals())

    def find(storage: DstlStorageResource) -> str:
        store = pipeline.store(storage)
        return store.path_of(store.require_latest())

    return TypedSource(find, lambda: pipeline.registry)


def savepoint_of(pipeline: StatefulPipeline) -> SnapshotSource:
    check_options("savepoint_of", savepoint_of, locals())
    return TypedSource(
        lambda storage: latest_savepoint(pipeline, storage), lambda: pipeline.registry
    )


def snapshot_at(
    place: str,
    serializers: SerializerRegistry | str | None = None,
    *,
    allow_roots: Sequence[str] = (),
    relocate: Mapping[str, str] | None = None,
) -> SnapshotSource:
    """A savepoint by name, or any snapshot by path.

    Args:
        place: The name or the path.
        serializers: The registry of types, with readers of your own serializers; or
            ``package.module:name``.
        allow_roots: Further folders from which its files may be read.
        relocate: Old root to new root, for files that were moved.

    Raises:
        ConfigError: An argument is wrong.
    """
    check_options(f"snapshot {place!r}", snapshot_at, locals())
    roots = further_roots(allow_roots)
    return TypedSource(
        lambda storage: storage.path_of(place),
        lambda: registry_from(serializers, f"the snapshot {place!r}"),
        lambda storage: roots,
        relocate or {},
    )


def latest_below(
    name: str,
    serializers: SerializerRegistry | str | None = None,
    *,
    allow_roots: Sequence[str] = (),
    relocate: Mapping[str, str] | None = None,
) -> SnapshotSource:
    """The newest of the savepoints that Flink made below a savepoint folder of the storage.

    Args:
        name: The folder.
        serializers: The registry of types, as for ``snapshot_at``.
        allow_roots: As for ``snapshot_at``.
        relocate: As for ``snapshot_at``.
    """
    roots = further_roots(allow_roots)

    def find(storage: DstlStorageResource) -> str:
        root = Location.parse(storage.savepoint(name))
        file_io = open_file_io(root)
        snapshots = [
            (status.modified_ms or 0, str(status.location))
            for status in (
                child
                for folder in file_io.list_folder(root)
                if folder.is_folder
                for child in file_io.list_folder(folder.location)
            )
            if status.location.name == METADATA_FILE_NAME
        ]
        if not snapshots:
            raise StateFileNotFoundError(f"There is no savepoint below {root}; take one first.")
        return str(Location.parse(max(snapshots)[1]).parent)

    return TypedSource(
        find,
        lambda: registry_from(serializers, f"the savepoints below {name!r}"),
        lambda storage: roots,
        relocate or {},
    )
