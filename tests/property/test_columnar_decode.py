"""The columnar decoder and the record-wise one agree, on good bytes and on damaged ones."""

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core.codec.columnar.keyed.spans import SectionScanner
from dstl_core.errors import FormatError
from tests.columnar_cases import EXACT, Case, cases, chunks_of, comparable, expected
from tests.examples import examples
from tests.guarded_memory import (
    GuardedAllocator,
    address_of,
    forget_regions,
    guarded_build,
    violations,
)


def decoded(case: Case, *, rows: int = 5, part_bytes: int = 1 << 30, build=None):
    """Per state the rows that the columnar decoder gives, and the error that ends them."""
    if build is None:
        decoders, scanner_class = case.decoders, SectionScanner
    else:
        forget_regions()
        options = build.type_layouts.ColumnOptions(**asdict(EXACT))
        decoders = [
            build.decoder.StateDecoder(
                record_format, case.prefix_bytes, options, GuardedAllocator()
            )
            for record_format in case.formats
        ]
        scanner_class = build.spans.SectionScanner
    scanner = scanner_class(case.prefix_bytes, [True] * len(decoders), rows)
    columns_of_states = [[] for _ in decoders]
    try:
        for batch in scanner.batches(chunks_of(case, part_bytes)):
            damage = None
            for state, decoder in enumerate(decoders):
                own = batch.take(batch.states == state)
                try:
                    columns = decoder.decode(own, set(decoder.columns), check_all=True)
                except FormatError as error:
                    damage = min(damage or error, error, key=lambda e: e.context["offset"])
                    continue
                for name, column in columns.items():
                    column.validate(full=True)
                    assert column.type == decoder.columns[name]
                values = {name: column.to_pylist() for name, column in columns.items()}
                columns_of_states[state] += [
                    {name: comparable(column[row]) for name, column in values.items()}
                    for row in range(len(own))
                ]
            if damage is not None:
                raise damage
    except FormatError as error:
        return columns_of_states, error
    return columns_of_states, None


@given(cases(), st.sampled_from([1, 3, 1000]), st.sampled_from([1, 7, 64, 1 << 30]))
def test_good_bytes(case, rows, part_bytes):
    truth, error = expected(case)
    assert error is None
    assert decoded(case, rows=rows, part_bytes=part_bytes) == (truth, None)


@pytest.mark.slow
@given(cases())
@settings(max_examples=examples(12))
def test_every_truncation_is_refused_at_the_same_place(case):
    for size in range(len(case.section)):
        assert_same_refusal(case.with_section(case.section[:size]))


@given(cases(), st.data())
def test_damage_is_found_at_the_same_place(case, data):
    for _ in range(10):
        damaged = bytearray(case.section)
        for _ in range(data.draw(st.integers(1, 2))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        assert_same_refusal(case.with_section(bytes(damaged)))


@pytest.mark.slow
def test_the_guard_counts_each_step_out_of_a_buffer():
    memory = guarded_build().memory
    forget_regions()
    buffer = np.full(8, 7, np.uint8)
    start = address_of(buffer)
    before = violations()
    assert memory.load8(start + 7) == 7
    assert violations() == before
    assert memory.load8(start + 8) == 0  # the guard did not read it
    memory.put64(start + 1, -1)
    assert violations() == before + 2
    assert buffer.tolist() == [7] * 8


@pytest.mark.slow
@given(case=cases())
@settings(max_examples=examples(30))
def test_good_bytes_never_touch_what_is_not_theirs(case):
    truth, _ = expected(case)
    before = violations()
    assert decoded(case, build=guarded_build()) == (truth, None)
    assert violations() == before


@pytest.mark.slow
@given(case=cases(), data=st.data())
@settings(max_examples=examples(30))
def test_damage_never_touches_what_is_not_theirs(case, data):
    before = violations()
    for size in range(0, len(case.section), data.draw(st.integers(1, 7))):
        assert_same_refusal(case.with_section(case.section[:size]), guarded_build())
    for _ in range(10):
        damaged = bytearray(case.section)
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        assert_same_refusal(case.with_section(bytes(damaged)), guarded_build())
    assert violations() == before


def assert_same_refusal(case: Case, build=None) -> None:
    truth, error = expected(case)
    decoded_rows, refused = decoded(case, build=build)
    if error is None:
        assert (decoded_rows, refused) == (truth, None)
        return
    assert refused is not None
    assert (type(refused), refused.context) == (type(error), error.context)
    assert str(refused) == str(error)
    assert refused.__cause__.offset == error.context["offset"]
