"""Kernels of an upgrade touch no byte outside their buffers, whatever the values are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.type_changes import TypeChange
from dstl_core.codec.serializers import AnySerializer, Types, serialize_to_bytes
from tests.guarded_memory import forget_regions, guarded_build, violations
from tests.unit.codec.columnar.test_kryo_converter import (
    CHANGES,
    Converter,
    damaged,
    kryo,
    vector_cases,
)
from tests.unit.codec.columnar.test_kryo_types import (
    BUILT,
    DAY,
    STAYING,
    built,
    change_of,
)
from tests.unit.codec.columnar.test_scala_kernels import random_cases

Case = tuple[AnySerializer, TypeChange, list[bytes]]


def cases() -> Iterator[Case]:
    for _, old, change, values in CHANGES:
        yield old, change, values
    for number, (old, change, stored) in enumerate(vector_cases()):
        if number % 5 == 0:
            yield old, change, [stored]
    layouts = ClassLayouts(JobClasses())
    for java_class, bodies in BUILT:
        yield built(layouts, java_class, bodies)
    for staying, values in STAYING:
        pair = Types.TUPLE(kryo(layouts, "java.time.LocalDate"), staying)
        tails = [serialize_to_bytes(staying, value) for value in values]
        yield pair, change_of(layouts, pair, None), [DAY + tail for tail in tails]
    yield from random_cases(9)


@pytest.mark.slow
def test_kernels_stay_within_their_buffers() -> None:
    build = guarded_build()
    before = violations()
    for number, (old, change, values) in enumerate(cases()):
        forget_regions()
        stored = values + damaged(values, 12, number)
        guarded = Converter(old, change.new, build=build.section_converter, classes=change.classes)
        plain = Converter(old, change.new, classes=change.classes)
        assert guarded.converted(stored) == plain.converted(stored)
    assert violations() == before
