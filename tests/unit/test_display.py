"""Sizes, ages, tables and HTML as people see them."""

from __future__ import annotations

import pytest

from dstl_core import Snapshot
from dstl_core.display import age_text, html_table, size_text, table_lines
from tests.golden_files import snapshot


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (17_122, "16.7 KiB"),
        (1_048_575, "1.0 MiB"),
        (150 << 20, "150 MiB"),
        (5 << 60, "5.0 EiB"),
        (2000 << 60, "2,000 EiB"),
    ],
)
def test_size(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("ago_ms", "text"),
    [
        (0, "0 s ago"),
        (59_999, "59 s ago"),
        (60_000, "1 min ago"),
        (7_200_001, "2 h ago"),
        (86_400_000 * 12, "12 d ago"),
        (-60_000, "in 1 min"),
    ],
)
def test_age(ago_ms: int, text: str) -> None:
    assert age_text(1_000_000_000_000 - ago_ms, 1_000_000_000_000) == text


def test_a_table_has_a_line_a_row() -> None:
    assert table_lines(("a", "long head"), [("x\ny", "1"), ("", "22")]) == [
        "a         long head",
        "x\\u000ay  1",
        "          22",
    ]


def test_markup_does_nothing() -> None:
    table = html_table(("<b>",), [("<script>alert(1)</script>",), ("\"'&\x00",)])
    assert "<script" not in table
    assert "<b>" not in table
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table
    assert "&quot;&#x27;&amp;\\u0000" in table


def test_a_snapshot_says_what_it_is() -> None:
    path = snapshot("a-hashmap-canonical")
    loaded = Snapshot.load(path)
    text = f"file:{path}: Savepoint CANONICAL, checkpoint 1, 3 operators, 21.6 KiB"
    assert repr(loaded) == f"<Snapshot {text}>"
    keyed = "<OperatorSnapshot 'a-keyed': parallelism 2 of 128, 21.6 KiB, keyed state: canonical>"
    assert repr(loaded["a-keyed"]) == keyed
    page = loaded._repr_html_()
    assert f"&lt;Snapshot {text}&gt;" in page
    assert "<td>a-keyed</td><td>2 of 128</td>" in page
    assert "cnt: Long" in page
    assert "m: Map&lt;String, Long&gt;" in page
