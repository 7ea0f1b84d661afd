"""The examples of the page on looking into a savepoint: they print what it says."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from dstl_core.cli import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "look-into-a-savepoint.md"
CONSOLE = re.findall(r"```console\n\$ dstl ([^\n]+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
PYTHON = re.findall(r"```pycon\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_there_are_examples() -> None:
    assert len(CONSOLE) >= 8
    assert len(PYTHON) == 1


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_a_command(
    command: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(shlex.split(command))
    captured = capsys.readouterr()
    printed = (captured.out + captured.err).replace(str(ROOT), "/work-tree")
    lines = [line.rstrip() for line in printed.splitlines()]
    expected = shown.splitlines()
    if expected[-1] == "...":
        expected.pop()
        lines = lines[: len(expected)]
    assert lines == expected


@pytest.mark.parametrize("text", PYTHON)
def test_python(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    assert doctest.DocTestRunner().run(example).failed == 0
