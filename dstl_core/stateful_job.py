"""The job of users, on an engine or on a session of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.extras import extra_named
from dstl_core.job.coordination.job_on_engine import JobOnEngine
from dstl_core.job.downstream.output_changes import OutputChanges, changes_since
from dstl_core.job.downstream.output_merge import MergedOutput, merge_output
from dstl_core.job.downstream.output_source import OutputSource
from dstl_core.job.downstream.sink import Sink
from dstl_core.job.erasure.erased_state import Keys
from dstl_core.job.erasure.erasure import Erasure, PipelineKeys
from dstl_core.job.spec.operators import output_names_of


@dataclass(repr=False)
class StatefulJob(JobOnEngine):
    """A pipeline with state between its runs: ``JobOnEngine``, which also takes a Spark session.

    Args:
        engine: The engine, or a session of Spark, classic or Spark Connect.
    """

    engine: Any

    def __post_init__(self) -> None:
        if not hasattr(self.engine, "runner"):
            with extra_named("A job whose engine is a session of Spark"):
                from dstl_core.spark.job.spark_engine import SparkEngine

            self.engine = SparkEngine(self.engine)
        super().__post_init__()

    def merge_into(
        self, sink: Sink, *, output: str | None = None, key_by: str | Sequence[str] = ()
    ) -> MergedOutput:
        """Brings a table to the latest commit: it takes what epochs gave since the last merge, and
        takes back what a rewind has undone. A repeated merge changes nothing.

        Args:
            sink: A ``DeltaSink``, an ``IcebergSink`` or a ``ParquetSink``.
            output: The uid of an operator, or ``<uid>.late``; the last one with output by default.
            key_by: Columns of which the table has one row each, the last one. By default the table
                has a row per key of declared aggregates, and per key and window of their windows;
                of other output it has all rows, with the column ``dstl_checkpoint``.

        Raises:
            ConfigError: There is no such output; something else has filled the table; or output
                that the merge needs is not stored.
        """
        return merge_output(self._source_of(output, key_by), sink)

    def changes(
        self,
        since: int | None = None,
        *,
        output: str | None = None,
        key_by: str | Sequence[str] = (),
    ) -> OutputChanges:
        """What changed in an output since a commit, for tables that are no ``Sink``.

        Store ``between.until.checkpoint_id`` with what you have applied. It is the next ``since``.

        Args:
            since: The id of a checkpoint; None if nothing was read yet.
            output: As for ``merge_into``.
            key_by: As for ``merge_into``.

        Raises:
            ConfigError: As for ``merge_into``.
        """
        return changes_since(self._source_of(output, key_by), since)

    def _source_of(self, output: str | None, key_by: str | Sequence[str]) -> OutputSource:
        names = [name for each in self.operators for name in output_names_of(each)]
        with_output = [each.uid for each in self.operators if each.output_schema is not None]
        name = next(reversed(with_output), None) if output is None else output
        if name is None or name not in names:
            raise ConfigError(
                f"The job {self.name!r} has no output {name!r} to merge: expected one of "
                f"{', '.join(names) or 'none, since no operator has output'}."
            )
        store = PipelineStore(self.base_path, self.name)
        [operator] = [each for each in self.operators if name in output_names_of(each)]
        return OutputSource.of(store, operator, name).keyed_by(key_by)

    def erase(
        self,
        keys: Keys | Iterable[Any],
        *,
        output_columns: Mapping[str, Sequence[str]] | None = None,
        drop_outputs: bool = False,
        savepoints: Sequence[str] = (),
    ) -> Erasure:
        """Erases keys from all that the pipeline keeps: state, logs, stored output, local copies.

        The state without the keys is one commit, and earlier checkpoints go: a rewind would apply
        inputs that have the keys. The keys are looked for again in all that is left. After an
        error or a kill, the same call does what is left.

        Args:
            keys: Keys by uid of the operator, or those of each operator with keyed state: texts as
                ``dump`` shows them, or values of columns.
            output_columns: The columns of stored output that have the key, by uid of the operator;
                by default its key column.
            drop_outputs: Whether all rows go of stored output without such a column.
            savepoints: Savepoints of the pipeline that are written again, too.

        Raises:
            CheckpointError: A run holds a lease on the pipeline.
            ConfigError: A key is of another type, or stored output has no column with it.
            SavepointError: Something of a key is left.
        """
        with self._exclusive_use("erase"):
            every = PipelineKeys(
                self.path,
                keys,
                output_columns or {},
                drop_outputs,
                savepoints,
                self.local_copies.folder,
                serializers=self.serializers,
                clock=self.clock,
            )
            return every.erase(coordinator=self._coordinator)
