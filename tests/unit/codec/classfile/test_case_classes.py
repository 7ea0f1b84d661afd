"""The names of a case class's fields are those of its primary constructor's parameters."""

from __future__ import annotations

import contextlib
import io
import zipfile

import pytest

from dstl_core.codec.classfile.case_classes import case_class_fields, source_name
from dstl_core.codec.classfile.class_file import ClassFile, Flag, Member, parse_class_file
from dstl_core.errors import FormatError
from tests.golden_files import GOLDEN

JAR = (GOLDEN / "scala-jobs" / "orders" / "job.jar").read_bytes()
ORDER = zipfile.ZipFile(io.BytesIO(JAR)).read("shop/Order.class")
FIELDS = ("id", "customer", "lines", "note", "paid", "tags", "raw")


def constructor(descriptor: str, *names: str, told: bool = True) -> Member:
    return Member("<init>", descriptor, Flag.PUBLIC, parameters=names if told else None)


def accessor(name: str) -> Member:
    return Member(name, "()I", Flag.PUBLIC)


def class_of(fields: list[Member], *methods: Member) -> ClassFile:
    return ClassFile("a.B", Flag.PUBLIC, None, (), tuple(fields), methods)


def stored(name: str, descriptor: str = "I", flags: int = Flag.FINAL) -> Member:
    return Member(name, descriptor, flags)


def test_scalac_records_them() -> None:
    """The class has a ``val`` in its body, too, which is no parameter and not stored."""
    order = parse_class_file(ORDER)
    assert [each.name for each in order.fields if not each.has(Flag.STATIC)] != list(FIELDS)
    assert case_class_fields(order, len(FIELDS)) == FIELDS


def test_a_class_file_with_any_byte_changed_has_names_or_is_refused() -> None:
    tried = 0
    for at in range(0, len(ORDER), 5):
        for change in (ORDER[:at], ORDER[:at] + bytes([ORDER[at] ^ 0x81]) + ORDER[at + 1 :]):
            with contextlib.suppress(FormatError):
                case_class_fields(parse_class_file(change), len(FIELDS))
            tried += 1
    assert tried > 1_000


def test_class_files_of_scala_2_11_have_fields_in_this_order() -> None:
    plain = parse_class_file(ORDER.replace(b"MethodParameters", b"MethodParameterz"))
    assert all(each.parameters is None for each in plain.methods)
    assert case_class_fields(plain, len(FIELDS)) == FIELDS


def test_a_parameter_of_type_unit_has_no_field() -> None:
    """So the first fields are not those of the parameters, and no name is guessed."""
    fields = [stored("count"), stored("total")]
    class_file = class_of(fields, constructor("(ILscala/runtime/BoxedUnit;)V", told=False))
    assert case_class_fields(class_file, 2) == ()
    told = class_of(fields, constructor("(ILscala/runtime/BoxedUnit;)V", "count", "unit"))
    assert case_class_fields(told, 2) == ("count", "unit")


def test_an_inner_class_has_its_outer_object_first() -> None:
    assert case_class_fields(class_of([], constructor("(La/O;I)V", "$outer", "x")), 1) == ("x",)
    fields = [stored("x"), stored("$outer", "La/O;")]
    assert case_class_fields(class_of(fields, constructor("(La/O;I)V", told=False)), 1) == ("x",)


@pytest.mark.parametrize("first", [True, False])
def test_a_second_constructor_of_as_many_parameters_is_not_taken(first: bool) -> None:
    own, other = constructor("(II)V", "x", "y"), constructor("(JJ)V", "a", "b")
    both = (own, other) if first else (other, own)
    assert case_class_fields(class_of([], *both, accessor("x"), accessor("y")), 2) == ("x", "y")


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_class_of_another_version_gives_no_names(count: int) -> None:
    class_file = class_of([stored("x"), stored("y")], constructor("(II)V", "x", "y"))
    assert case_class_fields(class_file, count) == ()


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        ("first$minusname", "first-name"),
        ("is$qmark", "is?"),
        ("a$u0020b", "a b"),
        ("$plus$plus", "++"),
        ("x$1", "x$1"),
    ],
)
def test_names_are_those_of_the_source(encoded: str, name: str) -> None:
    assert source_name(encoded) == name
