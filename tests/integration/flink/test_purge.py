"""Real Flink restores what is left of a snapshot: the plain filter of what it held."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from tests.command_line import run
from tests.integration.flink.checker import FlinkChecker
from tests.integration.flink.model import texts
from tests.integration.flink.test_edits_without_data import (
    FIRST,
    KEYS,
    LATER,
    digests,
    held,
    keyed,
    of,
    write_source,
)

__all__ = ["run"]
pytestmark = pytest.mark.flink

GONE = KEYS[::7]
SMALL = 300
"""Values of ``n`` below it go."""
KINDS = [
    "checkpoint-128",
    "savepoint",
    pytest.param("checkpoint-4096", marks=pytest.mark.soak),
    pytest.param("heap", marks=pytest.mark.soak),
]
Stays = Callable[[dict[str, Any]], bool]


def left(entries: list[str], stays: Stays) -> list[str]:
    return [entry for entry in entries if stays(json.loads(entry))]


def is_kept_key(entry: dict[str, Any]) -> bool:
    return entry["key"] not in GONE


def is_kept(entry: dict[str, Any]) -> bool:
    is_small = entry.get("state") == "n" and entry["value"] < SMALL
    return is_kept_key(entry) and not is_small


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("files", "parallelism"), [("--share", 3), ("--copy", 2)])
def test_flink_restores_the_rest_and_goes_on(
    flink: FlinkChecker, run: Any, tmp_path: Path, kind: str, files: str, parallelism: int
) -> None:
    source = write_source(flink, tmp_path / "source", kind)
    out = tmp_path / "out"
    (tmp_path / "keys").write_text("\n".join(GONE) + "\n")
    with_rule = parallelism == 3
    options = [f"--erase-keys=old={tmp_path / 'keys'}", files]
    options += [f"--where=old/n=value >= {SMALL}"] if with_rule else []
    code, printed, error = run("rewrite", str(source.path), str(out), *options)
    assert (code, error) == (0, "")
    assert "none is left" in printed
    before = digests(source.job)

    restored = flink.restore(
        out,
        [keyed("old"), keyed("gone")],
        backend=source.backend,
        parallelism=parallelism,
        updates=of("old", LATER),
        checkpoints=2,
        savepoint_to=tmp_path / "savepoints",
        strict=False,
    )

    stays = is_kept if with_rule else is_kept_key
    entries = [entry for entry in restored.entries if entry["op"] == "old"]
    assert texts(entries, "kg") == left(held("old", FIRST), stays)
    assert digests(source.job) == before
    others = [entry for entry in restored.entries if entry["op"] == "gone"]
    assert texts(others, "kg") == held("gone", FIRST[:100])
    kept = [update for update in FIRST if stays({"value": 0, **update})]
    for place in (restored.savepoint, restored.checkpoints[-1]):
        again = flink.restore(place, [keyed("old")], backend=source.backend, strict=False)
        assert texts(again.entries, "kg") == held("old", kept, LATER)
    assert Snapshot.load(restored.checkpoints[-1])["old"].keyed_handles
