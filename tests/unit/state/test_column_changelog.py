"""A log of columns has the bytes that the record-wise code writes."""

import numpy as np
import pyarrow as pa
import pytest

from dstl_core.changelog import InMemoryStateChangelogStorage
from dstl_core.codec.change_payload import StateChangeOperation, data_change, metadata_change
from dstl_core.codec.serializers import (
    Types,
    VoidNamespaceSerializer,
    serialize_key,
    serialize_to_bytes,
)
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.columns.column_changelog import ColumnChangelog
from dstl_core.state.columns.column_store import ColumnStore
from dstl_core.state.restore.carry_over import CarriedState
from dstl_core.state.tables.descriptor import ValueStateDescriptor

SET, CLEAR = StateChangeOperation.SET, StateChangeOperation.CLEAR
VOID = VoidNamespaceSerializer()
OWN = KeyGroupRange(0, 7)
CASES = {
    "longs": (Types.LONG, [5, -1, 2**62], Types.LONG, [0, -(2**63), 7]),
    "texts": (Types.STRING, ["", "ключ", "😀" * 100], Types.STRING, ["a", "", "ß"]),
    "doubles": (Types.DOUBLE, [0.5, float("nan"), -0.0], Types.DOUBLE, [-0.0, float("nan"), 1.5]),
    "lists": (Types.INT, [1, 2, 3], Types.LIST(Types.LONG), [[], [1], [2, 3]]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_columns_is_that_of_a_record(case):
    key_type, keys, value_type, values = CASES[case]
    states = [
        ValueStateDescriptor(name, kind).meta_info(VOID)
        for name, kind in (("other", Types.LONG), ("state", value_type))
    ]
    store = ColumnStore(key_type, (ValueStateDescriptor("state", value_type),))
    log = ColumnChangelog(
        InMemoryStateChangelogStorage().create_writer("u", OWN),
        OWN,
        lambda: store,
        CarriedState((), (), 0),
        key_type,
        states,
    )
    columns = pa.array(keys, store.key_type), pa.array(values, store.schema.field("state").type)
    log.log_values(1, np.array([3, 0, 7]), *columns, SET)
    log.log_values(1, np.array([7, 1]), *(each[1:] for each in columns), CLEAR)

    [delta] = log.snapshot(1).non_materialized
    scopes = [serialize_key(key_type, key) + serialize_to_bytes(VOID, None) for key in keys]
    expected = [metadata_change(1, states[1])]
    for scope, value in zip(scopes, values, strict=True):
        expected.append(data_change(SET, 1, scope, serialize_to_bytes(value_type, value)))
    expected += [data_change(CLEAR, 1, scope) for scope in scopes[1:]]
    assert [change for _, change in delta.changes] == expected
    assert [group for group, _ in delta.changes][1:] == [3, 0, 7, 7, 1]
    assert log.changes == 5
    assert log.log_bytes == sum(map(len, expected[1:]))
