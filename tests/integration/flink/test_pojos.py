"""A DataStream job of real Flink with a POJO class goes on from state that was bootstrapped by
columns: with the serializers of a savepoint of that job, and by the name of the class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.operator_transformation import OperatorTransformation
from dstl_core.savepoint.bootstrap.savepoint_writer import SavepointWriter
from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State, TimerService
from tests.integration.flink.model import Model, texts
from tests.integration.spark.conftest import functions_travel_by_value

__all__ = ["functions_travel_by_value"]
pytestmark = [pytest.mark.flink, pytest.mark.spark]

UID = OperatorIdentifier.for_uid("accounts")
STATES = [
    State("last", "value", "account"),
    State("every", "list", "account"),
    State("by-name", "map", "account", map_key="string"),
]
OPERATOR = Operator("accounts", "string", STATES, [TimerService()])
ACCOUNT = Types.POJO(
    "dstl.check.Account",
    owner=Types.STRING,
    amount=Types.LONG,
    level=Types.INT,
    # What Flink 2 makes of fields that are collections.
    rates=Types.NULLABLE(Types.MAP(Types.NULLABLE(Types.STRING), Types.DOUBLE)),
    tags=Types.NULLABLE(Types.LIST(Types.NULLABLE(Types.STRING))),
)
TYPES: dict[str, AnySerializer] = {
    "last": ACCOUNT,
    "every": Types.LIST(ACCOUNT),
    "by-name": Types.MAP(Types.STRING, ACCOUNT),
}
FIELDS = (
    "struct<amount:bigint, level:int, owner:string, rates:map<string, double>, tags:array<string>>"
)
SCHEMA = (
    f"id string, last {FIELDS}, every array<{FIELDS}>, `by-name` map<string, {FIELDS}>, "
    f"timers array<bigint>"
)


def account(number: int) -> dict[str, Any]:
    """As JSON; every third has nulls."""
    if number % 3 == 0:
        return {"amount": number, "level": None, "owner": None, "rates": None, "tags": None}
    rates = [["EUR", number / 2], ["USD", 1.0]]
    tags = ["a", None, ""][: number % 4]
    owner = f"o-{number}-😀"
    return {"amount": -number, "level": number, "owner": owner, "rates": rates, "tags": tags}


def struct(number: int) -> dict[str, Any]:
    """As a value of a DataFrame."""
    fields = account(number)
    return fields | {"rates": None if fields["rates"] is None else dict(fields["rates"])}


def update(key: str, state: str, do: str, **more: Any) -> Entry:
    return {"op": "accounts", "key": key, "state": state, "do": do, **more}


def history(numbers: range) -> list[Entry]:
    """What fills the state, as updates: the expectation is made of them by plain Python."""
    updates: list[Entry] = []
    for n in numbers:
        key = f"id-{n}"
        updates.append(update(key, "last", "update", value=account(n)))
        updates.append(update(key, "every", "update", value=[account(n), account(n + 1)]))
        if n % 2:
            updates.append(update(key, "by-name", "put", map_key="x", value=account(n + 2)))
        timer = {"op": "accounts", "key": key, "service": "user-timers", "kind": "event-timer"}
        updates.append(timer | {"ts": 1000 + n, "do": "register"})
    return updates


@pytest.mark.parametrize(("backend", "parallelism"), [("hashmap", 3), ("rocksdb", 1)])
@pytest.mark.parametrize("types", ["template", "names"])
def test_a_job_with_a_pojo_class_goes_on(
    flink: FlinkChecker, spark: Any, tmp_path: Path, types: str, backend: str, parallelism: int
) -> None:
    running = flink.restore(
        None, [OPERATOR], updates=history(range(500, 502)), savepoint_to=tmp_path / "running"
    ).savepoint
    assert running is not None
    rows = [
        (
            f"id-{n}",
            struct(n),
            [struct(n), struct(n + 1)],
            {"x": struct(n + 2)} if n % 2 else None,
            [1000 + n],
        )
        for n in range(40)
    ]
    keyed = OperatorTransformation.bootstrap_with(spark.createDataFrame(rows, SCHEMA)).key_by("id")
    if types == "template":
        template = Snapshot.load(running)["accounts"]
        bootstrap = keyed.transform_columns(template=template, event_time_timers="timers")
    else:
        bootstrap = keyed.transform_columns(TYPES, event_time_timers="timers")
    ours = (
        SavepointWriter.from_existing_savepoint(spark, running)
        .remove_operator(UID)
        .with_operator(UID, bootstrap)
        .write(str(tmp_path / "ours"))
    )
    model = Model("accounts", STATES)
    model.apply(history(range(40)))
    more = [
        update("id-0", "last", "update", value=account(77)),
        update("id-1", "every", "add", value=account(78)),
        update("id-1", "by-name", "put", map_key="y", value=account(79)),
        update("new", "every", "add", value=account(80)),
    ]

    restored = flink.restore(
        ours,
        [OPERATOR],
        backend=backend,
        parallelism=parallelism,
        updates=more,
        watermark=1010,
        savepoint_to=tmp_path / "after",
    )

    assert texts(restored.entries, "kg") == texts(model.entries())
    assert texts(restored.fired, "kg") == texts(model.fire(1010))
    model.apply(more)
    assert restored.savepoint is not None
    after = Snapshot.load(restored.savepoint)["accounts"]
    assert texts(after.dump(), "kg") == texts(model.entries())
