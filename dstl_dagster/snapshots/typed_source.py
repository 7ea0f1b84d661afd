"""What finds the snapshot of a check or an asset, with the types of its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster.resources.savepoint_resource import SavepointResource
from dstl_dagster.resources.storage_resource import DstlStorageResource

SnapshotSource = Callable[[DstlStorageResource], str]
"""Finds the path of a snapshot."""


@dataclass(frozen=True)
class TypedSource:
    """A source whose state has types of one's own serializers.

    Args:
        find: Finds the path.
        registry: Returns the registry of the types.
    """

    find: SnapshotSource
    registry: Callable[[], SerializerRegistry]

    def __call__(self, storage: DstlStorageResource) -> str:
        return self.find(storage)


def registry_of(source: SnapshotSource) -> SerializerRegistry:
    """The registry that reads the types of a source."""
    return source.registry() if isinstance(source, TypedSource) else BUILT_IN


def load_from(source: SnapshotSource, storage: DstlStorageResource) -> Snapshot:
    """Loads the snapshot of a source, with the types that it knows."""
    return Snapshot.load(source(storage), serializers=registry_of(source))


def resource_for(source: SnapshotSource, storage: DstlStorageResource) -> SavepointResource:
    """The resource that loads and copies the snapshot of a source, with the types that it knows."""
    return SavepointResource(storage=storage).with_types(registry_of(source))
