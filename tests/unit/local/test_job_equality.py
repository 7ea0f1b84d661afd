"""By row and by column, with and without a changelog, on every backend, at any parallelism: the
state is the same, and that of a plain reference.
"""

import itertools

import pytest

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.errors import SavepointError
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.backends.state_backend import EmbeddedRocksDBStateBackend, HashMapStateBackend
from dstl_core.stateful_job import StatefulJob
from tests.integration.spark.job_functions import (
    OUTPUT,
    SCHEMA,
    TotalsByColumn,
    TotalsByRow,
    plain,
    random_batch,
)
from tests.local_session import state_rows

pytestmark = pytest.mark.slow

FUNCTIONS = {"row": TotalsByRow, "column": TotalsByColumn}
BACKENDS = {"hashmap": HashMapStateBackend(), "rocksdb": EmbeddedRocksDBStateBackend()}


def state_of(session, path):
    rows = state_rows(path)
    return {row.state_key: (row.total, row.last) for row in rows}


def job(session, base, kind, **options):
    operator = KeyedOperator("totals", "k", Types.STRING, FUNCTIONS[kind](), OUTPUT)
    local = LocalCopies(str(base / "local"))
    return StatefulJob(session, "job", str(base), operator, local_copies=local, **options)


CASES = [
    (kind, changelog, backend)
    for kind, changelog, backend in itertools.product(FUNCTIONS, (True, False), BACKENDS)
    if not (kind == "column" and backend == "rocksdb")  # columns have a store of their own
]


@pytest.mark.parametrize(("kind", "changelog", "backend"), CASES)
def test_state_equals_the_reference_at_any_parallelism(session, tmp_path, kind, changelog, backend):
    batches = [random_batch(seed) for seed in range(5)]
    seen = []
    for number, parallelism in enumerate([2, 2, 1, 5, 2]):
        running = job(
            session,
            tmp_path,
            kind,
            parallelism=parallelism,
            changelog=changelog,
            state_backend=BACKENDS[backend],
        )
        rows = session.createDataFrame(batches[number], SCHEMA)
        result = running.run(rows, number, order_by=["v"])
        seen.append(result.facts.operators["totals"].warmth)
        assert {row.k for row in result.output.collect()} == {row[0] for row in batches[number]}
    assert state_of(session, running.latest_path()) == plain(batches)
    if not (kind == "row" and backend == "hashmap"):  # its copies are in one of two processes
        assert seen[1] == {"warm": 2}


def test_a_function_by_row_goes_on_where_one_by_column_ended(session, tmp_path):
    batches = [random_batch(seed) for seed in range(4)]
    for number, kind in enumerate(["row", "column", "row", "column"]):
        running = job(session, tmp_path, kind)
        running.run(session.createDataFrame(batches[number], SCHEMA), number, order_by=["v"])
        assert state_of(session, running.latest_path()) == plain(batches[: number + 1])
    running.materialize()
    savepoint = running.savepoint(str(tmp_path / "savepoint"))
    assert state_of(session, savepoint) == plain(batches)
    for kind in ("row", "column"):
        of_kind = job(session, tmp_path, kind)
        native = of_kind.savepoint(str(tmp_path / f"native {kind}"), format="native")
        assert of_kind.savepoint(native, format="native") == native
        assert Snapshot.load(native)["totals"].form() == "rocksdb files"
        assert state_of(session, native) == plain(batches)
        with pytest.raises(SavepointError, match="Another snapshot is already there"):
            of_kind.savepoint(native)


def test_only_what_changed_is_logged_by_column(session, tmp_path):
    running = job(session, tmp_path, "column")
    rows = [(f"key-{i}", i + 1, "a") for i in range(100)]
    running.run(session.createDataFrame(rows, SCHEMA), 1, order_by=["v"])
    again = [(key, 0, "a") for key, _, _ in rows[:50]] + [("key-60", 0, "b")]
    result = running.run(session.createDataFrame(again, SCHEMA), 2, order_by=["v", "t"])
    assert (result.facts.changes, result.facts.changed_keys) == (1, 1)


def test_a_damaged_local_copy_is_not_used(session, tmp_path):
    batches = [random_batch(seed) for seed in range(2)]
    running = job(session, tmp_path, "column")
    running.run(session.createDataFrame(batches[0], SCHEMA), 0, order_by=["v"])
    for path in tmp_path.glob("local/*/*/*/*/*.arrow"):
        path.write_bytes(path.read_bytes()[:100])
    result = running.run(session.createDataFrame(batches[1], SCHEMA), 1, order_by=["v"])
    assert "warm" not in result.facts.operators["totals"].warmth
    assert state_of(session, running.latest_path()) == plain(batches)
