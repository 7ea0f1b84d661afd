"""Real Flink takes over a job after twenty epochs, changes its state, and gives it back."""

import pytest
from pyspark import cloudpickle

from dstl_core.codec.serializers import Types
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.stateful_job import StatefulJob
from tests.integration.flink.checker import Operator, State
from tests.integration.spark import job_functions
from tests.integration.spark.job_functions import (
    OUTPUT,
    SCHEMA,
    TotalsByColumn,
    TotalsByRow,
    plain,
    random_batch,
)

pytestmark = [pytest.mark.flink, pytest.mark.spark]
EPOCHS = 20
STATES = [State("total", "value", "long"), State("last", "value", "string")]


@pytest.fixture(autouse=True, scope="module")
def by_value():
    cloudpickle.register_pickle_by_value(job_functions)
    yield
    cloudpickle.unregister_pickle_by_value(job_functions)


def job_of(spark, base, name, kind):
    function = {"row": TotalsByRow, "column": TotalsByColumn}[kind]()
    operator = KeyedOperator("totals", "k", Types.STRING, function, OUTPUT)
    return StatefulJob(
        spark, name, str(base), operator, local_copies=LocalCopies(str(base / "local"))
    )


def state_of(entries):
    state = {}
    for entry in entries:
        state.setdefault(entry["key"], {})[entry["state"]] = entry["value"]
    return {key: (values["total"], values.get("last")) for key, values in state.items()}


@pytest.mark.parametrize("kind", ["row", "column"])
def test_flink_goes_on_after_twenty_epochs_and_gives_back(spark, flink, tmp_path, kind):
    job = job_of(spark, tmp_path, "job", kind)
    batches = [random_batch(seed, 40) for seed in range(EPOCHS)]
    for number, rows in enumerate(batches):
        job.run(spark.createDataFrame(rows, SCHEMA), number, order_by=["v"])
    assert job.state_size().log > 0
    savepoint = job.savepoint(str(tmp_path / "savepoint"))
    expected = plain(batches)
    operators = [Operator("totals", "string", STATES, max_parallelism=128)]
    for path, changelog in ((savepoint, False), (job.latest_path(), True)):
        restored = flink.restore(
            path,
            operators,
            parallelism=3,
            changelog=changelog,
            updates=[
                {"op": "totals", "key": "key-1", "state": "total", "do": "update", "value": 7},
                {"op": "totals", "key": "new", "state": "total", "do": "update", "value": 9},
                {"op": "totals", "key": "new", "state": "last", "do": "update", "value": "f"},
            ],
            savepoint_to=str(tmp_path / f"by-flink-{changelog}"),
        )
        assert state_of(restored.entries) == expected
        given_back = job_of(spark, tmp_path, f"after-flink-{changelog}", kind)
        given_back.start(restored.savepoint)
        more = [*random_batch(99, 40), ("new", 1, "g")]
        given_back.run(spark.createDataFrame(more, SCHEMA), 1, order_by=["v"])
        again = flink.restore(given_back.latest_path(), operators, changelog=True)
        changed = {**expected, "key-1": (7, expected["key-1"][1]), "new": (9, "f")}
        for key, value, text in sorted(more, key=lambda row: row[1]):
            changed[key] = (changed.get(key, (0, None))[0] + value, text)
        assert state_of(again.entries) == changed
