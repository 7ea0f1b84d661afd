"""The reference holds every public name and option; pictures are whole and need nothing else."""

from __future__ import annotations

import importlib.util
import re
from inspect import signature
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import dstl_core
import dstl_dagster
from dstl_core.errors import ConfigError
from dstl_core.spark.savepoints.source_options import SOURCE_OPTIONS, spec_of
from tests.docs.fences import ROOT

DOCS = ROOT / "docs"
PICTURES = sorted((DOCS / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("page", "package"), [("python.md", dstl_core), ("dagster.md", dstl_dagster)]
)
def test_every_public_name_is_in_the_reference(page: str, package: object) -> None:
    text = (DOCS / "reference" / page).read_text()
    name = package.__name__  # type: ignore[attr-defined]
    documented = set(re.findall(rf"^::: {name}\.(\w+)$", text, re.MULTILINE))
    # Modules that are not names of the front door have sections of their own.
    folder = Path(package.__path__[0])  # type: ignore[attr-defined]
    modules = {path.stem for path in folder.glob("*.py")}
    modules |= {path.parent.name for path in folder.glob("*/__init__.py")}
    documented -= modules - set(package.__all__)  # type: ignore[attr-defined]
    assert sorted(documented) == sorted(package.__all__)  # type: ignore[attr-defined]


OLD_AND_NEW = (DOCS / "reference" / "names.md").read_text()


@pytest.mark.parametrize("package", [dstl_core, dstl_dagster])
def test_an_old_name_is_gone_and_the_new_one_is_there(package: Any) -> None:
    page = OLD_AND_NEW[OLD_AND_NEW.index(f"| `{package.__name__}` had | now |") :]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", page.partition("\n\n")[0], re.MULTILINE)
    assert len(rows) >= 20
    assert [old for old, _ in rows if old in package.__all__] == []
    for old, new in rows:
        for dotted in re.findall(r"`([a-z]\w*(?:\.\w+)*)", new):
            module, _, name = f"{package.__name__}.{dotted}".rpartition(".")
            assert hasattr(importlib.import_module(module), name), old
        for function, argument in re.findall(r"(build_\w+_defs)\((\w+)=", new):
            assert argument in signature(getattr(package, function)).parameters, old


def test_the_options_of_the_source_are_said_and_known() -> None:
    assert all(text.endswith(".") for text in SOURCE_OPTIONS.values())
    with pytest.raises(ConfigError, match=r"no option 'no\.such'") as caught:
        spec_of({"path": "somewhere", "no.such": "1"})
    [known] = re.findall(r"it has: (.+?)\. Credentials", str(caught.value))
    assert known.split(", ") == sorted(SOURCE_OPTIONS)
    page = (DOCS / "how-to" / "query.md").read_text()
    table = page[page.index("| option | meaning |") : page.index("Credentials are never")]
    named = {
        name for row in re.findall(r"^\| (`.+?`) \|", table, re.M) for name in row.split("`")[1::2]
    }
    assert named
    assert named <= set(SOURCE_OPTIONS)


def script(name: str) -> Any:
    """A script that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_of_changed_jobs_are_those_of_the_code() -> None:
    generator = script("changed_jobs_page")
    text = (DOCS / "reference" / "changed-jobs.md").read_text()
    # If it differs, run the script.
    assert generator.written(text) == text
    rows = [line.strip("| ").split(" | ") for line in generator.counts().splitlines()[2:]]
    assert [row[-1] for row in rows if row[1] == "restores"] == ["0"] * 3
    assert [row[3:5] for row in rows if row[1] != "restores"] == [["0", "0"]] * 3
    assert sum(int(row[2]) for row in rows[:2]) >= 75


def test_the_page_of_the_command_line_says_what_the_code_says() -> None:
    generator = script("command_line_page")
    text = (DOCS / "reference" / "command-line.md").read_text()
    assert generator.PAGE.read_text() == text
    # If it differs, run the script.
    assert generator.written(text) == text
    for part in ("`--older-than AGE`", "**`dstl ls`**", "`-m, --module", "`dstl verify savepoint`"):
        assert part in text


def test_the_table_of_exit_codes_names_every_command_that_ends_with_1() -> None:
    folder = ROOT / "dstl_core" / "cli"
    ends_with_1 = {
        path.stem.removesuffix("_command")
        for path in folder.glob("*_command.py")
        if "typer.Exit(1)" in path.read_text()
    }
    page = (DOCS / "reference" / "command-line.md").read_text()
    [row] = re.findall(r"^\| 1 \| (.*`verify` has findings.*) \|$", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)[^`]*`", row)) == ends_with_1
    # The help of each command says it, too.
    rows = re.findall(r"^\| \*\*`dstl (\w+).*?`\*\* \|  \| (.*) \|$", page, re.MULTILINE)
    assert {name for name, text in rows if "exit code is 1" in text} == ends_with_1


def test_there_are_pictures() -> None:
    assert len(PICTURES) >= 6


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_used_and_needs_nothing_else(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    for child in ("title", "desc"):
        assert root.findtext(f"{SVG}{child}")
    text = picture.read_text()
    assert "prefers-color-scheme: dark" in text
    assert set(re.findall(r"https?://[^\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert re.search(r"href|@import", text) is None
    pages = [page for page in DOCS.rglob("*.md") if f"images/{picture.name})" in page.read_text()]
    assert pages


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_the_words_of_a_picture_stay_inside_it(picture: Path) -> None:
    root = ElementTree.parse(picture).getroot()
    width = float(root.attrib["width"])
    for text in root.iter(f"{SVG}text"):
        kind = text.attrib.get("class", "")
        length = len(text.text or "") * (7.2 if "soft" in kind else 8.4)
        start = float(text.attrib["x"]) - length * ("mid" in kind) / 2 - length * ("end" in kind)
        assert start >= 0
        assert start + length <= width


def test_the_site_takes_colours_of_pictures_from_one_place() -> None:
    css = (DOCS / "stylesheets" / "extra.css").read_text()
    names = set(re.findall(r"--[\w-]+", css))
    for picture in PICTURES:
        assert set(re.findall(r"(--[\w-]+):", picture.read_text())) == names
