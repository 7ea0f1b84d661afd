"""Documents have the bytes of Python's own encoder, indented by one and sorted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.errors import ConfigError
from dstl_core.storage.json_document import write_json_object

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
    ),
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_the_bytes_are_those_of_the_standard_library(body):
    expected = json.dumps(body, indent=1, sort_keys=True, allow_nan=False).encode()
    assert write_json_object(body, "A file") == expected


@pytest.mark.parametrize("inner", [lambda value: [value], lambda value: {"a": value}])
def test_what_json_can_read_can_be_written_however_deep_it_is(inner):
    body = {}
    for _ in range(600):
        body = {"b": inner(body["b"])} if body else {"b": 1}
    expected = json.dumps(body, indent=1, sort_keys=True).encode()
    assert write_json_object(body, "A file") == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1}, {(1, 2): 3}, b"a"])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(ConfigError, match=r"^A file cannot be written \(.*\); give plain JSON"):
        write_json_object({"a": [value]}, "A file")


def test_a_document_in_itself_is_refused():
    body = {}
    body["a"] = {"b": [body]}
    with pytest.raises(ConfigError, match="A file cannot be written"):
        write_json_object(body, "A file")
