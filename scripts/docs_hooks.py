"""What the documentation site takes from the repository while it is built.

* Decision pages enter the navigation by themselves.
* Pictures are put into the page, so that they follow the colours of the site.
* ``<!-- generated: NAME -->`` becomes a table of options, from the code.
* Other comments, such as the set-up of examples, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from dstl_core.config import ChangelogOptions, CheckpointConfig, Options
from dstl_core.spark.savepoints.source_options import SOURCE_OPTIONS

_GENERATED = re.compile(r"<!-- generated: ([\w-]+) -->")
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
_PICTURE = re.compile(r'<p><img [^>]*src="[^"]*(images/[\w-]+\.svg)"[^>]*></p>')
_FENCE = re.compile(r"^( *```.*?^ *```)$", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts every decision page into the navigation, after the pages that are named there."""
    decisions = sorted((Path(config.docs_dir) / "decisions").glob("*.md"))
    [internals] = [entry["Internals"] for entry in config.nav if "Internals" in entry]
    internals.append({"Decisions": [f"decisions/{page.name}" for page in decisions]})
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its generated parts, and without comments."""
    parts = _FENCE.split(_GENERATED.sub(lambda block: GENERATORS[block[1]](), markdown))
    return "".join(
        part if index % 2 else _COMMENT.sub("", part) for index, part in enumerate(parts)
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its pictures as part of it."""
    return _PICTURE.sub(lambda picture: (Path(config.docs_dir) / picture[1]).read_text(), html)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(heads), ["---" for _ in heads], *map(list, rows)]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells
    )


def options_table(options: type[Options]) -> str:
    """Name, Flink's key, default and meaning of each option."""
    rows = [
        [f"`{name}`<br>`{field.alias}`", f"`{field.default}`", field.description or ""]
        for name, field in options.model_fields.items()
    ]
    return _table(["name, and Flink's key", "default", "meaning"], rows)


def deprecated_table(options: type[Options]) -> str:
    rows = [[f"`{old}`", f"`{new}`"] for old, new in sorted(options.deprecated_keys.items())]
    return _table(["deprecated key", "key"], rows)


GENERATORS: Mapping[str, Callable[[], str]] = {
    "changelog-options": lambda: options_table(ChangelogOptions),
    "changelog-options-deprecated": lambda: deprecated_table(ChangelogOptions),
    "checkpoint-options": lambda: options_table(CheckpointConfig),
    "checkpoint-options-deprecated": lambda: deprecated_table(CheckpointConfig),
    "source-options": lambda: _table(
        ["option", "meaning"], ([f"`{name}`", text] for name, text in SOURCE_OPTIONS.items())
    ),
}
