"""The asset check that reads a whole snapshot. It needs no Spark."""

from dataclasses import dataclass

import dagster as dg

from dstl_core.errors import FormatError, StateFileNotFoundError
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_dagster.checks.snapshot_check import ERROR, Asset, SnapshotCheck, lines_of
from dstl_dagster.resources.storage_resource import DstlStorageResource
from dstl_dagster.snapshots.typed_source import SnapshotSource, resource_for


@dataclass(frozen=True)
class VerifyCheck(SnapshotCheck):
    """Checks that every file of a snapshot is there and decodes, and that each key is in its key
    group.

    It fails, too, if there is no snapshot or its metadata is damaged. If the storage cannot be
    read, it is not run.

    Args:
        name: Name of the check.
        blocking: Whether a failure stops downstream assets.
    """

    name: str = "verified"
    blocking: bool = False

    def definition(
        self, asset: Asset, source: SnapshotSource, uid: str | None = None
    ) -> dg.AssetChecksDefinition:
        @dg.asset_check(asset=asset, name=self.name, blocking=self.blocking)
        def verified(storage: DstlStorageResource) -> dg.AssetCheckResult:
            return verify(source, storage)

        return verified


def verify(source: SnapshotSource, storage: DstlStorageResource) -> dg.AssetCheckResult:
    """The result for the snapshot that a source finds."""
    storage.connect()
    path = source(storage)
    try:
        snapshot = resource_for(source, storage).load(path)
        findings = [str(finding) for finding in verify_snapshot(snapshot).findings]
    except (FormatError, StateFileNotFoundError) as error:
        findings = [str(error)]
    return dg.AssetCheckResult(
        passed=not findings,
        severity=ERROR,
        metadata={"path": path, "findings": len(findings), "shown": lines_of(findings)},
    )
