"""Whatever writes a savepoint reads it back before anybody sees it.

A store damages one file after it was written. The table has each way to write a savepoint and each
kind of damage, and every file that the way writes is damaged once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.codec.serializers import Types
from dstl_core.errors import SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import RelativeFileStateHandle
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.connectors.pending_commits import without_commits
from dstl_core.savepoint.connectors.set_positions import set_positions
from dstl_core.savepoint.edit import operator_copy
from dstl_core.savepoint.edit.savepoint_edit import SavepointEdit
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.verify.read_back import read_back
from dstl_core.savepoint.write import folder
from dstl_core.savepoint.write.folder import SavepointFolder, StateFiles
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.columns.progress import Stage, no_progress
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState
from tests.command_line import is_one_sentence
from tests.golden_files import CONNECTORS, UPGRADE_JOBS, snapshot
from tests.rotten_store import HOW, rotten_store
from tests.unit.savepoint.test_job_values import savepoint

UID = OperatorIdentifier.for_uid
OUT = "rotten://s/out"
Writing = Callable[[str], object]


@dataclass(frozen=True)
class Bootstrap:
    """The state of a new operator. ``shift`` puts keys into key groups where they do not belong."""

    keys: int = 20
    shift: int = 0

    def state(self) -> KeyedState:
        state = KeyedState(KeyGroupRange(0, 127), 128)
        backend = HashMapKeyedStateBackend(state, Types.STRING)
        users = backend.get_value_state(ValueStateDescriptor("users", Types.LONG))
        for number in range(self.keys):
            backend.set_current_key(f"k{number}")
            users.update(number)
        for table in state.tables.values():
            moved = {(at + self.shift) % 128: own for at, own in table.groups.items()}
            table.groups.clear()
            table.groups.update(moved)
        return state

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None,
    ) -> OperatorState:
        subtask = OperatorSubtaskState(0, managed_keyed_state=files.add_keyed_state(self.state()))
        return OperatorState(identifier.operator_id, 1, 128, (subtask,), uid=identifier.uid or "")

    def published(self, path: Path) -> Snapshot:
        target = SavepointFolder(path)
        operator = self.write_operator(UID("op"), target, 128, None)
        target.publish(CheckpointMetadata(3, 1, (operator,)), {})
        return Snapshot.load(path)


def golden(name: str) -> Snapshot:
    return Snapshot.load(snapshot(name))


def connector(name: str) -> Snapshot:
    [metadata] = (CONNECTORS / name).rglob("_metadata")
    return Snapshot.load(metadata.parent)


def edited(edit: Callable[[], SavepointEdit]) -> Writing:
    return lambda out: edit().write(out, "overwrite")


def upgraded(job: str) -> Writing:
    def write(out: str) -> None:
        source = Snapshot.load(savepoint(UPGRADE_JOBS / job), jars=[UPGRADE_JOBS / job / "job.jar"])
        SavepointUpgrade(source).write(out, "overwrite")

    return write


def migrated(out: str) -> None:
    rule = {"value": "cast(value, STRING)", "type": "string"}
    declared = {"operators": {"a-keyed": {"states": {"cnt": rule}}}}
    migration = Migration.of({"migration": 1, **declared})
    SavepointMigration(migration, golden("a-hashmap-canonical")).write(out, "overwrite")


WAYS: dict[str, Writing] = {
    "copy": edited(lambda: edit_savepoint(golden("a-hashmap-canonical-files"))),
    "rewrite of native state": edited(lambda: edit_savepoint(golden("a-hashmap-native"))),
    "rewrite of a checkpoint": edited(
        lambda: edit_savepoint(golden("a-rocksdb-checkpoint-incremental"))
    ),
    "maximum parallelism": edited(
        lambda: edit_savepoint(golden("a-hashmap-canonical")).with_max_parallelism(256)
    ),
    "split": edited(
        lambda: edit_savepoint(golden("a-hashmap-canonical")).split_operator(
            UID("a-keyed"), UID("apart"), ["cnt"]
        )
    ),
    "operator state": edited(lambda: edit_savepoint(golden("c-opstate-hashmap"))),
    "new operator": edited(lambda: SavepointEdit().with_operator(UID("op"), Bootstrap())),
    "added operator": edited(
        lambda: edit_savepoint(golden("a-hashmap-canonical")).with_operator(UID("op"), Bootstrap())
    ),
    "offsets --set": edited(
        lambda: edit_savepoint(set_positions(connector("c-kafka"), {"orders/0": "5"})[0])
    ),
    "committables --drop": edited(
        lambda: edit_savepoint(without_commits(connector("c-filesink"), [1]))
    ),
    "upgrade": upgraded("orders"),
    "migrate": migrated,
}


@pytest.fixture(autouse=True)
def _every_stream_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (folder, operator_copy):
        monkeypatch.setattr(module, "DATA_INLINE_THRESHOLD", 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_store_damages_is_not_published(way: str, how: str) -> None:
    with rotten_store(None) as files:
        WAYS[way](OUT)
        assert f"{OUT}/_metadata" in files.store
        count = len(files.written)
    assert count
    for victim in range(count):
        with rotten_store(victim, how) as files:
            with pytest.raises(SavepointError, match="nothing was published") as raised:
                WAYS[way](OUT)
            assert is_one_sentence(f"dstl: {raised.value}\n"), raised.value
            assert files.store == {}, "after a refusal, all files of the work are deleted"


def test_a_snapshot_that_would_be_replaced_stays() -> None:
    with rotten_store(None) as files:
        WAYS["new operator"](OUT)
        before = dict(files.store)
        raw = before[f"{OUT}/_metadata"].getvalue()
        type(files).victim = None
        files.victim = len(files.written)
        with pytest.raises(SavepointError, match="nothing was published"):
            WAYS["copy"](OUT)
        assert files.store[f"{OUT}/_metadata"].getvalue() == raw
        assert before.keys() <= files.store.keys()


def test_keys_in_wrong_key_groups_are_not_published(tmp_path: Path) -> None:
    """The store is well: what is wrong was written."""
    edit = SavepointEdit().with_operator(UID("op"), Bootstrap(shift=1))
    with pytest.raises(SavepointError, match="nothing was published"):
        edit.write(tmp_path / "out")
    assert not (tmp_path / "out" / "_metadata").exists()


def test_a_source_that_is_damaged_is_named(tmp_path: Path) -> None:
    """Records that are written anew are read; the sentence says where the fault was before."""
    source = Bootstrap(shift=1).published(tmp_path / "source")
    edit = edit_savepoint(source).split_operator(UID("op"), UID("other"), ["users"])
    with pytest.raises(SavepointError, match=r"The source is damaged.*/source"):
        edit.write(tmp_path / "out")


def test_a_copy_is_not_to_blame_for_its_source(tmp_path: Path) -> None:
    """Bytes that are copied are compared, not judged."""
    source = Bootstrap(shift=1).published(tmp_path / "source")
    edit_savepoint(source).write(tmp_path / "out")
    [before], [after] = (state_files(tmp_path / name) for name in ("source", "out"))
    assert before.read_bytes() == after.read_bytes()


def test_files_that_stay_are_not_read(tmp_path: Path) -> None:
    source = Bootstrap().published(tmp_path / "source")
    [file] = state_files(tmp_path / "source")
    file.unlink()
    edit = edit_savepoint(source).change_operator_identifier(UID("op"), UID("renamed"))
    edit.write(tmp_path / "source", "overwrite")
    assert Snapshot.load(tmp_path / "source")["renamed"].parallelism == 1


def state_files(path: Path) -> list[Path]:
    return [each for each in path.iterdir() if not each.name.startswith("_")]


@pytest.mark.parametrize(("number", "is_right"), [(20, True), (19, False), (21, False)])
def test_records_are_counted(number: int, is_right: bool, tmp_path: Path) -> None:
    target = SavepointFolder(tmp_path / "out")
    operator = Bootstrap().write_operator(UID("op"), target, 128, None)
    metadata = CheckpointMetadata(3, 1, (operator,))
    counts = {("op", "users"): number}
    if is_right:
        read_back(target, metadata, None, stage, counts)
    else:
        with pytest.raises(SavepointError, match=f"expected {number} records .*, got 20; "):
            read_back(target, metadata, None, stage, counts)


def stage(total: int) -> Stage:
    return Stage(no_progress, 0, total)


def test_a_handle_beyond_its_file_is_not_published(tmp_path: Path) -> None:
    target = SavepointFolder(tmp_path / "out")
    operator = Bootstrap().write_operator(UID("op"), target, 128, None)
    [subtask] = operator.subtasks
    handle: Any = subtask.managed_keyed_state
    assert isinstance(handle.stream, RelativeFileStateHandle)
    longer = replace(handle, stream=replace(handle.stream, state_size=10**6))
    operator = replace(operator, subtasks=(replace(subtask, managed_keyed_state=longer),))
    with pytest.raises(SavepointError, match="expected 1000000 bytes"):
        read_back(target, CheckpointMetadata(3, 1, (operator,)), None, stage)
