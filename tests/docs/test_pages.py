"""Every Python, shell and YAML block of the README and the documentation runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.fences import ROOT, RUN, blocks_of, name_of, pages
from tests.docs.running import PageRun

REPOSITORY = "https://github.com/dagster-dstl/dagster-dstl"
FENCE = re.compile(rf"^ *```(?:{'|'.join(RUN)})\b", re.MULTILINE)
WITHOUT_GLOSSARY = ("README.md", "CONTRIBUTING.md", "docs/glossary.md", "docs/decisions/")

TEXTS = {name_of(page): page.read_text() for page in pages()}
WITH_BLOCKS = [name for name, text in TEXTS.items() if FENCE.search(text)]
SPARK_PAGES = [name for name in WITH_BLOCKS if re.search(r"\bspark\b", TEXTS[name])]


def run(name: str, folder: Path, **names: object) -> None:
    ran = PageRun(folder, **names).run(blocks_of(name, TEXTS[name]))
    # Counted once more, and not by the parser that the run goes by.
    assert ran == len(FENCE.findall(TEXTS[name])) > 0


@pytest.mark.parametrize("name", [name for name in WITH_BLOCKS if name not in SPARK_PAGES])
def test_the_blocks_of_a_page_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: None
) -> None:
    monkeypatch.chdir(tmp_path)
    run(name, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("name", SPARK_PAGES)
def test_the_blocks_of_a_page_with_spark_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: None, spark: object
) -> None:
    monkeypatch.chdir(tmp_path)
    run(name, tmp_path, spark=spark)


def test_there_are_pages_with_blocks() -> None:
    assert "README.md" in WITH_BLOCKS
    assert len(WITH_BLOCKS) > 10


@pytest.mark.parametrize("name", TEXTS)
def test_no_block_of_a_page_is_left_out(name: str) -> None:
    blocks_of(name, TEXTS[name])
    assert "~~~" not in TEXTS[name]


@pytest.mark.parametrize("name", TEXTS)
def test_links_into_the_repository_lead_somewhere(name: str) -> None:
    paths = re.findall(rf"{REPOSITORY}/(?:blob|tree|raw)/main/([^)\s#\"]+)", TEXTS[name])
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", [n for n in TEXTS if not n.startswith(WITHOUT_GLOSSARY)])
def test_a_page_links_words_to_the_glossary(name: str) -> None:
    words = set(re.findall(r"\]\((?:\.\./)*glossary\.md#([\w-]+)\)", TEXTS[name]))
    entries = re.findall(r"^## (.+)$", TEXTS["docs/glossary.md"], re.MULTILINE)
    assert words
    assert words <= {entry.lower().replace(" ", "-") for entry in entries}


def test_the_front_page_works_where_there_is_no_repository() -> None:
    links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", TEXTS["README.md"])
    targets = [one or other for one, other in links]
    assert targets
    assert [link for link in targets if not link.startswith(("https://", "#"))] == []
