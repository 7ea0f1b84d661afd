"""The page about epochs by size is what the stored figures say, and its pictures are whole."""

import xml.etree.ElementTree as ET
from pathlib import Path

from benchmarks import curves, results

DOCS = Path(__file__).parents[2] / "docs"


def written(folder, figures, day=None):
    for name in ("images", "internals"):
        (folder / name).mkdir()
    curves.write(figures, day, folder)
    return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.*")}


def test_the_site_shows_the_stored_figures(tmp_path):
    for path, text in written(tmp_path, results.read("epochs"), results.read("day")).items():
        assert (DOCS / path).read_text() == text, f"run python -m benchmarks curves: {path}"


def test_another_tool_is_named_where_it_is_faster(tmp_path):
    machine = {**results.read("epochs")["machine"]}

    def case(rows, ours, delta):
        forms = {"aggregate": {"median": ours}, "delta": {"median": delta}}
        return {"rows": rows, "keys": 1000, "share": 1.0, "forms": forms}

    figures = {"machine": machine, "cases": [case(10, 2.0, 1.0), case(100, 1.0, 3.0)]}
    forms = {"local": {"median": 2.0, "peak_mib": 9}, "duckdb": {"median": 1.0, "peak_mib": 8}}
    day = {"cases": [{"case": "10:5:text:0.9", "machine": machine, "forms": forms}]}
    pages = written(tmp_path, figures, day)
    page = pages[Path("internals/epochs-by-size.md")]
    better = page.partition("## Where another tool")[2].partition("## Figures")[0]
    assert (
        "10 rows from 100% of 1,000 keys: Spark groups, deltalake merges, 2.00 times as fast"
        in better
    )
    assert "* 100 rows" not in better
    of_day = "user's day, 10 rows on 5 keys (text, 90% of the rows on one)"
    assert f"* A {of_day}: DuckDB rewrites Parquet, 2.00 times as fast as dstl, one" in better
    assert f"| a {of_day} | dstl, one process | 2.00 | 9 |" in page
    picture = ET.fromstring(pages[Path("images/epochs-rows-1000.svg")])
    circles = [each for each in picture if each.tag.endswith("circle")]
    assert len(circles) == 4
    heights = [float(each.get("cy")) for each in circles]
    assert heights[3] < heights[0] < heights[1] == heights[2]  # 3 s, 2 s, 1 s, 1 s
