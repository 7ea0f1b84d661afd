"""The latest state of a job as a self-contained savepoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dstl_core.errors import SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.snapshot_type import CheckpointOptions
from dstl_core.savepoint.folder import SavepointFolder
from dstl_core.savepoint.snapshot import Snapshot
from dstl_core.spark.job_tasks import JobTasks


def write_savepoint(tasks: JobTasks, path: str, job_name: str) -> str:
    """Writes the latest checkpoint in canonical form; once for the same checkpoint and path.

    Returns:
        The path of the savepoint.

    Raises:
        SavepointError: Another snapshot is there.
    """
    latest = tasks.driver.require_latest()
    source = {"checkpoint": latest.data_version, "job": tasks.job_id.hex, "name": job_name}
    existing = _existing_savepoint(path, source)
    if existing is not None:
        return existing
    target = SavepointFolder(path)
    options = CheckpointOptions.for_savepoint(str(target.folder))
    specs = tasks.specs_of(latest, tasks.load(latest))
    reports = tasks.snapshot(specs, latest.checkpoint_id, options, f"savepoint {target.folder}")
    operators = tuple(
        OperatorState(
            spec.operator.operator_id,
            spec.parallelism,
            spec.max_parallelism,
            tuple(
                report.subtask_state
                for report in sorted(reports, key=lambda each: each.subtask)
                if report.uid == spec.operator.uid
            ),
            uid=spec.operator.uid,
        )
        for spec in specs
    )
    metadata = CheckpointMetadata(3, latest.checkpoint_id, operators)
    return target.publish(metadata, {"kind": "savepoint", "source": source})


def _existing_savepoint(path: str, source: Mapping[str, Any]) -> str | None:
    try:
        found = Snapshot.load(path)
    except FileNotFoundError:
        return None
    sidecar = found.file.sidecar
    if sidecar is not None and sidecar.facts.get("source") == source:
        return str(found.folder)
    raise SavepointError(
        f"Another snapshot is already there: {found.folder}; choose another folder."
    )
