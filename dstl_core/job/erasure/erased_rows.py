"""Rows of keys in the stored output of a pipeline's epochs.

A commit names its files for good, and its record never changes. So a file with such rows is
replaced under its name, in one step. Rows that stay keep their order.
"""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import LATE_SUFFIX
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError
from dstl_core.job.erasure.erased_state import Keys
from dstl_core.job.spec.output_types import INSERTED_ROWS
from dstl_core.state.columns.column_fit import elements_of_column
from dstl_core.storage.file_io import FileIO
from dstl_core.storage.location import Location

_KEY_BY = re.compile(r"key_by=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")")
"""The key column in the selector that a commit records of an operator."""


@dataclass(frozen=True)
class StoredFile:
    """A file of stored output that is there.

    Args:
        uid: The operator.
        name: The output: the uid, or that of late rows.
        commit: The commit that names it.
        location: The file.
        columns: The columns that may have the key.
    """

    uid: str
    name: str
    commit: CompletedCheckpoint
    location: Location
    columns: Sequence[str]


@dataclass(frozen=True)
class ErasedRows:
    """The stored output of the operators whose keys go.

    Args:
        store: The pipeline.
        files: The file IO of its folder.
        keys: The keys.
        types: Their types, by uid.
        stored: Their bytes in state, by uid.
        columns: The columns with the key, by uid; by default the key column of the operator.
        drops: Whether all rows of files without such a column go.
    """

    store: PipelineStore
    files: FileIO
    keys: Keys
    types: Mapping[str, AnySerializer]
    stored: Mapping[str, frozenset[bytes]]
    columns: Mapping[str, Sequence[str]]
    drops: bool = False

    def count(self) -> dict[str, int]:
        """How many rows are of the keys, by name of the output; only of outputs that have some.

        Raises:
            ConfigError: A file has no column that is known to have the key, or no file has a column
                that was named.
        """
        counts: dict[str, int] = {}
        seen: dict[str, set[str]] = {}
        for file in self._every():
            table, gone = self._read(file)
            seen.setdefault(file.uid, set()).update(table.column_names)
            if number := int(gone.sum()):
                counts[file.name] = counts.get(file.name, 0) + number
        for uid, columns in seen.items():
            unknown = sorted(set(self.columns.get(uid, ())) - columns)
            if unknown:
                raise ConfigError(
                    f"No stored output of operator {uid!r} has the column {unknown[0]!r}; its "
                    f"columns: {', '.join(sorted(columns))}. Correct the name of the column, or "
                    f"leave it out (output_columns, --output-column)."
                )
        return counts

    def erase(self, check_claim: Callable[[], None]) -> tuple[dict[str, int], int]:
        """Replaces the files that have rows of the keys; returns how many rows went, by name of the
        output, and how many files were replaced.

        A file is replaced in one step, so that a reader gets all rows or those that stay.

        Args:
            check_claim: Raises FencedError if another owner has claimed. Another erasure may have
                replaced the file that was read.
        """
        counts: dict[str, int] = {}
        replaced = 0
        for file in self._every():
            table, gone = self._read(file)
            if not gone.any():
                continue
            counts[file.name] = counts.get(file.name, 0) + int(gone.sum())
            replaced += 1
            kept = table.filter(pa.array(~gone))
            metadata = dict(table.schema.metadata or {})
            inserted = metadata.get(INSERTED_ROWS.encode())
            if inserted is not None:
                first = int(inserted)
                metadata[INSERTED_ROWS.encode()] = str(first - int(gone[:first].sum())).encode()
            raw = io.BytesIO()
            pq.write_table(kept.replace_schema_metadata(metadata), raw)
            check_claim()
            self.files.replace(file.location, raw.getvalue())
        return counts, replaced

    def _every(self) -> Iterator[StoredFile]:
        """The files that are there, oldest commit first."""
        selectors: dict[str, str] = {}
        for commit in list(self.store.commits())[::-1]:
            facts = commit.facts
            selectors |= {uid: texts.get("", "") for uid, texts in facts.definitions.items()}
            if not facts.output_files:
                continue
            folder = self.store.layout.output(commit.checkpoint_id)
            stored = {status.location.name for status in self.files.list_folder(folder)}
            for uid in self.keys:
                columns = self.columns.get(uid) or _key_columns(selectors.get(uid, ""))
                for name in (uid, f"{uid}{LATE_SUFFIX}"):
                    # An earlier release recorded the files of the one operator that it had.
                    named = facts.output_of(name)[1] if facts.operators else facts.output_files
                    for file in stored.intersection(named):
                        yield StoredFile(uid, name, commit, folder.child(file), columns)

    def _read(self, file: StoredFile) -> tuple[pa.Table, np.ndarray[Any, np.dtype[np.bool_]]]:
        """The rows of a file, and which of them go."""
        raw = self.files.read_bytes(file.location)
        table = pq.read_table(io.BytesIO(raw))
        named = [column for column in file.columns if column in table.column_names]
        gone = np.zeros(table.num_rows, np.bool_)
        if not named:
            if not self.drops:
                raise ConfigError(
                    f"The stored output {file.name!r} of checkpoint {file.commit.checkpoint_id} "
                    f"has no column that is known to have the key of operator {file.uid!r}; it "
                    f"has: {', '.join(table.column_names)}. Name the column "
                    f"(output_columns, --output-column), or leave out all rows of such files "
                    f"(drop_outputs, --drop-outputs)."
                )
            return table, ~gone
        for column in named:
            gone |= self._marked(file, column, table.column(column))
        return table, gone

    def _marked(
        self, file: StoredFile, column: str, values: pa.ChunkedArray
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which values of a column are keys."""
        if not pa.types.is_nested(values.type):
            keys = _as_column(self.keys[file.uid], values.type, file.name, column)
            marks: np.ndarray[Any, np.dtype[np.bool_]] = pc.is_in(values, value_set=keys).to_numpy()
            return marks
        # Arrow does not look for structs and lists.
        every, stored = values.combine_chunks(), self.stored[file.uid]
        is_there = every.is_valid().to_numpy(zero_copy_only=False)
        try:
            elements = elements_of_column(self.types[file.uid], every.drop_null(), "The key")
        except ConfigError as error:
            raise _no_key(file.name, column, values.type) from error
        marks = np.zeros(len(every), np.bool_)
        marks[is_there] = [each in stored for each in elements]
        return marks


def _key_columns(selector: str) -> list[str]:
    """The key column of a selector; none if an earlier release wrote the commit."""
    match = _KEY_BY.match(selector)
    return [] if match is None else [ast.literal_eval(match[1])]


def _as_column(keys: Sequence[Any], wanted: pa.DataType, name: str, column: str) -> pa.Array:
    is_text = pa.types.is_string(wanted) or pa.types.is_large_string(wanted)
    try:
        texts = all(isinstance(key, str) for key in keys)
        if not texts or is_text:
            return pa.array(keys, wanted)
        plain = [json.loads(key) if key.startswith('"') else key for key in keys]
        return pa.array(plain, pa.string()).cast(wanted)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise _no_key(name, column, wanted) from error


def _no_key(name: str, column: str, kind: pa.DataType) -> ConfigError:
    return ConfigError(
        f"The column {column!r} of the stored output {name!r} is {kind}, and a key is none; "
        f"name the column that has the key (output_columns, --output-column)."
    )
