"""Jobs of PyFlink with other keys, and with aggregate functions of the Table API, are read.

What each state holds follows from the code of the jobs, ``job.txt`` and ``own/udaf.txt``: ten
numbers by key. ``JOBS`` says how each number becomes a key.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.columnar.keyed.key_group_columns import key_groups_of
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS, layout_of
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.serializers import base
from dstl_core.codec.serializers.structs import Row
from dstl_core.state.columns.element_columns import decode_elements
from tests.command_line import run
from tests.golden_files import GOLDEN

__all__ = ["run"]

OWN = GOLDEN / "pyflink-jobs" / "own"
ROW = "ROW[LONG, STRING, BOOLEAN, DOUBLE]"
JOBS: dict[str, Callable[[int], Any]] = {
    "process-long": lambda n: n % 5,
    "process-row": lambda n: [n % 3, "k"],
    "process-pickle": lambda n: n % 5,
    "thread-string": lambda n: f"key-{n % 5}",
    "thread-pickle": lambda n: n % 5,
}
TYPES = {
    "events": "list[PICKLED]",
    "seen": "map[PICKLED, PICKLED]",
    "counts": "map[STRING, LONG]",
    "longs": "list[LONG]",
    "total": "reducing[LONG]",
    "mean": "aggregating[TUPLE[INT, DOUBLE]]",
    "v_int": "INT",
    "v_long": "LONG",
    "v_string": "STRING",
    "v_bool": "BOOLEAN",
    "v_double": "DOUBLE",
    "v_dec": "BIG_DEC",
    "v_row": ROW,
    "v_map": "MAP[STRING, INT]",
}
HELD: dict[str, Callable[[list[int]], Any]] = {
    "events": lambda own: [[["at", "2024"], ["n", n]] for n in own],
    "seen": lambda own: [[["k", n], [n, "v"]] for n in own],
    "longs": lambda own: own,
    "total": sum,
    "mean": lambda own: [len(own), sum(own) * 1.5],
    "v_int": lambda own: own[-1] * 7 - 3,
    "v_long": lambda own: own[-1] * 10**12 - 5,
    "v_string": lambda own: f"sé-{own[-1]}",
    "v_bool": lambda own: own[-1] % 2 == 0,
    "v_double": lambda own: own[-1] / 3,
    "v_map": lambda own: [["a", own[-1]], ["b", -own[-1]]],
    "v_row": lambda own: [
        own[-1],
        None if own[-1] % 3 == 0 else f"r{own[-1]}",
        own[-1] % 2 == 1,
        own[-1] / 4,
    ],
}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_with_keys_of_another_type_is_read(job: str) -> None:
    snapshot = Snapshot.load(OWN / job / "savepoint")
    known = {info.name.removeprefix("python-state-") for info in snapshot["py"].states}
    types = {name: text for name, text in TYPES.items() if name in known}
    operator = Snapshot.load(OWN / job / "savepoint", state_types=types)["py"]
    groups: dict[str, list[int]] = {}
    for n in range(10):
        groups.setdefault(json.dumps(JOBS[job](n)), []).append(n)
    compared = 0
    for name, held in HELD.items():
        if name in known:
            dumped = {json.dumps(line["key"]): line["value"] for line in operator.dump(name)}
            assert dumped == {key: held(own) for key, own in groups.items()}, name
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize(("job", "protocol"), [("process-pickle", 5), ("thread-pickle", 4)])
def test_pickled_keys_are_in_the_key_groups_that_pyflink_gave_them(job: str, protocol: int) -> None:
    """Flink hashes the bytes of the pickle, in a row; here by value, and as a column."""
    operator = Snapshot.load(OWN / job / "savepoint")["py"]
    assert operator.key_type is not None
    kind, most = operator.key_type.serializer, operator.max_parallelism
    groups = {line["key"]: line["kg"] for line in operator.dump("plain")}
    assert sorted(groups) == list(range(5))
    raw = []
    for n in range(5):
        key, out = Row(0, (bytes([0x80, protocol, ord("K"), n, ord(".")]),)), DataOutput()
        assert list(base.key_groups_of(kind, key, most)) == [groups[n]]
        kind.serialize(key, out)
        raw.append(out.to_bytes())
    column, failure = decode_elements(layout_of(kind, EXACT_OPTIONS), raw)
    assert failure is None
    expected = [groups[n] for n in range(5)]
    assert key_groups_of(column, kind, most, EXACT_OPTIONS).tolist() == expected
    assert key_groups_of(column[2:], kind, most, EXACT_OPTIONS).tolist() == expected[2:]


def test_pickled_keys_are_checked_and_moved(run: Any, tmp_path: Path) -> None:
    path, out = str(OWN / "process-pickle" / "savepoint"), str(tmp_path / "out")
    assert "hash" not in run("verify", path).out
    assert run("rewrite", path, out, "--max-parallelism", "64").code == 0
    one, other = (
        sorted(json.dumps([line["state"], line["key"], line["value"]]) for line in lines)
        for lines in (Snapshot.load(folder)["py"].dump("plain") for folder in (path, out))
    )
    assert one == other
    assert run("verify", out).code == 0


UDAF = {
    "accumulators": "PICKLED",
    "agg1$l": "list[STRING]",
    "agg1$m": "map[STRING, LONG]",
}


def test_aggregate_functions_of_the_table_api_are_read(run: Any) -> None:
    """The accumulator of all functions is one state, and each view of data is another one."""
    path = str(OWN / "udaf-rocksdb" / "savepoint")
    options = [part for name, text in UDAF.items() for part in ("--type", f"{name}={text}")]
    dumped: dict[str, dict[str, Any]] = {}
    for line in run("dump", path, *options).lines:
        dumped.setdefault(line["state"], {})[line["key"][1]] = line["value"]
    groups = {f"k{key}": list(range(key, 10, 3)) for key in range(3)}
    assert dumped == {
        "accumulators": {
            key: [[len(own), sum(own) * 1.5], [None, None]] for key, own in groups.items()
        },
        "agg1$l": {key: [f"v{n}" for n in own] for key, own in groups.items()},
        "agg1$m": {
            key: sorted([f"m{part}", max(n for n in own if n % 2 == part)] for part in (0, 1))
            for key, own in groups.items()
        },
    }
    assert run("verify", path).code == 0


def test_keys_that_pyflink_overwrote_are_found(run: Any, tmp_path: Path) -> None:
    """The same job on the heap: PyFlink 2.2.1 reuses the row of the key, so that all entries have
    the last one, in the key groups of the right ones.
    """
    path = str(tmp_path)
    shutil.copyfile(OWN / "udaf-hashmap" / "overwritten-keys", tmp_path / "_metadata")
    assert {line["key"][1] for line in run("dump", path).lines} == {"k2"}
    ran = run("verify", path)
    assert ran.code == 1
    assert "a key is in key group 72 but belongs to 26; Flink would never find it" in ran.out


def test_every_savepoint_is_in_a_test() -> None:
    folders = {path.parent.parent.name for path in Path(OWN).rglob("_metadata")}
    assert folders == {*JOBS, "udaf-rocksdb"}
