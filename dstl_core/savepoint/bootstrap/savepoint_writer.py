"""``SavepointWriter``: Flink's API for writing savepoints, from rows of any engine.

SavepointWriter.new_savepoint(LocalEngine(), max_parallelism=128)
    .with_operator(
        OperatorIdentifier.for_uid("accounts"),
        OperatorTransformation.bootstrap_with(table).key_by("id").transform_columns(),
    )
    .write(path)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.access.units import processes_that_fit
from dstl_core.savepoint.edit.edited_savepoint import (
    DEFAULT_MAX_PARALLELISM,
    StateBootstrapTransformation,
)
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, largest_max_parallelism
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.backends.state_backend import StateBackend, check_no_backend

_WRITER = "a SavepointWriter"


@dataclass(frozen=True)
class SavepointWriter(SavepointEdit):
    """Writes a savepoint from new operators and operators of another snapshot.

    The savepoint becomes visible when it is complete. ``SavepointEdit`` has the methods. It is in
    canonical form, for every state backend; ``with_format("native")`` writes files of RocksDB.

    Args:
        engine: Reads the rows of operators that are no DataFrames of Spark; None: a new one.
    """

    engine: Any = None

    @classmethod
    def new_savepoint(
        cls,
        engine: Any,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        parallelism: int | None = None,
        *,
        state_backend: object = None,
    ) -> SavepointWriter:
        """Starts with an empty savepoint.

        Args:
            engine: The session of Spark whose DataFrames have the rows; or a ``LocalEngine``, which
                reads Arrow tables, streams and Parquet files in this process, without Spark.
            max_parallelism: Key groups, 1..32768.
            parallelism: Subtasks of the operators; by default one per core.
            state_backend: Nothing: a savepoint restores on every backend, or see ``with_format``.

        Raises:
            ConfigError: A state backend is given, as Flink's method takes it; or it is no engine.
        """
        _check("new_savepoint", state_backend, max_parallelism, parallelism)
        return cls(max_parallelism, parallelism=parallelism, engine=local_engine(engine, _WRITER))

    @classmethod
    def from_existing_savepoint(
        cls,
        engine: Any,
        source: Snapshot | str,
        parallelism: int | None = None,
        *,
        state_backend: object = None,
    ) -> SavepointWriter:
        """Starts with the operators of a snapshot. New operators get its largest max parallelism.

        Args:
            engine: The session of Spark whose DataFrames have the rows; or a ``LocalEngine``, which
                reads Arrow tables, streams and Parquet files in this process, without Spark.
            source: A snapshot, or its path.
            parallelism: Subtasks of new operators; by default one per core.
            state_backend: Nothing: a savepoint restores on every backend, or see ``with_format``.

        Raises:
            ConfigError: A state backend is given, as Flink's method takes it; or it is no engine.
        """
        _check("from_existing_savepoint", state_backend, parallelism)
        snapshot = source if isinstance(source, Snapshot) else Snapshot.load(source)
        return cls(
            largest_max_parallelism(snapshot),
            snapshot,
            parallelism=parallelism,
            engine=local_engine(engine, _WRITER),
        )

    def with_operator(
        self, identifier: OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> SavepointWriter:
        """As ``SavepointEdit.with_operator``; the engine of the writer reads the rows."""
        if self.engine is not None and hasattr(transformation, "on_engine"):
            transformation = transformation.on_engine(self.engine)
        return super().with_operator(identifier, transformation)

    @property
    def reading_threads(self) -> int:
        """As ``SavepointEdit.reading_threads``: a bootstrap uses all cores when it writes, too."""
        if not self.operators:
            return 1
        return processes_that_fit() if self.engine is None else int(self.engine.thread_count)


def local_engine(engine: object, what: str) -> Any:
    """The engine of this process; None for a session of Spark, since DataFrames have theirs.

    Raises:
        ConfigError: It is neither. The sentence says ``what`` takes it.
    """
    is_object = not isinstance(engine, type)
    if is_object and hasattr(engine, "runner"):
        return engine
    if not is_object or not hasattr(engine, "createDataFrame"):
        raise ConfigError(
            f"The engine of {what} is wrong: expected a SparkSession, as getOrCreate() "
            f"returns it, or a LocalEngine(), got {engine!r}."
        )
    return None


def _check(method: str, named: object, *arguments: object) -> None:
    """Checks that a state backend is given neither by its name nor in the place of a number."""
    backends = [each for each in arguments if isinstance(each, StateBackend)]
    named_ones = [] if named is None else [named]
    check_no_backend(f"SavepointWriter.{method}", *backends, *named_ones)
