"""What finds the snapshot of a check or an asset, with the types of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster.resources.savepoint_resource import SavepointResource
from dstl_dagster.resources.storage_resource import DstlStorageResource

SnapshotSource = Callable[[DstlStorageResource], str]
"""Finds the path of a snapshot."""


@dataclass(frozen=True)
class TypedSource:
    """A source whose state has types of one's own serializers, or files in other folders.

    Args:
        find: Finds the path.
        registry: Returns the registry of the types.
        allow_roots: Finds further folders from which files may be read.
        relocate: Old root to new root, for files that were moved.
    """

    find: SnapshotSource
    registry: Callable[[], SerializerRegistry]
    allow_roots: Callable[[DstlStorageResource], Sequence[str]] = lambda storage: ()
    relocate: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, storage: DstlStorageResource) -> str:
        return self.find(storage)


def registry_of(source: SnapshotSource) -> SerializerRegistry:
    """The registry that reads the types of a source."""
    return source.registry() if isinstance(source, TypedSource) else BUILT_IN


def load_from(source: SnapshotSource, storage: DstlStorageResource) -> Snapshot:
    """Loads the snapshot of a source, with the types and folders that it knows."""
    return resource_for(source, storage).load(source(storage))


def resource_for(source: SnapshotSource, storage: DstlStorageResource) -> SavepointResource:
    """The resource that loads, reads and copies the snapshot of a source, with the types and
    folders that it knows.
    """
    if not isinstance(source, TypedSource):
        return SavepointResource(storage=storage)
    return SavepointResource(
        storage=storage,
        allow_roots=list(source.allow_roots(storage)),
        relocate=dict(source.relocate),
    ).with_types(source.registry())
