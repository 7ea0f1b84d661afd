"""A variable is named by a noun. The words that name nothing stay in comprehensions of one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("dstl_core", "dstl_dagster", "tests", "examples", "benchmarks", "docs", "scripts")
WORDS = {"each", "found", "given", "there"}
ANY_WORD = re.compile(rf"\b({'|'.join(sorted(WORDS))})\b")
BINDS = (ast.Name, ast.arg, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.ExceptHandler)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_set_by(node: ast.AST) -> set[str | None]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchMapping(rest=name):
            return {name}
        case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.ExceptHandler(name=name):
            return {name}
    return set()


def nameless(source: str) -> Iterator[str]:
    if not ANY_WORD.search(source):
        return
    tree, allowed = ast.parse(source), set()
    for node in ast.walk(tree):  # a comprehension comes before its targets
        if isinstance(node, COMPREHENSIONS) and node.lineno == node.end_lineno:
            targets = (generator.target for generator in node.generators)
            allowed.update(id(name) for target in targets for name in ast.walk(target))
        elif isinstance(node, BINDS) and id(node) not in allowed:
            yield from (f"{node.lineno}: {name}" for name in names_set_by(node) & WORDS)


@pytest.mark.parametrize(
    "source",
    [
        "found = 1",
        "found: int = 1",
        "found += 1",
        "one, *found = 1, 2",
        "for each in (): pass",
        "def named(given): pass",
        "lambda *there: 1",
        "with open('name') as found: pass",
        "if (found := 1): pass",
        "[found := each for each in ()]",
        "[\n    each\n    for each in ()]",
        "match 1:\n    case int() as found: pass",
        "try: pass\nexcept OSError as found: pass",
    ],
)
def test_a_word_that_names_nothing_is_seen(source: str) -> None:
    assert len(list(nameless(source))) == 1


@pytest.mark.parametrize(
    "source",
    ["[each for each in ()]", "{each: 1 for each, other in ()}", "self.found = 1", "given(1)"],
)
def test_a_comprehension_of_one_line_may_have_it(source: str) -> None:
    assert list(nameless(source)) == []


def test_variables_are_named_by_nouns() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    names = {str(path.relative_to(ROOT)): list(nameless(path.read_text())) for path in paths}
    assert {path: lines for path, lines in names.items() if lines} == {}
