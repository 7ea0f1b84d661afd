"""Options as frozen values. Aliases are Flink's keys; cross-field rules are checked here.

The only module of ``dstl_core`` that imports pydantic.
"""

from __future__ import annotations

from typing import Any, Self

import pydantic

from dstl_core.errors import ConfigError

_MEGABYTE = 1 << 20


class Options(pydantic.BaseModel):
    """Base of all option sets: frozen, unknown keys refused, Flink's keys accepted."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, validate_default=True
    )

    @classmethod
    def of(cls, **values: Any) -> Self:
        """The options from names or Flink's keys.

        Raises:
            ConfigError: In one sentence, naming each wrong option.
        """
        try:
            return cls.model_validate(values)
        except pydantic.ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(str(part) for part in problem['loc']) or cls.__name__}: "
                f"{problem['msg']}"
                for problem in error.errors(include_url=False, include_input=False)
            )
            raise ConfigError(f"An option is wrong: {problems}.") from error


class ChangelogOptions(Options):
    """Options of the state changelog (``state.changelog.dstl.dfs.*``). Sizes in bytes."""

    base_path: str = pydantic.Field(
        alias="state.changelog.dstl.dfs.base-path",
        description="Folder under which each job keeps its changelog segments.",
    )
    compression_enabled: bool = pydantic.Field(
        default=False,
        alias="state.changelog.dstl.dfs.compression.enabled",
        description="Whether segments are Snappy-framed.",
    )
    preemptive_persist_threshold: int = pydantic.Field(
        default=5 * _MEGABYTE,
        ge=0,
        alias="state.changelog.dstl.dfs.preemptive-persist-threshold",
        description="Bytes of appended changes at which a writer uploads without a checkpoint.",
    )


class CheckpointConfig(Options):
    """Options of checkpointing, recovery and the state backend. Times are milliseconds.

    Source: ``CheckpointingOptions``, ``StateRecoveryOptions`` and ``StateBackendOptions`` of Flink
    2.2.1.
    """

    mode: str = pydantic.Field(
        default="EXACTLY_ONCE",
        pattern="^EXACTLY_ONCE$",
        alias="execution.checkpointing.mode",
        description="Only EXACTLY_ONCE: nothing here can give less.",
    )
    interval_ms: int | None = pydantic.Field(
        default=None,
        ge=1,
        alias="execution.checkpointing.interval",
        description="Period of checkpoints; None takes them on request only.",
    )
    interval_during_backlog_ms: int | None = pydantic.Field(
        default=None,
        ge=0,
        alias="execution.checkpointing.interval-during-backlog",
        description="Period while a source works off a backlog; 0 takes none then.",
    )
    timeout_ms: int = pydantic.Field(
        default=600_000,
        ge=1,
        alias="execution.checkpointing.timeout",
        description="When a pending checkpoint is given up.",
    )
    max_concurrent_checkpoints: int = pydantic.Field(
        default=1,
        ge=1,
        alias="execution.checkpointing.max-concurrent-checkpoints",
        description="Pending checkpoints at a time; savepoints come on top.",
    )
    min_pause_ms: int = pydantic.Field(
        default=0,
        ge=0,
        alias="execution.checkpointing.min-pause",
        description="From the end of one checkpoint to the next periodic one.",
    )
    tolerable_failed_checkpoints: int | None = pydantic.Field(
        default=0,
        ge=0,
        alias="execution.checkpointing.tolerable-failed-checkpoints",
        description="Checkpoints in a row that may fail; None tolerates any number.",
    )
    num_retained: int = pydantic.Field(
        default=1,
        ge=1,
        alias="execution.checkpointing.num-retained",
        description="Completed checkpoints that are kept.",
    )
    externalized_checkpoint_retention: str = pydantic.Field(
        default="NO_EXTERNALIZED_CHECKPOINTS",
        pattern="^(NO_EXTERNALIZED_CHECKPOINTS|RETAIN_ON_CANCELLATION|DELETE_ON_CANCELLATION)$",
        alias="execution.checkpointing.externalized-checkpoint-retention",
        description="What becomes of the last checkpoint when the job ends.",
    )
    data_inline_threshold: int = pydantic.Field(
        default=20 * 1024,
        ge=0,
        le=_MEGABYTE,
        alias="execution.checkpointing.data-inline-threshold",
        description="State of at most so many bytes lies in _metadata itself.",
    )
    savepoint_dir: str | None = pydantic.Field(
        default=None,
        alias="execution.checkpointing.savepoint-dir",
        description="Where savepoints go that name no folder.",
    )
    checkpoint_dir: str | None = pydantic.Field(
        default=None,
        alias="execution.checkpointing.dir",
        description="Folder under which each job keeps its checkpoints.",
    )
    recovery_path: str | None = pydantic.Field(
        default=None,
        alias="execution.state-recovery.path",
        description="Snapshot that a new job starts from.",
    )
    claim_mode: str = pydantic.Field(
        default="NO_CLAIM",
        pattern="^(NO_CLAIM|CLAIM)$",
        alias="execution.state-recovery.claim-mode",
        description="CLAIM: the job owns the snapshot and deletes it when it is subsumed.",
    )
    ignore_unclaimed_state: bool = pydantic.Field(
        default=False,
        alias="execution.state-recovery.ignore-unclaimed-state",
        description="Whether state of operators that the job does not have is left out.",
    )
    state_backend_type: str = pydantic.Field(
        default="hashmap",
        alias="state.backend.type",
        description="Identifier of the state backend.",
    )
