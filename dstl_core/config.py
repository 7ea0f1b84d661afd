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
