"""Reads a Delta table without the package that wrote it: its log by hand, its files by DuckDB."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa


def rows_of_delta(path: str) -> pa.Table:
    """The rows of the latest version, by the actions of the log in their order.

    The protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
    """
    folder = Path(path)
    live: dict[str, None] = {}
    names: list[str] = []
    commits = sorted((folder / "_delta_log").glob("*.json"))
    assert [int(commit.stem) for commit in commits] == list(range(len(commits)))
    for commit in commits:
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
                names = [column["name"] for column in schema["fields"]]
                assert action["metaData"]["partitionColumns"] == []
            elif "remove" in action:
                del live[action["remove"]["path"]]
            elif "add" in action:
                assert "deletionVector" not in action["add"]
                live[action["add"]["path"]] = None
    files = [str(folder / unquote(file)) for file in live]
    if not files:
        return pa.table({name: pa.array([], pa.int64()) for name in names})
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    relation = duckdb.sql(f"SELECT {quoted} FROM read_parquet({files!r}, union_by_name=true)")
    return relation.to_arrow_table()
