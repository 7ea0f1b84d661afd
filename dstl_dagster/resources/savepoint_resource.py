"""Loads, checks, edits and reads savepoints and checkpoints in the code of assets."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from dstl_core.errors import StateFileNotFoundError
from dstl_core.savepoint.check.verify import Report, verify_snapshot
from dstl_core.savepoint.edit.rewrite import rewrite_savepoint
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster.resources.storage_resource import DstlStorageResource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SavepointResource(dg.ConfigurableResource):
    """Finds snapshots by name (in the storage) or by path. Only ``read`` needs Spark."""

    storage: dg.ResourceDependency[DstlStorageResource]
    allow_roots: list[str] = Field(default=[], description="Further folders handles may name.")
    relocate: dict[str, str] = Field(default={}, description="Old root to new root of files.")

    def load(self, place: str) -> Snapshot:
        """Loads a snapshot.

        Raises:
            StateFileNotFoundError: There is no snapshot.
            FormatError: Its metadata is damaged.
        """
        path = self.storage.path_of(place)
        return Snapshot.load(path, allow_roots=self.allow_roots, relocate=self.relocate)

    def find(self, place: str) -> Snapshot | None:
        """Loads a snapshot; returns None if there is none."""
        try:
            return self.load(place)
        except StateFileNotFoundError:
            return None

    def verify(self, place: str) -> Report:
        """Reads a whole snapshot and reports what is wrong with it."""
        return verify_snapshot(self.load(place))

    def rewrite(
        self,
        source: str,
        out: str,
        *,
        rename: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        max_parallelism: int | None = None,
    ) -> Snapshot:
        """Writes an edited copy of a snapshot. If ``out`` holds that copy already, it returns it.

        Raises:
            SavepointError: The edit is impossible, or ``out`` holds another snapshot.
        """
        snapshot = self.load(source)
        existing = self.find(out)
        if existing is None or not is_made_of(existing, snapshot):
            rewrite_savepoint(
                snapshot,
                self.storage.path_of(out),
                rename=rename,
                remove=remove,
                max_parallelism=max_parallelism,
            )
            return self.load(out)
        return existing

    def read(
        self,
        session: "SparkSession",
        place: str,
        *,
        uid: str | None = None,
        state: str | None = None,
    ) -> "DataFrame":
        """Reads keyed state as a DataFrame: a column per state, or one state in flat form."""
        from dstl_core.spark.savepoints.data_source import register

        register(session)
        reader = session.read.format("savepoint")
        if uid is not None:
            reader = reader.option("operator.uid", uid)
        if state is not None:
            reader = reader.option("state", state)
        return reader.load(self.storage.path_of(place))


def is_made_of(snapshot: Snapshot, source: Snapshot) -> bool:
    """Whether a savepoint is a rewrite of the present content of another one."""
    sidecar = snapshot.file.sidecar
    return sidecar is not None and sidecar.notes.get("source_sha256") == source.file.sha256


def version_of(snapshot: Snapshot) -> str:
    """The data version of a snapshot: its checkpoint id and the digest of its metadata."""
    return f"ck-{snapshot.metadata.checkpoint_id}:{snapshot.file.sha256}"
