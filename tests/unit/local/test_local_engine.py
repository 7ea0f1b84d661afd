"""Jobs on the local engine: rows of any form, limits of memory, order, threads, errors."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    LocalEngine,
    ProcessOperator,
    Snapshot,
    StatefulJob,
    aggregates,
)
from dstl_core.codec.serializers import Types
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    InputChangedError,
    StateMigrationError,
    UserFunctionError,
)
from dstl_core.functions import KeyedProcessFunction, ProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.location import SIDECAR_FILE_NAME
from tests.integration.spark.job_functions import OUTPUT, TotalsByRow, plain, random_batch

SUMS = {"n": aggregates.count(), "total": aggregates.sum("v"), "longest": aggregates.max("t")}
COLUMNS = "k string, v bigint, t string"


def job(base: Path, operator: Any, engine: Any = None, **options: Any) -> StatefulJob:
    copies = LocalCopies(str(base / "local"))
    return StatefulJob(
        engine or LocalEngine(), "job", str(base / "jobs"), operator, local_copies=copies, **options
    )


def sums() -> AggregateOperator:
    return AggregateOperator("sums", "k", SUMS, schema=COLUMNS, output=True)


def totals() -> KeyedOperator:
    return KeyedOperator("totals", "k", Types.STRING, TotalsByRow(), OUTPUT)


def table_of(rows: list[tuple[str, int, str | None]]) -> pa.Table:
    keys, values, texts = zip(*rows, strict=True)
    return pa.table({"k": keys, "v": values, "t": pa.array(texts, pa.string())})


def by_hand(batches: list[list[tuple[str, int, str | None]]]) -> dict[str, tuple[int, int, Any]]:
    """The aggregates of ``SUMS`` by key."""
    wanted: dict[str, tuple[int, int, Any]] = defaultdict(lambda: (0, 0, None))
    for key, value, text in (row for rows in batches for row in rows):
        count, total, longest = wanted[key]
        texts = [each.encode() for each in (longest, text) if each is not None]
        wanted[key] = count + 1, total + value, max(texts).decode() if texts else None
    return dict(wanted)


def rows_in(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The state of the only operator, a row per key."""
    [operator] = snapshot.operators
    return [row for batch in operator.keyed().read() for row in batch.to_pylist()]


def state_of(running: StatefulJob, *names: str) -> dict[str, tuple[Any, ...]]:
    rows = rows_in(running.snapshot())
    return {row["state_key"]: tuple(row[name] for name in names) for row in rows}


# ---------------------------------------------------------------------------------- forms


class Stream:
    """An object that only has the Arrow stream interface, as those of other libraries."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.to_reader(50).__arrow_c_stream__(requested_schema)


def test_rows_of_every_form_are_the_same_batch(tmp_path: Path) -> None:
    table = table_of(random_batch(1))
    pq.write_table(table, tmp_path / "one.parquet")
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(3):
        pq.write_table(table.slice(100 * number, 100), folder / f"part-{number}.parquet")
    text = pa.DictionaryArray.from_arrays
    coded = table.column("k").combine_chunks().dictionary_encode()
    forms = [
        table,
        table.to_reader(70),
        table.to_batches(90),
        Stream(table),
        tmp_path / "one.parquet",
        str(folder),
        [str(folder / f"part-{number}.parquet") for number in (2, 0, 1)],
        table.select(["t", "v", "k"]).take(list(range(299, -1, -1))),
        table.set_column(0, "k", text(coded.indices, coded.dictionary)),
        table.set_column(0, "k", table.column("k").cast(pa.large_string())),
        table.set_column(2, "t", table.column("t").cast(pa.string_view())),
        pl.from_arrow(table),
        table.to_pandas(),
    ]
    running = job(tmp_path, sums())
    done = [running.run(rows, 1) for rows in forms]
    assert [result.committed_before for result in done] == [False] + [True] * (len(forms) - 1)
    changed = table.set_column(1, "v", pa.array(range(300)))
    with pytest.raises(InputChangedError, match="other rows or columns"):
        running.run(changed, 1)


def test_output_is_a_stream_of_arrow(tmp_path: Path) -> None:
    rows = random_batch(1)
    output = job(tmp_path, sums()).run(table_of(rows), 1).output
    read = pa.table(output)
    assert read.schema.names == ["k", "n", "total", "longest"]
    by_key = {row["k"]: (row["n"], row["total"], row["longest"]) for row in read.to_pylist()}
    assert by_key == by_hand([rows])
    assert output.to_arrow().equals(read)
    assert pl.from_arrow(output.to_arrow()).height == len(by_key) == len(pl.DataFrame(output))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_beyond_the_memory_wait_in_files(tmp_path: Path, parallelism: int) -> None:
    engine = LocalEngine(threads=2, memory="1 kb", temp_folder=str(tmp_path))
    batches = [random_batch(number) for number in range(3)]
    for number, rows in enumerate(batches):
        running = job(tmp_path, sums(), engine, parallelism=parallelism)
        running.run(table_of(rows).to_reader(20), number)
    assert state_of(running, "n", "total", "longest") == by_hand(batches)


# ---------------------------------------------------------------------------------- order


class Listing(KeyedProcessFunction):
    """Gives the rows in the order in which they come."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield {"k": value["k"], "at": value["at"]}


def test_rows_apply_in_the_order_of_spark(tmp_path: Path) -> None:
    # Nulls come first and NaN last; -0.0 is 0.0, and the columns after the order break ties.
    numbers = [None, -math.inf, -1.5, 0.0, 2.0, math.inf, math.nan]
    texts = [None, "", "B", "a", "ä", "😀"]
    wanted = [(number, text) for number in numbers for text in texts]
    shuffled = wanted[1::2] + wanted[::2][::-1]
    rows = pa.table(
        {
            "k": ["a"] * len(wanted),
            "number": pa.array([number for number, _ in shuffled], pa.float64(), from_pandas=False),
            "text": pa.array([text for _, text in shuffled]),
            "at": [wanted.index(row) for row in shuffled],
        }
    )
    operator = KeyedOperator(
        "u", "k", Types.STRING, Listing(), pa.schema([("k", pa.string()), ("at", pa.int64())])
    )
    output = job(tmp_path, operator).run(rows, 1, order_by=["number"]).output
    assert [row["at"] for row in output.to_arrow().to_pylist()] == list(range(len(wanted)))


# ------------------------------------------------------------------------------ functions


class Timed(KeyedProcessFunction):
    """Keeps the values of a key until a timer gives them."""

    def open(self, runtime_context: Any) -> None:
        self._values = runtime_context.get_list_state(ListStateDescriptor("values", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._values.add(value["v"])
        ctx.timer_service().register_event_time_timer(value["v"] + 10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield {"k": ctx.get_current_key(), "total": timestamp + sum(self._values.get())}


class Doubled(ProcessFunction):
    """Doubles every row."""

    order_insensitive = True

    def process_element(self, value: Any, ctx: Any) -> Any:
        for _ in range(2):
            yield {"k": value["k"], "total": value["total"]}


def test_timers_fire_and_operators_follow_each_other(tmp_path: Path) -> None:
    timed = KeyedOperator("timed", "k", Types.STRING, Timed(), OUTPUT, event_time="v")
    doubled = ProcessOperator("doubled", Doubled(), OUTPUT, source="timed")
    total = AggregateOperator(
        "sums", "k", {"total": aggregates.sum("total")}, "string", source="doubled", output=True,
        schema="k string, total bigint",
    )  # fmt: skip
    running = job(tmp_path, timed, downstream=[doubled, total], parallelism=3)
    rows = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    assert running.run(rows, 1, order_by=["v"]).output.to_arrow().num_rows == 0
    result = running.run(pa.table({"k": ["c"], "v": [13]}), 2, order_by=["v"])
    assert sorted(map(str, result.outputs["timed"].to_arrow().to_pylist())) == [
        "{'k': 'a', 'total': 15}",
        "{'k': 'b', 'total': 14}",
    ]
    assert sorted(map(str, result.output.to_arrow().to_pylist())) == [
        "{'k': 'a', 'total': 30}",
        "{'k': 'b', 'total': 28}",
    ]


class Remembering(KeyedProcessFunction):
    """Fails if its object serves two subtasks, or two epochs."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, runtime_context: Any) -> None:
        self.opened += 1
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._count.update((self._count.value() or 0) + self.opened)
        yield from ()


def test_a_subtask_has_a_function_of_its_own_in_each_epoch(tmp_path: Path) -> None:
    operator = KeyedOperator("u", "k", Types.STRING, Remembering(), None)
    running = job(tmp_path, operator, parallelism=4)
    rows = table_of(random_batch(1))
    for number in range(2):
        running.run(rows, number, order_by=["v"])
    counts = {key: 2 * count for key, (count, _, _) in by_hand([random_batch(1)]).items()}
    assert {key: count for key, (count,) in state_of(running, "count").items()} == counts


# --------------------------------------------------------------------------------- states


def test_state_is_that_of_a_plain_program_at_any_parallelism(tmp_path: Path) -> None:
    batches = [random_batch(number) for number in range(5)]
    for number, parallelism in enumerate([2, 2, 1, 5, 2]):
        running = job(tmp_path, totals(), parallelism=parallelism, num_retained=9)
        running.run(table_of(batches[number]), number, order_by=["v"])
        assert state_of(running, "total", "last") == plain(batches[: number + 1])
    running.materialize()
    savepoint = running.savepoint(str(tmp_path / "savepoint"))
    other = job(tmp_path / "other", totals())
    other.start(savepoint)
    assert state_of(other, "total", "last") == plain(batches)
    running.run(table_of(random_batch(9)), 3, order_by=["v"], rewind=True)
    assert state_of(running, "total", "last") == plain([*batches[:3], random_batch(9)])


class Failing(TotalsByRow):
    """Fails at one value, in one subtask."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value["v"] == 77:
            raise ZeroDivisionError("seven")
        yield from super().process_element(value, ctx)


def test_an_error_of_one_subtask_ends_the_epoch_and_commits_nothing(tmp_path: Path) -> None:
    operator = KeyedOperator("totals", "k", Types.STRING, Failing(), OUTPUT)
    running = job(tmp_path, operator, parallelism=4)
    rows = random_batch(1)
    running.run(table_of(rows), 1, order_by=["v"])
    with pytest.raises((UserFunctionError, ZeroDivisionError), match="seven"):
        running.run(table_of([*random_batch(2), ("key-1", 77, "a")]), 2, order_by=["v"])
    assert state_of(running, "total", "last") == plain([rows])
    running.run(table_of(random_batch(2)), 2, order_by=["v"])
    assert state_of(running, "total", "last") == plain([rows, random_batch(2)])


class Cancelling(TotalsByRow):
    """Cancels its own job at the first row."""

    job: Any = None

    def process_element(self, value: Any, ctx: Any) -> Any:
        type(self).job.cancel()
        yield from super().process_element(value, ctx)


def test_a_cancelled_epoch_commits_nothing(tmp_path: Path) -> None:
    operator = KeyedOperator("totals", "k", Types.STRING, Cancelling(), OUTPUT)
    Cancelling.job = running = job(tmp_path, operator)
    with pytest.raises(CheckpointError, match="cancelled; nothing is committed"):
        running.run(table_of(random_batch(1)), 1, order_by=["v"])
    assert [commit.facts.kind for commit in running.history()] == ["start"]


# --------------------------------------------------------------------------------- errors

ROWS = table_of(random_batch(1))
WRONG: list[tuple[Any, str]] = [
    ([("a", 1)], "The batch has to be a table or a stream of Arrow .* got a list"),
    (None, "The batch has to be a table or a stream of Arrow .* got a NoneType"),
    (ROWS.drop_columns("k"), "There is no column 'k' in the input of 'sums'; it has: v, t"),
    (ROWS.rename_columns(["k", "v", "v"]), "The batch has two columns 'v'"),
    (ROWS.append_column("__dstl_x", ROWS.column("v")), "names that begin with '__dstl_'"),
    (ROWS.set_column(1, "v", ROWS.column("t")), "the column 'v' is string; cast the column"),
    (ROWS.set_column(0, "k", ROWS.column("v")), "The key column 'k' is bigint, and the key type"),
    (ROWS.set_column(0, "k", pa.nulls(300, pa.string())), "A key is null, in the column 'k'"),
    (
        ROWS.set_column(1, "v", pa.array([1] * 300, pa.duration("s"))),
        "The batch has a column of an unknown type: Spark has no type for Arrow's duration",
    ),
    (
        ROWS.append_column("at", pa.array([1] * 300, pa.timestamp("ns"))).to_reader(),
        "The batch has a value that Spark's types cannot hold .* round or cast the column",
    ),
    ("/no/such/file.parquet", "There is no Parquet file at .*/no/such/file.parquet"),
]


@pytest.mark.parametrize(("rows", "message"), WRONG)
def test_wrong_rows_get_one_sentence_and_change_nothing(
    tmp_path: Path, rows: Any, message: str
) -> None:
    running = job(tmp_path, sums())
    with pytest.raises(ConfigError, match=message):
        running.run(rows, 1)
    assert all(commit.facts.implied for commit in running.history())


def test_names_that_differ_in_case_only_are_two_columns(tmp_path: Path) -> None:
    running = job(tmp_path, sums())
    running.run(ROWS.append_column("V", pa.array([0] * 300)), 1)
    assert sum(row["total"] for row in rows_in(running.snapshot())) == sum(ROWS["v"].to_pylist())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "The threads of a local engine are wrong: .* got 0"),
        ({"memory": 5}, "Not a memory size: .* got 5"),
        ({"memory": "much"}, "Not a memory size: .* got 'much'"),
        ({"temp_folder": "/no/such"}, "temp_folder of a local engine is wrong: .* '/no/such'"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalEngine(**options)


FIRST_FILE = pa.table({"k": ["a"], "v": [1], "t": ["x"]})


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("v", None, r"expected 'v' as bigint, as in .*/0\.parquet, got no such column in .*1\.par"),
        ("v", ["1"], "expected 'v' as bigint, .* got string in"),
        ("v", [1.0], "expected 'v' as bigint, .* got double in"),
        ("t", [1], "expected 't' as string, .* got bigint in"),
        ("v", pa.array([1], pa.int8()), None),
        ("v", pa.nulls(1), None),
        ("t", pa.array(["x"]).dictionary_encode(), None),
        ("new", ["x"], None),
    ],
)
def test_files_of_one_batch_have_the_columns_of_the_first(
    tmp_path: Path, column: str, values: Any, message: str | None
) -> None:
    columns = dict(zip(FIRST_FILE.column_names, FIRST_FILE.columns, strict=True))
    columns[column] = values
    second = pa.table({name: each for name, each in columns.items() if each is not None})
    files = [tmp_path / f"{at}.parquet" for at in range(2)]
    for table, file in zip((FIRST_FILE, second), files, strict=True):
        pq.write_table(table, file)
    running = job(tmp_path, sums())
    if message is None:
        [row] = running.run([str(file) for file in files], 1).output.to_arrow().to_pylist()
        assert row["n"] == 2
        return
    with pytest.raises(ConfigError, match=message):
        running.run([str(file) for file in files], 1)
    assert all(commit.facts.implied for commit in running.history())


@pytest.mark.parametrize("make", [aggregates.first, aggregates.last, aggregates.max_by])
def test_values_without_their_order_are_not_continued_with_one(tmp_path: Path, make: Any) -> None:
    def declared(**options: Any) -> StatefulJob:
        state = {"best": make("t", order_by="v", **options)}
        return job(tmp_path, AggregateOperator("best", "k", state, schema=COLUMNS))

    plainly = {"keeps_order": False} if make is not aggregates.max_by else {}
    before = declared(**plainly)
    before.run(table_of([("a", 5, "x")]), 1)
    if not plainly:
        declared().run(table_of([("a", 6, None)]), 2)  # a value may be null, and has an order
        return
    with pytest.raises(ConfigError, match="The aggregate 'best' of operator 'best' was changed"):
        declared().run(table_of([("a", 4, "y")]), 2)
    # A savepoint of Flink says nothing of definitions.
    started = replace(declared(), name="started")
    savepoint = before.savepoint(str(tmp_path / "savepoint"))
    (tmp_path / "savepoint" / SIDECAR_FILE_NAME).unlink()
    started.start(savepoint)
    with pytest.raises(StateMigrationError, match="'best' with 'best_order', and the restored sta"):
        started.run(table_of([("a", 4, "y")]), 1)
    declared(**plainly).run(table_of([("b", 4, "y")]), 2)


def test_a_function_that_cannot_be_copied_is_named(tmp_path: Path) -> None:
    function = TotalsByRow()
    function.lock = Lock()
    running = job(tmp_path, KeyedOperator("totals", "k", Types.STRING, function, OUTPUT))
    with pytest.raises(ConfigError, match=r"cannot be copied for its tasks .*lock.*its open\(\)"):
        running.run(ROWS, 1, order_by=["v"])


PROGRAM = """
import sys
for name in ("pyspark", "py4j", "dagster"):
    sys.modules[name] = None  # an import fails
import pyarrow as pa
from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
operator = AggregateOperator(
    "u", "k", {"total": aggregates.sum("v")}, schema="k string, v bigint", output=True
)
job = StatefulJob(LocalEngine(), "job", sys.argv[1], operator)
for number in range(2):
    result = job.run(pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]}), number)
print(sorted(map(str, result.output.to_arrow().to_pylist())))
job.materialize()
job.savepoint(sys.argv[1] + "/savepoint")
"""


@pytest.mark.slow
def test_a_job_runs_where_spark_is_not_installed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[\"{'k': 'a', 'total': 8}\", \"{'k': 'b', 'total': 4}\"]\n"
    rows = rows_in(Snapshot.load(str(tmp_path / "savepoint")))
    assert {row["state_key"]: row["total"] for row in rows} == {"a": 8, "b": 4}
