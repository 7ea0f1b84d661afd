"""``OperatorTransformation``: where a bootstrap starts, with rows of Spark or of this process."""

from __future__ import annotations

from typing import Any

from dstl_core.extras import extra_named
from dstl_core.local.local_rows import LocalRows
from dstl_core.savepoint.bootstrap.savepoint_writer import local_engine
from dstl_core.savepoint.bootstrap.transformations import OneInputStateTransformation


class OperatorTransformation:
    """Starts a bootstrap."""

    @staticmethod
    def bootstrap_with(rows: Any) -> OneInputStateTransformation:
        """Starts from rows.

        Args:
            rows: A DataFrame of Spark; or what a ``LocalEngine`` takes, read by this process
                without Spark: anything with the Arrow stream interface (pyarrow, pandas, polars,
                DuckDB), a dataset of pyarrow, or paths of Parquet files. A stream is read once.

        Raises:
            ConfigError: It is of another kind, or a stream of Spark.
        """
        if not hasattr(rows, "sparkSession"):
            return OneInputStateTransformation(LocalRows.of(rows))
        with extra_named("A bootstrap from a DataFrame of Spark"):
            from dstl_core.spark.savepoints.spark_rows import SparkRows

        return OneInputStateTransformation(SparkRows.of(rows))

    @staticmethod
    def bootstrap_with_parquet(engine: Any, *paths: str) -> OneInputStateTransformation:
        """Starts from Parquet files. ``transform_columns`` reads them in its tasks, several times
        faster than rows from the JVM.

        Args:
            engine: The session of Spark, or a ``LocalEngine``.
            *paths: On a local disk and with Spark, the arguments of ``spark.read.parquet``.
                Otherwise, files and folders of files; this needs no Hadoop file system.

        Raises:
            ConfigError: The engine is neither; there is no file; or files of another store are in
                folders of partitions.
            FormatError: A file is not a Parquet file.
        """
        local = local_engine(engine, "bootstrap_with_parquet")
        if local is not None:
            return OneInputStateTransformation(LocalRows.of(list(paths)).on_engine(local))
        with extra_named("A bootstrap by a session of Spark"):
            from dstl_core.spark.savepoints.spark_rows import SparkRows

        return OneInputStateTransformation(SparkRows.at(engine, paths))
