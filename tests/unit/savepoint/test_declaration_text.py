"""Declarations as YAML: what aliases may stand for, and which values there are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from dstl_core.errors import ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.declaration_text import read_declaration
from tests.texts import DECLARED_PLACES

LEVELS = 12
WIDTH = 9


def bomb(kind: str) -> str:
    """An alias for 9 ** 12 values, in about 600 bytes."""
    first = {"list": "[x]", "map": "{a: x}", "merge": "{a: x}", "text": "x" * 300}[kind]
    lines = [f"b0: &b0 {first}"]
    for level in range(1, LEVELS + 1):
        below = [f"*b{level - 1}"] * WIDTH
        if kind == "map":
            below = [f"k{at}: {alias}" for at, alias in enumerate(below)]
        form = {"merge": "{{<<: [{}]}}", "map": "{{{}}}"}.get(kind, "[{}]")
        lines.append(f"b{level}: &b{level} {form.format(', '.join(below))}")
    return "bombs:\n" + "".join(f"  {line}\n" for line in lines)


@pytest.mark.parametrize("kind", ["list", "map", "merge", "text"])
@pytest.mark.parametrize("place", DECLARED_PLACES)
def test_an_alias_for_more_than_memory_holds(place: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    hole = DECLARED_PLACES[place].format(f"*b{LEVELS}")
    path.write_text(f"migration: 1\n{bomb(kind)}{hole if place != 'whole' else ''}\n")
    with pytest.raises(ConfigError, match="larger than 16 MiB with every alias written out"):
        Migration.load(path)


def graph(kind: str) -> Any:
    """What the bombs stand for, as values of a program that share their parts."""
    value: Any = "x" * 300
    for _ in range(28):
        value = {"a": value, "b": value} if kind == "map" else [value, value]
    return value


@pytest.mark.parametrize("kind", ["list", "map"])
@pytest.mark.parametrize("place", ["from", "operators", "drop_operators", "start_empty", "plans"])
def test_values_that_share_their_parts(place: str, kind: str) -> None:
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        Migration.of({"migration": 1, place: graph(kind)})


def test_a_value_within_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text("migration: 1\noperators: &a {a: *a}\n")
    with pytest.raises(ConfigError, match="stands for the part that it is in"):
        Migration.load(path)
    loop: dict[str, Any] = {"migration": 1}
    loop["operators"] = loop
    with pytest.raises(ConfigError, match="stands for the part that it is in"):
        Migration.of(loop)


def test_aliases_are_welcome() -> None:
    text = "a: &r {drop: [s]}\nb: *r\nc: {<<: *r, key: f0}\n"
    rule = {"drop": ["s"]}
    assert read_declaration(text) == {"a": rule, "b": rule, "c": {**rule, "key": "f0"}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("12", 12), ("-7", -7), ("+7", 7), ("0", 0), ("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5)),
        *(
            ("true", True),
            ("null", None),
            ("~", None),
            ("'12'", "12"),
            ("''", ""),
            ("2.2.1", "2.2.1"),
        ),
        # A date is the name of a folder as well; 010, 0x10, 1_000 and 1:30 are other numbers in
        # YAML 1.1 than a reader thinks.
        *((text, text) for text in ("2026-01-02", "2021-99-99", "010", "0x10", "1_000", "1:30")),
        *((text, text) for text in (".nan", ".inf", "nan", "-.inf", "1e", "e5", "-.", ".")),
        ("9" * 38, 10**38 - 1),
    ],
)
def test_plain_values(text: str, value: object) -> None:
    parsed = read_declaration(text)
    assert type(parsed) is type(value)
    assert parsed == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("9" * 39, "expected a whole number of up to 38 digits"),
        ("9" * 6000, "expected a whole number of up to 38 digits"),
        ("1e999", "expected a number, got '1e999'"),
        ("!!int x", "expected a whole number"),
        ("!!float x", "expected a number"),
        ("!!bool x", "expected true or false"),
        ("!!timestamp 2021-01-01", "could not determine a constructor"),
        ("!!binary eA==", "could not determine a constructor"),
        ("!!python/object:os.system x", "could not determine a constructor"),
        ("[" * 5000, "nests deeper than 32 levels"),
        ("- " * 5000 + "a", "nests deeper than 32 levels"),
        ("{a: " * 33 + "1" + "}" * 33, "nests deeper than 32 levels"),
        ("x" * ((16 << 20) + 1), "larger than 16 MiB"),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_plain_value(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_declaration(text)


def test_numbers_of_a_program_are_finite() -> None:
    for value in (math.inf, math.nan, 10**38):
        states = {"s": {"columns": [value]}}
        with pytest.raises(ConfigError, match="expected a finite number"):
            Migration.of({"migration": 1, "operators": {"a": {"states": states}}})
