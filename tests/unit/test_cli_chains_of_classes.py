"""Classes whose fields are all of the next class: as a tree, each class doubles the type."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from dstl_core.display import LONGEST_SHOWN
from tests.command_line import run
from tests.golden_files import UPGRADE_JOBS
from tests.unit.codec.kryo.test_flink_types import pojo_class

__all__ = ["run"]

CARTS = UPGRADE_JOBS / "carts"
[SAVEPOINT] = CARTS.glob("savepoint-*")


def jar_with_chain(count: int, folder: Path) -> str:
    """The jar of a job in which an element of a list has such classes."""
    path = folder / "job.jar"
    with zipfile.ZipFile(CARTS / "job.jar") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            if name != "carts/Line.class":
                new.writestr(name, old.read(name))
        fields = {"amount": "Lj/K0;", "product": "Lj/K0;"}
        new.writestr("carts/Line.class", pojo_class("carts/Line", fields))
        for number in range(count):
            inner = "I" if number + 1 == count else f"Lj/K{number + 1};"
            content = pojo_class(f"j/K{number}", {"a": inner, "b": inner})
            new.writestr(f"j/K{number}.class", content)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [14, 29, 200])
def test_the_commands_end_and_say_little(run: Any, tmp_path: Path, count: int) -> None:
    """A command that walks the classes as a tree does not end: 29 classes have 2**29 parts."""
    jar = jar_with_chain(count, tmp_path)
    states = 10
    ran = run("upgrade", str(SAVEPOINT), "--plan", "--jar", jar)
    is_too_large = count > 16
    assert ran.code == int(is_too_large)
    assert ("has too many parts" in ran.out) is is_too_large
    assert 0 < len(ran.out) < 3 * LONGEST_SHOWN * states
    for version in ("1.20", "2.2"):
        ran = run("check", jar, str(SAVEPOINT), f"--to={version}")
        assert ran.code == 1
        assert 0 < len(ran.out) < 3 * LONGEST_SHOWN * states
