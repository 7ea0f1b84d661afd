"""Calls of the command line in this process."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from dstl_core.cli import main


class Ran(NamedTuple):
    """What a call of the command line did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        captured = capsys.readouterr()
        return Ran(int(ended.value.code or 0), captured.out, captured.err)

    return call


def is_one_sentence(text: str) -> bool:
    return text.startswith("dstl: ") and text.count("\n") == 1 and "Traceback" not in text
