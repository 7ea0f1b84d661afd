"""Real Flink restores snapshots whose metadata alone an edit wrote, by reference and as copies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.model.handle import FileStateHandle, RelativeFileStateHandle
from dstl_core.savepoint.compare.diff import diff_snapshots
from tests.command_line import run
from tests.integration.flink.checker import (
    Entry,
    FlinkChecker,
    FlinkRestoreError,
    Operator,
    State,
    TimerService,
)
from tests.integration.flink.model import Model, texts
from tests.integration.flink.releases import jars_of

__all__ = ["run"]
pytestmark = pytest.mark.flink

STATES = [
    State("n", "value", "long"),
    State("names", "list", "string"),
    State("m", "map", "long", map_key="string"),
]
TIMERS = [TimerService()]
ELEMENTS = State("elements", "op-list", "string")
KEYS = [f"key-{number}" for number in range(400)]
FIRST: list[Entry] = [
    *({"key": key, "state": "n", "do": "update", "value": n} for n, key in enumerate(KEYS)),
    *({"key": key, "state": "names", "do": "add_all", "value": ["a", "é", key]} for key in KEYS),
    *(
        {"key": key, "state": "m", "do": "put", "map_key": f"m{number}", "value": number}
        for key in KEYS[:200]
        for number in range(3)
    ),
    *(
        {
            "key": key,
            "service": "user-timers",
            "kind": "event-timer",
            "do": "register",
            "ts": 10_000 + n,
        }
        for n, key in enumerate(KEYS[:100])
    ),
]
LATER: list[Entry] = [
    *({"key": key, "state": "n", "do": "update", "value": -n} for n, key in enumerate(KEYS[:50])),
    *({"key": key, "state": "names", "do": "add", "value": "later"} for key in KEYS[20:40]),
    {"key": KEYS[7], "state": "n", "do": "clear"},
    {"key": "a new one", "state": "n", "do": "update", "value": 7},
]


def keyed(uid: str) -> Operator:
    return Operator(uid, "string", STATES, TIMERS)


def of(uid: str, updates: Iterable[Entry]) -> list[Entry]:
    return [{"op": uid, **each} for each in updates]


def held(uid: str, *updates: list[Entry]) -> list[str]:
    model = Model(uid, STATES)
    for update in updates:
        model.apply(of(uid, update))
    return texts(model.entries(), "kg")


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


@dataclass(frozen=True)
class Source:
    """What real Flink wrote, and the folder with all its files."""

    path: Path
    job: Path
    backend: str


@pytest.fixture(scope="module", params=["checkpoint-128", "checkpoint-4096", "savepoint", "heap"])
def source(
    flink: FlinkChecker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Source:
    """What Flink of the tests wrote."""
    return write_source(flink, tmp_path_factory.mktemp("savepoint"), request.param)


def write_source(flink: FlinkChecker, folder: Path, kind: str) -> Source:
    """Two keyed operators and one with a list; of a checkpoint the second incremental one."""
    backend = "hashmap" if kind == "heap" else "rocksdb"
    is_savepoint = kind == "savepoint"
    restored = flink.restore(
        None,
        [keyed("old"), keyed("gone"), Operator("list", operator_states=[ELEMENTS])],
        backend=backend,
        parallelism=2,
        max_parallelism=4096 if kind.endswith("4096") else 128,
        updates=[
            *of("old", FIRST),
            *of("gone", FIRST[:100]),
            {"op": "list", "state": "elements", "do": "add", "value": "one"},
        ],
        checkpoints=0 if is_savepoint else 2,
        savepoint_to=folder if is_savepoint else None,
        savepoint_format="native",
    )
    if is_savepoint:
        assert restored.savepoint is not None
        return Source(Path(restored.savepoint), Path(restored.savepoint), backend)
    path = Path(restored.checkpoints[-1])
    return Source(path, path.parent, backend)


def edit(run: Any, source: Source, out: Path, *options: str) -> str:
    edits = ["--rename", "old=new", "--remove", "gone"]
    code, printed, error = run("rewrite", str(source.path), str(out), *edits, *options)
    assert code == 0, error
    return printed


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("parallelism", [2, 3])
def test_a_rename_by_reference_writes_no_state_and_harms_nobody(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source, parallelism: int
) -> None:
    out = tmp_path / "out"
    printed = edit(run, source, out, "--share", "--checkpoint-id=41")
    before = digests(source.job)

    restored = flink.restore(
        out,
        [keyed("new"), Operator("list", operator_states=[ELEMENTS])],
        backend=source.backend,
        parallelism=parallelism,
        updates=of("new", LATER),
        checkpoints=2,
        savepoint_to=tmp_path / "savepoints",
    )

    assert "restore with claim mode NO_CLAIM" in printed
    assert names_in(out) == {"_metadata", "_dstl.json"}
    handles = file_handles(Snapshot.load(out).metadata)
    assert handles and all(isinstance(each, FileStateHandle) for each in handles)
    assert texts([e for e in restored.entries if e["op"] == "new"], "kg") == held("new", FIRST)
    # The job's own checkpoints were taken and subsumed.
    assert Path(restored.checkpoints[0]).name == "chk-42"
    assert digests(source.job) == before
    again = flink.restore(restored.savepoint, [keyed("new")], backend=source.backend, strict=False)
    assert texts(again.entries, "kg") == held("new", FIRST, LATER)
    checkpoint = flink.restore(
        restored.checkpoints[-1], [keyed("new")], backend=source.backend, strict=False
    )
    assert texts(checkpoint.entries, "kg") == held("new", FIRST, LATER)


def test_what_flink_saves_after_an_edit_differs_in_nothing(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    edit(run, source, tmp_path / "edited", "--copy")
    edit(run, source, tmp_path / "canonical", "--canonical")

    saved = flink.restore(
        tmp_path / "edited",
        [keyed("new"), Operator("list", operator_states=[ELEMENTS])],
        backend=source.backend,
        parallelism=2,
        savepoint_to=tmp_path / "savepoints",
    ).savepoint

    assert saved is not None
    one, two = Snapshot.load(tmp_path / "canonical"), Snapshot.load(saved)
    assert len(list(one["new"].dump())) > 2 * len(KEYS)
    assert list(diff_snapshots(one, two)) == []


def test_a_copy_can_be_moved_and_claimed(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    edit(run, source, tmp_path / "first", "--copy")
    copy = (tmp_path / "first").rename(tmp_path / "copy")
    before = digests(source.job)
    handles = file_handles(Snapshot.load(copy).metadata)

    restored = flink.restore(
        copy,
        [keyed("new"), Operator("list", operator_states=[ELEMENTS])],
        backend=source.backend,
        parallelism=3,
        updates=of("new", LATER),
        checkpoints=3,
        claim_mode="CLAIM",
    )

    assert handles and all(isinstance(each, RelativeFileStateHandle) for each in handles)
    assert texts([e for e in restored.entries if e["op"] == "new"], "kg") == held("new", FIRST)
    # Flink owns the copy, so that it is gone once it is subsumed.
    assert not (copy / "_metadata").exists()
    assert digests(source.job) == before


def test_the_old_uid_is_refused(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    edit(run, source, tmp_path / "out", "--share")

    with pytest.raises(FlinkRestoreError, match="operator is not available in the new program"):
        flink.restore(tmp_path / "out", [keyed("old")], backend=source.backend)


NEW_STATES = [State("count", "value", "long"), State("n", "map", "long", map_key="string")]
"""Of ``STATES``: the value is ``count``, the map takes its name, and the list is gone."""
STATE_EDITS = [
    "--rename=old=new",
    "--remove=gone",
    "--rename-state=old/n=count",
    "--rename-state=old/m=n",
    "--drop-state=old/names",
]


def as_new(entries: Iterable[str]) -> list[str]:
    """Entries with the names of ``NEW_STATES``, in plain Python."""
    names = {"n": "count", "m": "n"}
    parsed = (json.loads(each) for each in entries)
    return texts(
        entry | {"state": names[entry["state"]]} if "state" in entry else entry
        for entry in parsed
        if entry.get("state") != "names"
    )


def as_new_updates(updates: Iterable[Entry]) -> list[Entry]:
    names = {"n": "count", "m": "n"}
    return [
        {**change, "op": "new"} | ({"state": names[change["state"]]} if "state" in change else {})
        for change in updates
        if change.get("state") != "names"
    ]


def check_renamed_states(
    flink: FlinkChecker, run: Any, folder: Path, source: Source, files: str, parallelism: int
) -> None:
    out = folder / "out"
    code, _, error = run("rewrite", str(source.path), str(out), *STATE_EDITS, files)
    assert code == 0, error
    before = digests(source.job)
    operator = Operator("new", "string", NEW_STATES, TIMERS)
    restored = flink.restore(
        out,
        [operator, Operator("list", operator_states=[ELEMENTS])],
        backend="rocksdb",
        parallelism=parallelism,
        updates=as_new_updates(LATER),
        checkpoints=2,
        savepoint_to=folder / "savepoints",
    )
    renamed = [entry for entry in restored.entries if entry["op"] == "new"]
    assert texts(renamed, "kg") == as_new(held("new", FIRST))
    assert digests(source.job) == before
    assert restored.savepoint is not None
    saved = Snapshot.load(restored.savepoint)
    assert {info.name for info in saved["new"].states if info.kind in ("value", "map")} == {
        "count",
        "n",
    }
    for place in (restored.savepoint, restored.checkpoints[-1]):
        again = flink.restore(place, [operator], backend="rocksdb", strict=False)
        assert texts(again.entries, "kg") == as_new(held("new", FIRST, LATER))


@pytest.mark.parametrize("files", ["--share", "--copy"])
@pytest.mark.parametrize("parallelism", [2, 3])
def test_states_have_other_names_and_their_table_files_stay(
    flink: FlinkChecker,
    run: Any,
    tmp_path: Path,
    source: Source,
    files: str,
    parallelism: int,
) -> None:
    if source.backend == "hashmap":
        code, _, error = run("rewrite", str(source.path), str(tmp_path / "out"), *STATE_EDITS)
        assert (code, "use dstl migrate" in error) == (2, True)
        return
    check_renamed_states(flink, run, tmp_path, source, files, parallelism)


def test_the_name_of_before_is_empty(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source
) -> None:
    if source.backend == "hashmap":
        return
    code, _, error = run("rewrite", str(source.path), str(tmp_path / "out"), *STATE_EDITS)
    assert code == 0, error
    restored = flink.restore(
        tmp_path / "out",
        [Operator("new", "string", [State("names", "list", "string")])],
        backend="rocksdb",
        strict=False,
    )
    assert [each for each in restored.entries if "state" in each] == []


@pytest.mark.parametrize("files", ["--share", "--copy"])
def test_what_flink_imports_into_its_database_is_edited_and_read(
    flink: FlinkChecker, run: Any, tmp_path: Path, source: Source, files: str
) -> None:
    """A restore at another parallelism imports column families with the files of other databases,
    and the checkpoints after it have them.
    """
    if source.backend == "hashmap":
        return
    edit(run, source, tmp_path / "first", files)
    operators = [keyed("new"), Operator("list", operator_states=[ELEMENTS])]
    imported = flink.restore(
        tmp_path / "first",
        operators,
        backend="rocksdb",
        parallelism=3,
        updates=of("new", LATER),
        checkpoints=2,
        settings={"state.backend.rocksdb.use-ingest-db-restore-mode": "true"},
    ).checkpoints[-1]
    read = texts(Snapshot.load(imported)["new"].dump(), "kg")
    code, _, error = run(
        "rewrite", imported, str(tmp_path / "second"), "--rename-state=new/n=count", files
    )
    assert code == 0, error
    states = [State("count", "value", "long"), *STATES[1:]]
    restored = flink.restore(
        tmp_path / "second",
        [Operator("new", "string", states, TIMERS)],
        backend="rocksdb",
        parallelism=2,
        strict=False,
        settings={"state.backend.rocksdb.use-ingest-db-restore-mode": "true"},
    )
    expected = held("new", FIRST, LATER)
    assert read == expected
    back = {"count": "n"}
    assert expected == texts(
        (
            entry | {"state": back.get(entry["state"], entry["state"])}
            if "state" in entry
            else entry
            for entry in restored.entries
        ),
        "kg",
    )


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["checkpoint-128", "savepoint"])
@pytest.mark.parametrize("files", ["--share", "--copy"])
def test_other_releases_restore_their_own_state_after_an_edit(
    release: FlinkChecker, run: Any, tmp_path: Path, kind: str, files: str
) -> None:
    source = write_source(release, tmp_path / "savepoint", kind)
    out = tmp_path / "out"
    edit(run, source, out, files)
    before = digests(source.job)
    for parallelism in (2, 3):
        restored = release.restore(
            out,
            [keyed("new"), Operator("list", operator_states=[ELEMENTS])],
            backend=source.backend,
            parallelism=parallelism,
            updates=of("new", LATER),
            checkpoints=2,
            savepoint_to=tmp_path / f"savepoints-{parallelism}",
        )
        assert texts([e for e in restored.entries if e["op"] == "new"], "kg") == held("new", FIRST)
        again = release.restore(
            restored.savepoint, [keyed("new")], backend=source.backend, strict=False
        )
        assert texts(again.entries, "kg") == held("new", FIRST, LATER)
        assert digests(source.job) == before


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["checkpoint-128", "checkpoint-4096", "savepoint"])
def test_other_releases_restore_states_of_other_names(
    release: FlinkChecker, run: Any, tmp_path: Path, kind: str
) -> None:
    source = write_source(release, tmp_path / "savepoint", kind)
    check_renamed_states(release, run, tmp_path, source, "--share", 3)


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["checkpoint-128", "savepoint"])
@pytest.mark.parametrize("files", ["--share", "--copy"])
def test_files_of_flink_1_restore_in_flink_2(
    flink: FlinkChecker,
    run: Any,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    files: str,
) -> None:
    """An upgrade with nothing to convert changes the metadata only."""
    old = FlinkChecker(tmp_path_factory.mktemp("flink"), jars_of("1.20.5"))
    source = write_source(old, tmp_path / "savepoint", kind)
    old.close()
    out = tmp_path / "out"
    code, _, error = run("upgrade", str(source.path), str(out), files)
    assert code == 0, error
    before = digests(source.job)
    operators = [keyed("old"), keyed("gone"), Operator("list", operator_states=[ELEMENTS])]
    restored = flink.restore(
        out,
        operators,
        backend="rocksdb",
        parallelism=3,
        updates=of("old", LATER),
        checkpoints=2,
        savepoint_to=tmp_path / "savepoints",
    )
    assert texts([e for e in restored.entries if e["op"] == "old"], "kg") == held("old", FIRST)
    again = flink.restore(restored.savepoint, [keyed("old")], backend="hashmap", strict=False)
    assert texts(again.entries, "kg") == held("old", FIRST, LATER)
    assert digests(source.job) == before
