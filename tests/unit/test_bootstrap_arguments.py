"""A bootstrap says at once that its rows or its engine are of another kind."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core import LocalEngine, OperatorTransformation, SavepointWriter
from dstl_core.errors import ConfigError


@pytest.mark.parametrize(("rows", "got"), [(None, "NoneType"), ([("a", 1)], "list")])
def test_a_bootstrap_starts_from_a_table(rows: Any, got: str) -> None:
    said = (
        r"^The input of a bootstrap without Spark has to be a table or a stream of Arrow "
        rf"\(pyarrow, pandas, polars, DuckDB\), or paths of Parquet files, got a {got}\.$"
    )
    with pytest.raises(ConfigError, match=said):
        OperatorTransformation.bootstrap_with(rows)


@pytest.mark.parametrize("engine", [None, "local[2]", LocalEngine])
def test_a_writer_takes_a_session_or_an_engine(engine: Any) -> None:
    said = r"expected a SparkSession, as getOrCreate\(\) returns it, or a LocalEngine\(\), got"
    with pytest.raises(ConfigError, match=f"^The engine of a SavepointWriter is wrong: {said}"):
        SavepointWriter.new_savepoint(engine)
