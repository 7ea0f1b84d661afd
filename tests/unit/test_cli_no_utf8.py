"""Arguments with bytes that are not UTF-8, which Python gives as lone surrogates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run
from tests.golden_files import snapshot

__all__ = ["run"]

PATH = str(snapshot("a-hashmap-canonical"))
OPTIONS = {
    "dump": (
        *("--op", "--state", "--key", "--key-file", "--key-type", "--type", "--jar", "--proto"),
        *("--relocate", "--changelog-base", "--allow-root", "--hide-expired", "--serializers"),
    ),
    "rewrite": (
        *("--rename", "--remove", "--relocate", "--split", "--merge", "--erase-keys", "--where"),
        *("--drop-expired", "--distinct", "--max-parallelism", "--checkpoint-id", "--format"),
    ),
    "report": ("--ttl", "--at", "--compare"),
    "check": ("--expect", "--jar", "--drop"),
    "upgrade": ("--to", "--type", "--new-key", "--new-jar", "--to-template", "--drop"),
}
TEXTS = ["\udcff", "a-keyed/cnt=value = '\udcc3('"]
MORE = {
    "rewrite": ("out", "--dry-run"),
    "report": ("--headers-only", "--json"),
    "upgrade": ("--plan",),
}


@pytest.mark.parametrize("command", OPTIONS)
def test_an_option_that_is_not_utf_8_gets_one_sentence(
    run: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in OPTIONS[command]:
        for text in TEXTS:
            code, _, error = run(command, PATH, *MORE.get(command, ()), option, text)
            assert code in (0, 1, 2), (option, text)
            assert "Traceback" not in error, (option, text)
            assert code != 2 or error.strip(), (option, text)
