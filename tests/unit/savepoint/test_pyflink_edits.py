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
from dstl_core.errors import ColumnValueError, ConfigError
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from tests.golden_files import GOLDEN
from tests.unit.savepoint.test_pyflink_jobs import declared, savepoint, truth

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


# ------------------------------------------------------------------- values in other types

VALUES = {
    "v_int": ("INT", "LONG"),
    "v_row": ("ROW[LONG, STRING, BOOLEAN, DOUBLE]", "ROW[LONG, STRING, BOOLEAN, DOUBLE, STRING]"),
    "v_map": ("MAP[STRING, INT]", "MAP[STRING, LONG]"),
    "longs": ("LONG", "BIG_DEC"),
}
RECODED = {
    "migration": 1,
    "operators": {
        "py": {
            "states": {
                **{
                    f"python-state-{name}": {"value": f"recode(value, {old}, {new})"}
                    for name, (old, new) in VALUES.items()
                },
                "python-state-seen": {
                    "map_key": "recode(map_key, PICKLED, TUPLE[STRING, INT])",
                    "value": "recode(value, PICKLED, ROW[LONG, STRING])",
                },
            }
        }
    },
}
NEW_TYPES = {
    **declared("process"),
    "v_int": "LONG",
    "v_row": VALUES["v_row"][1],
    "v_map": VALUES["v_map"][1],
    "longs": "list[BIG_DEC]",
    "seen": "map[TUPLE[STRING, INT], ROW[LONG, STRING]]",
}


RESTORED = GOLDEN / "pyflink-jobs" / "recoded"
"""The savepoint that PyFlink got, and the one that it took after the next five numbers."""


def test_what_recode_writes_is_what_pyflink_restored(tmp_path: Path) -> None:
    migration = SavepointMigration(Migration.of(RECODED), Snapshot.load(savepoint("process")))
    out = migration.write(tmp_path / "out")
    one, other = (
        sorted(
            json.dumps(line, sort_keys=True)
            for line in Snapshot.load(path, state_types=NEW_TYPES)["py"].dump()
        )
        for path in (out, RESTORED / "savepoint-given")
    )
    assert one == other
    assert len(one) > 150


NEXT: dict[str, Callable[[list[int]], Any]] = {
    "v_int": AFTER["v_int"],
    "v_map": AFTER["v_map"],
    "longs": lambda own: [str(n) for n in own],
    "seen": AFTER["seen"],
    "total": sum,
    "v_row": lambda own: [
        own[-1],
        None if own[-1] % 3 == 0 else f"r{own[-1]}",
        own[-1] % 2 == 1,
        own[-1] / 4,
        f"n{own[-1]}",
    ],
}


@pytest.mark.parametrize("state", NEXT)
def test_pyflink_went_on_with_the_other_types(state: str) -> None:
    snapshot = Snapshot.load(RESTORED / "savepoint-after", state_types=NEW_TYPES)
    dumped = {line["key"]: line["value"] for line in snapshot["py"].dump(state)}
    assert dumped == {f"key-{key}": NEXT[state]([key, key + 5, key + 10]) for key in range(5)}


def test_values_get_other_types(tmp_path: Path) -> None:
    migration = SavepointMigration(Migration.of(RECODED), Snapshot.load(savepoint("process")))
    out = migration.write(tmp_path / "out")
    new = Snapshot.load(out, state_types=NEW_TYPES)["py"]
    for name in (*VALUES, "seen"):
        held_before = {
            line["key"]: line["value"] for line in truth("process") if line.get("state") == name
        }
        expected = {
            key: [*value, None]
            if name == "v_row"
            else [str(each) for each in value]
            if name == "longs"
            else value
            for key, value in held_before.items()
        }
        assert {line["key"]: line["value"] for line in new.dump(name)} == expected
        assert len(expected) == 5


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("recode(value, LONG, STRING)", "LONG of PyFlink do not become STRING"),
        ("recode(value, list[LONG], LONG)", "takes the type of a value"),
        ("recode(value, long, LONG)", "is no type of PyFlink"),
        ("recode(7, LONG, LONG)", "takes the bytes of a state of PyFlink"),
        ("recode(key.f0, LONG, LONG)", "takes the bytes of a state of PyFlink"),
    ],
)
def test_a_wrong_rule_is_a_problem_of_the_plan(rule: str, message: str) -> None:
    states = {"python-state-v_long": {"value": rule}}
    migration = Migration.of({"migration": 1, "operators": {"py": {"states": states}}})
    plan = SavepointMigration(migration, Snapshot.load(savepoint("process"))).plan
    [problem] = plan.problems
    assert message in problem
    assert "\n" not in problem


def test_a_rule_without_a_type_is_no_expression() -> None:
    states = {"python-state-v_long": {"value": "recode(value, LONG)"}}
    with pytest.raises(ConfigError, match="expected a type and ','"):
        Migration.of({"migration": 1, "operators": {"py": {"states": states}}})


def test_a_value_that_does_not_fit_stops_it(tmp_path: Path) -> None:
    rules = {"value": "recode(value, LONG, INT)"}
    migration = SavepointMigration(
        Migration.of(
            {"migration": 1, "operators": {"py": {"states": {"python-state-v_long": rules}}}}
        ),
        Snapshot.load(savepoint("process")),
    )
    with pytest.raises(ColumnValueError, match="does not fit into type INT"):
        migration.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()
