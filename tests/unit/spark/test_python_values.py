"""Values of columns that Python does not have are named in one sentence."""

import pyarrow as pa
import pytest

from dstl_core.errors import ConfigError
from dstl_core.job.task.python_rows import rows_of

LAST, FIRST = (1 << 63) - 1, -(1 << 63)
NO_VALUES = {
    "a date after 9999": pa.array([(1 << 31) - 1], pa.int32()).view(pa.date32()),
    "a date before 1": pa.array([-(1 << 31)], pa.int32()).view(pa.date32()),
    "a time after 9999": pa.array([LAST]).view(pa.timestamp("us")),
    "a time before 1": pa.array([FIRST]).view(pa.timestamp("us")),
    "an instant after 9999": pa.array([LAST]).view(pa.timestamp("us", "UTC")),
    "an instant before 1": pa.array([FIRST]).view(pa.timestamp("us", "Europe/Berlin")),
    "text that is not UTF-8": pa.array([b"a\xff"]).view(pa.string()),
    "half a surrogate pair": pa.array([b"\xed\xa0\x80"]).view(pa.string()),
}


@pytest.mark.parametrize("where", ["itself", "list", "struct", "map"])
@pytest.mark.parametrize("name", NO_VALUES)
def test_a_value_that_python_does_not_have_is_named_with_its_column(name, where):
    column = NO_VALUES[name]
    match where:
        case "list":
            column = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), column)
        case "struct":
            column = pa.StructArray.from_arrays([column], names=["x"])
        case "map":
            column = pa.MapArray.from_arrays(
                pa.array([0, 1], pa.int32()), pa.array(["key"]), column
            )
    good = pa.array([1])
    with pytest.raises(ConfigError, match=r"^The column 'when' has .*: ") as raised:
        rows_of(pa.record_batch([good, column], names=["k", "when"]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NO_VALUES)
def test_a_null_of_these_types_is_none(name):
    kind = NO_VALUES[name].type
    rows = rows_of(pa.record_batch([pa.array([None], kind)], names=["when"]))
    assert rows == [{"when": None}]
