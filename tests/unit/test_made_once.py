"""Workers of the tests share what one of them fetches or compiles."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.made_once import made_once

WORKERS = 8


def test_many_that_ask_at_once_share_what_one_makes(tmp_path: Path) -> None:
    start = Barrier(WORKERS)
    made = []

    def make(folder: Path, scratch: Path) -> None:
        made.append(scratch)
        for number in range(100):
            (folder / f"{number}.jar").write_text("a jar")

    def ask(_: int) -> list[Path]:
        start.wait()
        return sorted(made_once(tmp_path / "cache" / "jars", make).iterdir())

    with ThreadPoolExecutor(WORKERS) as workers:
        answers = list(workers.map(ask, range(WORKERS)))
    assert len(made) == 1
    assert len(answers[0]) == 100
    assert answers == [answers[0]] * WORKERS


def test_a_maker_that_fails_leaves_nothing_for_the_next(tmp_path: Path) -> None:
    def fail(folder: Path, scratch: Path) -> None:
        (folder / "half").write_text("a half")
        raise ValueError("the line broke")

    with pytest.raises(ValueError, match="the line broke"):
        made_once(tmp_path / "jars", fail)
    made = made_once(tmp_path / "jars", lambda folder, _: (folder / "whole").touch())
    assert [each.name for each in made.iterdir()] == ["whole"]
