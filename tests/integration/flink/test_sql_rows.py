"""Real Flink, with SQL's own serializers, restores rows that were bootstrapped by name of type."""

from __future__ import annotations

from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State
from tests.integration.flink.model import texts
from tests.integration.spark.conftest import functions_travel_by_value

__all__ = ["functions_travel_by_value"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

UID = OperatorIdentifier.for_uid("group")
OPERATOR = Operator(
    "group",
    "rowdata<string,long>",
    [State("accState", "value", "rowdata<long,double,string,boolean,int>")],
)


def row(number: int) -> list[Any]:
    """Field by field; every third has nulls."""
    if number % 3:
        return [number, number / 2, f"text-{number}-{'long' * 5}", number % 2 == 0, -number]
    return [number, None, None, None, None]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_sql_by_the_names_of_their_types(
    flink: FlinkChecker, spark: Any, tmp_path: Any, backend: str, parallelism: int
) -> None:
    rows = [((f"name-{n}" if n else None, n), row(n)) for n in range(60)]
    frame = spark.createDataFrame(
        rows,
        "k struct<f0:string,f1:bigint>, "
        "accState struct<f0:bigint,f1:double,f2:string,f3:boolean,f4:int>",
    )
    made = (
        OperatorTransformation.bootstrap_with(frame)
        .key_by("k", Types.ROW_DATA("STRING", "BIGINT"))
        .transform_columns(
            types={"accState": Types.ROW_DATA("BIGINT", "DOUBLE", "STRING", "BOOLEAN", "INT")}
        )
    )
    out = SavepointWriter.new_savepoint(spark, 128, 2).with_operator(UID, made)
    path = out.write(str(tmp_path / "sp"))
    new_key, changed = ["+I", "new", 60], ["+I", *row(60)]
    updates: list[Entry] = [
        {"op": "group", "key": new_key, "state": "accState", "do": "update", "value": changed}
    ]

    restored = flink.restore(
        path,
        [OPERATOR],
        backend=backend,
        parallelism=parallelism,
        updates=updates,
        savepoint_to=tmp_path / "after",
    )

    common = {"op": "group", "kind": "value", "state": "accState", "ns": None}
    before = [{**common, "key": ["+I", *key], "value": ["+I", *value]} for key, value in rows]
    assert texts(restored.entries, "kg") == texts(before)
    assert restored.savepoint is not None
    after = list(Snapshot.load(restored.savepoint)["group"].dump())
    assert texts(after, "kg") == texts([*before, {**common, "key": new_key, "value": changed}])
