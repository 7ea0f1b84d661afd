"""Checkpoints of a whole job under one seed: coordinator, subtasks, storage, network, clock.

Owners crash, and are replaced while they still run. Messages are late, lost and doubled.
Checkpoints expire. Storage refuses writes, tears them, and loses answers. Everything runs on one
thread; the seed decides each step. The simulation compares every commit with plain dictionaries:

    1. a committed checkpoint restores what its subtasks held when they took it;
    2. no commit lacks a change of an earlier commit, and no commit has a change twice;
    3. every file that a retained checkpoint references exists;
    4. only the owner of the claim commits.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from dstl_core.changelog.storage import FsStateChangelogStorage
from dstl_core.checkpoint.coordination.assignment import StateAssignment, assign_state
from dstl_core.checkpoint.coordination.pending import CheckpointTask, OperatorPlan
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.properties import JobStatus
from dstl_core.codec.serializers import Types
from dstl_core.config import ChangelogOptions
from dstl_core.errors import DstlError, FencedError, InvariantViolation, StorageError
from dstl_core.model.checkpoint import CheckpointMetadata
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import assign_to_key_group
from dstl_core.operators.environment import OperatorSetup, TaskEnvironment, file_system_streams
from dstl_core.operators.subtask import OperatorSubtask
from dstl_core.state.backends.state_backend import HashMapStateBackend
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import METADATA_FILE_NAME, JobLayout, Location
from dstl_core.testing.faulty_file_io import Fault, FaultyFileIO
from dstl_core.testing.manual import ManualClock, ManualScheduler
from dstl_core.testing.memory_file_io import MemoryFileIO
from tests.simulation.simulated_job import (
    MAX_PARALLELISM,
    OPERATOR,
    TIMEOUT_MS,
    UID,
    CounterFunction,
    Message,
    Owner,
    Part,
    Task,
)

KEYS = tuple(f"key-{number}" for number in range(6))
_BASE = Location.parse("s3://simulated/base")


class SimulationError(AssertionError):
    """An invariant does not hold. The message names the seed."""


class CheckpointSimulation:
    """Simulates one seed.

    Args:
        seed: Decides the whole run.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = ManualClock()
        self.threads = ManualScheduler(self.clock, self.random)
        self.disk = MemoryFileIO()
        self.trouble = 0.0
        self.blackout = False
        """Whether the network is down at present."""
        self.loss = self.random.choice([0.0, 0.05, 0.2])
        self.io = FaultyFileIO(
            self.disk,
            self._write_fault,
            pause=self.clock.advance,
            pause_ms=200,
            delete_fails=lambda: self.random.random() < self.trouble / 2,
            publish_fault=self._publish_fault,
            read_fails=lambda: self.blackout or self.random.random() < self.trouble / 4,
        )
        self.job_id = JobID.for_name("simulated")
        self.layout = JobLayout.of(_BASE, self.job_id.hex)
        self.options = ChangelogOptions.of(
            base_path=str(_BASE),
            preemptive_persist_threshold=self.random.choice([1, 200, 100_000]),
            periodic_materialize_enabled=False,
            max_failures_allowed=1_000_000,
            compaction_min_segments=self.random.choice([0, 3, 6]),
        )
        self.num_retained = self.random.choice([1, 1, 2])
        self.parts: dict[int, dict[str, Part]] = {}
        self.expected: dict[str, Part] = {}
        self.commits = 0
        self.restored = 0
        self._names = 0
        self._change = 0
        self._seen_records = 0
        self._mailbox: list[Message] = []
        self._ghosts: list[Owner] = []
        self._owners = 0
        self._observer = self.open_store(self.disk)
        self._last_changes: set[int] = set()
        self._named: dict[str, tuple[bytes | None, list[str]]] = {}
        self._holder = ""
        self.owner = self._new_owner()

    # ----------------------------------------------------------------------------- the parts

    def new_name(self) -> str:
        """Makes a name that this run has not used."""
        self._names += 1
        return f"{self._names:08d}-0000-4000-8000-{self.seed:012d}"

    def open_store(self, io: Any) -> CompletedCheckpointStore:
        return CompletedCheckpointStore(io, self.layout, self.clock, num_retained=self.num_retained)

    def setup(self, parallelism: int) -> OperatorSetup:
        return OperatorSetup(
            UID, Types.STRING, lambda row: row["key"], parallelism, MAX_PARALLELISM
        )

    def environment(self, changelog: FsStateChangelogStorage) -> TaskEnvironment:
        return TaskEnvironment(
            HashMapStateBackend(),
            changelog,
            HandleResolver(self.disk, self.layout.root),
            file_system_streams(self.layout, self.io, inline_threshold=30, new_name=self.new_name),
            self.clock,
            self.options,
        )

    @staticmethod
    def key_group(key: str) -> int:
        return assign_to_key_group(Types.STRING.java_hash(key), MAX_PARALLELISM)

    def later(self, message: Message) -> None:
        """Sends a message. Messages may overtake each other."""
        self._mailbox.append(message)

    def _write_fault(self) -> Fault:
        if self.random.random() >= self.trouble:
            return Fault.NONE
        return self.random.choice([each for each in Fault if each is not Fault.NONE])

    def _publish_fault(self) -> Fault:
        if self.blackout:
            return Fault.REFUSED
        if self.random.random() < self.trouble / 4:
            # The request arrives, then the network fails: the outcome cannot be read.
            self.blackout = True
            return Fault.BAD_CLOSE
        if self.random.random() >= self.trouble:
            return Fault.NONE
        return self.random.choice([Fault.REFUSED, Fault.BAD_CLOSE])

    # ------------------------------------------------------------------------------ the run

    def run(self, steps: int = 60) -> None:
        """Runs all steps, then heals the storage and checks that nothing is lost.

        Raises:
            SimulationError: An invariant does not hold. The message names the seed.
        """
        try:
            for _ in range(steps):
                self._step()
            self._end()
        except SimulationError:
            raise
        except Exception as error:
            raise SimulationError(f"seed {self.seed}: {type(error).__name__}: {error}") from error
        finally:
            self.threads.close(0)

    def _step(self) -> None:
        if self.random.random() < 0.3:
            self.blackout = False
        roll = self.random.random()
        if roll < 0.30:
            self._process()
        elif roll < 0.62:
            self._deliver()
        elif roll < 0.80:
            self._trigger()
        elif roll < 0.86:
            self.clock.advance(self.random.choice([10, 100, TIMEOUT_MS + 1]))
            self._guard(lambda: self._any_owner().gateway.poll())
        elif roll < 0.91:
            self._materialize()
        elif roll < 0.94:
            self.trouble = self.random.choice([0.0, 0.0, 0.1, 0.4])
        elif roll < 0.97:
            self._fail_task()
        else:
            self._take_over()
        self.threads.run_ready()
        self.observe()

    def _any_owner(self) -> Owner:
        """The owner, or a ghost: a former owner that does not know that it was replaced."""
        ghosts = [each for each in self._ghosts if each.running]
        if ghosts and self.random.random() < 0.25:
            return self.random.choice(ghosts)
        return self.owner

    def _guard(self, work: Callable[[], object]) -> None:
        """Ignores errors of storage and claims: they break no invariant."""
        try:
            work()
        except (InvariantViolation, SimulationError):
            raise
        except DstlError:
            return

    def _process(self) -> None:
        owner = self._any_owner()
        key = self.random.choice(KEYS)
        for task in owner.tasks.values():
            if task.alive and task.subtask.key_groups.contains(self.key_group(key)):
                self._change += 1
                try:
                    task.subtask.process({"key": key, "change": self._change})
                except DstlError:
                    # The log refused a change: the task cannot continue with half a change.
                    task.alive = False
                    task.subtask.cancel()
                    return
                task.keyed.setdefault(key, []).append(self._change)
                task.split.append(self._change)

    def _deliver(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            if not self._mailbox:
                return
            message = self._mailbox.pop(self.random.randrange(len(self._mailbox)))
            self._guard(message)
            self.observe()

    def _trigger(self) -> None:
        gateway = self._any_owner().gateway
        if self.random.random() < 0.15:
            folder = "s3://simulated/savepoints"
            self._guard(lambda: gateway.trigger_savepoint(folder))
        else:
            self._guard(gateway.trigger_checkpoint)

    def _materialize(self) -> None:
        tasks = [each for each in self._any_owner().tasks.values() if each.alive]
        if tasks:
            manager = self.random.choice(tasks).subtask.materialization
            if manager is not None:
                self._guard(manager.trigger)

    def _fail_task(self) -> None:
        owner = self._any_owner()
        if owner.tasks:
            failed = self.random.choice(list(owner.tasks))
            self._guard(lambda: owner.gateway.task_failed(failed, "it was told to"))
            self._restart(owner)

    def _restart(self, owner: Owner) -> None:
        try:
            owner.gateway.tasks_changed(None)
            owner.start_tasks()
        except FencedError:
            owner.end()
        except StorageError:
            # Nothing can be restored now: no task runs until the next attempt.
            for task in owner.tasks.values():
                task.alive = False

    def _take_over(self) -> None:
        """Lets another process take the pipeline over. The old one may be dead or slow."""
        if self.random.random() < 0.5:
            self.owner.running = False
            for task in self.owner.tasks.values():
                task.alive = False
        self._ghosts.append(self.owner)
        self.owner = self._new_owner()

    def _new_owner(self) -> Owner:
        trouble, self.trouble, self.blackout = self.trouble, 0.0, False
        self._owners += 1
        owner = Owner(self, f"owner-{self._owners}")
        self._holder = owner.name
        self.observe()
        owner.start_tasks()
        self.trouble = trouble
        return owner

    def _end(self) -> None:
        """Heals the storage, delivers all messages, and takes a last checkpoint."""
        self.trouble = self.loss = 0.0
        self.blackout = False
        for _ in range(4):
            while self._mailbox:
                self._deliver()
            self.threads.run_ready()
            self.clock.advance(TIMEOUT_MS + 1)
            self._guard(self.owner.gateway.poll)
        before = self.commits
        self._restart(self.owner)
        self._guard(self.owner.gateway.trigger_checkpoint)
        while self._mailbox:
            self._deliver()
        self.threads.run_ready()
        self.observe()
        if self.commits == before:
            self._fail("no checkpoint completes, although all faults have ended")
        for checkpoint in self._observer.retained:
            if checkpoint.location is None:
                self._check_commit(checkpoint)
        self._end_job()

    def _end_job(self) -> None:
        """Ends the job with a random status. Only checkpoints that its retention discards go."""
        status = list(JobStatus)[self.seed % len(JobStatus)]
        before = self._observer.retained
        self.owner.end()
        self.owner.gateway.shutdown(status)
        self.observe()
        kept = [each for each in before if not each.properties.discard_on_job(status)]
        if self._observer.retained != kept:
            self._fail(f"a job that is {status.name} keeps {self._observer.retained}, not {kept}")
        for checkpoint in before:
            metadata = self._observer.folder_of(checkpoint).child(METADATA_FILE_NAME)
            if checkpoint not in kept and str(metadata) in self.disk.files:
                self._fail(
                    f"checkpoint {checkpoint.checkpoint_id} was discarded and is still there"
                )

    # ---------------------------------------------------------------------------- the checks

    def _fail(self, what: str) -> None:
        raise SimulationError(f"seed {self.seed}: {what}")

    def expected_of(self, checkpoint: CompletedCheckpoint) -> Part:
        """The state that a committed checkpoint must hold."""
        return self.expected[checkpoint.metadata_sha256]

    def observe(self) -> None:
        """Checks new commits, and the files of all retained checkpoints."""
        log = self._observer
        log.refresh()
        for record in log._log.records_after(self._seen_records):
            self._seen_records += 1
            if record.type == "claim":
                self._holder = record.owner
            elif record.type == "commit" and record.owner != self._holder:
                self._fail(f"{record.owner} committed without a claim")
            if record.type in ("commit", "savepoint"):
                self._learn(CompletedCheckpoint.of(record), is_commit=record.type == "commit")
        for checkpoint in log.retained:
            missing = [path for path in self._files_of(checkpoint) if path not in self.disk.files]
            if missing:
                self._fail(
                    f"checkpoint {checkpoint.checkpoint_id} references missing files: {missing}"
                )

    def _files_of(self, checkpoint: CompletedCheckpoint) -> list[str]:
        """The files that a retained checkpoint references. Checks the metadata's sha256."""
        folder = self._observer.folder_of(checkpoint)
        raw = self.disk.files.get(str(folder.child(METADATA_FILE_NAME)))
        if raw is None:
            self._fail(f"the metadata of checkpoint {checkpoint.checkpoint_id} is missing")
        known = self._named.get(checkpoint.metadata_sha256)
        if known is None or known[0] is not raw:
            cleaner = self._observer._cleaner
            files = cleaner.own_files(self._observer.load(checkpoint))
            known = self._named[checkpoint.metadata_sha256] = raw, sorted(map(str, files))
        return known[1]

    def _learn(self, checkpoint: CompletedCheckpoint, *, is_commit: bool) -> None:
        """Notes the expected state of a new commit, and checks that no earlier change is lost."""
        parts = self.parts[checkpoint.checkpoint_id].values()
        whole = Part({}, [])
        for part in parts:
            whole.keyed.update(part.keyed)
            whole.split += part.split
        self.expected[checkpoint.metadata_sha256] = whole
        self._check_commit(checkpoint)
        changes = {change for each in whole.keyed.values() for change in each}
        if is_commit:
            self.commits += 1
            lost = self._last_changes - changes
            if lost:
                self._fail(f"checkpoint {checkpoint.checkpoint_id} lacks the changes {lost}")
            self._last_changes = changes

    def _check_commit(self, checkpoint: CompletedCheckpoint) -> None:
        """Restores a commit on one subtask and compares."""
        file = self._observer.load(checkpoint)
        expected = self.expected_of(checkpoint)
        function = CounterFunction()
        assignment = self._assign(file.metadata)
        environment = TaskEnvironment(
            HashMapStateBackend(),
            None,
            HandleResolver(self.disk, file.folder, allow_roots=[self.layout.root]),
            file_system_streams(self.layout, self.disk),
            self.clock,
        )
        subtask = OperatorSubtask(
            self.setup(1), environment, 0, function, assignment.subtasks[OPERATOR][0]
        )
        self.check_task(
            Task(CheckpointTask("check", 0, ()), subtask, function, expected.keyed, expected.split)
        )
        self.restored += 1

    @staticmethod
    def _assign(metadata: CheckpointMetadata) -> StateAssignment:
        plan = OperatorPlan(OPERATOR, UID, 1, MAX_PARALLELISM)
        return assign_state(
            metadata.checkpoint_id, [plan], metadata.operators, allow_non_restored_state=False
        )

    def check_task(self, task: Task) -> None:
        """Checks that a task sees the state that it must hold."""
        keyed = task.subtask.keyed
        if keyed is None:
            raise InvariantViolation("the simulated operator is keyed")
        for key in KEYS:
            if not task.subtask.key_groups.contains(self.key_group(key)):
                continue
            keyed.set_current_key(key)
            count, changes = task.function.seen()
            expected = task.keyed.get(key, [])
            if changes != expected or (count or 0) != len(expected):
                self._fail(f"{key} has {count}, {changes} instead of {expected}")
        if sorted(task.function.split.get()) != sorted(task.split):
            self._fail(f"operator state is {task.function.split.get()} instead of {task.split}")
