"""States of RocksDB get other names, or go, while their table files stay."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, rewrite_savepoint
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.errors import ConfigError, NoSuchOperatorError, NoSuchStateError, SavepointError
from dstl_core.model.handle import IncrementalRemoteKeyedStateHandle, RelativeFileStateHandle
from dstl_core.savepoint.verify.verify import verify_snapshot
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, as_lines, snapshot

__all__ = ["run"]

CHECKPOINT = "a-rocksdb-checkpoint-incremental"
OTHERS = [
    ("a-rocksdb-native-incremental", "a-keyed", "cnt"),
    ("a-rocksdb-heaptimers-checkpoint", "a-keyed", "names"),
    ("o-rescaled-claim-rocksdb", "count", "n"),
    ("o-ttl-maps-rocksdb", "ttl-maps", "m"),
    ("x-lsm-rocksdb-incremental", "lsm", "l"),
    ("x-rescaled-rocksdb-incremental", "lsm", "m"),
]


@pytest.fixture
def source(tmp_path: Path) -> Snapshot:
    return copied(CHECKPOINT, tmp_path)


def copied(name: str, folder: Path) -> Snapshot:
    shutil.copytree(GOLDEN / name, folder / name)
    return Snapshot.load(folder / name / snapshot(name).relative_to(GOLDEN / name))


def lines(loaded: Snapshot, operator: str) -> list[dict[str, Any]]:
    return list(loaded[operator].dump())


def renamed(dumped: list[dict[str, Any]], names: dict[str, str | None]) -> list[str]:
    """Lines with other names of states, in plain Python."""
    return as_lines(
        line if "state" not in line else line | {"state": names.get(line["state"], line["state"])}
        for line in dumped
        if names.get(line.get("state", ""), "") is not None
    )


@pytest.mark.parametrize("files", ["share", "copy", "canonical"])
@pytest.mark.parametrize(("name", "operator", "state"), [(CHECKPOINT, "a-keyed", "m"), *OTHERS])
def test_a_renamed_state_has_its_entries(
    tmp_path: Path, files: Any, name: str, operator: str, state: str
) -> None:
    before, out = copied(name, tmp_path), tmp_path / "out"
    rewrite_savepoint(before, out, rename_states={(operator, state): "é new"}, files=files)
    after = Snapshot.load(out, allow_roots=[str(tmp_path)])
    assert renamed(lines(after, operator), {}) == renamed(lines(before, operator), {state: "é new"})
    assert verify_snapshot(after).findings == []
    # What is left of files in the folder is a MANIFEST that is too large for the metadata.
    if files == "share":
        own = [e for e in file_handles(after.metadata) if isinstance(e, RelativeFileStateHandle)]
        assert own == []


def test_states_swap_their_names_and_others_go(source: Snapshot, tmp_path: Path) -> None:
    names: dict[str, str | None] = {"cnt": "red", "red": "cnt", "names": None, "m": "names"}
    rewrite_savepoint(
        source,
        tmp_path / "out",
        rename_states={("a-keyed", k): v for k, v in names.items() if v is not None},
        drop_states=[("a-keyed", "names")],
    )
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(tmp_path)])
    assert renamed(lines(after, "a-keyed"), {}) == renamed(lines(source, "a-keyed"), names)
    assert verify_snapshot(after).findings == []
    kinds = {info.name: info.kind for info in after["a-keyed"].states}
    assert (kinds["names"], kinds["cnt"], kinds["red"]) == ("map", "reducing", "value")


def test_files_of_a_dropped_state_are_named_no_more(source: Snapshot, tmp_path: Path) -> None:
    rewrite_savepoint(source, tmp_path / "out", drop_states=[("a-keyed", "cnt")])
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(tmp_path)])
    counts = []
    for loaded in (source, after):
        for handle in loaded["a-keyed"].keyed_handles:
            assert isinstance(handle, IncrementalRemoteKeyedStateHandle)
            counts.append(len(handle.shared))
    assert counts[2] < counts[0] and counts[3] < counts[1]
    # A copy of the copy has no use for them.
    rewrite_savepoint(after, tmp_path / "copy", rename={"a-keyed": "x"}, files="copy")
    assert verify_snapshot(Snapshot.load(tmp_path / "copy")).findings == []


def test_timers_can_go(source: Snapshot, tmp_path: Path) -> None:
    timers = [info.name for info in source["a-keyed"].states if info.kind.endswith("timer")]
    assert len(timers) == 2
    rewrite_savepoint(source, tmp_path / "out", drop_states=[("a-keyed", each) for each in timers])
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(tmp_path)])
    assert list(after["a-keyed"].timer_entries()) == []
    expected = [line for line in lines(source, "a-keyed") if "state" in line]
    assert as_lines(lines(after, "a-keyed")) == as_lines(expected)


def test_another_uid_and_number_of_key_groups_at_once(source: Snapshot, tmp_path: Path) -> None:
    rewrite_savepoint(
        source,
        tmp_path / "out",
        rename={"a-keyed": "accounts"},
        rename_states={("a-keyed", "cnt"): "visits"},
        max_parallelism=512,
    )
    after = Snapshot.load(tmp_path / "out")
    assert after["accounts"].form() == "canonical"
    values = {e["key"]: e["value"] for e in lines(source, "a-keyed") if e.get("state") == "cnt"}
    visits = {e["key"]: e["value"] for e in lines(after, "accounts") if e.get("state") == "visits"}
    assert visits == values != {}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rename_states": {("a-keyed", "none"): "x"}}, NoSuchStateError, "no keyed state 'none'"),
        ({"rename_states": {("nobody", "cnt"): "x"}}, NoSuchOperatorError, "nobody"),
        ({"rename_states": {("a-keyed", "cnt"): ""}}, ConfigError, "cannot get an empty name"),
        (
            {"rename_states": {("a-keyed", "cnt"): "_timer_state/event_x"}},
            ConfigError,
            "are those of timers",
        ),
        (
            {"rename_states": {("a-keyed", "cnt"): "default"}},
            ConfigError,
            "column family 'default'",
        ),
        ({"rename_states": {("a-keyed", "cnt"): "m"}}, SavepointError, "would have the name 'm'"),
        (
            {
                "rename_states": {("a-keyed", "cnt"): "x"},
                "drop_states": [("a-keyed", "cnt")],
            },
            ConfigError,
            "renamed or dropped twice",
        ),
        (
            {"rename_states": {("a-keyed", "_timer_state/event_user-timers"): "x"}},
            SavepointError,
            "Flink makes the name itself",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    source: Snapshot, tmp_path: Path, options: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rewrite_savepoint(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_an_operator_keeps_a_state(tmp_path: Path) -> None:
    source = copied("o-rescaled-claim-rocksdb", tmp_path)
    every = [("count", info.name) for info in source["count"].states]
    with pytest.raises(SavepointError, match="would have no keyed state; leave the operator out"):
        rewrite_savepoint(source, tmp_path / "out", drop_states=every)


@pytest.mark.parametrize("name", ["a-hashmap-canonical", "a-hashmap-native"])
def test_other_forms_are_refused(tmp_path: Path, name: str) -> None:
    source = Snapshot.load(snapshot(name))
    with pytest.raises(SavepointError, match="declare the change and use dstl migrate"):
        rewrite_savepoint(source, tmp_path / "out", rename_states={("a-keyed", "cnt"): "x"})


def test_the_command(run: Any, source: Snapshot, tmp_path: Path) -> None:
    path, out = str(source.folder), str(tmp_path / "out")
    edits = ["--rename-state", "a-keyed/cnt=visits", "--drop-state", "a-keyed/names"]
    code, printed, _ = run("rewrite", path, out, *edits)
    assert code == 0
    assert "rename a-keyed states cnt as visits" in printed.splitlines()
    assert "drop a-keyed states names" in printed.splitlines()
    states = {info.name for info in Snapshot.load(out)["a-keyed"].states}
    assert "visits" in states and not states & {"cnt", "names"}
    for wrong in (["--rename-state", "visits"], ["--drop-state", "a-keyed/none"]):
        code, _, error = run("rewrite", path, f"{out}2", *wrong)
        assert code == 2 and is_one_sentence(error)


AWKWARD = [
    "a/b",
    "a=b",
    "a,b#c",
    "größe/日本",
    "$(id)`a`;b|c&d",
    "-a",
    "uid:a",
    "a-keyed/cnt",
    "cnt",
]


@pytest.mark.parametrize("name", AWKWARD)
def test_the_command_takes_any_name(run: Any, source: Snapshot, tmp_path: Path, name: str) -> None:
    """Of an operator, of a new state, and of a state that is there."""
    one, two, three = (str(tmp_path / each) for each in ("one", "two", "three"))
    uid, new = f"--rename=a-keyed={name}", f"--rename-state=a-keyed/m={name}-x"
    assert run("rewrite", str(source.folder), one, uid, new, "--copy")[0] == 0
    states = {info.name for info in Snapshot.load(one)[f"uid:{name}"].states}
    assert f"{name}-x" in states and "m" not in states
    for place in (f"{name}/{name}-x", f"uid:{name}/{name}-x"):
        again = (f"--rename-state={place}=m", "--overwrite")
        assert run("rewrite", one, two, *again)[0] == 0
        assert "m" in {info.name for info in Snapshot.load(two)[f"uid:{name}"].states}
        assert run("rewrite", one, three, f"--drop-state={place}", "--overwrite")[0] == 0
        left = {info.name for info in Snapshot.load(three)[f"uid:{name}"].states}
        assert left == states - {f"{name}-x"}
