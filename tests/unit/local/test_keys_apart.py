"""Different keys have state of their own, in every form of a job, and equal ones share it."""

import json
import math
import re
from decimal import Decimal

import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, KeyedOperator, StatefulJob, aggregates
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.windows.windowing import EventTimeSessionWindows, TumblingEventTimeWindows

pytestmark = pytest.mark.slow


class Count(KeyedProcessFunction):
    order_insensitive = True

    def open(self, runtime_context):
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG))

    def process_element(self, value, ctx):
        self.n.update((self.n.value() or 0) + 1)


class CountInTables(Count):
    def open(self, runtime_context):
        super().open(runtime_context)
        self.unused = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG))


ROWS, TEXTS = {"n": aggregates.count()}, {"n": aggregates.count(), "s": aggregates.max("t")}
FORMS = {
    "row": lambda kind: KeyedOperator("u", "k", kind, Count()),
    "row in tables": lambda kind: KeyedOperator("u", "k", kind, CountInTables()),
    "aggregates": lambda kind: AggregateOperator("u", "k", ROWS, kind),
    "aggregates of text": lambda kind: AggregateOperator("u", "k", TEXTS, kind, "t string"),
    "windows": lambda kind: AggregateOperator(
        "u", "k", ROWS, kind, window=TumblingEventTimeWindows.of(1000), event_time="ts"
    ),
    "sessions": lambda kind: AggregateOperator(
        "u", "k", ROWS, kind, window=EventTimeSessionWindows.with_gap(1000), event_time="ts"
    ),
}
TEXT_KEYS = [
    *("", "\0", " ", "1", " 1", "1 ", "01", "a", "A", "a\0", "../x", "a/b", "a=b", "%61", "null"),
    *("\u00e9", "e\u0301", "ﬁ", "fi", "ß", "ss", "İ", "i̇", "\ufeffa", "\u200b", "😀", "😁"),
    *("\r", "\n", "\r\n", "x" * 10_000, "x" * 9_999 + "y"),
]
NUMBERS = [0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -5e-324, 1.0]
KEYS = {
    "text": (Types.STRING, "string", TEXT_KEYS),
    "double": (Types.DOUBLE, "double", NUMBERS),
    "float": (Types.FLOAT, "float", [0.0, -0.0, math.nan, math.inf, 1.0]),
    "struct of double": (
        Types.ROW(Types.STRING, Types.DOUBLE),
        "struct<a: string, b: double>",
        [("", each) for each in NUMBERS] + [(None, 0.0), ("", None), (None, None)],
    ),
}


@pytest.fixture
def run(session, tmp_path):
    def run_of(operator, *batches):
        local = LocalCopies(str(tmp_path / "local"))
        job = StatefulJob(session, "job", str(tmp_path / "jobs"), operator, local_copies=local)
        for number, rows in enumerate(batches):
            job.run(rows, number)
        return job

    return run_of


def text_of(key):
    """A key as JSON, in which -0.0 is not 0.0; NaN and infinities as in a dump."""
    if isinstance(key, tuple | list):
        return json.dumps([text_of(each) for each in key])
    if isinstance(key, float) and not math.isfinite(key):
        key = {math.inf: "Infinity", -math.inf: "-Infinity"}.get(key, "NaN")
    return json.dumps(key)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KEYS)
def test_different_keys_share_no_state(session, run, name, form):
    kind, column, keys = KEYS[name]
    rows = [(key, "t", 1) for key in keys]
    batch = session.createDataFrame(rows * 2, f"k {column}, t string, ts long")
    job = run(FORMS[form](kind), batch, batch)
    state = "window-contents" if form in ("windows", "sessions") else "n"
    lines = [(text_of(line["key"]), line["value"]) for line in job.snapshot()["u"].dump(state)]
    four = [4] if state == "window-contents" else 4
    assert sorted(lines) == sorted((text_of(key), four) for key in keys)


def test_keys_of_another_scale_than_declared_are_refused(session, run):
    wide = session.createDataFrame([(Decimal("1.000"),)], "k decimal(10, 3)")
    message = re.escape(
        "The key column 'k' is decimal(10,3), and the key type of 'u' has 2 digits after the "
        "point; state has 1.0 and 1.00 as two keys, so cast the column, or declare its type."
    )
    schema = "k decimal(10, 2)"
    by_schema = AggregateOperator("u", "k", ROWS, schema=schema)
    for operator in (*(form("decimal(10, 2)") for form in FORMS.values()), by_schema):
        if getattr(operator, "window", None) is None:
            with pytest.raises(ConfigError, match=message):
                run(operator, wide)
    fitting = session.createDataFrame([(Decimal("1.00"),)], "k decimal(8, 2)")
    job = run(by_schema, fitting, fitting.cast(pa.schema([("k", pa.decimal128(10, 2))])))
    assert [(line["key"], line["value"]) for line in job.snapshot()["u"].dump("n")] == [("1.00", 2)]
