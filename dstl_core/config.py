"""Options as frozen values. Aliases are Flink's keys; cross-field rules are checked here.

The only module of ``dstl_core`` that imports pydantic.
"""

from __future__ import annotations

import datetime
import difflib
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

import pydantic

from dstl_core.errors import ConfigError
from dstl_core.flink_text import parse_duration_ms, parse_memory_size

_MEGABYTE = 1 << 20
_MAX_INT, _MAX_LONG = (1 << 31) - 1, (1 << 63) - 1
"""The largest numbers that Flink's options hold."""
_MOST_SHOWN = 100


def _duration_ms(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    return parse_duration_ms(value) if isinstance(value, str) else value


MemorySize = Annotated[
    int,
    pydantic.BeforeValidator(lambda v: parse_memory_size(v) if isinstance(v, str) else v),
    pydantic.Field(ge=0, le=_MAX_LONG),
]
"""Bytes; also accepts Flink's text."""

DurationMs = Annotated[
    int,
    pydantic.BeforeValidator(lambda v: _duration_ms(v)),
    pydantic.Field(ge=0, le=_MAX_LONG),
]
"""Milliseconds; also accepts Flink's text, and a ``timedelta``."""


_EXPECTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "text",
    "dict": "a mapping",
    "list": "a list",
}
"""What an option accepts, by the beginning of the problem's name."""


def _one_of(*names: str) -> Any:
    """Accepts one of the names, in upper or lower case as Flink does."""

    def checked(value: Any) -> str:
        if not isinstance(value, str) or value.upper() not in names:
            raise ValueError(f"expected {' or '.join(names)}, got {value!r}")
        return value.upper()

    return pydantic.BeforeValidator(checked)


def option_problem(key: str, problem: Mapping[str, Any]) -> str:
    """What is wrong with the value of an option, in dstl's own words.

    Args:
        key: The name of the option.
        problem: As pydantic gives it. Without its input, the value is not shown.
    """
    kind, context = problem["type"], problem.get("ctx", {})
    if "error" in context:
        return f"{key}: {str(context['error']).rstrip('.')}"
    bound = f"{'at least' if kind == 'greater_than_equal' else 'at most'} "
    expected = {
        "greater_than_equal": f"{bound}{context.get('ge')}",
        "less_than_equal": f"{bound}{context.get('le')}",
    }.get(kind) or _EXPECTED.get(kind.partition("_")[0], "another value")
    got = f", got {_shown(problem['input'])}" if "input" in problem else ""
    return f"{key}: expected {expected}{got}"


def _shown(value: Any) -> str:
    """A value for an error, in at most 100 characters."""
    if isinstance(value, int) and abs(value) > _MAX_LONG:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}.."


class Options(pydantic.BaseModel):
    """Base of all option sets. They are frozen, refuse unknown keys and accept Flink's keys."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, validate_default=True
    )
    deprecated_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of older releases, by their new names. They are accepted with a warning."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as error:
            raise self._wrong(error, values) from None

    @classmethod
    def of(cls, options: Mapping[str, Any] | Self | None = None, /, **values: Any) -> Self:
        """Makes options from a mapping with Flink's keys, from keyword arguments, or from both.
        The mapping may also be such options.

        Example:
            ``ChangelogOptions.of({"state.changelog.enabled": "true"}, base_path="/data/log")``

        Raises:
            ConfigError: An option is wrong. The sentence names each one.
        """
        if isinstance(options, cls):
            options = plain(options)
        if options is not None and not isinstance(options, Mapping):
            raise ConfigError(
                f"Options are wrong: expected a mapping of names to values, got {_shown(options)}."
            )
        for key in options or {}:
            if not isinstance(key, str):
                raise ConfigError(f"The name of an option is wrong: expected text, got {key!r}.")
        return cls(**{**(options or {}), **values})

    @classmethod
    def _wrong(cls, error: pydantic.ValidationError, values: Mapping[str, Any]) -> ConfigError:
        problems = "; ".join(
            cls._sentence(problem, values) for problem in error.errors(include_url=False)
        )
        return ConfigError(f"An option is wrong: {problems}.")

    @classmethod
    def _sentence(cls, problem: Any, values: Mapping[str, Any]) -> str:
        """One problem in dstl's own words, without those of the validation library."""
        if not problem["loc"]:
            return str(problem["ctx"]["error"]).rstrip(".")
        key = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            return cls._unknown(key, values)
        return option_problem(key, problem)

    @classmethod
    def _unknown(cls, key: str, values: Mapping[str, Any]) -> str:
        for name, field in cls.model_fields.items():
            former = [old for old, new in cls.deprecated_keys.items() if new == field.alias]
            for other in (field.alias, *former):
                if key == name and other in values:
                    return f"{key} and {other} are the same option; give one"
        known = [*cls.model_fields, *(field.alias or "" for field in cls.model_fields.values())]
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]}" if close else ""
        return (
            f"{cls.__name__} has no option {key if key.strip() == key != '' else repr(key)}{hint}"
        )

    @pydantic.model_validator(mode="before")
    @classmethod
    def _accept_deprecated_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        accepted = dict(values)
        for deprecated, key in cls.deprecated_keys.items():
            if deprecated in accepted:
                warnings.warn(
                    f"The option {deprecated} is deprecated; use {key}.",
                    DeprecationWarning,
                    stacklevel=4,
                )
                accepted.setdefault(key, accepted.pop(deprecated))
                accepted.pop(deprecated, None)
        return accepted


def plain(options: Mapping[str, Any] | Options) -> Mapping[str, Any]:
    """Options as a mapping; of options as an object, those that were given."""
    return options.model_dump(exclude_unset=True) if isinstance(options, Options) else options


_DSTL = "state.changelog.dstl.dfs."


class ChangelogOptions(Options):
    """Options of the state changelog. Sizes are bytes, times milliseconds; both may be given as
    Flink's text (``"5MB"``, ``"10 ms"``). Flink's deprecated keys are accepted and warn.

    Source: ``StateChangelogOptions`` and ``FsStateChangelogOptions`` of Flink 2.2.1.
    """

    enabled: bool = pydantic.Field(
        default=False,
        alias="state.changelog.enabled",
        description="Whether state has a changelog. A stateful job has one, unless it gets "
        "changelog=False.",
    )
    storage: str = pydantic.Field(
        default="memory",
        alias="state.changelog.storage",
        description="Short name of the storage: memory, filesystem, or one that was registered.",
    )
    periodic_materialize_enabled: bool = pydantic.Field(
        default=True,
        alias="state.changelog.periodic-materialize.enabled",
        description="Off: the changelog is never truncated.",
    )
    periodic_materialize_interval_ms: DurationMs = pydantic.Field(
        default=600_000,
        alias="state.changelog.periodic-materialize.interval",
        description="Pause between materializations.",
    )
    materialize_log_size: MemorySize = pydantic.Field(
        default=0,
        alias="dstl.materialize.log-size",
        description="Bytes of log on top of a base that ask for a new one; 0: any number.",
    )
    materialize_log_ratio: float = pydantic.Field(
        default=0.0,
        ge=0,
        alias="dstl.materialize.log-ratio",
        description="Size of the log against the base that asks for a new one; 0: any. A log below "
        "the preemptive-persist-threshold never does.",
    )
    compaction_min_segments: int = pydantic.Field(
        default=64,
        ge=0,
        le=_MAX_INT,
        alias="dstl.compaction.min-segments",
        description="Small segments of earlier runs that are written together; 0: never.",
    )
    max_failures_allowed: int = pydantic.Field(
        default=3,
        ge=0,
        le=_MAX_INT,
        alias="state.changelog.max-failures-allowed",
        description="Materializations that may fail in a row.",
    )
    base_path: str | None = pydantic.Field(
        default=None,
        alias="state.changelog.dstl.dfs.base-path",
        description="Folder under which each job keeps its changelog segments.",
    )
    compression_enabled: bool = pydantic.Field(
        default=False,
        alias="state.changelog.dstl.dfs.compression.enabled",
        description="Whether segments are Snappy-framed.",
    )
    preemptive_persist_threshold: MemorySize = pydantic.Field(
        default=5 * _MEGABYTE,
        alias="state.changelog.dstl.dfs.preemptive-persist-threshold",
        description="Appended bytes at which a writer uploads without a checkpoint.",
    )
    persist_delay_ms: DurationMs = pydantic.Field(
        default=10,
        alias="state.changelog.dstl.dfs.batch.persist-delay",
        description="How long uploads wait for those of other writers; 0 sends each at once.",
    )
    persist_size_threshold: MemorySize = pydantic.Field(
        default=10 * _MEGABYTE,
        alias="state.changelog.dstl.dfs.batch.persist-size-threshold",
        description="Waiting bytes that end the delay.",
    )
    upload_buffer_size: MemorySize = pydantic.Field(
        default=_MEGABYTE,
        alias="state.changelog.dstl.dfs.upload.buffer-size",
        description="Small change sets are joined to writes of this size.",
    )
    num_upload_threads: int = pydantic.Field(
        default=5,
        ge=1,
        le=_MAX_INT,
        alias="state.changelog.dstl.dfs.upload.num-threads",
        description="Uploads at once.",
    )
    num_discard_threads: int = pydantic.Field(
        default=1,
        ge=1,
        le=_MAX_INT,
        alias="state.changelog.dstl.dfs.discard.num-threads",
        description="Deletions of unused files at once.",
    )
    max_in_flight: MemorySize = pydantic.Field(
        default=100 * _MEGABYTE,
        alias="state.changelog.dstl.dfs.upload.max-in-flight",
        description="Bytes that all writers of a storage may have on their way; more waits.",
    )
    retry_policy: str = pydantic.Field(
        default="fixed",
        alias="state.changelog.dstl.dfs.upload.retry-policy",
        description="fixed: try again as the next options say; none: one attempt without time-out.",
    )
    upload_timeout_ms: DurationMs = pydantic.Field(
        default=1_000,
        alias="state.changelog.dstl.dfs.upload.timeout",
        description="After this an attempt is joined by another one; 0: never.",
    )
    max_attempts: int = pydantic.Field(
        default=3,
        ge=1,
        le=_MAX_INT,
        alias="state.changelog.dstl.dfs.upload.max-attempts",
        description="Attempts of one upload, the first included.",
    )
    next_attempt_delay_ms: DurationMs = pydantic.Field(
        default=500,
        alias="state.changelog.dstl.dfs.upload.next-attempt-delay",
        description="Pause after an attempt that failed; none after a time-out.",
    )
    local_cache_idle_timeout_ms: DurationMs = pydantic.Field(
        default=600_000,
        alias="state.changelog.dstl.dfs.download.local-cache.idle-timeout-ms",
        description="How long a downloaded segment is kept after its last use in recovery.",
    )
    fsync: bool = pydantic.Field(
        default=True,
        alias="storage.fsync",
        description="Whether a local segment survives a power loss once it is acknowledged.",
    )

    @pydantic.field_validator("storage")
    @classmethod
    def _lower_case(cls, value: str) -> str:
        return value.lower()

    @pydantic.field_validator("retry_policy")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ("fixed", "none"):
            raise ValueError(f"Unknown retry policy: {value}; expected fixed or none")
        return value

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_in_flight < 1:
            raise ValueError("upload.max-in-flight leaves no room for any change: 0")
        if self.persist_size_threshold > self.max_in_flight:
            raise ValueError(
                f"batch.persist-size-threshold ({self.persist_size_threshold}) must not exceed "
                f"upload.max-in-flight ({self.max_in_flight})"
            )
        if self.upload_buffer_size >= 1 << 31:
            raise ValueError(f"upload.buffer-size is over 2 GiB: {self.upload_buffer_size}")
        return self

    @property
    def backpressure_timeout_ms(self) -> int:
        """Longest wait of an append for room: the time of all attempts of one upload, or a minute
        if that time is unlimited.
        """
        return self.upload_timeout_ms * self.max_attempts or 60_000


ChangelogOptions.deprecated_keys = {
    **{
        f"state.backend.changelog.{name}": f"state.changelog.{name}"
        for name in (
            "enabled",
            "storage",
            "periodic-materialize.enabled",
            "periodic-materialize.interval",
            "max-failures-allowed",
        )
    },
    **{
        field.alias.removeprefix("state.changelog."): field.alias
        for field in ChangelogOptions.model_fields.values()
        if field.alias is not None and field.alias.startswith(_DSTL)
    },
}


class CheckpointConfig(Options):
    """Options of checkpointing, recovery and the state backend. Times are milliseconds, sizes are
    bytes; both may be given as Flink's text. Keys of older releases are accepted and warn.

    Source: ``CheckpointingOptions``, ``StateRecoveryOptions`` and ``StateBackendOptions`` of Flink
    2.2.1.
    """

    mode: Annotated[str, _one_of("EXACTLY_ONCE")] = pydantic.Field(
        default="EXACTLY_ONCE",
        alias="execution.checkpointing.mode",
        description="Only EXACTLY_ONCE: nothing here can give less.",
    )
    interval_ms: DurationMs | None = pydantic.Field(
        default=None,
        ge=1,
        alias="execution.checkpointing.interval",
        description="Period of checkpoints; None takes them on request only.",
    )
    interval_during_backlog_ms: DurationMs | None = pydantic.Field(
        default=None,
        alias="execution.checkpointing.interval-during-backlog",
        description="Period while a source works off a backlog; 0 takes none then.",
    )
    timeout_ms: DurationMs = pydantic.Field(
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
    min_pause_ms: DurationMs = pydantic.Field(
        default=0,
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
    externalized_checkpoint_retention: Annotated[
        str,
        _one_of("NO_EXTERNALIZED_CHECKPOINTS", "RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION"),
    ] = pydantic.Field(
        default="NO_EXTERNALIZED_CHECKPOINTS",
        alias="execution.checkpointing.externalized-checkpoint-retention",
        description="What becomes of the last checkpoint when the job ends.",
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
    claim_mode: Annotated[str, _one_of("NO_CLAIM", "CLAIM")] = pydantic.Field(
        default="NO_CLAIM",
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

    rocksdb_local_dir: str | None = pydantic.Field(
        default=None,
        alias="state.backend.rocksdb.localdir",
        description="Folder of the databases of the backend rocksdb; None: the temporary folder.",
    )
    rocksdb_cache_size: MemorySize = pydantic.Field(
        default=128 * _MEGABYTE,
        ge=_MEGABYTE,
        alias="state.backend.rocksdb.block.cache-size",
        description="Blocks in memory, for each subtask.",
    )
    rocksdb_write_buffer_size: MemorySize = pydantic.Field(
        default=64 * _MEGABYTE,
        ge=_MEGABYTE,
        alias="state.backend.rocksdb.writebuffer.size",
        description="A memtable, of which there are up to three for each subtask.",
    )

    deprecated_keys: ClassVar[Mapping[str, str]] = {
        "execution.savepoint.ignore-unclaimed-state": "execution.state-recovery."
        "ignore-unclaimed-state",
        "execution.savepoint.path": "execution.state-recovery.path",
        "execution.savepoint-restore-mode": "execution.state-recovery.claim-mode",
        "state.backend": "state.backend.type",
        "state.checkpoints.dir": "execution.checkpointing.dir",
        "state.checkpoints.num-retained": "execution.checkpointing.num-retained",
        "state.savepoints.dir": "execution.checkpointing.savepoint-dir",
    }
