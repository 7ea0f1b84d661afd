"""Columns of random types hold what the record-wise code reads, and give the same bytes back."""

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.columnar.keyed.decoder import VALUE, StateDecoder
from dstl_core.codec.columnar.keyed.encoder import StateEncoder
from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.keyed_canonical import write_section
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer, Types, serialize_to_bytes
from dstl_core.codec.serializers.runtime import VoidNamespaceSerializer
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from tests.columnar_cases import Case, chunks_of
from tests.columnar_values import as_column, plain
from tests.examples import examples
from tests.guarded_memory import GuardedAllocator, forget_regions, guarded_build, violations
from tests.property.test_serializer_laws import sql_typed_serializers, typed

KEY_GROUP = 5


@st.composite
def columns_of(draw: Any, types: Any) -> tuple[AnySerializer, list[Any]]:
    serializer, values = draw(types)
    return serializer, draw(st.lists(values, min_size=1, max_size=5))


def section_of(serializer: AnySerializer, values: list[Any]) -> tuple[RecordFormat, bytes]:
    """A value state with one record per value."""
    meta = StateMetaInfoSnapshot.key_value(
        "s", KeyedStateType.VALUE, serializer, VoidNamespaceSerializer()
    )
    records = [
        (
            bytes([KEY_GROUP]) + number.to_bytes(8, "big") + b"\0",
            serialize_to_bytes(serializer, value),
        )
        for number, value in enumerate(values)
    ]
    return RecordFormat(meta, Types.LONG), write_section([(0, records)])


def columns_in(section: bytes, record_format: RecordFormat) -> dict[str, Any]:
    case = Case(KEY_GROUP, 1, Types.LONG, (record_format.meta,), section)
    [batch] = SectionScanner(1, [True]).batches(chunks_of(case))
    decoder = StateDecoder(record_format, 1, EXACT_OPTIONS)
    return decoder.decode(batch, set(decoder.columns))


def check(serializer: AnySerializer, values: list[Any]) -> None:
    record_format, section = section_of(serializer, values)
    columns = columns_in(section, record_format)
    if VALUE in columns:
        columns[VALUE].validate(full=True)
        assert plain(columns[VALUE]) == as_column(values, columns[VALUE].type)
    encoded = StateEncoder(record_format, EXACT_OPTIONS).encode(columns, len(values))
    written = [
        encoded.values.data.to_pybytes()[start:end]
        for start, end in zip(
            encoded.values.starts - encoded.values.data.address,
            encoded.values.ends - encoded.values.data.address,
            strict=True,
        )
    ]
    assert written == [serialize_to_bytes(serializer, each) for each in values]


def check_bounds(serializer: AnySerializer, values: list[Any]) -> None:
    """Writes the same bytes with kernels that may touch nothing but their own buffers."""
    record_format, section = section_of(serializer, values)
    columns = columns_in(section, record_format)
    build = guarded_build()
    forget_regions()
    options = build.type_layouts.ColumnOptions(**asdict(EXACT_OPTIONS))
    before = violations()
    encoder = build.encoder.StateEncoder(record_format, options, GuardedAllocator())
    encoded = encoder.encode(columns, len(values))
    assert violations() == before
    raw = encoded.values.data.to_pybytes()
    size = int(encoded.values.ends[-1]) - encoded.values.data.address
    assert raw[:size] == b"".join(serialize_to_bytes(serializer, each) for each in values)


@pytest.mark.slow
def test_the_guard_counts_what_a_kernel_writes_elsewhere():
    """Whether the kernel was compiled by this process or comes from a cache."""
    record_format, section = section_of(Types.LONG, [7])
    columns = columns_in(section, record_format)
    build = guarded_build()
    forget_regions()
    options = build.type_layouts.ColumnOptions(**asdict(EXACT_OPTIONS))
    before = violations()
    unguarded = build.encoder.StateEncoder(record_format, options)
    unguarded.encode(columns, 1)
    assert violations() > before


@pytest.mark.slow
@given(columns_of(typed(2)))
@settings(max_examples=examples(30))
def test_writing_never_touches_what_is_not_its_own(case):
    check_bounds(*case)


@pytest.mark.slow
@given(columns_of(sql_typed_serializers()))
@settings(max_examples=examples(30))
def test_writing_sql_never_touches_what_is_not_its_own(case):
    check_bounds(*case)


@pytest.mark.slow
@given(columns_of(typed(3)))
@settings(max_examples=examples(300))
def test_values_of_any_type(case):
    check(*case)


@pytest.mark.slow
@given(columns_of(sql_typed_serializers()))
@settings(max_examples=examples(300))
def test_sql_values_of_any_type(case):
    check(*case)
