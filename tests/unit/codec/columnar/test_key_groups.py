import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.model.key_group import assign_to_key_group

# Key groups that real Flink gives, out of 128.
TEXTS = {"a": 81, "hello": 35, "": 94, "héllo😀": 35, "abc": 115, "k": 21}
LONGS = {42: 29, -1: 94, 12345678901234: 68, 0: 94, 1: 86}
INTS = {42: 29, -1: 80, 2**31 - 1: 62, -(2**31): 108, 2: 127, 1000: 7}


@pytest.mark.parametrize(
    ("golden", "arrow_type", "key_type"),
    [
        (TEXTS, pa.string(), Types.STRING),
        (TEXTS, pa.large_string(), Types.STRING),
        (LONGS, pa.int64(), Types.LONG),
        (INTS, pa.int32(), Types.INT),
    ],
)
def test_golden_key_groups(golden, arrow_type, key_type):
    keys = pa.array(list(golden), arrow_type)
    assert key_groups_of(keys, key_type, 128).tolist() == list(golden.values())


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    st.sampled_from([1, 17, 128, 4096, 32768]),
)
def test_texts_as_one_by_one(texts, max_parallelism):
    expected = [
        assign_to_key_group(Types.STRING.java_hash(text), max_parallelism) for text in texts
    ]
    keys = pa.array(texts, pa.string())
    assert key_groups_of(keys, Types.STRING, max_parallelism).tolist() == expected
    assert key_groups_of(keys[1:], Types.STRING, max_parallelism).tolist() == expected[1:]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_longs_as_one_by_one(values):
    expected = [assign_to_key_group(Types.LONG.java_hash(value), 128) for value in values]
    assert key_groups_of(pa.array(values, pa.int64()), Types.LONG, 128).tolist() == expected


def test_types_without_a_kernel_go_by_value():
    keys = pa.array([1.5, -0.0], pa.float64())
    assert key_groups_of(keys, Types.DOUBLE, 128).tolist() == [65, 108]


def test_a_null_key_names_its_row():
    with pytest.raises(ConfigError, match="row 1 of 3"):
        key_groups_of(pa.array(["a", None, "b"]), Types.STRING, 128)


def test_no_keys():
    groups = key_groups_of(pa.array([], pa.string()), Types.STRING, 128)
    assert groups.dtype == np.int32 and len(groups) == 0
