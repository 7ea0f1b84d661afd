"""What the documentation site takes from the repository while it is built."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Puts every decision page into the navigation, after the pages that are named there."""
    decisions = sorted((Path(config.docs_dir) / "decisions").glob("*.md"))
    [internals] = [entry["Internals"] for entry in config.nav if "Internals" in entry]
    internals.append({"Decisions": [f"decisions/{page.name}" for page in decisions]})
    return config
