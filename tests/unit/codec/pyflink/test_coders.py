"""Types of PyFlink as a person writes them, and values as PyFlink's coders store them.

The bytes are those of real savepoints, taken by hand.
"""

from __future__ import annotations

import pytest

from dstl_core.codec import data_io
from dstl_core.codec.pyflink.declared import MAX_NESTING, parse_python_type
from dstl_core.errors import ConfigError, FormatError

VALUES = [
    ("BYTE", "ff", -1),
    ("SHORT", "0102", 258),
    ("INT", "fffffffd", -3),
    ("LONG", "0000000000000004", 4),
    ("BIG_INT", "fffffffffffffffe", -2),
    ("BOOLEAN", "01", True),
    ("FLOAT", "40400000", 3.0),
    ("DOUBLE", "4002000000000000", 2.25),
    ("DOUBLE", "7ff0000000000000", "Infinity"),
    ("STRING", "0000000573c3a92d39", "sé-9"),
    ("CHAR", "000000014a", "J"),
    ("BIG_DEC", "0000000531322e3530", "12.50"),
    ("SQL_DATE", "00004d0c", "2024-01-02"),
    ("SQL_DATE", "ffffffff", "1969-12-31"),
    ("SQL_TIME", "0038e66c", "01:02:09.004000"),
    ("SQL_TIMESTAMP", "0000000000000001", "1970-01-01T00:00:00.001000"),
    ("INSTANT", "0000000000000001" + "00000000", "1970-01-01T00:00:01Z"),
    ("ROW[LONG, STRING, BOOLEAN, DOUBLE]", "10" + "0000000000000009" + "01" + "4002" + "00" * 6,
     [9, None, True, 2.25]),
    ("ROW_NAMED(['id', 'ok'], [Types.INT(), Types.BOOLEAN()])", "00" + "00000007" + "01",
     {"id": 7, "ok": True}),
    ("TUPLE[INT, STRING]", "00000005" + "00000002" + "7435", [5, "t5"]),
    ("TUPLE[]", "", []),
    ("LIST[LONG]", "00000002" + "01" + "00" * 8 + "00", [0, None]),
    ("BASIC_ARRAY[STRING]", "00000002" + "01" + "0000000178" + "01" + "000000027939", ["x", "y9"]),
    ("PRIMITIVE_ARRAY[LONG]", "00000002" + "00" * 7 + "05" + "00" * 7 + "06", [5, 6]),
    ("PRIMITIVE_ARRAY[BYTE]", "00000002" + "05ff", "05ff"),
    ("MAP[STRING, INT]", "00000002" + "0000000162" + "01" + "0000000161" + "00" + "00000005",
     [["a", 5], ["b", None]]),
    ("PICKLED", "00000005" + "80054b042e", 4),
    ("OBJECT_ARRAY[ROW[INT]]", "00000001" + "01" + "00" + "00000001", [[1]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "raw", "value"), VALUES)
def test_values_of_each_coder(text: str, raw: str, value: object) -> None:
    coder = parse_python_type(text).value
    assert coder.only(bytes.fromhex(raw)) == value


@pytest.mark.parametrize(("text", "raw", "value"), VALUES)
def test_a_value_cut_or_with_more_bytes_is_refused(text: str, raw: str, value: object) -> None:
    coder = parse_python_type(text).value
    whole = bytes.fromhex(raw)
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            coder.only(whole[:size])
    with pytest.raises(FormatError):
        coder.only(whole + b"\0")


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("LIST[LONG]", "7fffffff"),
        ("PRIMITIVE_ARRAY[LONG]", "7fffffff" + "00" * 64),
        ("MAP[STRING, INT]", "7fffffff"),
        ("STRING", "ffffffff"),
        ("LIST[TUPLE[]]", "7fffffff" + "01" * 64),
        ("SQL_TIME", "7fffffff"),
        ("SQL_DATE", "7fffffff"),
        ("SQL_TIMESTAMP", "7f" * 8),
        ("STRING", "00000001ff"),
    ],
)
def test_sizes_and_ranges_are_checked(text: str, raw: str) -> None:
    with pytest.raises(FormatError):
        parse_python_type(text).value.only(bytes.fromhex(raw))


def test_no_count_of_values_without_bytes_runs_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_io, "MAX_FREE_VALUES", 1000)  # 4 million take seconds
    with pytest.raises(FormatError):
        parse_python_type("list[TUPLE[]]").value.every(b"\0")


@pytest.mark.parametrize(
    ("text", "kind", "key", "value"),
    [
        ("LONG", None, None, "LONG"),
        ("Types.LONG()", None, None, "LONG"),
        (" reducing [ LONG ] ", "reducing", None, "LONG"),
        ("map[STRING, LIST[INT]]", "map", "STRING", "LIST[INT]"),
        ("MAP[STRING, INT]", None, None, "MAP[STRING, INT]"),
        ("Types.TUPLE([Types.INT(), Types.DOUBLE()])", None, None, "TUPLE[INT, DOUBLE]"),
        ("aggregating[TUPLE[INT, DOUBLE]]", "aggregating", None, "TUPLE[INT, DOUBLE]"),
        ("list[Types.PICKLED_BYTE_ARRAY()]", "list", None, "PICKLED"),
    ],
)
def test_types_are_read_as_people_write_them(
    text: str, kind: str | None, key: str | None, value: str
) -> None:
    python_type = parse_python_type(text)
    shown_key = None if python_type.key is None else python_type.key.name
    assert (python_type.kind, shown_key, python_type.value.name) == (kind, key, value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "long",
        "java.lang.Long",
        "LONG, INT",
        "LIST",
        "LIST[LONG",
        "LIST]LONG[",
        "[LONG]",
        "map[LONG]",
        "value[]",
        "LONG[INT]",
        "PRIMITIVE_ARRAY[STRING]",
        "ROW_NAMED([LONG], [LONG])",
        "ROW_NAMED(['a'], [LONG, INT])",
        "'LONG'",
        "LIST[" * (MAX_NESTING + 2) + "LONG" + "]" * (MAX_NESTING + 2),
        "LONG" * 5_000,
        "LONG; import os",
    ],
)
def test_other_text_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match="is no type of PyFlink"):
        parse_python_type(text)
