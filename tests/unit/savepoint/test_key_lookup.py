"""``dump --key``: what Flink has under a key, from the files and blocks that can hold it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from dstl_core.cli.dump_lines import keys_of
from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.binary_row import RowData
from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.dates import Instant, LocalDate, LocalTime, SqlTimestamp
from dstl_core.codec.serializers.scala import ScalaOptionSerializer
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError
from dstl_core.savepoint.access import key_lookup
from dstl_core.savepoint.access.key_lookup import KeyLookup
from dstl_core.savepoint.access.key_text import parse_key
from dstl_core.state.restore import rocksdb
from tests.command_line import is_one_sentence, run
from tests.counting_file_io import counted_snapshot
from tests.examples import WHOLE
from tests.golden_files import GOLDEN, SNAPSHOTS, Fixture, as_lines
from tests.golden_files import snapshot as golden

__all__ = ["run"]

[TABLES] = (GOLDEN / "many-table-files").glob("savepoint-*")
FORMS = {
    "a-hashmap-canonical",
    "a-hashmap-canonical-compressed",
    "a-hashmap-changelog-multi",
    "a-hashmap-native",
    "a-rocksdb-changelog-materialized",
    "a-rocksdb-checkpoint-incremental",
    "a-rocksdb-heaptimers-checkpoint",
    "a-rocksdb-p2-max4096",
    "b-types-hashmap",
    "d-windows-hashmap",
    "e-ttl-hashmap",
    "o-hard-keys-rocksdb",
    "x-lsm-rocksdb-incremental",
    "x-rescaled-rocksdb-incremental",
}
FIXTURES = [fixture for fixture in SNAPSHOTS if fixture.name in FORMS]
MOST_KEYS = 8 if WHOLE else 3
ROW = RowDataSerializer((LogicalType("DATE"),))


def text_of(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


@pytest.mark.slow
@pytest.mark.parametrize("fixture", FIXTURES, ids=str)
@pytest.mark.parametrize("by_columns", [False, True], ids=["by record", "by columns"])
def test_a_key_has_what_flink_has_restored(
    run: Any, fixture: Fixture, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookup, "are_read_by_kernels", lambda size: by_columns)
    keyed = [entry for entry in fixture.truth if "key" in entry]
    operators = {entry["op"] for entry in keyed}
    for op in operators:
        own = [entry for entry in keyed if entry["op"] == op]
        texts = list(dict.fromkeys(text_of(entry["key"]) for entry in own))
        for text in texts[:: max(1, len(texts) // MOST_KEYS)]:
            expected = [entry for entry in own if text_of(entry["key"]) == text]
            ran = run("dump", str(fixture.snapshot), "--op", op, "--key", text)
            assert ran.code == 0
            assert as_lines(ran.lines) == as_lines(expected)


KEYS = ("x-keys-hashmap", "scala-jobs/keys", "scala-jobs/orders", "o-sql-types")
"""Snapshots with every type of keys."""


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.slow
def test_a_key_is_taken_as_a_dump_shows_it(run: Any, name: str) -> None:
    place = str(golden(name))
    lines = [line for line in run("dump", place).lines if "key" in line]
    for op, text in texts_of(lines):
        expected = [line for line in lines if line["op"] == op and text_of(line["key"]) == text]
        assert as_lines(run("dump", place, "--op", op, "--key", text).lines) == as_lines(expected)


def texts_of(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Some keys of each operator."""
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for line in lines:
        texts[line["op"]][text_of(line["key"])] = None
    return [(op, text) for op, keys in texts.items() for text in list(keys)[:MOST_KEYS]]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Types.INSTANT, "-0001-02-28T23:59:59.000000001Z", Instant(-62193657601, 1)),
        (Types.LOCAL_TIME, "23:59", LocalTime(23, 59, 0, 0)),
        (Types.LOCAL_DATE, "+12026-02-28", LocalDate(12026, 2, 28)),
        (Types.SQL_TIMESTAMP, "1969-12-31 23:59:59.999999999", SqlTimestamp(-1, 999_999_999)),
        (ROW, '["+I", "2026-02-28"]', RowData(0, (20512,))),
        (ROW, '["2026-02-28"]', RowData(0, (20512,))),
        (ROW, '["+X", "2026-02-28"]', None),
        (Types.LOCAL_DATE, "2026-02-29", None),
        (Types.LOCAL_TIME, "24:00", None),
        (Types.INSTANT, "2026-01-01T00:00:60Z", None),
    ],
    ids=str,
)
def test_a_time_beyond_those_of_python_is_a_key(kind: Any, text: str, value: Any) -> None:
    if value is not None:
        assert parse_key(kind, text) == value
        return
    with pytest.raises(ConfigError, match="key is wrong: expected"):
        parse_key(kind, text)


@pytest.mark.parametrize("exponent", ["2147483649", "-2147483648", "3000000000", "9" * 22])
def test_a_number_with_an_exponent_that_java_does_not_have_is_no_key(exponent: str) -> None:
    with pytest.raises(ConfigError, match="key is wrong: expected a BigDecimal"):
        parse_key(Types.BIG_DEC, f"1e{exponent}")
    assert parse_key(Types.BIG_DEC, "12e2147483648") == BigDecimal(12, -(1 << 31))


def test_a_long_key_is_not_shown_as_a_whole() -> None:
    with pytest.raises(ConfigError, match=r"expected a BigDecimal, got '1{79}\.\. \(5,002 char"):
        parse_key(Types.BIG_DEC, "1" * 4999 + "x")


def test_keys_come_from_a_file_too(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("5\n2999\n")
    ran = run("dump", str(TABLES), "--key-file", str(file), "--key", "16", "--state", "visits")
    assert {line["key"]: line["value"] for line in ran.lines} == {5: 15, 2999: 8997, 16: 48}
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    "kind",
    [
        Types.LONG,
        RowDataSerializer((LogicalType("INTEGER", nullable=False),)),
        ScalaOptionSerializer(Types.LONG),
    ],
)
def test_null_is_no_key_of_a_type_without_it(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"key is wrong: expected .*, got None\."):
        parse_key(kind, "null")


def test_a_line_of_a_file_of_keys_ends_where_a_text_editor_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes("a\u2028b\x1cc\r\n\nlast".encode())
    assert keys_of(["first"], str(file)) == ["first", "a\u2028b\x1cc", "", "last"]


def test_what_is_not_there(run: Any, tmp_path: Path) -> None:
    ran = run("dump", str(TABLES), "--key", "3000")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "dstl: nothing is stored under these keys\n"
    for arguments, problem in (
        (("--key", "many"), "key is wrong: expected a Long, got 'many'"),
        (("--key", "1", "--state", "no"), "State 'no' is in no operator"),
        (("--key-file", str(tmp_path / "no")), "cannot be read"),
    ):
        ran = run("dump", str(TABLES), *arguments)
        assert ran.code == 2
        assert is_one_sentence(ran.err)
        assert problem in ran.err


def test_other_keys_of_table_files_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "_TAIL_BYTES", 1 << 10)
    snapshot, files = counted_snapshot(TABLES)
    operator = snapshot["big"]
    assert [entry.value for entry in KeyLookup(operator, [1201], "visits")] == [3603]
    # The end of a file and a block of it; and what names the files of the handle.
    tables = {name for name, count in files.ends.items() if files.reads[name] > 1}
    assert len(tables) == 1
    assert sum(files.reads.values()) <= 6
    assert files.bytes < 40_000
    assert files.sizes == 0


def test_one_section_of_canonical_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = golden("a-hashmap-canonical-files")
    snapshot, files = counted_snapshot(fixture)
    operator = snapshot["a-keyed"]
    key = next(operator.keyed_entries("cnt")).key
    read = sum(files.reads.values())
    size = files.bytes
    assert list(KeyLookup(operator, [key], "cnt"))
    assert sum(files.reads.values()) - read <= 4
    whole = sum(file.stat().st_size for file in fixture.iterdir() if file.name[0] != "_")
    assert files.bytes - size < whole / 2
