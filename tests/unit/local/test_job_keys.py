"""Keys of every type, the number of keys in commits, and state that does not fit a job."""

import shutil
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from dstl_core.codec.serializers import Types
from dstl_core.errors import RestoreError
from dstl_core.functions import ColumnResult, KeyedColumnFunction, KeyedProcessFunction
from dstl_core.job.spec.operators import KeyedOperator, LocalCopies
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.stateful_job import StatefulJob

pytestmark = pytest.mark.slow

COUNT = ValueStateDescriptor("n", Types.LONG)


OUTPUT = pa.schema([("seen", pa.string()), ("n", pa.int64())])


BATCH = [("a", 1), ("b", 2), ("a", 3)]


SCHEMA = "k string, v long"


class Count(KeyedProcessFunction):
    """Counts the rows of a key; ``give`` says what comes out."""

    order_insensitive = True

    def __init__(self, give=lambda row, n: [{"seen": str(row), "n": n}]):
        self.give = give

    def open(self, runtime_context):
        self.n = runtime_context.get_state(COUNT)

    def process_element(self, value, ctx):
        self.n.update((self.n.value() or 0) + 1)
        return self.give(value, self.n.value())


class CountColumns(KeyedColumnFunction):
    """The same on columns; ``give`` says what the result is."""

    order_insensitive = True
    states = (COUNT,)

    def __init__(self, give=lambda state: ColumnResult(state)):
        self.give = give

    def process_batch(self, keys, state, rows):
        counts = [0] * len(keys)
        for at in rows["key_index"].to_pylist():
            counts[at] += 1
        before = [each or 0 for each in state["n"].to_pylist()]
        new = [old + own for old, own in zip(before, counts, strict=True)]
        return self.give(pa.record_batch([pa.array(new, pa.int64())], names=["n"]))


PAIR = "struct<a: string, b: int>"

BOTH = pytest.mark.parametrize("function", [Count(), CountColumns()], ids=["rows", "columns"])


def maker(session, tmp_path):
    def make(function=None, key_type=Types.STRING, name="job", folder="jobs", **options):
        of_operator = {
            option: options.pop(option)
            for option in ("event_time", "order_by")
            if option in options
        }
        schema = options.pop("output_schema", OUTPUT)
        operator = KeyedOperator("u", "k", key_type, function or Count(), schema, **of_operator)
        local = LocalCopies(str(tmp_path / "local"))
        return StatefulJob(
            session, name, str(tmp_path / folder), operator, local_copies=local, **options
        )

    return make


@pytest.fixture
def job_of(session, tmp_path):
    return maker(session, tmp_path)


def counts(job):
    return {line["key"]: line["value"] for line in job.snapshot()["u"].dump()}


@BOTH
@pytest.mark.parametrize(
    ("key_type", "column", "keys", "texts"),
    [
        (
            Types.LOCAL_DATE,
            "date",
            [date(1969, 12, 31), date(2024, 2, 29)],
            ["1969-12-31", "2024-02-29"],
        ),
        (
            Types.INSTANT,
            "timestamp",
            [
                datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
                datetime(2020, 11, 1, 6, 30, tzinfo=UTC),
            ],
            ["1969-12-31T23:59:59.999999Z", "2020-11-01T06:30:00Z"],
        ),
        (
            Types.BIG_DEC,
            "decimal(4, 2)",
            [Decimal("-1.28"), Decimal("12.50")],
            ["-1.28", "12.50"],
        ),
        (Types.ROW(Types.STRING, Types.INT), PAIR, [("", None), ("a", 1)], None),
        (Types.TUPLE(Types.STRING, Types.INT), PAIR, [("", 0), ("a", 1)], None),
    ],
    ids=["date", "timestamp", "decimal", "row", "tuple"],
)
def test_keys_are_of_every_key_type(session, job_of, function, key_type, column, keys, texts):
    values = [(dict(zip("ab", key, strict=True)) if texts is None else key,) for key in keys]
    rows = session.createDataFrame(values * 2, f"k {column}")
    job = job_of(function, key_type)
    for epoch in (1, 2):
        job.run(rows, epoch)
    lines = list(job.snapshot()["u"].dump())
    assert [line["value"] for line in lines] == [4, 4]
    if texts is not None:
        assert sorted(line["key"] for line in lines) == texts


class Balances(KeyedColumnFunction):
    """A sum, which is removed when it is zero, and the largest even value."""

    order_insensitive = True
    states = (COUNT, ValueStateDescriptor("even", Types.LONG))

    def process_batch(self, keys, state, rows):
        sums = [each or 0 for each in state["n"].to_pylist()]
        evens = state["even"].to_pylist()
        for at, value in zip(rows["key_index"].to_pylist(), rows["v"].to_pylist(), strict=True):
            sums[at] += value
            if value % 2 == 0:
                evens[at] = max(evens[at] or value, value)
        kept = [each or None for each in sums]
        columns = [pa.array(each, pa.int64()) for each in (kept, evens)]
        return ColumnResult(pa.record_batch(columns, names=["n", "even"]))


class Sums(Balances):
    """The same without the largest even value."""

    states = (COUNT,)

    def process_batch(self, keys, state, rows):
        both = state.append_column("even", pa.nulls(state.num_rows, pa.int64()))
        return ColumnResult(super().process_batch(keys, both, rows).state.select(["n"]))


def test_commits_count_the_keys_of_functions_on_columns(session, job_of):
    """As the snapshot has them: keys come and go, state is undone, moved and written in full."""

    def keys_of(job):
        dumped_keys = {line["key"] for line in job.snapshot()["u"].dump()}
        counted = job.latest().facts.keys["u"]
        assert counted.count == len(dumped_keys)
        return dumped_keys

    def epoch(job, number, **rows):
        job.run(session.createDataFrame(list(rows.items()), SCHEMA), number, **options)
        return keys_of(job)

    options = {}
    job = job_of(Balances(), output_schema=None, num_retained=9)
    assert epoch(job, 1, a=1, b=3, c=5) == {"a", "b", "c"}
    assert epoch(job, 2, a=-1, d=2, e=0) == {"b", "c", "d", "e"}
    assert epoch(job, 3, a=1, d=-2, b=-3) == {"a", "c", "d", "e"}, "d has its even value"
    job.materialize()
    assert keys_of(job) == {"a", "c", "d", "e"}
    options["rewind"] = True
    assert epoch(job, 2, a=-1) == {"b", "c"}
    options.clear()
    wide = job_of(Balances(), output_schema=None, num_retained=9, parallelism=3)
    assert epoch(wide, 4, **{f"k{at}": 1 for at in range(40)}) >= {"b", "c", "k7"}
    assert len(epoch(wide, 5, **{f"k{at}": -1 for at in range(39)})) == 3

    # Keys whose only value is in a state that is given up would be counted twice.
    fewer = job_of(Sums(), output_schema=None, parallelism=3)
    fewer.run(session.createDataFrame([("x", 1)], SCHEMA), 6)
    assert fewer.latest().facts.keys == {}


@BOTH
def test_state_that_somebody_deleted_is_an_error_also_for_a_warm_job(session, job_of, function):
    job = job_of(function)
    rows = session.createDataFrame(BATCH, SCHEMA)
    for number in range(2):
        job.run(rows, number)
    shutil.rmtree(job.path.removeprefix("file:"))
    with pytest.raises(RestoreError, match="files of the latest checkpoint, 3, are missing"):
        job.run(rows, 2)


def test_another_max_parallelism_is_refused_by_name(session, job_of):
    rows = session.createDataFrame(BATCH, SCHEMA)
    job_of().run(rows, 1)
    with pytest.raises(
        RestoreError, match=r"operator u with max parallelism 128 .* parallelism 64"
    ):
        job_of(max_parallelism=64).run(rows, 2)
