"""A savepoint of PyFlink that dstl has changed: PyFlink 2.2.1 restored it and went on.

``edited`` has the savepoint that PyFlink got, with another uid, a map of another name and a state
less; and the one that it took after the next five numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from tests.golden_files import GOLDEN
from tests.unit.savepoint.test_pyflink_jobs import declared, savepoint

EDITED = GOLDEN / "pyflink-jobs" / "edited"
RULES = {
    "migration": 1,
    "operators": {
        "python-two": {
            "from": ["py"],
            "states": {"python-state-counts_of_key": {"from": "python-state-counts"}},
            "drop": ["python-state-v_oarr"],
        }
    },
}
TYPES = {
    {"counts": "counts_of_key"}.get(name, name): text
    for name, text in declared("process").items()
    if name != "v_oarr"
}


def held(path: str | Path) -> list[str]:
    snapshot = Snapshot.load(path, state_types=TYPES)
    return sorted(json.dumps(line, sort_keys=True) for line in snapshot["python-two"].dump())


def test_what_dstl_writes_is_what_pyflink_restored(tmp_path: Path) -> None:
    migration = SavepointMigration(Migration.of(RULES), Snapshot.load(savepoint("process")))
    assert held(migration.write(tmp_path / "out")) == held(EDITED / "savepoint-given")
    assert len(held(EDITED / "savepoint-given")) > 100


AFTER: dict[str, Callable[[list[int]], Any]] = {
    "longs": lambda own: own,
    "total": sum,
    "mean": lambda own: [len(own), sum(own) * 1.5],
    "events": lambda own: [[["at", "2024"], ["n", n]] for n in own],
    "seen": lambda own: [[["k", n], [n, "v"]] for n in sorted(own, key=lambda n: f"{n}]")],
    "counts_of_key": lambda own: sorted([f"c{n % 3}", n * 11] for n in own),
    "v_int": lambda own: own[-1] * 7 - 3,
    "v_string": lambda own: f"sé-{own[-1]}",
    "v_row": lambda own: [
        own[-1],
        None if own[-1] % 3 == 0 else f"r{own[-1]}",
        own[-1] % 2 == 1,
        own[-1] / 4,
    ],
    "v_map": lambda own: [["a", own[-1]], ["b", -own[-1]]],
}
"""What the job makes of the numbers of a key."""


@pytest.mark.parametrize("state", AFTER)
def test_pyflink_went_on_with_it(state: str) -> None:
    snapshot = Snapshot.load(EDITED / "savepoint-after", state_types=TYPES)
    dumped = {line["key"]: line["value"] for line in snapshot["python-two"].dump(state)}
    assert dumped == {f"key-{key}": AFTER[state]([key, key + 5, key + 10]) for key in range(5)}
