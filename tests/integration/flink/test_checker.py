"""The checker says what is wrong, and reads back what it made Flink write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkCheckerError,
    FlinkRestoreError,
    Java,
    Operator,
    Restored,
    State,
    find_jars,
)
from tests.integration.flink.model import texts
from tests.integration.flink.writing import write_savepoint

pytestmark = pytest.mark.flink

STATE = State("n", "value", "long")
OPERATOR = Operator("op", "string", [STATE])


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    updates = [{"key": "a", "state": "n", "do": "update", "value": 1}]
    return write_savepoint(tmp_path / "savepoint", "op", "string", [STATE], updates)


def test_a_strict_restore_refuses_an_unknown_operator(flink: FlinkChecker, savepoint: Path) -> None:
    with pytest.raises(FlinkRestoreError) as error:
        flink.restore(savepoint, [Operator("another", "string", [STATE])])

    # The id of the uid "op", and where it was found.
    assert "Cannot map checkpoint/savepoint state for operator" in str(error.value)
    assert str(savepoint) in str(error.value)


def test_a_snapshot_that_is_not_there(flink: FlinkChecker, tmp_path: Path) -> None:
    with pytest.raises(FlinkRestoreError, match="Cannot find checkpoint or savepoint"):
        flink.restore(tmp_path / "nothing", [OPERATOR])


def test_a_truncated_metadata_file(flink: FlinkChecker, savepoint: Path) -> None:
    metadata = savepoint / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-200])

    with pytest.raises(FlinkRestoreError, match="EOFException"):
        flink.restore(savepoint, [OPERATOR])


def test_a_state_of_another_type(flink: FlinkChecker, savepoint: Path) -> None:
    other = Operator("op", "string", [State("n", "value", "string")])

    with pytest.raises(FlinkRestoreError, match="must not be incompatible"):
        flink.restore(savepoint, [other])


def test_a_key_of_another_type(flink: FlinkChecker, savepoint: Path) -> None:
    with pytest.raises(FlinkRestoreError, match="new key serializer"):
        flink.restore(savepoint, [Operator("op", "long", [STATE])])


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_key_in_a_wrong_key_group(flink: FlinkChecker, tmp_path: Path, backend: str) -> None:
    updates = [{"key": "a", "state": "n", "do": "update", "value": 1}]
    right = write_savepoint(tmp_path / "right", "op", "string", [STATE], updates)
    metadata = (right / "_metadata").read_bytes()
    # A stored key: length, key group 81 (with the mark of a last record), "a", void namespace.
    stored = bytes.fromhex("00000004 d1 0261 00")
    assert metadata.count(stored) == 1
    moved = metadata.replace(stored, bytes.fromhex("00000004 d2 0261 00"))
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "_metadata").write_bytes(moved)

    with pytest.raises(FlinkRestoreError, match="wrong key group"):
        flink.restore(tmp_path / "wrong", [OPERATOR], backend=backend)


def test_a_case_that_takes_too_long_is_given_up(flink: FlinkChecker, savepoint: Path) -> None:
    with pytest.raises(FlinkRestoreError, match="took more than 0 s"):
        flink.restore(savepoint, [OPERATOR], timeout_s=0)

    # All slots are free again: a job that needs every one of them runs.
    assert len(flink.restore(savepoint, [OPERATOR], parallelism=4).entries) == 1


def test_the_job_goes_on_with_a_new_jvm_after_a_crash(flink: FlinkChecker, savepoint: Path) -> None:
    before = flink.restore(savepoint, [OPERATOR]).entries
    assert flink._jvm is not None
    flink._jvm._process.kill()

    with pytest.raises(FlinkCheckerError, match="ended by itself"):
        flink.restore(savepoint, [OPERATOR])

    assert flink.restore(savepoint, [OPERATOR]).entries == before


OPERATOR_STATES = [
    State("offsets", "op-list", "tuple<string,long>"),
    State("all", "op-union", "string"),
    State("rules", "op-broadcast", "long", map_key="string"),
]


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_operator_state_and_keyed_state_of_one_job(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    operators = [Operator("source", operator_states=OPERATOR_STATES), OPERATOR]
    updates: list[Entry] = [
        {"op": "op", "key": "a", "state": "n", "do": "update", "value": 1},
        {"op": "source", "state": "offsets", "do": "add", "value": ["x", 1]},
        {"op": "source", "state": "offsets", "do": "add", "value": ["y", 2], "subtask": 1},
        {"op": "source", "state": "offsets", "do": "add", "value": ["z", 3]},
        {"op": "source", "state": "all", "do": "add", "value": "first"},
        {"op": "source", "state": "all", "do": "add", "value": "second", "subtask": 1},
        {"op": "source", "state": "rules", "do": "put", "map_key": "b", "value": 2},
        {"op": "source", "state": "rules", "do": "put", "map_key": "a", "value": 1},
    ]

    def run(snapshot: str | None, updates: list[Entry], savepoint_to: Path | None) -> Restored:
        return flink.restore(
            snapshot,
            operators,
            backend=backend,
            parallelism=2,
            updates=updates,
            savepoint_to=savepoint_to,
        )

    first = run(None, updates, tmp_path)
    assert first.entries == []
    # Saved once more without a change: a union must not have multiplied.
    again = run(first.savepoint, [], tmp_path)
    restored = run(again.savepoint, [], None)

    for entry in restored.entries:
        if entry["kind"] == "op-union":
            entry["value"].sort()  # Flink unites the parts of the subtasks in any order
    union = ["first", "second"]
    pairs = [["a", 1], ["b", 2]]
    expected: list[Entry] = [
        {"kind": "op-list", "state": "offsets", "subtask": 0, "value": [["x", 1], ["z", 3]]},
        {"kind": "op-list", "state": "offsets", "subtask": 1, "value": [["y", 2]]},
        {"kind": "op-union", "state": "all", "value": union},
        {"kind": "op-broadcast", "state": "rules", "value": pairs},
    ]
    keyed = {"op": "op", "kind": "value", "state": "n", "key": "a", "kg": 81, "ns": None}
    assert texts(restored.entries) == texts(
        [{"op": "source", **each} for each in expected] + [{**keyed, "value": 1}]
    )


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_native_savepoint_restores_in_its_own_backend(
    flink: FlinkChecker, tmp_path: Path, savepoint: Path, backend: str
) -> None:
    native = flink.restore(
        savepoint, [OPERATOR], backend=backend, savepoint_to=tmp_path, savepoint_format="native"
    )
    assert native.savepoint is not None

    assert flink.restore(native.savepoint, [OPERATOR], backend=backend).entries == native.entries
    other = {"hashmap": "rocksdb", "rocksdb": "hashmap"}[backend]
    with pytest.raises(FlinkRestoreError):
        flink.restore(native.savepoint, [OPERATOR], backend=other)


def test_without_a_compiler_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(FlinkCheckerError, match=r"^[^\n]*install one[^\n]*$"):
        Java.find()


def test_without_jars_one_line_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSTL_FLINK_LIB", str(tmp_path))

    with pytest.raises(FlinkCheckerError, match=r"^[^\n]*make test-flink[^\n]*$"):
        find_jars()
