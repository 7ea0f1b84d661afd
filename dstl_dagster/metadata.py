"""Metadata of pipelines and snapshots for the Dagster UI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from dstl_core.errors import DAMAGED
from dstl_core.model.handle import ChangelogStateBackendHandle
from dstl_core.model.state_size import StateSize
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.savepoint.report.snapshot_report import SnapshotReport

if TYPE_CHECKING:
    import pyarrow as pa

    from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint

MAX_ROWS = 50
"""Rows of a table at most: the event log keeps each table for ever."""

Row = dict[str, str | int | float | bool | None]


def checkpoint_metadata(
    checkpoint: CompletedCheckpoint, path: str, size: StateSize | None = None
) -> dict[str, Any]:
    """Metadata of an asset whose value is a checkpoint.

    Args:
        checkpoint: The commit.
        path: Its folder.
        size: Bytes of full state and of the log.
    """
    metadata: dict[str, Any] = {
        "dagster/uri": path,
        "dstl/checkpoint_id": checkpoint.checkpoint_id,
        "dstl/data_version": checkpoint.data_version,
        "dstl/committed": dg.MetadataValue.timestamp(checkpoint.committed_ms / 1000),
    }
    if size is not None:
        metadata |= {"dstl/state_bytes": size.materialized, "dstl/log_bytes": size.log}
    return metadata


def epoch_metadata(checkpoint: CompletedCheckpoint) -> dict[str, Any]:
    """The counts of one epoch, as plain numbers that Dagster plots over time."""
    facts = checkpoint.facts
    return {
        "dstl/input_rows": 0 if facts.input is None else facts.input.rows,
        "dstl/keys_changed": facts.changed_keys,
        "dstl/changes": facts.changes,
        "dstl/epoch_log_bytes": facts.log_bytes,
        "dstl/output_rows": facts.output_rows,
        "dstl/seconds": facts.seconds,
    }


def snapshot_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """Metadata of an asset whose value is a savepoint or checkpoint. It reads no state."""
    operators: list[Row] = [
        {
            "operator": operator.label,
            "parallelism": operator.parallelism,
            "max_parallelism": operator.max_parallelism,
            "form": operator.form(),
            "bytes": operator.state.state_size,
            "states": _names_of_states(operator),
        }
        for operator in snapshot.operators
    ]
    return {
        "dagster/uri": str(snapshot.folder),
        "dstl/bytes": sum(operator.state.state_size for operator in snapshot.operators),
        "dstl/operators": _table(operators[:MAX_ROWS]),
        "dstl/metadata_version": snapshot.metadata.version,
    }


def report_metadata(report: SnapshotReport, page: str | None = None) -> dict[str, Any]:
    """Metadata of an asset that is a report: its numbers, its findings, and where its page is.

    Args:
        report: The report.
        page: The file or the URL of its page.
    """
    figures = report.figures
    metadata: dict[str, Any] = {
        "dstl/bytes": figures["bytes"],
        "dstl/findings": len(figures["attention"]),
        "dstl/snapshot": figures["path"],
    }
    contents = [each["contents"] for each in figures["operators"] if each["contents"]]
    if contents:
        states = [state for each in contents for state in each["states"]]
        metadata["dstl/entries"] = sum(state["entries"] for state in states)
    if figures["attention"]:
        metadata["dstl/needs_attention"] = rows_table(figures["attention"])
    if page is not None:
        is_url = "://" in page
        value = dg.MetadataValue.url(page) if is_url else dg.MetadataValue.path(page)
        metadata["dstl/report"] = value
    return metadata


def _names_of_states(operator: Any) -> str:
    try:
        infos = operator.states + operator.operator_states
    except DAMAGED as error:
        return f"unreadable: {error}"
    return ", ".join(f"{info.name} {info.kind} {info.type}" for info in infos)


def handles_table(snapshot: Snapshot) -> dg.TableMetadataValue:
    """The state handles of a snapshot, one row a subtask and part."""
    rows: list[Row] = []
    for operator in snapshot.operators:
        for subtask in operator.state.subtasks:
            handle = subtask.managed_keyed_state
            parts = [handle] if handle is not None else []
            if isinstance(handle, ChangelogStateBackendHandle):
                parts = [*handle.materialized, *handle.non_materialized]
            for part in parts:
                key_groups = part.key_group_range
                rows.append(
                    {
                        "operator": operator.label,
                        "subtask": subtask.index,
                        "handle": type(part).__name__,
                        "key_groups": f"{key_groups.start_key_group}-{key_groups.end_key_group}",
                        "bytes": part.state_size,
                    }
                )
    return _table(rows[:MAX_ROWS])


def column_schema(snapshot: Snapshot, uid: str) -> dg.TableSchema:
    """The key and the states of an operator as columns."""
    operator = snapshot[f"uid:{uid}"]
    key = operator.key_type
    constraints = dg.TableColumnConstraints(nullable=False, unique=True)
    columns = [
        dg.TableColumn(
            "state_key", "?" if key is None else key.serializer.type_name, constraints=constraints
        )
    ]
    columns += [
        dg.TableColumn(info.name, f"{info.kind} {info.type}")
        for info in operator.states
        if not info.meta.is_queue
    ]
    return dg.TableSchema(columns)


def arrow_columns(schema: pa.Schema) -> dg.TableSchema:
    """The columns of rows."""
    return dg.TableSchema([dg.TableColumn(each.name, str(each.type)) for each in schema])


def text_block(text: str) -> dg.MarkdownMetadataValue:
    """Text as it stands, with its columns. Names in it are not Markdown."""
    return dg.MetadataValue.md("\n".join(f"    {line}" for line in text.splitlines()))


def rows_table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue:
    """A few rows; values that Dagster's tables do not hold are text."""
    return _table([{name: _plain(value) for name, value in row.items()} for row in rows[:MAX_ROWS]])


def _table(rows: Sequence[Mapping[str, Any]]) -> dg.TableMetadataValue:
    # Dagster takes the columns from the rows, and asks for them if there is none.
    schema = None if rows else dg.TableSchema([])
    return dg.MetadataValue.table([dg.TableRecord(row) for row in rows], schema=schema)


def _plain(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | bool | None) else str(value)


def column_lineage(
    lineage: Mapping[str, Sequence[str]], upstream: dg.AssetKey
) -> dg.TableColumnLineage:
    """The columns of the events that each state column comes from."""
    return dg.TableColumnLineage(
        {
            state: [dg.TableColumnDep(upstream, column) for column in columns]
            for state, columns in lineage.items()
        }
    )


def state_columns(
    snapshot: Snapshot, uid: str, state: dg.AssetKey
) -> dict[str, dg.TableSchema | dg.TableColumnLineage]:
    """Schema of a snapshot of a pipeline, and its lineage: the columns of the state.

    Args:
        snapshot: The snapshot.
        uid: The pipeline's operator.
        state: The asset of the state.
    """
    schema = column_schema(snapshot, uid)
    same = {each.name: [each.name] for each in schema.columns}
    return {
        "dagster/column_schema": schema,
        "dagster/column_lineage": column_lineage(same, state),
    }
