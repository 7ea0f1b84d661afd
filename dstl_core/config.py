"""Options as frozen values. Aliases are Flink's keys; cross-field rules are checked here.

The only module of ``dstl_core`` that imports pydantic.
"""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, Self

import pydantic

from dstl_core.errors import ConfigError

_MEGABYTE = 1 << 20
_MAX_LONG = (1 << 63) - 1

_MEMORY_UNITS = {
    label: 1 << 10 * power
    for power, labels in enumerate(
        (
            ("", "b", "bytes"),
            ("k", "kb", "kibibytes"),
            ("m", "mb", "mebibytes"),
            ("g", "gb", "gibibytes"),
            ("t", "tb", "tebibytes"),
        )
    )
    for label in labels
}
_DURATION_NANOS = {
    label: nanos
    for nanos, labels in (
        (86_400_000_000_000, ("d", "day", "days")),
        (3_600_000_000_000, ("h", "hour", "hours")),
        (60_000_000_000, ("min", "m", "minute", "minutes")),
        (1_000_000_000, ("s", "sec", "secs", "second", "seconds")),
        (1_000_000, ("", "ms", "milli", "millis", "millisecond", "milliseconds")),
        (1_000, ("µs", "micro", "micros", "microsecond", "microseconds")),
        (1, ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    )
    for label in labels
}
_NUMBER_AND_UNIT = re.compile(r"(\d+)\s*(\D*)", re.ASCII)
_ISO_DURATION = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_memory_size(text: str) -> int:
    """Bytes of a memory size as Flink writes it: ``10``, ``5MB``, ``1 gibibytes``.

    Raises:
        ConfigError: It is not one, or does not fit 63 bits.
    """
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    unit = _MEMORY_UNITS.get(match[2].strip().lower()) if match is not None else None
    if match is None or unit is None:
        raise ConfigError(
            f"Not a memory size: expected a whole number with b, kb, mb, gb or tb, got {text!r}."
        )
    return _fitting(int(match[1]) * unit, text)


def parse_duration_ms(text: str) -> int:
    """Whole milliseconds of a duration as Flink writes it: ``10``, ``1 s``, ``2min``, ``PT1.5S``.

    Raises:
        ConfigError: It is not one, or does not fit 63 bits.
    """
    trimmed = text.strip()
    iso = _ISO_DURATION.fullmatch(trimmed)
    if iso is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups()[:4])
        nanos = int((iso[5] or "").ljust(9, "0"))
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        return _fitting(whole * 1_000_000_000 + nanos, text) // 1_000_000
    match = _NUMBER_AND_UNIT.fullmatch(trimmed)
    unit = _DURATION_NANOS.get(match[2].strip().lower()) if match is not None else None
    if match is None or unit is None:
        raise ConfigError(
            f"Not a duration: expected a whole number with d, h, min, s, ms, micros or ns, or "
            f"ISO-8601, got {text!r}."
        )
    return _fitting(int(match[1]) * unit, text) // 1_000_000


def _fitting(value: int, text: str) -> int:
    if value > _MAX_LONG:
        raise ConfigError(f"A value is too large for 64 bits: {text!r}.")
    return value


MemorySize = Annotated[
    int,
    pydantic.BeforeValidator(lambda v: parse_memory_size(v) if isinstance(v, str) else v),
    pydantic.Field(ge=0),
]
"""Bytes; also accepts Flink's text."""

DurationMs = Annotated[
    int,
    pydantic.BeforeValidator(lambda v: parse_duration_ms(v) if isinstance(v, str) else v),
    pydantic.Field(ge=0),
]
"""Milliseconds; also accepts Flink's text."""


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
                f"{problem['msg'].rstrip('.')}"
                for problem in error.errors(include_url=False, include_input=False)
            )
            raise ConfigError(f"An option is wrong: {problems}.") from error


_DSTL = "state.changelog.dstl.dfs."


class ChangelogOptions(Options):
    """Options of the state changelog. Sizes are bytes, times milliseconds; both may be given as
    Flink's text (``"5MB"``, ``"10 ms"``). Flink's deprecated keys are accepted and warn.

    Source: ``StateChangelogOptions`` and ``FsStateChangelogOptions`` of Flink 2.2.1.
    """

    enabled: bool = pydantic.Field(
        default=False,
        alias="state.changelog.enabled",
        description="Whether the state backend logs its changes.",
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
    max_failures_allowed: int = pydantic.Field(
        default=3,
        ge=0,
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
        alias="state.changelog.dstl.dfs.upload.num-threads",
        description="Uploads at once.",
    )
    num_discard_threads: int = pydantic.Field(
        default=1,
        ge=1,
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

    @pydantic.model_validator(mode="before")
    @classmethod
    def _accept_deprecated_keys(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        accepted = dict(values)
        for deprecated, key in _DEPRECATED_KEYS.items():
            if deprecated in accepted:
                warnings.warn(
                    f"The option {deprecated} is deprecated; use {key}.",
                    DeprecationWarning,
                    stacklevel=4,
                )
                accepted.setdefault(key, accepted.pop(deprecated))
                accepted.pop(deprecated, None)
        return accepted

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
        if self.persist_size_threshold > self.max_in_flight:
            raise ValueError(
                f"sizeThresholdBytes ({self.persist_size_threshold}) must not exceed "
                f"maxBytesInFlight ({self.max_in_flight})"
            )
        if self.upload_buffer_size >= 1 << 31:
            raise ValueError(f"upload.buffer-size is over 2 GiB: {self.upload_buffer_size}")
        return self

    @property
    def backpressure_timeout_ms(self) -> int:
        """How long an append may wait for room: all attempts of one upload; where those may take
        for ever, a minute.
        """
        return self.upload_timeout_ms * self.max_attempts or 60_000


_DEPRECATED_KEYS = {
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
