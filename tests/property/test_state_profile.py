"""The charts of a state's numbers exist, whatever the numbers are: an epoch that is committed does
not fail for a picture.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_dagster.charts import bar_chart, line_chart
from dstl_dagster.pipelines.state_profile import StateSample
from tests.examples import examples

KINDS = {
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "near": (pa.int64(), st.integers(2**53 - 3, 2**53 + 40)),
    "microseconds": (pa.int64(), st.integers(1_790_000_000_000_000, 1_790_000_000_000_009)),
    "double": (pa.float64(), st.floats()),
    "close doubles": (pa.float64(), st.sampled_from([1e15, 1e15 + 0.125, 1e15 + 0.25])),
    "float": (pa.float32(), st.floats(width=32)),
    "decimal": (
        pa.decimal128(38, 2),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda unscaled: Decimal(f"{unscaled}e-2")),
    ),
}


def sample_of(kind: pa.DataType, values: list[Any]) -> StateSample:
    keys = pa.array([str(at) for at in range(len(values))], pa.string())
    rows = pa.table({"state_key": keys, "v": pa.array(values, kind)})
    return StateSample(rows, 1, len(values), 1)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_any_numbers_have_a_chart_and_largest_keys(kind: str, data: st.DataObject) -> None:
    arrow, numbers = KINDS[kind]
    values = data.draw(st.lists(st.none() | numbers, max_size=40))
    sample = sample_of(arrow, values)
    shown = sample.histograms()
    shown |= sample.largest()
    drawn = shown.get("dstl/histogram/v")
    finite = [v for v in values if v is not None and abs(float(v)) < 1e300]
    assert (drawn is not None) == bool(finite)
    if drawn is not None:
        picture = drawn.value.partition("base64,")[2].rstrip(")")
        assert f"{len(finite):,} keys by v" in base64.b64decode(picture).decode()


NUMBERS = (
    st.floats() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53, 2**53 + 1, 1e308])
)


@pytest.mark.parametrize("unit", ["B", "s", ""])
@settings(max_examples=examples(30))
@given(values=st.lists(NUMBERS, max_size=60))
def test_any_numbers_have_a_line_and_bars(unit: str, values: list[float]) -> None:
    points = [(str(at), value) for at, value in enumerate(values)]
    for chart in (line_chart(points, "t", unit), bar_chart(values, "t", unit, "m")):
        picture = base64.b64decode(chart.value.partition("base64,")[2].rstrip(")")).decode()
        assert ElementTree.fromstring(picture).tag.endswith("svg")
        assert len(chart.value) < 2_000
