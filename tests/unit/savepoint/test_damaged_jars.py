"""A damaged jar is one sentence that names the class file; states that do not need the class are
read as before.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import is_one_sentence, run
from tests.golden_files import UPGRADE_JOBS

__all__ = ["run"]

JOB = UPGRADE_JOBS / "carts"
RAW = (JOB / "job.jar").read_bytes()
[SAVEPOINT] = JOB.glob("savepoint-*")
LINE = "carts/Line.class"
NEED_LINE = {"items", "raw", "nested"}
"""The states with values of ``carts.Line``, as the source of the job says."""


def packed_bytes_changed(name: str) -> bytes:
    """The jar with a changed byte in the middle of an entry."""
    raw = bytearray(RAW)
    entry = zipfile.ZipFile(io.BytesIO(RAW)).getinfo(name)
    lengths = struct.unpack_from("<HH", raw, entry.header_offset + 26)
    raw[entry.header_offset + 30 + sum(lengths) + entry.compress_size // 2] ^= 0xFF
    return bytes(raw)


def contents_changed(change: Callable[[bytes], bytes]) -> Callable[[str], bytes]:
    """The jar with another class file, packed well."""

    def changed(name: str) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(RAW)) as old, zipfile.ZipFile(out, "w") as new:
            for entry in old.namelist():
                new.writestr(entry, change(old.read(entry)) if entry == name else old.read(entry))
        return out.getvalue()

    return changed


DAMAGES = {
    "packed bytes": packed_bytes_changed,
    "cut": contents_changed(lambda raw: raw[: len(raw) // 2]),
    "empty": contents_changed(lambda raw: b""),
    "an unknown tag": contents_changed(lambda raw: raw[:10] + b"\xee" + raw[11:]),
    "no class file": contents_changed(lambda raw: b"\0" + raw[1:]),
}


def entries(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_class_costs_the_states_that_need_it(
    run: Any, tmp_path: Path, damage: str
) -> None:
    jar = tmp_path / "job.jar"
    whole = entries(run("dump", str(SAVEPOINT), "--jar", str(JOB / "job.jar"))[1])
    jar.write_bytes(DAMAGES[damage](LINE))
    code, out, err = run("dump", str(SAVEPOINT), "--jar", str(jar))
    assert code == 0
    assert entries(out) == [each for each in whole if each["state"] not in NEED_LINE]
    assert len(err.splitlines()) == len(NEED_LINE)
    assert all(LINE in each for each in err.splitlines())
    for unused in ("carts/Carts$Feed.class", "carts/Carts$Update.class"):
        jar.write_bytes(DAMAGES[damage](unused))
        code, out, err = run("dump", str(SAVEPOINT), "--jar", str(jar))
        assert (code, entries(out), err) == (0, whole, "")


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [LINE, "carts/Carts$Update.class"])
def test_a_check_of_a_damaged_jar_is_one_sentence(
    run: Any, tmp_path: Path, damage: str, name: str
) -> None:
    jar = tmp_path / "job.jar"
    jar.write_bytes(DAMAGES[damage](name))
    code, out, err = run("check", str(jar), str(SAVEPOINT))
    if code == 1:  # the class is not looked for where its bytes do not have what the check looks at
        assert damage in ("cut", "empty")
        return
    assert (code, out) == (2, "")
    assert is_one_sentence(err)
    assert name in err
