"""The specification of a job, and the parts that the tasks of one operator get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dstl_core.changelog.ledger import STORAGE_IDENTIFIER
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry, SnapshotReader
from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError
from dstl_core.job.spec.operators import (
    LocalCopies,
    Operator,
    as_shipped,
    check_operators,
)
from dstl_core.model.ids import JobID
from dstl_core.model.key_group import (
    KeyGroupRange,
    check_parallelism,
    compute_key_group_range_for_operator_index,
)
from dstl_core.state.backends.changelog_backend import ValueLogging
from dstl_core.state.backends.state_backend import HashMapStateBackend, StateBackend
from dstl_core.state.backends.timers import MIN_WATERMARK
from dstl_core.storage.location import JobLayout, Location


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """The checked specification of a job.

    Args:
        name: Name of the pipeline; its job id is derived from it.
        base_path: Folder or URL that driver and workers can reach.
        operators: All operators, in the order in which they run.
        parallelism: Number of subtasks of every operator.
        max_parallelism: Number of key groups; fixed for the life of the state.
        changelog: Whether a checkpoint is a base and a log. Otherwise each has all state.
        changelog_options: Options of the changelog.
        state_backend: Stores the state of a task while it runs.
        local_copies: Copies of state that workers keep between epochs.
        value_logging: The updates of value state that are logged.
        allow_non_restored_state: Whether state of operators that the job lacks is left out.
            Otherwise such state is an error.
        readers: Readers of the snapshots of the job's own serializers, by snapshot class.

    Raises:
        ConfigError: A value is out of its range, or two operators have the same name.
    """

    name: str
    base_path: str
    operators: tuple[Operator, ...]
    parallelism: int
    max_parallelism: int
    changelog: bool = True
    changelog_options: ChangelogOptions = field(default_factory=ChangelogOptions)
    state_backend: StateBackend = field(default_factory=HashMapStateBackend)
    local_copies: LocalCopies = field(default_factory=LocalCopies)
    value_logging: ValueLogging = ValueLogging.LAST_PER_CHECKPOINT
    allow_non_restored_state: bool = False
    readers: Mapping[str, SnapshotReader] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.max_parallelism)
        check_operators(self.operators)
        object.__setattr__(self, "base_path", str(Location.parse(self.base_path)))

    @property
    def job_id(self) -> JobID:
        """The id of the job in every file."""
        return JobID.for_name(self.name)

    @property
    def layout(self) -> JobLayout:
        """The folders of the pipeline."""
        return JobLayout.of(Location.parse(self.base_path), self.job_id.hex)

    @property
    def registry(self) -> SerializerRegistry:
        """Reads the types in the files of the job: the built-in ones, and its own."""
        if not self.readers:
            return BUILT_IN
        registry = BUILT_IN.copy()
        for name, reader in self.readers.items():
            registry.register(name, reader)
        return registry

    def key_groups(self, subtask: int) -> KeyGroupRange:
        return compute_key_group_range_for_operator_index(
            self.max_parallelism, self.parallelism, subtask
        )

    def shipped_for(self, operator: Operator) -> JobSpec:
        """A copy of the job for the tasks of one operator, without the other operators."""
        return replace(self, operators=(as_shipped(operator),))


UPLOAD_TIMEOUT_MS = 30_000
"""The time-out of an upload of a job, unless the job gives one.

An epoch uploads many segments at once, and a disk that is behind takes more than Flink's second for
one. A second attempt would then write the same bytes again, and the third one would be the last.
"""


def task_changelog_options(
    base_path: str, options_set: Mapping[str, Any], *, compress: bool = True
) -> ChangelogOptions:
    """The changelog options of a job.

    Args:
        base_path: Folder of the log, unless the options name another.
        options_set: Options by name or Flink's key.
        compress: Whether segments are compressed, unless the options say it.

    Raises:
        ConfigError: An option is wrong.
    """
    options = ChangelogOptions.of(options_set)
    chosen = options.model_fields_set
    if "enabled" in chosen and not options.enabled:
        raise ConfigError(
            "A job logs its changes whatever state.changelog.enabled says; give changelog=False "
            "to the job instead."
        )
    if "storage" in chosen and options.storage != STORAGE_IDENTIFIER:
        raise ConfigError(
            f"A job keeps its changelog in files: expected state.changelog.storage "
            f"{STORAGE_IDENTIFIER!r}, got {options.storage!r}."
        )
    defaults = {
        "base_path": base_path,
        "compression_enabled": compress,
        # A task lives for one epoch, so the job's caller decides when to materialize.
        "periodic_materialize_enabled": False,
        "upload_timeout_ms": UPLOAD_TIMEOUT_MS,
    }
    return options.model_copy(
        update={name: value for name, value in defaults.items() if name not in chosen}
    )


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """One operator in one run, as it is sent to its tasks.

    Args:
        job: The job, with only this operator.
        parent: The folder of the snapshot to restore.
        assigned: The state that each subtask restores, as ``encode_assigned`` writes it.
        now_ms: Processing time of all tasks and attempts of a run, in milliseconds.
        watermark: Event time that the operator has reached, in milliseconds.
        begins_with_base: As in ``TaskEnvironment``.
    """

    job: JobSpec
    parent: str
    assigned: tuple[bytes, ...]
    now_ms: int = 0
    watermark: int = MIN_WATERMARK
    begins_with_base: bool = False

    @property
    def operator(self) -> Operator:
        [operator] = self.job.operators
        return operator


@dataclass(frozen=True)
class EpochSpec:
    """One run of an operator over rows.

    Args:
        checkpoint_id: The checkpoint of its files.
        watermark: Event time after the rows, in milliseconds; timers up to it fire then.
        broadcast: Rows for every subtask, as an Arrow stream; None: no rows.
    """

    checkpoint_id: int
    watermark: int = MIN_WATERMARK
    broadcast: bytes | None = None
