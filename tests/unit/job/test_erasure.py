"""``erase`` leaves no byte of a key in what a pipeline keeps; plain Python searches all files."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dstl_core import (
    AggregateOperator,
    KeyedOperator,
    LocalEngine,
    Snapshot,
    StatefulJob,
    aggregates,
    rewrite_savepoint,
)
from dstl_core.checkpoint.store.cleaner import CheckpointsCleaner
from dstl_core.checkpoint.store.completed_store import CompletedCheckpointStore
from dstl_core.checkpoint.store.guard import DeletionGuard
from dstl_core.checkpoint.store.pipeline_store import PipelineStore
from dstl_core.errors import (
    CheckpointError,
    ConfigError,
    DstlError,
    NoSuchOperatorError,
    RestoreError,
    SavepointError,
)
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.erasure.erasure import PipelineKeys
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.sinks import ParquetSink
from dstl_core.state.tables.descriptor import ListStateDescriptor
from dstl_core.storage.location import Location
from tests.command_line import is_one_sentence, run
from tests.own_long import REGISTRY, REGISTRY_NAME, OwnLong
from tests.unit.checkpoint.pipeline import Pipeline
from tests.unit.checkpoint.test_restore_modes import source_of, started
from tests.unit.job.test_job_migration import Killed, kill_at
from tests.unpacked import files_with

__all__ = ["run"]

SCHEMA = "k string, v bigint"
ADA, BOB = "person-Ada-Lovelace", "person-Bob-Ross"


class Lists(KeyedProcessFunction):
    """Keeps the numbers of a key; a row of output has their sum under another name."""

    kind: Any = "bigint"

    def open(self, context: Any) -> None:
        self.numbers = context.get_list_state(ListStateDescriptor("numbers", self.kind))

    def process_element(self, row: Any, context: Any) -> Iterator[dict[str, Any]]:
        self.numbers.add(row["v"])
        yield {"who": context.current_key, "total": sum(self.numbers.get())}


class OwnLists(Lists):
    kind = OwnLong()


def batch(number: int, others: int = 40) -> pa.Table:
    keys = [ADA, BOB, *(f"other-{at}" for at in range(others)), ADA]
    return pa.table({"k": keys, "v": pa.array([number + at for at in range(len(keys))])})


def job_of(folder: Path, total: str = "total", **options: Any) -> StatefulJob:
    sums = {total: aggregates.sum("v"), "n": aggregates.count()}
    operator = AggregateOperator("sums", "k", sums, schema=SCHEMA, output=True)
    options = {"num_retained": 3, "max_parallelism": 8, **options}
    copies = LocalCopies(str(folder / "local"))
    jobs = str(folder / "jobs")
    return StatefulJob(LocalEngine(), "people", jobs, operator, local_copies=copies, **options)


def with_lists(folder: Path, function: Lists | None = None, **options: Any) -> StatefulJob:
    function = function or Lists()
    lists = KeyedOperator("lists", "k", "string", function, "who string, total bigint")
    options = {"num_retained": 3, **options}
    return StatefulJob(LocalEngine(), "lists", str(folder / "jobs"), lists, **options)


def values_of(job: StatefulJob, uid: str) -> dict[str, dict[str, Any]]:
    operator = job.snapshot()[uid]
    return {
        state.name: {line["key"]: line.get("value") for line in operator.dump(state.name)}
        for state in operator.states
    }


def without(values: dict[str, dict[str, Any]], *keys: str) -> dict[str, dict[str, Any]]:
    return {
        state: {key: value for key, value in own.items() if key not in keys}
        for state, own in values.items()
    }


def rows_of(job: StatefulJob, uid: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = job.current_output()[uid].to_arrow().to_pylist()
    return rows


def folder_of(job: StatefulJob) -> Path:
    return Path(job.path.removeprefix("file:"))


@pytest.mark.parametrize("is_python", [True, False], ids=["Python", "command line"])
def test_a_job_with_a_serializer_of_its_own_is_erased_from(
    tmp_path: Path, run: Any, is_python: bool
) -> None:
    job = with_lists(tmp_path, OwnLists(), serializers=REGISTRY)
    for number in (1, 2):
        job.run(batch(number), number, ["v"])
    before = values_of(job, "lists")
    if is_python:
        job.erase([ADA], output_columns={"lists": ["who"]})
    else:
        (tmp_path / "keys").write_text(ADA)
        options = f"--keys {tmp_path}/keys --output-column lists=who --serializers {REGISTRY_NAME}"
        assert run("erase", job.path, *options.split()).code == 0
        (tmp_path / "keys").unlink()
        job = with_lists(tmp_path, OwnLists(), serializers=REGISTRY)
    assert values_of(job, "lists") == without(before, ADA)
    assert files_with(tmp_path, ADA) == []


def test_no_byte_of_a_key_is_left_and_all_else_stays(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    for number in (1, 2, 3):
        job.run(batch(number), number)
    before, rows = values_of(job, "sums"), rows_of(job, "sums")
    killed = folder_of(job) / "taskowned" / str(uuid4())  # of a run that died
    killed.parent.mkdir(exist_ok=True)
    killed.write_text(ADA)
    holding = files_with(tmp_path, ADA)
    for part in ("taskowned", "dstl/", "_dstl/output", "local/"):
        assert any(part in name for name in holding), part  # the search sees each kind of file

    done = job.erase([ADA])

    assert files_with(tmp_path, ADA) == []
    assert values_of(job, "sums") == without(before, ADA)
    assert rows_of(job, "sums") == [row for row in rows if row["k"] != ADA]
    assert verify_snapshot(job.snapshot()).findings == []
    assert done.traces.entries == {"sums": {"n": 1, "total": 1}}
    assert done.traces.rows == {"sums": 3}
    assert done.subtasks == 1 and done.files == 3 and done.swept == 1
    assert ADA not in json.dumps(done.to_json())
    commit = job.latest()
    assert commit is not None and commit.facts.kind == "erasure"
    assert commit.checkpoint_id == done.checkpoint

    job.run(batch(4), 4)
    after = values_of(job, "sums")
    assert after["n"][BOB] == 4 and after["n"][ADA] == 2  # of the new batch alone
    with pytest.raises(RestoreError):
        job.run(batch(2), 2, rewind=True)
    again = job.run(batch(3), 3)
    assert ADA not in again.output.to_arrow().column("k").to_pylist()


@pytest.mark.parametrize("changelog", [True, False])
def test_other_subtasks_keep_their_files(tmp_path: Path, changelog: bool) -> None:
    """Without a changelog they are in the folder of the checkpoint before."""
    job = job_of(tmp_path, changelog=changelog)
    job.run(batch(1, 4000), 1)
    names = {path.name for path in (folder_of(job) / "dstl").rglob("*") if path.is_file()}
    names |= {path.name for path in (folder_of(job) / "taskowned").rglob("*") if path.is_file()}
    names |= {path.name for path in folder_of(job).glob("chk-*/????????-*")}
    job.erase({"sums": [ADA]})
    left = {path.name for path in folder_of(job).rglob("*") if path.is_file()}
    assert names & left


@pytest.mark.slow
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_before_a_storage_operation_is_mended_by_the_same_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    job = job_of(tmp_path)
    for number in (1, 2):
        job.run(batch(number), number)
    expected = without(values_of(job, "sums"), ADA)
    rows = [row for row in rows_of(job, "sums") if row["k"] != ADA]
    start = tmp_path.parent / f"{tmp_path.name}-start"
    shutil.copytree(tmp_path / "jobs", start)
    kills = 0
    for at in itertools.count(0, step):
        shutil.rmtree(tmp_path / "jobs")
        shutil.copytree(start, tmp_path / "jobs")
        with monkeypatch.context() as patch:
            kill_at(patch, at)
            with contextlib.suppress(Killed):
                job_of(tmp_path).erase([ADA])
                break
        kills += 1
        job = job_of(tmp_path)
        assert without(values_of(job, "sums"), ADA) == expected, at  # readable at each moment
        job.erase([ADA])
        assert files_with(tmp_path, ADA) == [], at
        assert values_of(job, "sums") == expected and rows_of(job, "sums") == rows, at
    assert kills > 10


def test_output_of_a_function_has_the_key_in_a_column_that_is_named(tmp_path: Path) -> None:
    job = with_lists(tmp_path)
    job.run(batch(1), 1, order_by=["v"])
    before, rows = values_of(job, "lists"), rows_of(job, "lists")
    with pytest.raises(ConfigError, match="no column that is known"):
        job.erase([ADA, BOB])
    # A wrong name beside a right one would leave rows that the right one does not find.
    with pytest.raises(ConfigError, match="'lists' has the column 'whom'; its columns: total, who"):
        job.erase([ADA, BOB], output_columns={"lists": ["who", "whom"]})
    with pytest.raises(NoSuchOperatorError, match="Operator 'list' is not in the snapshot"):
        job.erase([ADA, BOB], output_columns={"lists": ["who"], "list": ["who"]})
    assert values_of(job, "lists") == before
    job.erase([ADA, BOB], output_columns={"lists": ["who"]})
    assert files_with(tmp_path / "jobs", ADA) == files_with(tmp_path / "jobs", BOB) == []
    assert values_of(job, "lists") == without(before, ADA, BOB)
    assert rows_of(job, "lists") == [row for row in rows if row["who"] not in (ADA, BOB)]
    job.erase(["other-1"], drop_outputs=True)
    assert rows_of(job, "lists") == []


def test_a_key_that_is_in_earlier_checkpoints_alone_goes_with_them(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    assert PipelineKeys(job.path, {"sums": ["nobody"]}).find().is_nothing
    job.erase(["nobody"])
    assert len(list(folder_of(job).glob("chk-*"))) == 2  # of the start and of the input


def test_an_earlier_checkpoint_that_is_damaged_goes_too(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    for number in (1, 2, 3):
        job.run(batch(number), number)
    before = values_of(job, "sums")
    *earlier, _ = sorted(folder_of(job).glob("chk-*"), key=lambda own: int(own.name[4:]))
    for folder in earlier:
        raw = (folder / "_metadata").read_bytes()
        (folder / "_metadata").write_bytes(raw[: len(raw) // 2])
    assert earlier[0].name in PipelineKeys(job.path, {"sums": [ADA]}).find().earlier
    job.erase([ADA])
    assert files_with(tmp_path, ADA) == []
    assert not any(folder.exists() for folder in earlier)
    assert values_of(job, "sums") == without(before, ADA)


@pytest.mark.parametrize("is_damaged", [True, False])
def test_files_that_an_earlier_checkpoint_has_claimed_of_flink_are_not_left_behind(
    tmp_path: Path, run: Any, is_damaged: bool
) -> None:
    """Its metadata alone names them, so nothing is erased while they are there."""
    pipeline = Pipeline(Location.parse(tmp_path / "base"))
    flink = source_of(
        "a-hashmap-changelog-materialized", tmp_path / "flink", changelog_in_job_folder=True
    )
    job = started(pipeline, flink, "CLAIM")
    root, key = Path(pipeline.layout.root.path), max(flink.counts)
    job.process(key)
    job.checkpoint()
    shutil.copytree(root, tmp_path / "kept")
    shutil.copytree(flink.root, tmp_path / "flink-kept")
    job.materialize()
    job.checkpoint()
    job.close()
    [earlier] = (tmp_path / "kept").glob("chk-*")
    shutil.copytree(earlier, root / earlier.name)
    shutil.copytree(tmp_path / "flink-kept", flink.root, dirs_exist_ok=True)
    if is_damaged:
        (root / earlier.name / "_metadata").write_bytes(b"")
    every = PipelineKeys(str(root), {"a-keyed": [key]}, local_copies=str(tmp_path / "local"))
    before = sorted(root.rglob("*"))
    for work in (every.find, every.erase):
        with pytest.raises(SavepointError, match="Keys cannot be found") as error:
            work()
        assert is_one_sentence(f"dstl: {error.value}\n")
    assert sorted(root.rglob("*")) == before
    if is_damaged:
        assert f"{earlier.name} cannot be read" in str(error.value)
        [advised] = re.findall(r"\(dstl (gc file:.+ --delete)\)", str(error.value))
        assert Path(advised.split()[1].removeprefix("file:")).is_relative_to(flink.root)
        assert run(*advised.split()).code == 0
        assert not [path for path in flink.root.rglob("*") if path.is_file()]
        assert every.erase().traces.earlier == [earlier.name]
        assert not (root / earlier.name).exists()


def test_a_claimed_snapshot_goes_after_a_kill_behind_the_record_that_discards_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint holds it then, and the index of the log has forgotten whose files they were."""
    pipeline = Pipeline(Location.parse(tmp_path / "base"))
    name = "a-hashmap-changelog-materialized"
    flink = source_of(name, tmp_path / "flink", changelog_in_job_folder=True)
    shutil.copytree(flink.root, tmp_path / "kept")
    job = started(pipeline, flink, "CLAIM")
    job.materialize()
    job.checkpoint()
    job.close()
    shutil.copytree(tmp_path / "kept", flink.root, dirs_exist_ok=True)  # as if it were retained

    def keys() -> PipelineKeys:
        root, local = pipeline.layout.root.path, str(tmp_path / "local")
        return PipelineKeys(root, {"a-keyed": [max(flink.counts)]}, local_copies=local)

    assert keys().find().earlier == [flink.checkpoint.name]
    with monkeypatch.context() as patch:
        patch.setattr(CompletedCheckpointStore, "subsume", lambda _: [])  # the store was down
        patch.setattr(CheckpointsCleaner, "retire", _killed)
        with pytest.raises(Killed):
            keys().erase()
    assert (flink.checkpoint / "_metadata").exists()
    assert flink.checkpoint.name in keys().erase().traces.earlier
    assert not [path for path in flink.root.rglob("*") if path.is_file()]
    assert keys().find().is_nothing


def test_files_of_a_claimed_snapshot_are_found_after_a_kill_behind_its_metadata(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing names them, and they have the key."""
    pipeline = Pipeline(Location.parse(tmp_path / "base"))
    flink = source_of(
        "a-hashmap-changelog-materialized", tmp_path / "flink", changelog_in_job_folder=True
    )
    shutil.copytree(flink.root, tmp_path / "kept")
    job = started(pipeline, flink, "CLAIM")
    job.materialize()
    job.checkpoint()
    job.close()
    shutil.copytree(tmp_path / "kept", flink.root, dirs_exist_ok=True)
    root, local = pipeline.layout.root.path, str(tmp_path / "local")
    keys = PipelineKeys(root, {"a-keyed": [max(flink.counts)]}, local_copies=local)
    with monkeypatch.context() as patch:
        patch.setattr(CompletedCheckpointStore, "subsume", lambda _: [])
        patch.setattr(DeletionGuard, "delete", _deletes_metadata_alone)
        with pytest.raises(Killed):
            keys.erase()
    assert not (flink.checkpoint / "_metadata").exists()
    with pytest.raises(
        SavepointError, match=r"the metadata of .* is gone, and it may name"
    ) as error:
        keys.erase()
    [advised] = re.findall(r"\(dstl (gc file:.+ --delete)\)", str(error.value))
    assert run(*advised.split()).code == 0
    assert not [path for path in flink.root.rglob("*") if path.is_file()]
    keys.erase()
    assert keys.find().is_nothing


def test_tables_behind_and_savepoints_lose_it_too(tmp_path: Path) -> None:
    job, table = job_of(tmp_path), tmp_path / "table.parquet"
    job.run(batch(1), 1)
    job.savepoint(str(tmp_path / "saved"))
    job.merge_into(ParquetSink(str(table)))
    assert files_with(tmp_path / "saved", ADA)
    job.erase([ADA], savepoints=[str(tmp_path / "saved")])
    job.merge_into(ParquetSink(str(table)))
    assert files_with(tmp_path, ADA) == []
    keys = pq.read_table(table).column("k").to_pylist()
    assert sorted(keys) == sorted({*batch(1).column("k").to_pylist()} - {ADA})


def test_a_savepoint_that_shares_files_of_another_folder_is_refused(tmp_path: Path) -> None:
    job, shared = job_of(tmp_path), tmp_path / "shared"
    job.run(batch(1, 5_000), 1)
    job.savepoint(str(tmp_path / "saved"))
    rewrite_savepoint(Snapshot.load(tmp_path / "saved"), shared, checkpoint_id=9, files="share")
    with pytest.raises(SavepointError, match=f"{shared}: it shares files of another folder"):
        job.erase([ADA], savepoints=[str(shared)])


def test_the_command_finds_and_erases(run: Any, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    for number in (1, 2):
        job.run(batch(number), number)
    (tmp_path / "keys.txt").write_text(f"{ADA}\n{BOB}\n")
    path, keys = str(folder_of(job)), f"--keys={tmp_path / 'keys.txt'}"
    local = f"--local-copies={tmp_path / 'local'}"
    before = values_of(job, "sums")
    code, out, error = run("erase", path, keys, "--dry-run")
    assert (code, error) == (0, "")
    assert "nothing was changed" in out and "latest state: 2 of sums/n" in out
    assert values_of(job, "sums") == before
    code, out, error = run("erase", path, keys, local)
    assert (code, error) == (0, "")
    assert out.endswith("none of the keys is left\n") and "Ada" not in out
    (tmp_path / "keys.txt").unlink()
    assert files_with(tmp_path, ADA) == files_with(tmp_path, BOB) == []
    assert values_of(job, "sums") == without(before, ADA, BOB)


def test_what_is_wrong_is_one_sentence_and_changes_nothing(run: Any, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.run(batch(1), 1)
    (tmp_path / "keys.txt").write_text(f"{ADA}\n")
    path, keys = str(folder_of(job)), str(tmp_path / "keys.txt")
    latest = job.latest()
    store = PipelineStore.in_folder(path)
    store.begin("run-1")
    for arguments in (
        (str(tmp_path), f"--keys={keys}"),
        (path, f"--keys=sums={tmp_path / 'none'}"),
        (path, f"--keys={keys}", "--output-column=sums"),
        (path, f"--keys={keys}"),  # run-1 holds a lease
    ):
        code, _, error = run("erase", *arguments)
        assert code == 2
        assert is_one_sentence(error), error
    with pytest.raises(CheckpointError, match="run-1"):
        job.erase([ADA])
    assert job.latest() == latest


def test_a_killed_migration_leaves_nothing_that_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_of(tmp_path, changelog=False)
    job.run(batch(1), 1)
    changed = job_of(tmp_path, "all", changelog=False)
    with monkeypatch.context() as patch:
        patch.setattr(type(changed._tasks), "full_checkpoint", _killed)
        patch.setattr("dstl_core.storage.file_io.FsspecFileIO.delete_folder", _killed)
        for migrate in (changed.migrate, changed.plan_migration):
            with pytest.raises(Killed):
                migrate(rename={"total": "all"})
    scratch = folder_of(job) / "_dstl" / "migration"
    plans = [*(folder_of(job) / "_dstl").glob("plan-*")]
    left = [path for each in (scratch, *plans) for path in each.rglob("*") if path.is_file()]
    assert left and plans
    report = collect_garbage(job.path, delete=True, older_than_ms=-1)
    assert report.kept == {} or report.garbage == []
    job = job_of(tmp_path, changelog=False)  # claims, so that the files of the killed one are older
    job.run(batch(2), 2)
    report = collect_garbage(job.path, delete=True, older_than_ms=-1)
    assert {str(each.location).removeprefix("file:") for each in report.garbage} >= {
        str(path) for path in left
    }
    assert verify_snapshot(job.snapshot()).findings == []


def _killed(*_: Any, **__: Any) -> None:
    raise Killed


def _deletes_metadata_alone(_: DeletionGuard, *files: Location) -> bool:
    for file in files:
        if file.name not in ("_metadata", "_dstl.json"):
            raise Killed
        Path(file.path).unlink(missing_ok=True)
    return True


def test_the_error_tree_is_kept(tmp_path: Path) -> None:
    with pytest.raises(DstlError):
        PipelineKeys(str(tmp_path), ["a"]).find()
