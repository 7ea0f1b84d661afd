"""What the documents name is there."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dstl_core.config import ChangelogOptions

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "flink-map.md"

_CODE = re.compile(r"`([^`]+)`")
_OURS = re.compile(r"[a-z_]+(\.\w+)*")
_TEST = re.compile(r"tests(/[\w.]+)+(::\w+)?")


def rows() -> list[list[str]]:
    """The cells of every table row of the map, without the heads."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in MAP.read_text().splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]


def named_tests() -> list[str]:
    pages = [MAP, *(ROOT / "docs" / "decisions").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    return sorted(set(re.findall(r"`(tests/[^`]+)`", text)))


@functools.cache
def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.slow
def test_what_the_state_processor_api_promises_is_shown_by_tests_that_are_there() -> None:
    text = (ROOT / "docs" / "reference" / "state-processor-api.md").read_text()
    promises = re.findall(r"^\| (\d+) \| .*`.*test_\w+", text, re.M)
    assert promises == [str(number) for number in range(1, 21)]
    scenarios = text[text.index("| scenario | test |") :].splitlines()[2:]
    assert len([line for line in scenarios if re.match(r"\|.*`test_\w+`", line)]) == 11
    named = set(re.findall(r"`(?:tests/[\w/.]+::)?(test_\w+)`", text))
    existing = set().union(*(functions(path) for path in (ROOT / "tests").rglob("test_*.py")))
    assert named - existing == set()


def test_the_map_names_tests() -> None:
    assert len(named_tests()) > 150


@pytest.mark.parametrize("name", named_tests())
def test_every_test_that_the_map_names_is_there(name: str) -> None:
    assert _TEST.fullmatch(name)
    path, _, function = name.partition("::")
    assert (ROOT / path).exists()
    if function:
        assert function in functions(ROOT / path)


def test_every_test_of_the_table_of_promises_is_there() -> None:
    text = (ROOT / "docs" / "reference" / "state-processor-api.md").read_text()
    named = set(re.findall(r"\btest_\w+", text))
    existing = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in functions(path) | {path.stem}
    }
    assert len(named) > 40
    assert named <= existing


def has_member(owner: Any, name: str) -> bool:
    """Whether a class has a method, a field, or an attribute that its instances set."""
    return (
        hasattr(owner, name)
        or name in getattr(owner, "model_fields", {})
        or (inspect.isclass(owner) and f"self.{name}" in inspect.getsource(owner))
    )


def resolves(dotted: str) -> bool:
    """Whether a name below ``dstl_core`` is a module, or a class, function or member in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            member: Any = importlib.import_module(".".join(["dstl_core", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        *path, last = parts[length:] or [""]
        for part in path:
            member = getattr(member, part, None)
        return not last or has_member(member, last)
    return False


OURS = sorted(
    {
        name
        for row in rows()
        for name in _CODE.findall(row[1])
        if _OURS.fullmatch(name) and "." in name
    }
)


def test_the_map_names_code() -> None:
    assert len(OURS) > 100
    assert not resolves("changelog.writer.FsStateChangelogWriter.no_such_method")
    assert not resolves("changelog.no_such_module")


@pytest.mark.parametrize("name", OURS)
def test_everything_of_ours_that_the_map_names_is_there(name: str) -> None:
    assert resolves(name)


def test_the_map_names_every_option_of_the_changelog() -> None:
    text = MAP.read_text()
    for name, field in ChangelogOptions.model_fields.items():
        assert f"`config.ChangelogOptions.{name}`" in text
        assert str(field.alias) in text


def test_the_map_counts_right() -> None:
    text = MAP.read_text()
    [counts] = re.findall(r"(\d+) cases: (\d+) have a test here, (\d+) have none", text)
    cases = [row for row in rows() if re.fullmatch(r"`\w+Test`", row[0])]
    without = [row for row in cases if row[2] == "none"]
    assert list(map(int, counts)) == [len(cases), len(cases) - len(without), len(without)]
    assert all(row[3] for row in without)  # why not


def test_every_name_of_state_and_checkpoints_has_a_test_or_a_reason() -> None:
    text = MAP.read_text()
    section = text[text.index("## State and checkpoints, name by name") :]
    table = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith("| Flink |")
    ]
    assert len(table) > 50
    for _, ours, tests, why in table:
        if ours == tests == "none":
            assert why
        else:
            names = _CODE.findall(tests)
            assert names
            assert all("::" in name for name in names)


def test_every_file_that_a_document_links_to_is_there() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    missing = [
        (str(document.relative_to(ROOT)), link)
        for document in documents
        for link in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text())
        if not (document.parent / link).exists()
    ]
    assert missing == []


def test_each_decision_has_a_number_of_its_own() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert len({int(page.name[:4]) for page in pages}) == len(pages)
    for page in pages:
        assert page.read_text().startswith(f"# {int(page.name[:4])}. "), page.name


ARCHITECTURE = ROOT / "docs" / "internals" / "architecture.md"


def test_the_map_of_bytes_has_every_part_of_the_codec() -> None:
    """A folder by itself, or by modules in it. Kernels have the bytes of other modules."""
    codec = ROOT / "dstl_core" / "codec"
    text = ARCHITECTURE.read_text()
    table = text[text.index("| bytes | module |") : text.index("dstl's own files")]
    named = set(_CODE.findall(table)) - {"_metadata", "BigDecimal"}
    assert [name for name in named if not (codec / name).exists()] == []
    parts = {path.name for path in codec.iterdir() if not path.name.startswith("_")}
    assert parts - {name.split("/")[0] for name in named} <= {"columnar"}


def test_the_layers_of_the_page_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [c["layers"] for c in contracts["contracts"] if c["name"] == "Layers of dstl_core"]
    text = ARCHITECTURE.read_text()
    drawn = text[text.index("## Layers") :].split("```")[1].splitlines()[1:-1]
    assert [re.split(r"  +", line)[0] for line in drawn] == layers[:-1]


def test_the_changelog_says_nothing_twice() -> None:
    """Where two changes touch a line, a merge that keeps both is a mistake."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    beginnings = Counter(line[:20] for line in lines if line.startswith("- "))
    assert [start for start, count in beginnings.items() if count > 1] == []
