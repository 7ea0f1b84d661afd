"""Rows of a function as Parquet files: what does not fit the schema is said."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core.errors import UserFunctionError
from dstl_core.job.task.output_files import OutputFiles
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture
def output(tmp_path):
    folder = Location.parse(str(tmp_path))
    return OutputFiles(open_file_io(folder), folder, SCHEMA, 0, "u")


def test_rows_are_stored_and_a_column_that_is_left_out_is_null(output):
    output.add([{"k": "a", "n": 1}, {"k": "b"}, {"n": 2.0, "k": None}])
    output.flush()
    [name] = output.names
    stored = pq.read_table(output.folder.child(name).path)
    assert stored.to_pylist() == [{"k": "a", "n": 1}, {"k": "b", "n": None}, {"k": None, "n": 2}]
    assert output.rows == 3


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"k": "a", "total": 5}, "expected k, n, got k, total"),
        ({"k": "a", "n": 1.5}, "column 'n' is int64, got 1.5"),
        ({"k": "a", "n": float("nan")}, "column 'n' is int64, got nan"),
        (
            {"k": "a", "n": "x"},
            "does not fit its schema: column 'n' is int64, got a value of type str",
        ),
        (
            {"k": "a", "n": 1 << 70},
            "does not fit its schema: column 'n' is int64, got a value of type int",
        ),
        (
            {"k": 7, "n": 1},
            "does not fit its schema: column 'k' is string, got a value of type int",
        ),
    ],
    ids=["another column", "a fraction", "no number", "text", "too large", "no text"],
)
def test_what_does_not_fit_is_an_error_and_nothing_is_stored(output, row, message):
    output.add([{"k": "a", "n": 1}, row])
    with pytest.raises(UserFunctionError, match=f"^The output of operator 'u' .*{message}"):
        output.flush()
    assert output.names == []
