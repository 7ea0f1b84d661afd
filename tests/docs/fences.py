"""The blocks of a Markdown page: what a reader copies, and the set-up that a reader does not see.

A block is a fenced block. Its info string names the language and, for a file, ``title="path"``. The
hidden set-up is Python in a comment that begins with ``<!-- setup``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
RUN = frozenset({"python", "pycon", "console", "bash", "yaml"})
"""Languages that a test executes."""
SHOWN = frozenset({"text", "json", "toml"})
"""Languages that say nothing executable: output, data and settings."""
SETUP = "setup"

_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')
_SETUP = re.compile(r"<!-- setup\n(.*?)-->", re.DOTALL)


class PageError(AssertionError):
    """A page holds something that no test executes."""


@dataclass(frozen=True)
class Block:
    """A block of a page. ``line`` is the line of its fence, from 1."""

    page: str
    line: int
    language: str
    title: str | None
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    """The blocks in their order.

    Raises:
        PageError: A block is indented instead of fenced, or names no language that is known.
    """
    blocks = []
    for token in MarkdownIt().parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block" and (setup := _SETUP.match(token.content)):
            blocks.append(Block(page, line, SETUP, None, setup[1]))
        elif token.type == "code_block":
            raise PageError(f"{page}:{line}: An indented block is not executed; fence it.")
        elif token.type == "fence":
            language = token.info.split(maxsplit=1)[0] if token.info.strip() else "none"
            if language not in RUN | SHOWN:
                raise PageError(
                    f"{page}:{line}: Expected one of {', '.join(sorted(RUN | SHOWN))} as the "
                    f"language of a block, got {language}."
                )
            title = dict(_ATTRIBUTE.findall(token.info)).get("title")
            blocks.append(Block(page, line, language, title, token.content))
    return blocks


def pages() -> list[Path]:
    """Every page that a reader gets: the README, the contributor's page and the documentation."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))
