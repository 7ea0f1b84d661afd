"""The page about epochs by size is what the stored figures say, and its pictures are whole."""

import xml.etree.ElementTree as ET
from pathlib import Path

from benchmarks import curves, results

DOCS = Path(__file__).parents[2] / "docs"


def written(folder, figures):
    for name in ("images", "internals"):
        (folder / name).mkdir()
    curves.write(figures, folder)
    return {path.relative_to(folder): path.read_text() for path in folder.rglob("*.*")}


def test_the_site_shows_the_stored_figures(tmp_path):
    for path, text in written(tmp_path, results.read("epochs")).items():
        assert (DOCS / path).read_text() == text, f"run python -m benchmarks curves: {path}"


def test_another_tool_is_named_where_it_is_faster(tmp_path):
    machine = {**results.read("epochs")["machine"]}

    def case(rows, ours, delta):
        forms = {"aggregate": {"median": ours}, "delta": {"median": delta}}
        return {"rows": rows, "keys": 1000, "share": 1.0, "forms": forms}

    figures = {"machine": machine, "cases": [case(10, 2.0, 1.0), case(100, 1.0, 3.0)]}
    pages = written(tmp_path, figures)
    page = pages[Path("internals/epochs-by-size.md")]
    better = page.partition("## Where another tool")[2].partition("## Figures")[0]
    assert (
        "10 rows from 100% of 1,000 keys: Spark groups, deltalake merges, 2.00 times as fast"
        in better
    )
    assert "* 100 rows" not in better
    picture = ET.fromstring(pages[Path("images/epochs-rows-1000.svg")])
    circles = [each for each in picture if each.tag.endswith("circle")]
    assert len(circles) == 4
    heights = [float(each.get("cy")) for each in circles]
    assert heights[3] < heights[0] < heights[1] == heights[2]  # 3 s, 2 s, 1 s, 1 s
