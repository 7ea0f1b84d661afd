"""``SavepointWriter``: Flink's API for writing savepoints, from DataFrames.

SavepointWriter.new_savepoint(spark, max_parallelism=128)
    .with_operator(
        OperatorIdentifier.for_uid("accounts"),
        OperatorTransformation.bootstrap_with(df).key_by("id").transform_columns(),
    )
    .write(path)
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from dstl_core.savepoint.edit.edited_savepoint import DEFAULT_MAX_PARALLELISM
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit, largest_max_parallelism
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.spark.savepoints.reading import check_no_backend
from dstl_core.state.backends.state_backend import StateBackend


@dataclass(frozen=True)
class SavepointWriter(SavepointEdit):
    """Writes a savepoint from new operators and operators of another snapshot.

    The savepoint becomes visible when it is complete. ``SavepointEdit`` has the methods. It is in
    canonical form, for every state backend; ``with_format("native")`` writes files of RocksDB.
    """

    @classmethod
    def new_savepoint(
        cls,
        spark: SparkSession,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        parallelism: int | None = None,
        *,
        state_backend: object = None,
    ) -> SavepointWriter:
        """Starts with an empty savepoint.

        Args:
            spark: The session of the DataFrames.
            max_parallelism: Key groups, 1..32768.
            parallelism: Subtasks of the operators; by default one per core.
            state_backend: Nothing: a savepoint restores on every backend, or see ``with_format``.

        Raises:
            ConfigError: A state backend is given, as Flink's method takes it.
        """
        _check("new_savepoint", state_backend, max_parallelism, parallelism)
        return cls(max_parallelism, parallelism=parallelism)

    @classmethod
    def from_existing_savepoint(
        cls,
        spark: SparkSession,
        source: Snapshot | str,
        parallelism: int | None = None,
        *,
        state_backend: object = None,
    ) -> SavepointWriter:
        """Starts with the operators of a snapshot. New operators get its largest max parallelism.

        Args:
            spark: The session of the DataFrames.
            source: A snapshot, or its path.
            parallelism: Subtasks of new operators; by default one per core.
            state_backend: Nothing: a savepoint restores on every backend, or see ``with_format``.

        Raises:
            ConfigError: A state backend is given, as Flink's method takes it.
        """
        _check("from_existing_savepoint", state_backend, parallelism)
        snapshot = source if isinstance(source, Snapshot) else Snapshot.load(source)
        return cls(largest_max_parallelism(snapshot), snapshot, parallelism=parallelism)


def _check(method: str, named: object, *arguments: object) -> None:
    """Checks that a state backend is given neither by its name nor in the place of a number."""
    backends = [each for each in arguments if isinstance(each, StateBackend)]
    named_ones = [] if named is None else [named]
    check_no_backend(f"SavepointWriter.{method}", *backends, *named_ones)
