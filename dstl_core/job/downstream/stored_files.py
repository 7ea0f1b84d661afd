"""Files with the output of epochs, found by the commit log. Nothing here needs Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.kept_outputs import KeptOutputs, current_outputs
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import ConfigError
from dstl_core.job.spec.output_types import INSERTED_ROWS
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

_SHOWN = 3
"""Inputs that a message names."""


def output_files(store: PipelineStore, commit: CompletedCheckpoint, uid: str) -> list[Location]:
    """The files with what an operator gave in one epoch, or with its late rows: ``<uid>.late``."""
    folder = store.layout.output(commit.checkpoint_id)
    _, names = commit.facts.output_of(uid)
    return [folder.child(name) for name in names]


def keeps_output(store: PipelineStore, commits: Sequence[CompletedCheckpoint]) -> list[bool]:
    """Whether the log keeps the stored output of each of these commits."""
    oldest = min((each.checkpoint_id for each in commits), default=0)
    kept = KeptOutputs.of(store.commits(), oldest)
    return [kept.keeps(each.checkpoint_id) for each in commits]


def check_stored(
    pipeline: str, uid: str, commits: Sequence[CompletedCheckpoint], way_back: str
) -> None:
    """Checks that epochs stored an output, all with the same columns.

    Args:
        pipeline: The name of the pipeline.
        uid: The name of the output.
        commits: The commits of the epochs, in any order.
        way_back: How their inputs are run again, as the end of a sentence.

    Raises:
        ConfigError: An epoch stored no such output, or other columns than the newest one.
    """
    where = f"The output {uid!r} of pipeline {pipeline!r}"
    without = [each for each in commits if not each.facts.stores(uid)]
    if without:
        raise ConfigError(
            f"{where} is not stored for {_inputs(without)}: the pipeline had no such output when "
            f"it applied them; {way_back}."
        )
    stored = [(each, (each.facts.outputs or {}).get(uid)) for each in commits]
    known = [(each, columns) for each, columns in stored if columns is not None]
    if not known:
        return
    _, newest = max(known, key=lambda entry: entry[0].checkpoint_id)
    other = [each for each, columns in known if columns != newest]
    if other:
        raise ConfigError(
            f"{where} has the columns {', '.join(newest)}, and other ones for {_inputs(other)}; "
            f"{way_back}, or load inputs with the same columns."
        )


def _inputs(commits: Sequence[CompletedCheckpoint]) -> str:
    """The inputs of some commits, for errors."""
    ids = [str(each.facts.input.id) for each in commits if each.facts.input is not None]
    shown = ", ".join(ids[:_SHOWN])
    return f"{len(ids)} inputs ({shown}, ..)" if len(ids) > _SHOWN else f"the input {shown}"


def newest_file(store: PipelineStore, uid: str) -> Location | None:
    """The newest file that is kept, for the columns of an epoch that gave no rows."""
    commits = current_outputs(store.commits())[::-1]
    return next((file for each in commits for file in output_files(store, each, uid)), None)


def read_schema(file: Location) -> pa.Schema:
    with _opened(file) as parquet:
        return parquet.schema_arrow.remove_metadata()


def read_rows(file: Location) -> pa.Table:
    with _opened(file) as parquet:
        return parquet.read().replace_schema_metadata(None)


def inserted_rows(file: Location) -> int | None:
    """How many rows, the first ones, are of keys without earlier state; None if not known."""
    with _opened(file) as parquet:
        text = (parquet.schema_arrow.metadata or {}).get(INSERTED_ROWS.encode())
        return None if text is None else int(text)


def first_rows(file: Location, count: int) -> list[dict[str, Any]]:
    with _opened(file) as parquet:
        batch = next(parquet.iter_batches(batch_size=count), None)
        return [] if batch is None else batch.to_pylist()


@contextmanager
def _opened(file: Location) -> Iterator[pq.ParquetFile]:
    with open_file_io(file).open_input(file) as source, pq.ParquetFile(source) as parquet:
        yield parquet
