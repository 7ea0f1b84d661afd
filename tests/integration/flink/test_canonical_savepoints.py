"""Real Flink restores the canonical savepoints that dstl_core writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.flink.checker import Entry, FlinkChecker, Operator, State
from tests.integration.flink.model import Model, texts
from tests.integration.flink.writing import write_savepoint

pytestmark = pytest.mark.flink

BACKENDS = ("hashmap", "rocksdb")
SAMPLES: dict[str, list[Any]] = {
    "string": [
        "a",
        "",
        "key-1",
        "N14228",
        "\0nul\0",
        "Zürich",
        "日本語",
        "😀 astral",
        "lone \ud800 surrogate",
        "\uffff",
        "x" * 300,
        'quote " backslash \\ line\n',
    ],
    "long": [0, 1, -1, 127, 128, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "int": [0, 1, -1, 127, 128, 65535, 2**31 - 1, -(2**31)],
    "double": [
        0.0,
        -0.0,
        1.0,
        -1.5,
        0.1,
        1e300,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        "NaN",
        "Infinity",
        "-Infinity",
    ],
}
STATES = [
    State(f"{kind} of {type_}", kind, type_) for kind in ("value", "list") for type_ in SAMPLES
]


def every_state(keys: list[Any]) -> list[Entry]:
    """Each key gets another sample in every value state, one to three in every list state."""
    updates = []
    for number, key in enumerate(keys):
        for state in STATES:
            samples = SAMPLES[state.type]
            value = samples[number % len(samples)]
            if state.kind == "list":
                value = [samples[(number + i) % len(samples)] for i in range(1 + number % 3)]
            updates.append({"key": key, "state": state.name, "do": "update", "value": value})
    return updates


@pytest.mark.parametrize("subtasks", [1, 3])
@pytest.mark.parametrize("max_parallelism", [128, 256], ids=["1-byte prefix", "2-byte prefix"])
@pytest.mark.parametrize("key", SAMPLES)
def test_every_key_and_value_type(
    flink: FlinkChecker, tmp_path: Path, key: str, max_parallelism: int, subtasks: int
) -> None:
    updates = every_state(SAMPLES[key])
    model = Model("op", STATES)
    model.apply(updates)
    path = write_savepoint(
        tmp_path / "savepoint",
        "op",
        key,
        STATES,
        updates,
        max_parallelism=max_parallelism,
        parallelism=subtasks,
    )

    for backend in BACKENDS:
        for parallelism in (1, 2, 3):
            restored = flink.restore(
                path, [Operator("op", key, STATES)], backend=backend, parallelism=parallelism
            )
            assert texts(restored.entries, "kg") == texts(model.entries())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [0, 1, 3000])
def test_no_one_and_many_keys(
    flink: FlinkChecker, tmp_path: Path, count: int, backend: str
) -> None:
    states = [State("n", "value", "long"), State("names", "list", "string")]
    updates: list[Entry] = []
    for number in range(count):
        key = f"schlüssel-{number}"
        updates.append({"key": key, "state": "n", "do": "update", "value": number})
        updates.append({"key": key, "state": "names", "do": "add", "value": "first"})
        updates.append({"key": key, "state": "names", "do": "add", "value": key})
    model = Model("op", states)
    model.apply(updates)
    path = write_savepoint(tmp_path / "savepoint", "op", "string", states, updates, parallelism=2)
    files = {each.name for each in path.iterdir()} - {"_metadata", "_dstl.json"}
    assert bool(files) == (count == 3000)  # small state stands in the metadata

    restored = flink.restore(
        path, [Operator("op", "string", states)], backend=backend, parallelism=3
    )

    assert len(restored.entries) == 2 * count
    assert texts(restored.entries, "kg") == texts(model.entries())


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_without_any_state(flink: FlinkChecker, tmp_path: Path, backend: str) -> None:
    path = write_savepoint(tmp_path / "savepoint", "op", "string", [], [], parallelism=2)

    restored = flink.restore(
        path, [Operator("op", "string", [State("n", "value", "long")])], backend=backend
    )

    assert restored.entries == []


def test_an_operator_is_found_by_its_hash(flink: FlinkChecker, tmp_path: Path) -> None:
    state = State("n", "value", "long")
    updates = [{"key": "a", "state": "n", "do": "update", "value": 100}]
    path = write_savepoint(tmp_path / "savepoint", "counter", "string", [state], updates)
    # The id that Flink gives to the uid "counter".
    uid_hash = "0da08f51eaa85fc298e176a139b3649a"

    restored = flink.restore(path, [Operator(hash=uid_hash, key="string", states=[state])])

    assert restored.entries == [
        {
            "op": uid_hash,
            "kind": "value",
            "state": "n",
            "key": "a",
            "kg": 81,
            "ns": None,
            "value": 100,
        }
    ]
