"""``format("state-changelog")``: the change records of a checkpoint, or those between two.

Options: ``path`` (the checkpoint), ``operator.uid`` | ``operator.uid.hash`` | ``operator.name``,
``since`` (an earlier checkpoint of the same job, whose changes are left out), ``relocate``,
``allow.roots``, ``changelog.base``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from dstl_core.errors import ConfigError
from dstl_core.savepoint.read.changes import change_lines, change_sets_of
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.spark.engine.schema import spark_schema_of
from dstl_core.spark.engine.table_frames import SnapshotPlace
from dstl_core.spark.engine.worker_errors import short_traceback
from dstl_core.spark.engine.workers import settle, settled
from dstl_core.spark.savepoints.read_only_source import ReadOnlySource, columns_asked_for
from dstl_core.spark.savepoints.source_options import spec_of
from dstl_core.storage.profiles import use_profile_file

SCHEMA = pa.schema(
    [
        ("checkpoint", pa.int64()),
        ("op", pa.string()),
        ("subtask", pa.int32()),
        ("sqn", pa.int64()),
        ("kg", pa.int32()),
        ("state", pa.string()),
        ("operation", pa.string()),
        ("key", pa.string()),
        ("ns", pa.string()),
        ("value", pa.string()),
    ]
)
_OPERATOR_OPTIONS = {"operator.uid": "uid", "operator.uid.hash": "hash", "operator.name": "name"}
_PLACE_OPTIONS = {"path", "since", "relocate", "allow.roots", "changelog.base", "serializers"}
_KNOWN = {*_PLACE_OPTIONS, *_OPERATOR_OPTIONS}
_ROWS = 10_000


@dataclass(frozen=True)
class ChangelogSpec:
    """Selects a changelog. ``operator`` None selects all operators."""

    place: SnapshotPlace
    operator: str | None
    since: SnapshotPlace | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ChangelogSpec:
        """Raises ConfigError naming the option that is wrong."""
        texts = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(texts) - _KNOWN)
        if unknown or "path" not in texts:
            problem = f"has no option {unknown[0]!r}" if unknown else "needs a path"
            raise ConfigError(
                f"The state-changelog source {problem}; it has: {', '.join(sorted(_KNOWN))}."
            )
        shared = {each: texts[each] for each in texts if each not in ("since", *_OPERATOR_OPTIONS)}
        place = spec_of(shared).place
        named = [f"{form}:{texts[o]}" for o, form in _OPERATOR_OPTIONS.items() if o in texts]
        since = replace(place, path=texts["since"]) if "since" in texts else None
        return cls(place, named[0] if named else None, since)

    def operators(self, snapshot: Snapshot) -> list[str]:
        """The operators to read, by hash."""
        every = snapshot.operators if self.operator is None else [snapshot[self.operator]]
        return [each.operator_id.hex for each in every if each.keyed_handles]

    def read(self, operator_hash: str) -> Iterator[pa.RecordBatch]:
        """Yields the changes of one operator in replay order."""
        known: frozenset[Any] = frozenset()
        if self.since is not None:
            older = [
                state_of_operator
                for state_of_operator in self.since.load().operators
                if state_of_operator.operator_id.hex == operator_hash
            ]
            known = frozenset().union(*map(change_sets_of, older))
        operator = self.place.load()[f"hash:{operator_hash}"]
        rows = []
        for line in change_lines(operator, None, known):
            for name in ("key", "ns", "value"):
                line[name] = None if line[name] is None else json.dumps(line[name])
            rows.append(line)
            if len(rows) == _ROWS:
                yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
                rows = []
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@dataclass
class OperatorPartition(ds.InputPartition):
    """The changelog of one operator. One task reads it, so its changes stay in order."""

    operator: str


class StateChangelogDataSource(ReadOnlySource):
    """The Python data source ``state-changelog``. Batch, read-only."""

    @classmethod
    def name(cls) -> str:
        return "state-changelog"

    def schema(self) -> StructType:
        return spark_schema_of(SCHEMA)

    @short_traceback
    def reader(self, schema: StructType) -> ds.DataSourceReader:
        use_profile_file(self.profiles)
        if columns_asked_for(schema, self.schema(), "the changelog") is not None:
            raise ConfigError(
                "The source 'state-changelog' has fixed columns; leave .schema out and select."
            )
        return ChangelogReader(ChangelogSpec.of(self.options))


class ChangelogReader(ds.DataSourceReader):
    """One task per operator."""

    def __init__(self, spec: ChangelogSpec) -> None:
        self._spec = spec

    @short_traceback
    def partitions(self) -> list[Any]:
        operators = self._spec.operators(self._spec.place.load())
        settle()
        return [OperatorPartition(each) for each in operators]

    @short_traceback
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        yield from settled(self._spec.read(partition.operator))
