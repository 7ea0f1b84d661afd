"""Every parser of a text that a person or a file gives, and texts that have broken parsers.

``check_text`` is the law: a parser reads a text, or refuses it in one sentence. The fuzz targets
``declaration`` and ``expression``, the property and the table of tests ask it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dstl_core.cli import options
from dstl_core.codec.classfile.generic_types import parse_class_signature, parse_field_type
from dstl_core.codec.classfile.source_types import parse_source_type
from dstl_core.codec.declared_type import declared_columns, declared_type, parse_type
from dstl_core.codec.logical_type_objects import parse_logical_type
from dstl_core.codec.serializers import Types
from dstl_core.codec.type_text import parse_columns, parse_type_text
from dstl_core.errors import DstlError
from dstl_core.flink_text import duration_ms, parse_duration_ms, parse_memory_size
from dstl_core.savepoint.access.key_text import parse_key
from dstl_core.savepoint.expressions.expression import columns_of, parse_expression
from dstl_core.savepoint.expressions.sql_cast import parse_sql_type
from dstl_core.savepoint.gc import parse_age
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan
from dstl_core.savepoint.read.snapshot_names import relocations
from dstl_core.spark.savepoints.source_options import spec_of
from dstl_core.state.tables.compatibility import parse_flink_version
from dstl_core.storage.json_document import parse_json_object
from dstl_core.storage.location import Location

ROOT = Path(__file__).parents[1]
LONGEST_MESSAGE = 3000
"""Characters of a sentence that a person still reads."""


def load_declaration(text: str) -> None:
    """Reads a declaration from a file, as the commands do, and shows its places to decide."""
    with tempfile.NamedTemporaryFile("wb", suffix=".yaml") as file:
        file.write(text.encode(errors="surrogatepass"))
        file.flush()
        _ = Migration.load(file.name).undecided


def _expression(text: str) -> None:
    expression = parse_expression(text, "place")
    _ = list(columns_of(expression)), str(expression)


def _place(template: str) -> Callable[[str], None]:
    return lambda text: load_declaration(f"migration: 1\n{template.format(text)}\n")


def _key(serializer: Any, *, is_json: bool) -> Callable[[str], Any]:
    return lambda text: parse_key(serializer, text, is_json=is_json)


DECLARED_PLACES: dict[str, str] = {
    "whole": "{}",
    "from": "from: {}",
    "to_template": "to_template: {}",
    "plans": "plans: {}",
    "plan": "plans: {{old: {}}}",
    "max_parallelism": "max_parallelism: {}",
    "operators": "operators: {}",
    "drop_operators": "drop_operators: {}",
    "start_empty": "start_empty: {}",
    "operator": "operators: {{a: {}}}",
    **{
        f"operator.{name}": f"operators: {{{{a: {{{{{name}: {{}}}}}}}}}}"
        for name in ("from", "key", "on_collision", "states", "drop", "classes", "fields")
    },
    **{
        f"state.{name}": f"operators: {{{{a: {{{{states: {{{{s: {{{{{name}: {{}}}}}}}}}}}}}}}}}}"
        for name in ("from", "kind", "type", "columns", "value", "map_key", "merge", "add")
    },
}
"""The places of a declaration, as YAML with a hole."""
_PLACE_VALUES = {
    "from": "s3://bucket/savepoint-1",
    "plan": "old.json",
    "max_parallelism": "256",
    "drop_operators": "[a, b]",
    "start_empty": "a/s",
    "operator.key": "[f0, 'cast(f1, BIGINT)']",
    "operator.classes": "{shop.Old: shop.New}",
    "operator.fields": "{shop.New: {a: {from: b}, c: null}}",
    "state.columns": "[f0, 0, null, 1.5]",
    "state.map_key": "[map_key.f0]",
    "state.merge": "[sum, max]",
    "state.add": "{count(*): 0}",
}
KEY_TYPES = [
    "STRING",
    "LONG",
    "INT",
    "SHORT",
    "BYTE",
    "DOUBLE",
    "FLOAT",
    "BOOLEAN",
    "CHAR",
    "BYTES",
    "BIG_DEC",
    "BIG_INT",
    "LOCAL_DATE",
    "LOCAL_TIME",
    "LOCAL_DATE_TIME",
    "INSTANT",
    "DATE",
    "SQL_DATE",
    "SQL_TIME",
    "SQL_TIMESTAMP",
]
PARSERS: dict[str, Callable[[str], Any]] = {
    "type text": parse_type_text,
    "columns": parse_columns,
    "type": parse_type,
    "declared type": lambda text: declared_type(text, "place"),
    "declared columns": lambda text: declared_columns(text, "place"),
    "expression": _expression,
    "source type": parse_source_type,
    "descriptor": lambda text: parse_field_type(text, None),
    "signature": lambda text: parse_field_type("Ljava/lang/Object;", text),
    "class signature": parse_class_signature,
    "SQL type": parse_sql_type,
    "logical type": parse_logical_type,
    "memory size": parse_memory_size,
    "duration": parse_duration_ms,
    "duration of an argument": lambda text: duration_ms(text, "place"),
    "age": parse_age,
    "version of Flink": parse_flink_version,
    "option: duration": lambda text: options.duration_ms("--option", text),
    "option: moment": lambda text: options.moment_ms("--option", text),
    "option: relocate": lambda text: relocations("--relocate", [text]),
    "location": Location.parse,
    "compiled plan": CompiledPlan.parse,
    "JSON object": lambda text: parse_json_object(text.encode(errors="surrogatepass"), "place"),
    "source: columns": lambda text: spec_of({"path": "/p", "columns": text}),
    "source: bytes": lambda text: spec_of({"path": "/p", "split.bytes": text}),
    "source: relocate": lambda text: spec_of({"path": "/p", "relocate": text}),
    **{
        f"key {name}{' of JSON' * is_json}": _key(getattr(Types, name), is_json=is_json)
        for name in KEY_TYPES
        for is_json in (False, True)
    },
    "key of a tuple": _key(Types.TUPLE(Types.LONG, Types.STRING), is_json=True),
    "declaration": load_declaration,
    **{
        f"declaration: {name}": _place(DECLARED_PLACES[name])
        for name in ("from", "max_parallelism", "operator.key", "state.columns")
    },
}


def declarations() -> Iterator[str]:
    """Declarations that are read: those of the samples and of the examples."""
    yield from (text for text in SAMPLES if text.startswith("migration:"))
    for path in sorted((ROOT / "examples" / "migrate").glob("*.yaml")):
        yield path.read_text()
    for name, value in _PLACE_VALUES.items():
        yield "migration: 1\n" + DECLARED_PLACES[name].format(value)


def check_text(parse: Callable[[str], Any], text: str) -> bool:
    """Whether a parser reads a text. What it raises beside the errors of dstl is a finding."""
    try:
        parse(text)
    except DstlError as error:
        assert 0 < len(str(error)) <= LONGEST_MESSAGE, str(error)[:200]
        return False
    return True


_DIGITS = "9" * 6000
_NUMBERS = (
    _DIGITS,
    f"-{_DIGITS}",
    f"{_DIGITS}.0",
    f"1.{_DIGITS}",
    f"1e{_DIGITS}",
    *("1e999", "-1e999", "nan", ".nan", "inf", ".inf", "Infinity", "-Infinity"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 39),
    *("1_000", "0x10", "0b", "0o7", "010", "1:99:99", "1:" * 3000 + "1", "+", "-", "1__", "+5"),
    *("\u0663", "\uff13", "\u00b2", "1\u00b2", "\u0663d", "\u0663 mb"),
    *(f"{_DIGITS}{unit}" for unit in (" mb", "d", "ms", "h")),
    *("P" + _DIGITS + "D", "PT" + _DIGITS + "S", "PT1." + "9" * 10 + "S"),
    *(f"{name}({_DIGITS})" for name in ("decimal", "DECIMAL", "VARCHAR", "TIMESTAMP", "char")),
    *(f"decimal(1,{_DIGITS})", "decimal(38,39)", "decimal(-1)", "decimal()", "VARCHAR(0)"),
)
_TIMES = (
    *("2021-99-99", "0000-00-00", "0001-01-01", "9999-12-31", "2021-W99-9", "2021-02-30"),
    *("9999-12-31T23:59:59.999999-23:59", "0001-01-01T00:00+23:59", "2021-01-01T25:00"),
    *("24:00:00", "2021-99-99T99:99:99Z", "-2021-01-01", "!!timestamp 2021-99-99", "2021-99-99: x"),
)
_DEEP = (
    *(sign * 5000 for sign in "[({<`'\"-.,:"),
    *("[" * 5000 + "]" * 5000, "(" * 5000 + ")" * 5000, "- " * 3000 + "a", "? " * 3000),
    *("array<" * 5000 + "int" + ">" * 5000, "Map<" * 5000, "a." * 5000 + "b", "int" + "[]" * 5000),
    *("sum(" * 5000, "coalesce(" * 5000, "cast(" * 5000, '{"a":' * 5000, "<T:" * 5000),
    *("Ljava/util/List<" * 5000, "[" * 300 + "I", "[" * 40 + "I", "a" * 100_000),
)
_YAML = (
    *("&a [*a]", "*a", "<<: a", "<<: [a]", "? {a: b} : c", "[a, b]: c", "{[1]: 2}", "=", "~"),
    *("!!python/object:os.system x", "!!binary x", "!!int x", "!!int ''", "!!float x", "!!bool x"),
    *("!!float ''", "!!set [a]", "!!omap [a]", "!!pairs [a]", "!!str {a: b}", "!!null [a]"),
    *("!!map a", "!!seq a", "!x a", "---\n---\n", "%YAML 9.9\n---\na", "\t", "a: b: c", "{a, a}"),
    "migration: 1\noperators: {?}",
)
_TEXTS = (
    *(
        "",
        " ",
        "\0",
        "\ud800",
        '"\\ud800"',
        "\x7f",
        "\x85",
        "\u2028",
        "\u202e",
        "\ufeff",
        "\U0010ffff",
    ),
    *(
        "\u017f",
        "\u0130",
        "\u212a",
        "\ufb00int",
        "\u00e9",
        "'",
        '"',
        "`",
        "a=",
        "=a",
        "a=b=c",
        "::",
    ),
    *("s3://", "://", "file:///../..", "http://[", "//", "a::b", "tuple0<int>", "tuple<>"),
    *("tuple<" + ",".join(["int"] * 30) + ">", "map<int>", "nullable<nullable<int>>", "row<void>"),
    *("struct<a:int,a:int>", "true", "null", "???", "empty()", "L;", "La<", "T;", "<T::", "*"),
    *('{"nodes":[]}', '{"nodes":[{"id":1e999}]}', '{"id":"\\ud800"}', '["\\ud800"]', "[[[]]]"),
    '{"flinkVersion":"2","nodes":[{"id":1,"type":"a_1","outputType":"ROW<"}],"edges":[]}',
)
BREAKERS = (*_NUMBERS, *_TIMES, *_DEEP, *_YAML, *_TEXTS)
SAMPLES = (
    *("bigint", "array<map<string, decimal(10, 2)>>", "id string, n bigint NOT NULL COMMENT 'x'"),
    *(
        "struct<a: int, b: timestamp_ntz>",
        "tuple<string, long>",
        "cast_or_null(a.b, DECIMAL(12, 2))",
    ),
    *("coalesce(sum(value), 0)", "coalesce(key.f0, 'it''s')", "Map<String, List<shop.Line>>[]"),
    *("[Ljava/util/List;", "Ljava/util/Map<TK;+Ljava/util/List<*>;>.Inner<[I>;", "VARCHAR(10)"),
    *("<K:Ljava/lang/Object;:La/B;>La/Base<TK;>;", "TIMESTAMP_LTZ(3) NOT NULL", "10 mb", "PT1.5S"),
    *(
        "2 min",
        "24h",
        "2.2.1",
        "2026-11-22T18:30Z",
        "OLD=NEW",
        "s3://bucket/a/b",
        '{"a": [1, 2.5]}',
    ),
    *('["a", "b, c"]', "2026-01-02", "12.50", '[1, "a"]'),
    "migration: 1\nfrom: a\noperators:\n  x: {key: ['cast(f0, BIGINT)'], states: {s: old}}",
    "migration: 1\noperators:\n  a: &r {drop: [s], states: {t: old}}\n  b: {<<: *r, key: f0}\n",
)
"""Texts that some of the parsers read."""
_WORDS = [
    "array<",
    "map<",
    "struct<",
    "tuple<",
    "decimal(",
    ">",
    ")",
    "(",
    ",",
    ":",
    ";",
    "[",
    "]",
    "[]",
    "{",
    "}",
    "'",
    '"',
    "`",
    ".",
    "*",
    "+",
    "-",
    "&",
    "!",
    "<<",
    "?",
    "|",
    ">",
    "%",
    "@",
    "key",
    "value",
    "f0",
    "sum(",
    "cast(",
    "coalesce(",
    "empty()",
    "null",
    "true",
    "int",
    "bigint",
    "VARCHAR(",
    "NOT",
    "NULL",
    "COMMENT",
    "migration:",
    "1",
    "operators:",
    "states:",
    "columns:",
    "merge:",
    "from:",
    "Ljava/util/List<",
    "TK;",
    "2021-01-01",
    "T00:00",
    "9",
    "99",
    "1e5",
    "-1",
    "0.5",
    "24",
    "h",
    "mb",
    "P",
    "T",
    "S",
    "D",
    "=",
    "OLD=",
    "s3://",
    "\\u0000",
    "&a",
    "*a",
    "!!int",
    "!!map",
    "-",
    "\n",
    "\t",
]
WORDS = (*_WORDS, " ", "\n", "\n  ", *(json.dumps(each) for each in ("a", {"a": [1]})))
"""Pieces from which the property and the fuzzer make texts."""
