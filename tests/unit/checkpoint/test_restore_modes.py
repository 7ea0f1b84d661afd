"""CLAIM and NO_CLAIM from a checkpoint that real Flink retained, with a changelog on both sides."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from dstl_core.changelog import FsStateChangelogStorage
from dstl_core.changelog.upload import StateChangeUploadScheduler
from dstl_core.checkpoint.coordination.events import AcknowledgeCheckpoint
from dstl_core.checkpoint.coordination.failure import CheckpointFailureReason
from dstl_core.checkpoint.coordination.gateway import CheckpointCoordinatorGateway
from dstl_core.checkpoint.coordination.pending import CheckpointPlan, CheckpointTask, OperatorPlan
from dstl_core.checkpoint.store.checkpoint_storage import FileSystemCheckpointStorage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.checkpoint.store.properties import JobStatus
from dstl_core.codec.metadata.metadata_format import write_metadata
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions, CheckpointConfig
from dstl_core.functions import Context, KeyedProcessFunction, RuntimeContext
from dstl_core.model.handle import ChangelogStateBackendHandle, FileStateHandle
from dstl_core.model.ids import JobID, OperatorID
from dstl_core.model.key_group import assign_to_key_group
from dstl_core.model.snapshot_type import CheckpointMetaData, CheckpointOptions
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.state_backend import HashMapStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import ManualClock
from tests.golden_files import GOLDEN, Fixture
from tests.unit.checkpoint.pipeline import Pipeline

UID = "a-keyed"
OPERATOR = OperatorID.for_uid(UID)
COUNT = ValueStateDescriptor("cnt", Types.LONG)
ClaimMode = Literal["CLAIM", "NO_CLAIM"]
FIXTURES = ["a-hashmap-changelog-materialized", "a-rocksdb-changelog-materialized"]


class Counter(KeyedProcessFunction):
    """Adds to the count that the Flink job kept."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(COUNT)

    def process_element(self, value: str, ctx: Context) -> None:
        self.count.update((self.count.value() or 0) + 1)


class Job:
    """An owner with two real subtasks; also what it tells them."""

    def __init__(self, pipeline: Pipeline, owner: str) -> None:
        self.pipeline = pipeline
        self.store = pipeline.store()
        self.store.claim(owner, in_flight=4)
        self.clock = ManualClock()
        self.job_id = JobID.from_hex("ab" * 16)
        plan = OperatorPlan(OPERATOR, UID, 2, 128)
        self.attempts = tuple(
            CheckpointTask(f"{owner}-{index}", index, (OPERATOR,)) for index in range(2)
        )
        self.gateway = CheckpointCoordinatorGateway(
            self.job_id,
            CheckpointPlan((plan,), self.attempts, self.attempts),
            CheckpointConfig.of(
                externalized_checkpoint_retention="RETAIN_ON_CANCELLATION",
                tolerable_failed_checkpoints=None,
            ),
            self.store,
            FileSystemCheckpointStorage(pipeline.layout, file_io=pipeline.files),
            self,
            self.clock,
        )
        options = ChangelogOptions.of(base_path=str(pipeline.layout.root.parent))
        self.changelog = FsStateChangelogStorage(
            self.job_id,
            options,
            pipeline.files,
            scheduler=StateChangeUploadScheduler.direct_scheduler,
        )
        self.subtasks: list[OperatorSubtask] = []

    def start(self, checkpoint: CompletedCheckpoint, parts: Sequence[Any], *roots: Path) -> None:
        folder = self.store.folder_of(checkpoint)
        environment = TaskEnvironment(
            HashMapStateBackend(),
            self.changelog,
            HandleResolver(
                self.pipeline.files,
                folder,
                allow_roots=[folder.parent.parent.parent, *map(Location.parse, roots)],
            ),
            file_system_streams(self.pipeline.layout, self.pipeline.files, inline_threshold=0),
            self.clock,
        )
        setup = OperatorSetup(UID, Types.STRING, lambda key: key, 2, 128)
        self.subtasks = [
            OperatorSubtask(setup, environment, index, Counter(), part)
            for index, part in enumerate(parts)
        ]

    def process(self, key: str) -> None:
        for subtask in self.subtasks:
            assert subtask.keyed is not None
            if subtask.key_groups.contains(key_group(key)):
                subtask.process(key)

    def counts(self) -> dict[str, int]:
        return {
            key: value
            for subtask in self.subtasks
            for group in subtask.key_groups
            for table, (key, _, value) in subtask.keyed.state.rows(group)  # type: ignore[union-attr]  # keyed
            if table.meta.name == "cnt"
        }

    def checkpoint(self) -> list[ChangelogStateBackendHandle]:
        """Takes one, and gives what the subtasks reported."""
        self.reported: list[ChangelogStateBackendHandle] = []
        self.completed = self.gateway.trigger_checkpoint().result(0)
        return self.reported

    def materialize(self) -> None:
        for subtask in self.subtasks:
            assert subtask.materialization is not None
            subtask.materialization.materialize_now()

    def close(self) -> None:
        for subtask in self.subtasks:
            subtask.close()
        self.changelog.close()

    # ----------------------------------------------------------------- as the tasks of the job

    def trigger_checkpoint(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint: CheckpointMetaData,
        options: CheckpointOptions,
    ) -> None:
        for task, subtask in zip(self.attempts, self.subtasks, strict=True):
            state = subtask.snapshot(checkpoint, options)
            assert isinstance(state.managed_keyed_state, ChangelogStateBackendHandle)
            self.reported.append(state.managed_keyed_state)
            self.gateway.receive_acknowledge_message(
                AcknowledgeCheckpoint(
                    checkpoint.checkpoint_id, task.attempt_id, {OPERATOR: state}, self.job_id
                )
            )

    def notify_checkpoint_complete(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int, timestamp: int
    ) -> None:
        self._tell(lambda subtask: subtask.notify_checkpoint_complete(checkpoint_id))

    def notify_checkpoint_subsumed(
        self, tasks: Sequence[CheckpointTask], checkpoint_id: int
    ) -> None:
        self._tell(lambda subtask: subtask.notify_checkpoint_subsumed(checkpoint_id))

    def notify_checkpoint_aborted(
        self,
        tasks: Sequence[CheckpointTask],
        checkpoint_id: int,
        latest_completed: int | None,
        reason: CheckpointFailureReason,
    ) -> None:
        self._tell(lambda subtask: subtask.notify_checkpoint_aborted(checkpoint_id))

    def _tell(self, notify: Callable[[OperatorSubtask], object]) -> None:
        for subtask in self.subtasks:
            notify(subtask)

    def fail_job(self, message: str, attempt_id: str | None) -> None:
        raise AssertionError(message)


def key_group(key: str) -> int:
    return assign_to_key_group(Types.STRING.java_hash(key), 128)


@dataclasses.dataclass(frozen=True)
class Source:
    """Flink's checkpoint as if it had been written below a folder of the test: its job's folder
    with the bases, and the changelog apart or in it.
    """

    checkpoint: Path
    root: Path
    counts: dict[str, int]

    def files(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.root)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


def source_of(name: str, root: Path, *, changelog_in_job_folder: bool) -> Source:
    fixture = Fixture(GOLDEN / name)
    job = fixture.snapshot.parent.name
    folder = root / "checkpoints" / job
    shutil.copytree(fixture.snapshot.parent, folder)
    segments = root / ("checkpoints" if changelog_in_job_folder else "dstl") / job / "dstl"
    shutil.copytree(fixture.folder / "dstl" / job / "dstl", segments)
    checkpoint = folder / fixture.snapshot.name
    location = Location.parse(checkpoint)
    file = load_metadata_file(Pipeline(root / "nothing").files, location)
    moved = _moved(file.metadata, {"/dstl/": segments, "/taskowned/": folder / "taskowned"})
    (checkpoint / "_metadata").write_bytes(write_metadata(moved))
    counts = {each["key"]: each["value"] for each in fixture.truth if each.get("state") == "cnt"}
    assert counts
    return Source(checkpoint, root, counts)


def _moved(value: Any, folders: dict[str, Path]) -> Any:
    """The same value with absolute handles that point to the copy."""
    if isinstance(value, FileStateHandle):
        [folder] = [each for part, each in folders.items() if part in value.path][-1:]
        return dataclasses.replace(value, path=f"file:{folder / Path(value.path).name}")
    if isinstance(value, tuple):
        return tuple(_moved(each, folders) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            field.name: _moved(getattr(value, field.name), folders)
            for field in dataclasses.fields(value)
            if field.init
        }
        return dataclasses.replace(value, **fields)
    return value


def started(pipeline: Pipeline, source: Source, claim_mode: ClaimMode) -> Job:
    job = Job(pipeline, "first")
    restored = job.gateway.restore_savepoint(
        str(source.checkpoint), claim_mode=claim_mode, allow_non_restored_state=True
    )
    job.start(restored.checkpoint, restored.assignment.subtasks[OPERATOR])
    assert job.counts() == source.counts
    return job


def named(handles: Sequence[ChangelogStateBackendHandle]) -> set[str]:
    """Paths of the files behind some handles."""
    paths: set[str] = set()
    _collect(tuple(handles), paths)
    return paths


def _collect(value: Any, paths: set[str]) -> None:
    if isinstance(value, FileStateHandle):
        paths.add(value.path.removeprefix("file:"))
    elif isinstance(value, tuple | list):
        for field in value:
            _collect(field, paths)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _collect(getattr(value, field.name), paths)


@pytest.fixture(params=FIXTURES)
def fixture_name(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


@pytest.mark.slow
def test_no_claim_begins_with_a_base_of_its_own_and_never_touches_the_source(
    pipeline: Pipeline, tmp_path: Path, fixture_name: str
) -> None:
    source = source_of(fixture_name, tmp_path / "flink", changelog_in_job_folder=True)
    before = source.files()
    job = started(pipeline, source, "NO_CLAIM")
    keys = sorted(source.counts)
    job.process(keys[0])
    first = job.checkpoint()
    for handle in first:
        assert len(handle.materialized) == 1
        assert handle.non_materialized == ()
    inside = pipeline.layout.root.path
    assert all(each.startswith(inside) for each in named(first))
    # From here on the source may go: it is the user's again.
    for key in keys[:5]:
        job.process(key)
        assert all(each.startswith(inside) for each in named(job.checkpoint()))
    job.materialize()
    job.checkpoint()
    expected = {key: n + (key in keys[:5]) + (key == keys[0]) for key, n in source.counts.items()}
    assert job.counts() == expected
    job.close()

    shutil.move(source.root, tmp_path / "away")
    again = Job(pipeline, "second")
    restored = again.gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=True
    )
    assert restored is not None
    again.start(restored.checkpoint, restored.assignment.subtasks[OPERATOR])
    assert again.counts() == expected
    again.gateway.shutdown(JobStatus.FINISHED)
    again.close()
    assert dataclasses.replace(source, root=tmp_path / "away").files() == before


def test_no_claim_keeps_the_source_whatever_happens_before_the_first_checkpoint(
    pipeline: Pipeline, tmp_path: Path, fixture_name: str
) -> None:
    source = source_of(fixture_name, tmp_path / "flink", changelog_in_job_folder=True)
    before = source.files()
    started(pipeline, source, "NO_CLAIM").close()
    job = Job(pipeline, "second")
    restored = job.gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=False
    )
    assert restored is not None
    assert restored.checkpoint.location == str(Location.parse(source.checkpoint))
    job.start(restored.checkpoint, restored.assignment.subtasks[OPERATOR])
    for handle in job.checkpoint():
        assert handle.non_materialized == ()
    job.gateway.shutdown(JobStatus.FINISHED)
    job.close()
    assert source.files() == before


@pytest.mark.parametrize("changelog_in_job_folder", [True, False], ids=["in it", "apart"])
def test_claim_goes_on_with_the_files_and_deletes_each_when_nothing_needs_it(
    pipeline: Pipeline, tmp_path: Path, fixture_name: str, changelog_in_job_folder: bool
) -> None:
    source = source_of(
        fixture_name, tmp_path / "flink", changelog_in_job_folder=changelog_in_job_folder
    )
    before = source.files()
    segments = {each for each in before if "/dstl/" in each}
    job = started(pipeline, source, "CLAIM")
    keys = sorted(source.counts)
    job.process(keys[0])
    first = job.checkpoint()
    theirs = {each for each in named(first) if each.startswith(str(source.root))}
    # Flink's bases and logs are carried over, and the new changes stand on top of them.
    assert {str(Path(each).relative_to(source.root)) for each in theirs} == {
        path for path in before if "/taskowned/" in path or path in segments
    }
    assert sum(len(handle.non_materialized) for handle in first) > 2
    # The snapshot itself was subsumed, and what the new checkpoint names is still there.
    assert not source.checkpoint.exists()
    assert set(source.files()) == {str(Path(each).relative_to(source.root)) for each in theirs}
    expected = {key: n + (key == keys[0]) for key, n in source.counts.items()}
    job.close()

    # Another owner goes on from there: whose files these are stands in the log.
    job = Job(pipeline, "second")
    restored = job.gateway.restore_latest_checkpointed_state(
        error_if_no_checkpoint=True, all_or_nothing_state=True
    )
    assert restored is not None
    job.start(restored.checkpoint, restored.assignment.subtasks[OPERATOR], source.root)
    assert job.counts() == expected
    job.materialize()
    job.checkpoint()
    job.checkpoint()
    # With a base of its own it needs nothing of Flink's any more. A changelog apart from the
    # job's folder is left to Flink's user: nobody here knows who else writes there.
    left = set() if changelog_in_job_folder else segments
    assert set(source.files()) == left
    assert job.counts() == expected
    job.close()
