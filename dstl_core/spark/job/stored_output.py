"""The stored output of epochs: rows in Parquet files below the pipeline's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.job.spec.job_spec import JobSpec
from dstl_core.job.spec.operators import late_name, late_schema_of
from dstl_core.job.spec.output_types import stored_arrow_schema
from dstl_core.spark.engine.parquet_rows import ParquetRows
from dstl_core.storage.location import JobLayout


@dataclass(frozen=True)
class StoredOutput:
    """Reads the stored output of epochs.

    Args:
        spark: The session.
        job: The job.
    """

    spark: SparkSession
    job: JobSpec

    def joined(self, commits: Sequence[CompletedCheckpoint]) -> dict[str, DataFrame]:
        """The joined output of several commits that keep theirs, by uid of the operator.

        Late rows are by ``late_name``.
        """
        schemas: dict[str, pa.Schema] = {}
        files: dict[str, list[str]] = {}
        for checkpoint in commits:
            folder = self.job.layout.output(checkpoint.checkpoint_id)
            for name, schema, names in self._parts(checkpoint):
                schemas[name] = schema
                files.setdefault(name, []).extend(str(folder.child(each)) for each in names)
        return {
            name: ParquetRows(tuple(files[name]), stored_arrow_schema(schema)).frame(self.spark)
            for name, schema in schemas.items()
        }

    def _parts(
        self, checkpoint: CompletedCheckpoint
    ) -> Iterator[tuple[str, pa.Schema, Sequence[str]]]:
        """Yields name, schema and file names of each output that a commit has stored."""
        for at, operator in enumerate(self.job.operators):
            stored = checkpoint.facts.operators.get(operator.uid)
            schema = late_schema_of(operator)
            if schema is not None:
                yield late_name(operator.uid), schema, () if stored is None else stored.late_files
            if operator.output_schema is None:
                continue
            if stored is not None:
                yield operator.uid, operator.output_schema, stored.output_files
            elif at == 0:
                yield operator.uid, operator.output_schema, checkpoint.facts.output_files


def read_output(
    spark: SparkSession,
    layout: JobLayout,
    checkpoint_id: int,
    names: Sequence[str],
    schema: pa.Schema,
) -> DataFrame:
    """Reads the stored output of an operator."""
    folder = layout.output(checkpoint_id)
    files = tuple(str(folder.child(name)) for name in names)
    return ParquetRows(files, stored_arrow_schema(schema)).frame(spark)
