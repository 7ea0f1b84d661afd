"""The examples of docs/how-to run as they stand, on savepoints that real Flink wrote."""

import re
from pathlib import Path

import pytest

from dstl_core.savepoint import Snapshot
from dstl_core.spark.data_source import register
from tests.golden_files import GOLDEN, snapshot

pytestmark = pytest.mark.spark
DOCS = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = [DOCS / f"{name}.md" for name in ("bootstrap", "ci", "fix", "query", "rewrite")]


def examples(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page(spark, tmp_path, page, capsys):
    register(spark)
    names = {
        "__name__": "__main__",
        "spark": spark,
        "savepoint": str(snapshot("a-hashmap-canonical")),
        "changelog_checkpoint": str(snapshot("a-hashmap-changelog-multi")),
        "changelog_base": str(GOLDEN / "a-hashmap-changelog-multi" / "dstl"),
        "out": str(tmp_path),
    }
    for example in examples(page):
        exec(compile(example, str(page), "exec"), names)  # our own pages
    for name in names.get("views", ()):
        spark.catalog.dropTempView(name)
    for written in tmp_path.glob("*/_metadata"):
        assert Snapshot.load(written.parent).operators


def test_the_values_that_the_pages_promise(spark, tmp_path):
    names = {"spark": spark, "out": str(tmp_path), "__name__": "__main__"}
    for example in examples(DOCS / "bootstrap.md"):
        exec(compile(example, "bootstrap.md", "exec"), names)  # our own pages

    def values(name, operator, state):
        lines = Snapshot.load(tmp_path / name)[operator].dump(state)
        return {line["key"]: line["value"] for line in lines}

    assert values("by-columns", "accounts", "total") == {"a": 5, "b": 7}
    assert values("by-parquet", "accounts", "total") == {"a": 5, "b": 7}
    assert values("by-function", "accounts", "total") == {"a": 11}
    assert values("windows", "windows", "window-contents") == {"a": 11}
