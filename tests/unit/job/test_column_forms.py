"""Values of every type that functions by row have in columns: what they read is what they gave."""

import datetime as dt
import random
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from dstl_core import KeyedOperator, LocalEngine, StatefulJob
from dstl_core.codec.serializers import Types
from dstl_core.errors import ColumnValueError, UserFunctionError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.task import rows_in_columns
from dstl_core.job.task.column_forms import column_form_of, with_values
from dstl_core.state.held import held_values
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from tests.unit.job.subtasks import Subtask

UTC = dt.UTC
BERLIN = ZoneInfo("Europe/Berlin")
LARGEST = Decimal("9" * 38)
LONG_NUMBER = Decimal("1234567890123456789012345678901234567890.5")
GIVEN: dict[str, dict] = {
    "bigint": {-(1 << 63): -(1 << 63), 7: 7},
    "double": {0.1: 0.1, float("-inf"): float("-inf")},
    "float": {1.1: float(np.float32(1.1)), 0.5: 0.5},
    "boolean": {True: True, 0: False},
    "string": {"": "", "a": "a", "ü😀": "ü😀", "\U0010ffff!": "\U0010ffff!"},
    "date": {dt.date.min: dt.date.min, dt.date(2026, 2, 3): dt.date(2026, 2, 3)},
    "time": {dt.time(1, 2, 3, 4): dt.time(1, 2, 3, 4), dt.time.max: dt.time.max},
    "timestamp_ntz": {dt.datetime.max: dt.datetime.max, dt.datetime.min: dt.datetime.min},
    "timestamp": {
        dt.datetime(2026, 7, 1, 3, tzinfo=BERLIN): dt.datetime(2026, 7, 1, 1, tzinfo=UTC),
        dt.datetime(1, 1, 1, tzinfo=UTC): dt.datetime(1, 1, 1, tzinfo=UTC),
    },
    "decimal(18,2)": {
        Decimal("1.50"): Decimal("1.50"),
        Decimal("-0.00"): Decimal("0.00"),
        Decimal("-7"): Decimal("-7"),
        Decimal("1E+3"): Decimal("1E+3"),
        Decimal("1E-9"): Decimal("1E-9"),
        LONG_NUMBER: LONG_NUMBER,
        -LARGEST: -LARGEST,
    },
}
"""What a function gives its state, and what it reads later."""
EACH_TYPE = pytest.mark.parametrize("declared", GIVEN)


class Remembers(KeyedProcessFunction):
    """Notes its state of a key, and sets or clears it."""

    def __init__(self, declared, values, *, in_tables=False):
        self.declared, self.values, self.in_tables = declared, values, in_tables
        self.seen = []

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", self.declared))
        if self.in_tables:
            runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG))

    def process_element(self, value, ctx):
        before = self.last.value()
        if value["d"] < 0:
            self.last.clear()
        elif value["d"] < len(self.values):
            self.last.update(self.values[int(value["d"])])
        self.seen.append((before, self.last.value()))
        return [{"k": value["k"], "was": 0.0}]


@EACH_TYPE
def test_a_value_is_read_as_it_was_given_in_columns_and_in_tables(tmp_path, declared):
    values, expected = list(GIVEN[declared]), list(GIVEN[declared].values())
    none = len(values)  # a row that only reads
    subtask = Subtask(tmp_path, Remembers(declared, values))
    subtask.run(*map(float, range(none)))
    assert texts(subtask.function.seen) == texts([(None, value) for value in expected])
    for in_tables in (False, True, False):
        subtask.function = Remembers(declared, values, in_tables=in_tables)
        subtask.run(*[float(none)] * none, float(none))
        assert texts(subtask.function.seen) == texts(
            [*((value, value) for value in expected), (None, None)]
        )
    subtask.function = Remembers(declared, values)
    subtask.run(-1.0, 0.0)
    assert texts(subtask.function.seen) == texts([(expected[0], None), (expected[1], expected[0])])
    subtask.function = Remembers(declared, values, in_tables=True)
    subtask.run(float(none), float(none), -1.0)
    assert texts(subtask.function.seen[:2]) == texts([(None, None), (expected[0], expected[0])])


def texts(values):
    """So that decimals of other scales, and times of other zones, differ."""
    return repr(values)


@EACH_TYPE
def test_columns_of_nulls_and_of_nothing(declared):
    form = column_form_of(ValueStateDescriptor("last", declared).type)
    value = form.normal(next(iter(GIVEN[declared])))
    for values in ([], [None], [None, value, None]):
        column = form.to_column(values, stored(declared))
        assert column.type == stored(declared)
        assert form.from_column(column) == values


def stored(declared):
    """The type of the column of a state."""
    return {
        "bigint": pa.int64(),
        "double": pa.float64(),
        "float": pa.float32(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "date": pa.date32(),
        "time": pa.time64("ns"),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "decimal(18,2)": pa.struct([("unscaled", pa.binary()), ("scale", pa.int32())]),
    }[declared]


def test_more_scales_than_are_likely():
    form = column_form_of(ValueStateDescriptor("last", "decimal(38,9)").type)
    values = [Decimal(scale).scaleb(-scale) for scale in range(20)]
    assert texts(form.from_column(form.to_column(values, stored("decimal(18,2)")))) == texts(values)


def test_half_a_surrogate_pair_is_refused_and_nothing_is_changed(tmp_path):
    subtask = Subtask(tmp_path, Remembers("string", ["a", "\ud800"]))
    subtask.run(0.0)
    with pytest.raises(ColumnValueError, match=r"type String .* give text without half"):
        subtask.run(1.0)
    subtask.function = Remembers("string", [])
    subtask.run(5.0)
    assert subtask.function.seen == [("a", "a")]


def test_both_halves_of_a_surrogate_pair_are_a_letter_as_in_tables(tmp_path):
    subtask = Subtask(tmp_path, Remembers("string", ["\ud83d\ude00", "ü"]))
    subtask.run(0.0, 1.0)
    subtask.function = Remembers("string", [])
    subtask.run(5.0, 5.0)
    assert subtask.function.seen == [("😀", "😀"), ("ü", "ü")]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("decimal(9,2)", Decimal("NaN")),
        ("decimal(9,2)", Decimal("1E+3000000000")),
        ("timestamp", dt.datetime(2026, 1, 1)),
        ("string", 1),
    ],
)
def test_a_value_of_another_type_is_an_error_of_the_function(tmp_path, declared, value):
    with pytest.raises(UserFunctionError, match=r"Remembers\.process_element raised"):
        Subtask(tmp_path, Remembers(declared, [value])).run(0.0)


@pytest.mark.parametrize(
    "declared", [Types.INSTANT, Types.BIG_DEC, Types.LIST(Types.LONG), "array<int>"], ids=str
)
def test_other_types_have_no_form(declared):
    assert column_form_of(ValueStateDescriptor("last", declared).type) is None


def test_large_texts_end_a_batch_before_its_rows_do(tmp_path, monkeypatch):
    monkeypatch.setattr(held_values, "MOST_BYTES", 100)
    monkeypatch.setattr(rows_in_columns, "MOST_BYTES", 100)
    monkeypatch.setattr(rows_in_columns, "ROWS_IN_PYTHON", 2)
    monkeypatch.setattr("dstl_core.job.task.row_subtask.ROWS_IN_PYTHON", 2)
    rows, process = [], rows_in_columns.RowsInColumns._process_first

    def noted(self, part, output):
        rest = process(self, part, output)
        rows.append(part.num_rows - rest.num_rows)
        return rest

    monkeypatch.setattr(rows_in_columns.RowsInColumns, "_process_first", noted)
    texts_of_keys = [letter * 40 for letter in "abcdefg"]
    subtask = Subtask(tmp_path, Remembers("string", texts_of_keys))
    subtask.run(*map(float, range(7)))
    # After 80 bytes there is room for more, after 160 there is not. Then 2 keys have 80 bytes.
    assert rows == [4, 2, 1]
    rows.clear()
    subtask.function = Remembers("string", [])
    subtask.run(*[9.0] * 7)
    assert subtask.function.seen == [(text, text) for text in texts_of_keys]
    assert rows == [2, 2, 2, 1]


class Joins(KeyedProcessFunction):
    """Joins the texts of a key, in the order in which they come."""

    order_insensitive = True

    def open(self, runtime_context):
        self.joined = runtime_context.get_state(ValueStateDescriptor("joined", "string"))
        self.total = runtime_context.get_state(ValueStateDescriptor("total", "decimal(18,2)"))

    def process_element(self, value, ctx):
        assert value["k"] == ctx.get_current_key()
        self.joined.update((self.joined.value() or "") + value["text"])
        self.total.update((self.total.value() or 0) + value["amount"])
        yield {"k": value["k"], "joined": self.joined.value(), "total": self.total.value()}


@pytest.mark.parametrize("key_type", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("most_bytes", [100, 1 << 20])
def test_rows_of_a_key_keep_their_order(tmp_path, monkeypatch, key_type, most_bytes):
    monkeypatch.setattr(held_values, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(rows_in_columns, "MOST_BYTES", most_bytes)
    monkeypatch.setattr(rows_in_columns, "ROWS_IN_PYTHON", 7)
    chooser = random.Random(1)
    amounts = [Decimal("-1.00"), Decimal("1.00"), Decimal("0.01"), None]
    rows = [
        {"k": f"key {chooser.randrange(9)}", "text": f"{at:03}", "amount": chooser.choice(amounts)}
        for at in range(90)
    ]
    for row in rows[::2]:
        row["amount"] = row["amount"] or Decimal("-0.00")
    rows = [row for row in rows if row["amount"] is not None]
    schema = pa.schema([("k", key_type), ("text", pa.string()), ("amount", pa.decimal128(18, 2))])
    operator = KeyedOperator(
        "u", "k", "string", Joins(), "k string, joined string, total decimal(18,2)"
    )
    job = StatefulJob(LocalEngine(), "j", str(tmp_path), operator, parallelism=1)
    expected = {}
    for epoch in range(2):
        of_epoch, batch = [], rows[epoch::2]
        for row in batch:
            text, total = expected.get(row["k"], ("", Decimal(0)))
            expected[row["k"]] = text + row["text"], total + row["amount"]
            of_epoch.append((row["k"], *expected[row["k"]]))
        done = job.run(pa.Table.from_pylist(batch, schema), epoch)
        stored = pa.Table.from_batches(done.outputs["u"].batches()).to_pylist()
        assert sorted(tuple(row.values()) for row in stored) == sorted(of_epoch)


def test_some_values_of_a_column_are_replaced():
    column = with_values(
        pa.array(["a", None, "c"]), np.array([False, True, True]), pa.array(["b", None])
    )
    assert column.to_pylist() == ["a", "b", None]
