"""An engine for assets that needs no Spark: threads of the process of the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field, field_validator

from dstl_core.flink_text import parse_memory_size
from dstl_dagster.resources.checked_options import CheckedOptions

if TYPE_CHECKING:
    from dstl_core.local.local_engine import LocalEngine


class DstlLocalEngineResource(CheckedOptions, dg.ConfigurableResource):
    """Runs epochs in the process of the run, without Spark and without Java.

    It stands where a ``DstlSparkResource`` does. The function that gives the rows of a window gets
    the ``LocalEngine`` instead of a session, and returns what this engine takes: anything with the
    Arrow stream interface, or paths of Parquet files.
    """

    threads: int | None = Field(
        default=None, ge=1, description="Subtasks that run at a time; by default one for each core."
    )
    memory: str | None = Field(
        default=None,
        description="What rows and states may take; by default, states take what they need.",
    )
    temp_folder: str | None = Field(default=None, description="The folder of temporary files.")

    @field_validator("memory", mode="before")
    @classmethod
    def _size(cls, memory: Any) -> Any:
        if isinstance(memory, str) and not isinstance(memory, dg.EnvVar):
            parse_memory_size(memory)
        return memory

    @contextmanager
    def tagged(self, *names: str) -> Iterator["LocalEngine"]:
        """The engine. ``names`` are for Spark's UI, which it lacks."""
        from dstl_core.local.local_engine import LocalEngine

        yield LocalEngine(threads=self.threads, memory=self.memory, temp_folder=self.temp_folder)
