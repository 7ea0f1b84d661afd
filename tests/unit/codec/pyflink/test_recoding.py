"""Values of PyFlink in another type have the bytes that its coders give them."""

from __future__ import annotations

import datetime
import decimal
import pickle
import struct
from typing import Any

import pytest

from dstl_core.codec.pyflink.declared import parse_python_type
from dstl_core.codec.pyflink.recoding import recoder
from dstl_core.errors import ConfigError, FormatError


def recode(old: str, new: str, raw: bytes) -> bytes:
    return recoder(parse_python_type(old).value, parse_python_type(new).value)(raw)


def sized(raw: bytes) -> bytes:
    return struct.pack(">i", len(raw)) + raw


def pickled(value: Any, protocol: int = 4) -> bytes:
    return sized(pickle.dumps(value, protocol))


INT_5, LONG_5 = struct.pack(">i", 5), struct.pack(">q", 5)
CASES: dict[str, tuple[str, str, bytes, bytes]] = {
    "a wider number": ("INT", "LONG", struct.pack(">i", -7), struct.pack(">q", -7)),
    "several in one element": ("INT", "LONG", INT_5 * 3, LONG_5 * 3),
    "none": ("INT", "LONG", b"", b""),
    "a narrower number that fits": ("LONG", "SHORT", LONG_5, struct.pack(">h", 5)),
    "a number as a double": ("INT", "DOUBLE", INT_5, struct.pack(">d", 5)),
    "a number as a decimal": ("LONG", "BIG_DEC", LONG_5, sized(b"5")),
    "a float as a double": ("FLOAT", "DOUBLE", struct.pack(">f", 0.5), struct.pack(">d", 0.5)),
    "no number": (
        "DOUBLE",
        "FLOAT",
        struct.pack(">d", float("inf")),
        struct.pack(">f", float("inf")),
    ),
    "a text": ("CHAR", "STRING", sized(b"x"), sized(b"x")),
    "the same type": ("INSTANT", "INSTANT", bytes(12), bytes(12)),
    "a row with a field more": (
        "ROW[INT, STRING]",
        "ROW[LONG, STRING, DOUBLE]",
        b"\x10" + INT_5,  # the text is null
        b"\x18" + LONG_5,
    ),
    "a row with a byte more for nulls": (
        "ROW[BYTE, BYTE, BYTE, BYTE, BYTE, BYTE]",
        "ROW[BYTE, BYTE, BYTE, BYTE, BYTE, BYTE, BYTE]",
        b"\xc1" + bytes(5),  # a deletion whose last field is null
        b"\xc1\x80" + bytes(5),
    ),
    "a tuple": (
        "TUPLE[INT, ROW[STRING]]",
        "TUPLE[LONG, ROW[STRING, STRING]]",
        INT_5 + b"\x00" + sized(b"a"),
        LONG_5 + b"\x10" + sized(b"a"),
    ),
    "a list with a null": (
        "LIST[INT]",
        "OBJECT_ARRAY[LONG]",
        struct.pack(">i", 2) + b"\x01" + INT_5 + b"\x00",
        struct.pack(">i", 2) + b"\x01" + LONG_5 + b"\x00",
    ),
    "an array": (
        "PRIMITIVE_ARRAY[INT]",
        "PRIMITIVE_ARRAY[LONG]",
        struct.pack(">i", 1) + INT_5,
        struct.pack(">i", 1) + LONG_5,
    ),
    "a map": (
        "MAP[STRING, INT]",
        "MAP[STRING, LONG]",
        struct.pack(">i", 2) + sized(b"a") + b"\x00" + INT_5 + sized(b"b") + b"\x01",
        struct.pack(">i", 2) + sized(b"a") + b"\x00" + LONG_5 + sized(b"b") + b"\x01",
    ),
    "a pickled number": ("PICKLED", "LONG", pickled(5), LONG_5),
    "a pickled text": ("PICKLED", "STRING", pickled("ü"), sized("ü".encode())),
    "a pickled tuple": ("PICKLED", "TUPLE[INT, BOOLEAN]", pickled((5, True)), INT_5 + b"\x01"),
    "a pickled list as a row": ("PICKLED", "ROW[INT, INT]", pickled([5, None]), b"\x10" + INT_5),
    "a pickled dict": (
        "PICKLED",
        "MAP[STRING, LIST[INT]]",
        pickled({"a": [5], "b": None}),
        struct.pack(">i", 2)
        + (sized(b"a") + b"\x00" + struct.pack(">i", 1) + b"\x01" + INT_5)
        + (sized(b"b") + b"\x01"),
    ),
    "a pickled decimal": ("PICKLED", "BIG_DEC", pickled(decimal.Decimal("1.50")), sized(b"1.50")),
    "a pickled date": (
        "PICKLED",
        "SQL_DATE",
        pickled(datetime.date(1970, 1, 3)),
        struct.pack(">i", 2),
    ),
    "a pickled time": (
        "PICKLED",
        "SQL_TIME",
        pickled(datetime.time(0, 0, 1, 2000)),
        struct.pack(">i", 1002),
    ),
    "a pickled moment": (
        "PICKLED",
        "SQL_TIMESTAMP",
        pickled(datetime.datetime(1969, 12, 31, 23, 59, 59)),
        struct.pack(">q", -1000),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_values_have_the_bytes_of_the_new_type(case: str) -> None:
    old, new, raw, expected = CASES[case]
    assert recode(old, new, raw) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LONG", "STRING"),
        ("STRING", "LONG"),
        ("LONG", "BOOLEAN"),
        ("DOUBLE", "LONG"),
        ("BIG_DEC", "STRING"),
        ("ROW[INT, INT]", "ROW[INT]"),
        ("ROW[INT, STRING]", "ROW[INT, LONG]"),
        ("TUPLE[INT]", "TUPLE[INT, INT]"),
        ("LIST[INT]", "MAP[INT, INT]"),
        ("PRIMITIVE_ARRAY[INT]", "LIST[INT]"),
        ("LONG", "PICKLED"),
        ("PICKLED", "INSTANT"),
        ("PICKLED", "LIST[INSTANT]"),
    ],
)
def test_types_that_do_not_go_together_are_refused_before_a_value_is_read(
    old: str, new: str
) -> None:
    with pytest.raises(ConfigError, match="of PyFlink do not become"):
        recoder(parse_python_type(old).value, parse_python_type(new).value)


MISFITS: list[tuple[str, str, bytes]] = [
    ("LONG", "INT", struct.pack(">q", 1 << 31)),
    ("LONG", "DOUBLE", struct.pack(">q", (1 << 53) + 1)),
    ("DOUBLE", "FLOAT", struct.pack(">d", 0.1)),
    ("DOUBLE", "FLOAT", struct.pack(">d", 1e300)),
    ("PICKLED", "LONG", pickled("5")),
    ("PICKLED", "LONG", pickled(True)),
    ("PICKLED", "DOUBLE", pickled("NaN")),
    ("PICKLED", "LONG", pickled(None)),
    ("PICKLED", "STRING", pickled(b"\x00")),
    ("PICKLED", "STRING", pickled(decimal.Decimal(1))),
    ("PICKLED", "STRING", pickled("\ud800")),
    ("PICKLED", "DOUBLE", pickled(1 << 2000)),
    ("PICKLED", "BIG_DEC", pickled("1.5")),
    ("PICKLED", "SQL_TIME", pickled(datetime.time(0, 0, 0, 1))),
    ("PICKLED", "SQL_TIMESTAMP", pickled(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))),
    ("PICKLED", "SQL_TIMESTAMP", pickled(datetime.date(2024, 1, 1))),
    ("PICKLED", "SQL_DATE", pickled(datetime.datetime(2024, 1, 1))),
    ("PICKLED", "TUPLE[INT, INT]", pickled((1,))),
    ("PICKLED", "TUPLE[INT, INT]", pickled((1, None))),
    ("PICKLED", "LIST[INT]", pickled({1})),
    ("PICKLED", "LIST[INT]", pickled({1: 1})),
    ("PICKLED", "MAP[INT, INT]", pickled([1])),
    ("PICKLED", "STRING", pickled(datetime.timedelta(1))),
    ("INT", "LONG", b"\x00\x00"),
]


@pytest.mark.parametrize(("old", "new", "raw"), MISFITS)
def test_a_value_that_does_not_fit_is_an_error(old: str, new: str, raw: bytes) -> None:
    with pytest.raises(FormatError):
        recode(old, new, raw)


@pytest.mark.parametrize(
    ("old", "new", "raw", "got"),
    [
        ("LONG", "INT", struct.pack(">q", 1 << 31), "a whole number"),
        ("PICKLED", "LONG", pickled(decimal.Decimal("1.5")), "a date, a time, a decimal or alike"),
        ("PICKLED", "TUPLE[INT, INT]", pickled((1,)), "another number of fields"),
        ("PICKLED", "LIST[INT]", pickled({1}), "a set"),
        ("PICKLED", "STRING", pickled(None), "None"),
    ],
)
def test_the_error_says_what_was_there_in_words(old: str, new: str, raw: bytes, got: str) -> None:
    with pytest.raises(FormatError, match=f"does not fit into type .*, got {got}$"):
        recode(old, new, raw)
