"""Real Flink restores savepoints that rewrite_savepoint made of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.savepoint.edit.element_edits import EmptiedStates
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from tests.golden_files import COMPRESSED_OPERATOR_STATE, UNION_GROWTH
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.model import Model, texts
from tests.integration.flink.writing import LoggingJob, write_savepoint

pytestmark = pytest.mark.flink

BACKENDS = ("hashmap", "rocksdb")
STATES = [State("n", "value", "long"), State("names", "list", "string")]
UPDATES: list[Entry] = [
    {"key": f"key-{number}", "state": "n", "do": "update", "value": number * number}
    for number in range(300)
] + [
    {"key": f"key-{number}", "state": "names", "do": "add_all", "value": ["a", f"😀{number}"]}
    for number in range(100, 400)
]


def expected(uid: str) -> list[str]:
    model = Model(uid, STATES)
    model.apply(UPDATES)
    return texts(model.entries())


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Uid old, 128 key groups -> uid new, 256 key groups."""
    folder = tmp_path_factory.mktemp("rewrite")
    source = write_savepoint(folder / "source", "old", "string", STATES, UPDATES, parallelism=2)
    return rewrite_savepoint(
        Snapshot.load(source), folder / "out", rename={"old": "new"}, max_parallelism=256
    )


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("backend", BACKENDS)
def test_renamed_and_rescaled_restores_under_the_new_uid(
    flink: FlinkChecker, renamed: str, backend: str, parallelism: int
) -> None:
    restored = flink.restore(
        renamed, [Operator("new", "string", STATES)], backend=backend, parallelism=parallelism
    )

    assert texts(restored.entries, "kg") == expected("new")
    assert max(entry["kg"] for entry in restored.entries) > 127


@pytest.mark.parametrize("parallelism", [1, 4])
def test_a_union_state_that_multiplied_restores_with_one_of_equal_elements_or_none(
    flink: FlinkChecker, tmp_path: Path, parallelism: int
) -> None:
    source = Snapshot.load(UNION_GROWTH / "restored")
    out = rewrite_savepoint(source, tmp_path / "out", distinct=[("writer", "commit_user_state")])
    state = State("commit_user_state", "op-union", "string")
    declared = [Operator("writer", operator_states=[state])]

    emptied = EmptiedStates([("writer", "commit_user_state")])
    empty = rewrite_savepoint(source, tmp_path / "empty", edits=[emptied])

    counts = [
        [
            len(entry["value"])
            for entry in flink.restore(
                path, declared, strict=False, parallelism=parallelism
            ).entries
        ]
        for path in (UNION_GROWTH / "restored", out, empty)
    ]

    assert counts == [[16], [1], []]


@pytest.mark.parametrize("version", ["1.18.0", "1.18.1"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_elements_that_shared_chunks_restore_once_each(
    flink: FlinkChecker, tmp_path: Path, version: str, parallelism: int
) -> None:
    source = COMPRESSED_OPERATOR_STATE / version
    hash_ = "b29ed8d5f86bace1e426523538f9d5e5"
    out = rewrite_savepoint(Snapshot.load(source), tmp_path / "out")
    upgraded = SavepointUpgrade(Snapshot.load(source), "2.2").write(tmp_path / "upgraded")
    declared = [Operator(hash=hash_, operator_states=[State("splits", "op-list", "string")])]

    held = [
        sorted(
            element
            for entry in flink.restore(
                path, declared, strict=False, parallelism=parallelism
            ).entries
            for element in entry["value"]
        )
        for path in (out, upgraded, source)
    ]

    every = sorted(f"split-{subtask}-{number}" for subtask in (0, 1) for number in range(6))
    first = sorted(f"split-{subtask}-0" for subtask in (0, 1) for _ in range(6))
    assert held == [every, every, first]


def test_the_old_uid_is_refused_when_strict(flink: FlinkChecker, renamed: str) -> None:
    with pytest.raises(FlinkRestoreError, match="operator is not available in the new program"):
        flink.restore(renamed, [Operator("old", "string", STATES)])


def test_the_old_uid_is_empty_when_not_strict(flink: FlinkChecker, renamed: str) -> None:
    restored = flink.restore(renamed, [Operator("old", "string", STATES)], strict=False)

    assert restored.entries == []


def test_flink_does_not_change_the_number_of_key_groups(flink: FlinkChecker, renamed: str) -> None:
    operator = Operator("new", "string", STATES, max_parallelism=128)

    with pytest.raises(FlinkRestoreError, match="max parallelism"):
        flink.restore(renamed, [operator])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_changelog_checkpoint_becomes_a_savepoint(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    job = LoggingJob(tmp_path / "job", "old", "string", max_parallelism=128)
    run = job.run(STATES, parallelism=2)
    run.apply(UPDATES[:150])
    run.materialize()
    run.apply(UPDATES[150:])
    checkpoint = run.checkpoint()
    run.close()

    out = rewrite_savepoint(
        Snapshot.load(checkpoint), tmp_path / "out", rename={"old": "new"}, max_parallelism=512
    )

    restored = flink.restore(out, [Operator("new", "string", STATES)], backend=backend)
    assert texts(restored.entries, "kg") == expected("new")


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("boolean", [True, False]),
        ("int", [0, 1, -1, 2**31 - 1, -(2**31)]),
        ("long", [0, -1, 2**63 - 1, -(2**63), 2**32]),
        ("float", [0.0, -0.0, 0.10000000149011612, 3.4028234663852886e38, "NaN", "-Infinity"]),
        ("double", [0.0, -0.0, 0.1, 5e-324, "NaN", "Infinity"]),
        ("string", ["", "a", "Zürich", "😀", "\0", "lone \ud800"]),
        ("tuple<string,long>", [["a", 1], ["", -1], ["😀", 2**62]]),
        ("tuple<double,tuple<boolean,int>>", [[-0.0, [True, 7]], ["NaN", [False, -7]]]),
        ("list<string>", [[], ["a"], ["a", "b", ""]]),
    ],
)
def test_rescaling_finds_the_key_group_of_every_key_type(
    flink: FlinkChecker, tmp_path: Path, key: str, keys: list[Any]
) -> None:
    updates = [
        {"op": "op", "key": own_key, "state": "n", "do": "update", "value": number}
        for number, own_key in enumerate(keys)
    ]
    model = Model("op", STATES)
    model.apply(updates)
    operator = Operator("op", key, STATES)
    written = flink.restore(None, [operator], updates=updates, savepoint_to=tmp_path).savepoint
    assert written is not None

    out = rewrite_savepoint(Snapshot.load(written), tmp_path / "out", max_parallelism=1000)

    for backend in BACKENDS:
        restored = flink.restore(out, [operator], backend=backend, parallelism=3)
        assert texts(restored.entries, "kg") == texts(model.entries())


def test_operator_state_is_kept_and_a_removed_operator_is_gone(
    flink: FlinkChecker, tmp_path: Path
) -> None:
    offsets = State("offsets", "op-list", "tuple<string,long>")
    rules = State("rules", "op-broadcast", "string", map_key="int")
    keyed = Operator("keyed", "string", STATES)
    source = Operator("source", operator_states=[offsets, rules])
    updates = [
        *({"op": "keyed", **update} for update in UPDATES),
        {"op": "source", "state": "offsets", "do": "add", "value": ["first", 1]},
        {"op": "source", "state": "offsets", "do": "add", "value": ["second", 2], "subtask": 1},
        {"op": "source", "state": "rules", "do": "put", "map_key": 7, "value": "seven"},
    ]
    written = flink.restore(
        None, [keyed, source], parallelism=2, updates=updates, savepoint_to=tmp_path
    ).savepoint
    assert written is not None
    snapshot = Snapshot.load(written)

    both = rewrite_savepoint(snapshot, tmp_path / "both", rename={"source": "new"})
    one = rewrite_savepoint(snapshot, tmp_path / "one", remove=["keyed"], max_parallelism=256)

    renamed = Operator("new", operator_states=[offsets, rules])
    entries: list[Entry] = [
        {"kind": "op-list", "state": "offsets", "subtask": 0, "value": [["first", 1]]},
        {"kind": "op-list", "state": "offsets", "subtask": 1, "value": [["second", 2]]},
        {"kind": "op-broadcast", "state": "rules", "value": [[7, "seven"]]},
    ]
    restored = flink.restore(both, [keyed, renamed], parallelism=2).entries
    assert texts(restored, "kg") == sorted(
        expected("keyed") + texts({"op": "new", **each} for each in entries)
    )
    restored = flink.restore(one, [source], parallelism=2).entries
    assert texts(restored) == texts({"op": "source", **each} for each in entries)


@pytest.mark.parametrize("max_parallelism", [None, 4096])
@pytest.mark.parametrize(
    ("backend", "changelog", "form"),
    [
        ("hashmap", False, "heap"),
        ("rocksdb", False, "rocksdb"),
        ("hashmap", True, "changelog"),
        ("rocksdb", True, "changelog"),
    ],
)
def test_native_incremental_and_changelog_snapshots_become_canonical(
    flink: FlinkChecker,
    tmp_path: Path,
    backend: str,
    changelog: bool,
    form: str,
    max_parallelism: int | None,
) -> None:
    """What Flink wrote in its own forms, it restores once it is rewritten, on any backend."""
    operator = Operator("old", "string", STATES, timers=[TimerService()])
    timers: list[Entry] = [
        {
            "key": f"key-{n}",
            "service": "user-timers",
            "kind": "event-timer",
            "ts": n,
            "do": "register",
        }
        for n in range(50)
    ]
    updates = [{"op": "old", **each} for each in (*UPDATES, *timers)]
    written = flink.restore(
        None,
        [operator],
        backend=backend,
        changelog=changelog,
        parallelism=2,
        updates=updates,
        savepoint_to=tmp_path,
        savepoint_format="native",
    ).savepoint
    assert written is not None
    source = Snapshot.load(written)
    assert form in source["old"].form()
    model = Model("old", STATES)
    model.apply([*UPDATES, *timers])

    out = rewrite_savepoint(source, tmp_path / "out", max_parallelism=max_parallelism)

    assert Snapshot.load(out)["old"].form() == "canonical"
    for other in BACKENDS:
        restored = flink.restore(out, [operator], backend=other, parallelism=3)
        assert texts(restored.entries, "kg") == texts(model.entries())


@pytest.mark.parametrize("backend", BACKENDS)
def test_states_that_were_split_off_and_merged_restore(
    flink: FlinkChecker, tmp_path: Path, backend: str
) -> None:
    source = write_savepoint(tmp_path / "source", "old", "string", STATES, UPDATES, parallelism=2)
    old, apart = OperatorIdentifier.for_uid("old"), OperatorIdentifier.for_uid("apart")
    split = edit_savepoint(Snapshot.load(source)).split_operator(old, apart, ["names"])
    out = split.write(tmp_path / "split")

    n, names = STATES
    restored = flink.restore(
        out,
        [Operator("old", "string", [n]), Operator("apart", "string", [names])],
        backend=backend,
        parallelism=3,
    )
    together = [{**entry, "op": "old"} for entry in restored.entries]
    assert texts(together, "kg") == expected("old")
    assert {entry["op"] for entry in restored.entries if entry["state"] == "names"} == {"apart"}

    merged = (
        edit_savepoint(Snapshot.load(out)).merge_operators(old, apart).write(tmp_path / "merged")
    )
    restored = flink.restore(
        merged, [Operator("apart", "string", STATES)], backend=backend, parallelism=2
    )
    assert texts(restored.entries, "kg") == expected("apart")
