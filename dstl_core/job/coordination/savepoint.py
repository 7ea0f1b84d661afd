"""Starts a job from a savepoint, and writes a savepoint of a job."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dstl_core.checkpoint.coordination.assignment import holds_state
from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, SourceFacts
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.errors import ConfigError, NonRestoredStateError, RestoreError, SavepointError
from dstl_core.job.coordination.definitions import (
    DEFINITIONS_NOTE,
    check_definitions,
    definitions_in,
    definitions_of,
    recorded_definitions,
)
from dstl_core.job.coordination.tasks import JobTasks
from dstl_core.job.spec.job_spec import JobSpec, TaskSpec
from dstl_core.job.spec.operators import declared_decimals
from dstl_core.job.task.restore import assign
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.model.snapshot_type import CheckpointOptions, SavepointFormatType
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.write.folder import KeyedForm, SavepointFolder, checked_form
from dstl_core.storage.file_io import open_file_io

_LOG = logging.getLogger(__name__)


def start_from_savepoint(
    tasks: JobTasks,
    savepoint: str,
    names: Mapping[str, str],
    *,
    allow_non_restored_state: bool | None,
) -> CompletedCheckpoint:
    """Commits the first checkpoint of a pipeline: a full copy of the state of a savepoint.

    An operator that the savepoint lacks starts empty.

    Args:
        tasks: The tasks of the job.
        savepoint: A savepoint or checkpoint, of dstl or of Flink.
        names: An operator's uid in the job to its uid in the savepoint, where they differ.
        allow_non_restored_state: Whether to leave out state that no operator of the job takes; None
            for a job that is about a part of the state, where nothing is lost.

    Raises:
        ConfigError: The job has no operator of a name in ``names``, two take one state, or an
            aggregate has another definition than in the job that wrote the savepoint.
        NonRestoredStateError: No operator of the job takes some state of the savepoint.
        RestoreError: The savepoint has another max parallelism or other types.
        SavepointError: The savepoint lacks a uid that ``names`` gives.
    """
    snapshot = Snapshot.load(savepoint, serializers=tasks.job.registry)
    old_ids = _ids_in(snapshot, tasks.job, names)
    if allow_non_restored_state is not None:
        _check_left_out(snapshot, set(old_ids.values()), allowed=allow_non_restored_state)
    file = load_metadata_file(open_file_io(snapshot.folder), snapshot.folder)
    states = assign(file, tasks.plans(), allow_non_restored_state=True, old_ids=old_ids)
    source = SourceFacts(savepoint=str(snapshot.folder), sha256=snapshot.file.sha256)
    recorded, defined = definitions_in(snapshot), definitions_of(tasks.job.operators)
    kept = {uid: recorded.get(names.get(uid, uid), {}) for uid in defined}
    check_definitions(kept, defined, "dstl migrate of the savepoint")
    facts = EpochFacts(kind="start", source=source, definitions=kept)
    return tasks.full_checkpoint(tasks.specs(str(snapshot.folder), states), facts, after=None)


def _ids_in(
    snapshot: Snapshot, job: JobSpec, names: Mapping[str, str]
) -> dict[OperatorID, OperatorID]:
    """The ids of operators of a job to their ids in a savepoint, without those that it lacks."""
    uids = [operator.uid for operator in job.operators]
    unknown = [uid for uid in names if uid not in uids]
    if unknown:
        raise ConfigError(
            f"The job has no operator {unknown[0]!r} that could take state of a savepoint: "
            f"expected one of {', '.join(map(repr, uids))}."
        )
    old_ids: dict[OperatorID, OperatorID] = {}
    takers: dict[OperatorID, str] = {}
    for operator in job.operators:
        name = f"uid:{names.get(operator.uid, operator.uid)}"
        if operator.uid not in names and not snapshot.named(name):
            _LOG.info("an operator that the savepoint lacks starts empty: uid=%s", operator.uid)
            continue
        stored = snapshot[name]
        if operator.key_type is not None and stored.max_parallelism != job.max_parallelism:
            raise RestoreError(
                f"The savepoint has another max parallelism: expected {job.max_parallelism}, "
                f"got {stored.max_parallelism}; create the job with the savepoint's, or rewrite "
                f"the savepoint with the job's.",
                location=str(snapshot.folder),
            )
        if (other := takers.setdefault(stored.operator_id, operator.uid)) != operator.uid:
            raise ConfigError(
                f"The operators {other!r} and {operator.uid!r} of the job both take the state of "
                f"{stored.label!r}; give one of them another uid, or leave it out of uids."
            )
        old_ids[operator.operator_id] = stored.operator_id
    return old_ids


def _check_left_out(snapshot: Snapshot, taken: set[OperatorID], *, allowed: bool) -> None:
    left_out = [
        operator.label
        for operator in snapshot.operators
        if operator.operator_id not in taken and holds_state(operator.state)
    ]
    if left_out and not allowed:
        raise NonRestoredStateError(
            f"No operator of the job takes the state of {', '.join(map(repr, left_out))} in the "
            f"savepoint; name the operator that takes it (uids={{'uid in the job': 'uid in the "
            f"savepoint'}}), or pass allow_non_restored_state=True to leave it out (Flink's "
            f"execution.state-recovery.ignore-unclaimed-state).",
            location=str(snapshot.folder),
        )
    if left_out:
        _LOG.warning(
            "state of operators that the job does not have is left out: operators=%s savepoint=%s",
            ", ".join(left_out),
            snapshot.folder,
        )


def write_savepoint(tasks: JobTasks, path: str, form: KeyedForm = "canonical") -> str:
    """Writes the latest checkpoint as a savepoint, once per checkpoint, path and form.

    Returns:
        The path of the savepoint.

    Raises:
        SavepointError: The folder has another snapshot.
    """
    latest, job = tasks.coordinator.require_latest(), tasks.job
    source = {"checkpoint": latest.data_version, "job": job.job_id.hex, "name": job.name}
    if checked_form(form) != "canonical":
        source["format"] = form
    existing = _existing_savepoint(path, source)
    if existing is not None:
        return existing
    specs = tasks.specs_of(latest, tasks.load(latest))
    recorded = tasks.coordinator.find(
        lambda commits: recorded_definitions(lineage(commits), latest)
    )
    notes = {"source": source, DEFINITIONS_NOTE: recorded}
    return publish_savepoint(tasks, specs, latest.checkpoint_id, path, notes, form)


def publish_savepoint(
    tasks: JobTasks,
    specs: Sequence[TaskSpec],
    checkpoint_id: int,
    path: str,
    notes: Mapping[str, Any],
    form: KeyedForm = "canonical",
) -> str:
    """Writes the state that tasks restore as a savepoint.

    Args:
        tasks: The tasks of the job.
        specs: What the tasks restore.
        checkpoint_id: The id of the savepoint.
        path: Its folder.
        notes: What is noted beside it.
        form: The form of its keyed state.

    Returns:
        The path of the savepoint.
    """
    job, target = tasks.job, SavepointFolder(path)
    options = CheckpointOptions.for_savepoint(str(target.folder), SavepointFormatType[form.upper()])
    reports = tasks.snapshot(specs, checkpoint_id, options, f"savepoint {target.folder}")
    target.learn(file for report in reports for file in report.written)
    operators = tuple(
        OperatorState(
            spec.operator.operator_id,
            job.parallelism,
            job.max_parallelism,
            tuple(
                report.subtask_state
                for report in sorted(reports, key=lambda produced: produced.subtask)
                if report.uid == spec.operator.uid
            ),
            uid=spec.operator.uid,
            decimals=declared_decimals(spec.operator),
        )
        for spec in specs
    )
    metadata = CheckpointMetadata(3, checkpoint_id, operators)
    return target.publish(metadata, {"kind": "savepoint", **notes})


def check_no_snapshot(path: str) -> None:
    """Raises SavepointError for a folder with a snapshot."""
    _existing_savepoint(path, None)


def _existing_savepoint(path: str, source: Mapping[str, Any] | None) -> str | None:
    """The savepoint of a source that stands in a folder; None if no snapshot does."""
    try:
        existing = Snapshot.load(path)
    except FileNotFoundError:
        return None
    sidecar = existing.file.sidecar
    if source is not None and sidecar is not None and sidecar.notes.get("source") == source:
        return str(existing.folder)
    raise SavepointError(
        f"Another snapshot is already there: {existing.folder}; choose another folder."
    )
