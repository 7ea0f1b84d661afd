"""The snapshots that the flights demo leaves behind, restored in real Flink."""

from dataclasses import dataclass

import dagster as dg
import pytest

from definitions import SPARK
from dstl_dagster import DstlStorageResource
from examples.flights import assets as flights
from examples.flights.events import COLUMNS, MAX_PARALLELISM, ORDER_BY, UID, read_flights
from examples.flights.run import RANGE_END, RANGE_START
from tests.integration.flink.checker import Operator, State

pytestmark = [pytest.mark.flink, pytest.mark.spark, pytest.mark.dagster]

DAYS = ("2013-11-01", "2013-11-06")
STATES = [
    State("flights", "value", "long"),
    State("total_delay", "value", "long"),
    State("cancelled", "value", "long"),
    State("last_airport", "value", "string"),
]


def expected(last_day):
    """Every aircraft's state, by hand: key to (flights, total delay, cancelled, last airport)."""
    table = read_flights()
    columns = {name: table[name].to_pylist() for name in ("year", "month", "day", *COLUMNS)}
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    rows = [
        row
        for row in rows
        if row["tailnum"] is not None
        and f"{row['year']}-{row['month']:02}-{row['day']:02}" <= last_day
    ]
    rows.sort(key=lambda row: tuple(row[name] for name in ORDER_BY))
    state = {}
    for row in rows:
        count, delay, cancelled, _ = state.get(row["tailnum"], (0, 0, 0, ""))
        late = row["dep_delay"]
        state[row["tailnum"]] = (
            count + 1,
            delay + (late or 0),
            cancelled + (late is None),
            row["dest"],
        )
    return state


@dataclass(frozen=True)
class Snapshots:
    bootstrapped: str
    checkpoint: str
    savepoint: str
    rewritten: str


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    storage = DstlStorageResource(base_path=str(tmp_path_factory.mktemp("demo")))
    paths = {}
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("home"))) as instance:

        def run(*selection, tags=None):
            result = dg.materialize(
                [*flights.ASSETS, *flights.ALL_CHECKS],
                selection=dg.AssetSelection.assets(*selection),
                instance=instance,
                resources={"storage": storage, "spark": SPARK},
                tags=tags,
            )
            assert result.success
            for event in result.get_asset_materialization_events():
                shown = event.step_materialization_data.materialization.metadata
                if "dagster/uri" in shown:
                    paths[event.asset_key] = str(shown["dagster/uri"].value)

        run(flights.flight_events, flights.bootstrapped_savepoint)
        run(flights.state, tags={RANGE_START: DAYS[0], RANGE_END: DAYS[1]})
        store = flights.FLIGHTS.store(storage)
        assert store.size().log > 0, "the checkpoint has a log of several epochs on its base"
        # It is retained when the materialization follows.
        checkpoint = store.path_of(store.require_latest())
        run(*(flights.FLIGHTS.key(kind) for kind in ("materialization", "savepoint", "rewritten")))
    yield Snapshots(
        storage.savepoint("january-to-october"),
        checkpoint,
        paths[flights.FLIGHTS.key("savepoint")],
        paths[flights.FLIGHTS.key("rewritten")],
    )
    SPARK.spark_session.stop()


def found(restored):
    state = {}
    for entry in restored.entries:
        state.setdefault(entry["key"], {})[entry["state"]] = entry["value"]
    return {key: tuple(values[state.name] for state in STATES) for key, values in state.items()}


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    ("which", "uid", "max_parallelism", "changelog"),
    [
        ("bootstrapped", UID, MAX_PARALLELISM, False),
        ("checkpoint", UID, MAX_PARALLELISM, False),
        ("checkpoint", UID, MAX_PARALLELISM, True),
        ("savepoint", UID, MAX_PARALLELISM, False),
        ("rewritten", flights.RENAMED_UID, flights.RESCALED, False),
    ],
)
def test_flink_restores_what_the_demo_wrote(
    flink, snapshots, backend, which, uid, max_parallelism, changelog
):
    restored = flink.restore(
        getattr(snapshots, which),
        [Operator(uid, "string", STATES, max_parallelism=max_parallelism)],
        backend=backend,
        parallelism=3,
        changelog=changelog,
        strict=True,
    )
    last_day = flights.BOOTSTRAP_DAYS[1] if which == "bootstrapped" else DAYS[1]
    assert found(restored) == expected(last_day)
