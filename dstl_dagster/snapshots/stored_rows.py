"""Loads the committed state and output of a pipeline, in the type that a downstream asset wants.

The commit log decides what is committed. State and output that a rewind undid are not loaded. Only
a Spark DataFrame needs Spark.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.kept_outputs import current_outputs
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.errors import ConfigError, StateFileNotFoundError
from dstl_core.job.coordination.input_windows import commits_of_inputs, key_of
from dstl_core.job.downstream.stored_files import (
    check_stored,
    keeps_output,
    newest_file,
    output_files,
    read_rows,
    read_schema,
)
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_dagster.pipelines.windows import AGAIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StoredRows:
    """Rows of a pipeline, which Arrow or Spark can read.

    Args:
        in_arrow: Reads the rows in this process.
        in_spark: Returns a DataFrame. It reads the rows when an action runs.
    """

    in_arrow: Callable[[], pa.Table]
    in_spark: Callable[[SparkSession], DataFrame]

    def as_type(self, wanted: Any, session: Callable[[], SparkSession]) -> Any:
        """Returns the rows in the type of an annotation, with the values that are stored.

        The columns of pandas have types of Arrow. Its own types have no null for whole numbers, so
        a long with nulls would become a double and lose digits.

        Args:
            wanted: A DataFrame of Spark, pandas or polars, a LazyFrame of polars, a relation of
                DuckDB, or a Table of pyarrow. None and ``Any``, for an input without an annotation,
                mean Spark's.
            session: Returns the Spark session. It is called for Spark's DataFrame only.

        Raises:
            ConfigError: The annotation is another type.
        """
        library, name = _library_and_name(wanted)
        if (library, name) in (("typing", "Any"), ("pyspark", "DataFrame")):
            return self.in_spark(session())
        if (library, name) == ("pyarrow", "Table"):
            return self.in_arrow()
        if (library, name) == ("pandas", "DataFrame"):
            arrow_type = importlib.import_module("pandas").ArrowDtype
            return self.in_arrow().to_pandas(types_mapper=arrow_type)
        if (library, name) == ("duckdb", "DuckDBPyRelation"):
            return importlib.import_module("duckdb").from_arrow(self.in_arrow())
        if library == "polars" and name in ("DataFrame", "LazyFrame"):
            frame = importlib.import_module("polars").from_arrow(self.in_arrow())
            return frame.lazy() if name == "LazyFrame" else frame
        raise ConfigError(
            f"Stored rows cannot be loaded as {library}.{name}: expected a DataFrame of "
            f"pyspark, pandas or polars, a polars.LazyFrame, a duckdb.DuckDBPyRelation, or a "
            f"pyarrow.Table; change the annotation of the input."
        )


def _library_and_name(wanted: Any) -> tuple[str, str]:
    if wanted is Any or wanted is None:
        return "typing", "Any"
    library = str(getattr(wanted, "__module__", "")).partition(".")[0]
    return library.removeprefix("_"), getattr(wanted, "__name__", str(wanted))


def committed_state(
    store: PipelineStore,
    pipeline: str,
    uid: str,
    keys: Sequence[str] | None,
    serializers: SerializerRegistry = BUILT_IN,
) -> StoredRows:
    """Returns the keyed state of an operator: a row per key, with ``state_key`` and a column per
    state.

    Args:
        store: Folder of the pipeline.
        pipeline: Name of the pipeline.
        uid: Uid of the operator.
        keys: Partition keys: the state is the one after the last of their windows, and without any
            it has no rows. None means the latest state.
        serializers: The registry of types.

    Raises:
        ConfigError: A window is not in the latest state: it was not committed, or a rewind undid
            it.
        StateFileNotFoundError: The checkpoint is no longer retained.
    """
    commit = store.require_latest()
    has_rows = keys is None or len(keys) > 0
    if keys:
        commit = max(_commits_of(store, pipeline, keys), key=lambda latest: latest.checkpoint_id)
    path = store.path_of(commit)
    try:
        snapshot = Snapshot.load(path, serializers=serializers)
    except FileNotFoundError as error:
        raise StateFileNotFoundError(
            f"The state of checkpoint {commit.checkpoint_id} of pipeline {pipeline!r} is no longer "
            f"kept; keep more checkpoints (num_retained), or load the latest state.",
            location=path,
        ) from error
    return _rows_of(snapshot, path, uid, serializers, has_rows=has_rows)


def state_rows(path: str, uid: str, serializers: SerializerRegistry = BUILT_IN) -> StoredRows:
    """Returns the keyed state of an operator of a snapshot, as ``committed_state``."""
    return _rows_of(Snapshot.load(path, serializers=serializers), path, uid, serializers)


def _rows_of(
    snapshot: Snapshot,
    path: str,
    uid: str,
    serializers: SerializerRegistry,
    *,
    has_rows: bool = True,
) -> StoredRows:
    def in_arrow() -> pa.Table:
        reader = snapshot[f"uid:{uid}"].keyed()
        return pa.Table.from_batches(reader.read() if has_rows else [], reader.schema)

    def in_spark(session: SparkSession) -> DataFrame:
        from dstl_core.spark.savepoints.data_source import load_state

        rows = load_state(session, path, uid=uid, serializers=serializers)
        return rows if has_rows else rows.limit(0)

    return StoredRows(in_arrow, in_spark)


def committed_output(
    store: PipelineStore, pipeline: str, uid: str, keys: Sequence[str] | None
) -> StoredRows:
    """Returns the output of an operator, of some windows or of all epochs in the latest state.

    Args:
        store: Folder of the pipeline.
        pipeline: Name of the pipeline.
        uid: Uid of the operator.
        keys: Partition keys of the windows. None means all epochs whose output is still retained.

    Raises:
        ConfigError: A window is not in the latest state: it was not committed, or a rewind undid
            it; or it was committed without this output, or with other columns than others.
        StateFileNotFoundError: The output of a window is no longer retained.
    """
    if keys is None:
        read = list(store.commits())
        check_stored(pipeline, uid, [each for each in lineage(read) if each.facts.input], AGAIN)
        commits = current_outputs(read)
    else:
        commits = _commits_of(store, pipeline, keys)
        check_stored(pipeline, uid, commits, AGAIN)
        kept = keeps_output(store, commits)
        gone = [
            key
            for key, commit, is_kept in zip(keys, commits, kept, strict=True)
            if not is_kept and output_files(store, commit, uid)
        ]
        if gone:
            raise StateFileNotFoundError(
                f"The output of operator {uid!r} of pipeline {pipeline!r} is no longer kept for "
                f"{len(gone)} of {len(keys)} windows ({', '.join(gone[:3])}); keep that of more "
                f"epochs (num_retained_outputs).",
                location=str(store.layout.output(0).parent),
            )
    files = [each for commit in commits for each in output_files(store, commit, uid)]
    # The newest file has the columns of the operator's present output.
    example = files[-1] if files else newest_file(store, uid)

    def in_arrow() -> pa.Table:
        schema = pa.schema([]) if example is None else read_schema(example)
        tables = [schema.empty_table(), *map(read_rows, files)]
        return pa.concat_tables(tables, promote_options="default")

    def in_spark(session: SparkSession) -> DataFrame:
        from dstl_core.spark.engine.parquet_rows import ParquetRows

        schema = pa.schema([]) if example is None else ParquetRows.at([example]).schema
        return ParquetRows(tuple(map(str, files)), schema).frame(session)

    return StoredRows(in_arrow, in_spark)


def _commits_of(
    store: PipelineStore, pipeline: str, keys: Sequence[str]
) -> list[CompletedCheckpoint]:
    """Returns the commits of the windows, in the order of ``keys``."""
    wanted, by_key = set(keys), {}
    for commit in commits_of_inputs(store):
        key = key_of(commit)
        if key in wanted:
            by_key[key] = commit
            wanted.discard(key)
        if not wanted:
            break
    if wanted:
        raise ConfigError(
            f"The pipeline {pipeline!r} holds no window {sorted(wanted)[0]!r}: it was not "
            f"committed, or a rewind undid it; materialize it first."
        )
    return [by_key[key] for key in keys]
