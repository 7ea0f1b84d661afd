"""The stored output of epochs: rows in Parquet files below the pipeline's folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.job.coordination.engine import Engine
from dstl_core.job.downstream.stored_files import check_stored
from dstl_core.job.spec.job_spec import JobSpec
from dstl_core.job.spec.operators import late_name, late_schema_of, output_columns_of


@dataclass(frozen=True)
class StoredOutput:
    """Reads the stored output of epochs.

    Args:
        engine: Reads the files.
        job: The job.
    """

    engine: Engine
    job: JobSpec

    def check(self, commits: Sequence[CompletedCheckpoint]) -> None:
        """Checks that epochs stored the outputs of the job, with the same columns.

        Raises:
            ConfigError: An epoch stored no output, or other columns than another one.
        """
        for name in output_columns_of(self.job.operators):
            check_stored(self.job.name, name, commits, "run them again with rewind=True")

    def joined(self, commits: Sequence[CompletedCheckpoint]) -> dict[str, Any]:
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
        return {name: self.engine.read(files[name], schema) for name, schema in schemas.items()}

    def _parts(
        self, checkpoint: CompletedCheckpoint
    ) -> Iterator[tuple[str, pa.Schema, Sequence[str]]]:
        """Yields name, schema and file names of each output that a commit has stored."""
        stores = checkpoint.facts.stores
        for at, operator in enumerate(self.job.operators):
            stored = checkpoint.facts.operators.get(operator.uid)
            schema = late_schema_of(operator)
            if schema is not None and stores(late_name(operator.uid)):
                yield late_name(operator.uid), schema, () if stored is None else stored.late_files
            if operator.output_schema is None or not stores(operator.uid):
                continue
            if stored is not None:
                yield operator.uid, operator.output_schema, stored.output_files
            elif at == 0:
                yield operator.uid, operator.output_schema, checkpoint.facts.output_files
