"""A table that an asset returns becomes a savepoint, and comes back, without Spark."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dstl_dagster as dstl
from dstl_core import Snapshot
from tests.integration.dagster.conftest import instance_in

pytestmark = pytest.mark.dagster
NO_SESSION = dstl.DstlSparkResource(master="local[1]", remote="sc://nowhere")
"""It raises when it is asked for a session."""
METADATA = {"dstl/uid": "u", "dstl/key_by": "account", "dstl/types": {"n": "int"}}
TABLE = pa.table(
    {
        "account": ["ann", "bob"],
        "amount": pa.array([Decimal("12.50"), None], pa.decimal128(18, 2)),
        "n": [3, 4],
    }
)
FORMS = {
    pa.Table: lambda: TABLE,
    pd.DataFrame: lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    pl.DataFrame: lambda: pl.from_arrow(TABLE),
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_table_is_stored_and_loaded_without_spark(tmp_path: Path, kind: Any) -> None:
    storage = dstl.DstlStorageResource(base_path=str(tmp_path / "state"))
    seen: list[pa.Table] = []

    @dg.asset(io_manager_key="dstl", metadata=METADATA)
    def stored():  # type: ignore[no-untyped-def]
        return FORMS[kind]()

    def take(stored) -> None:  # type: ignore[no-untyped-def]
        seen.append(stored.to_arrow() if kind is pl.DataFrame else pa.table(stored))

    take.__annotations__["stored"] = kind
    behind = dg.asset(ins={"stored": dg.AssetIn(input_manager_key="dstl")})(take)
    resources = {"dstl": dstl.DstlIOManager(storage=storage, spark=NO_SESSION)}
    with instance_in(tmp_path) as instance:
        dg.materialize([stored, behind], instance=instance, resources=resources)
    [rows] = seen
    loaded = {row["state_key"]: (row["amount"], row["n"]) for row in rows.to_pylist()}
    assert loaded == {"ann": (Decimal("12.50"), 3), "bob": (None, 4)}
    assert Snapshot.load(storage.savepoint("stored/1"))["u"].state_info("n").type == "Integer"
