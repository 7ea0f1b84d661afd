"""Edits that change no state: what is shared, what is copied, and who is told."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint, rewrite_savepoint
from dstl_core.checkpoint.store.metadata_file import load_metadata_file
from dstl_core.checkpoint.store.references import file_handles
from dstl_core.codec.metadata.metadata_format import write_metadata
from dstl_core.errors import ConfigError, SavepointError, StorageError
from dstl_core.model.checkpoint import (
    ChangeStream,
    CheckpointMetadata,
    SnapshotFilesHandle,
    with_streams,
)
from dstl_core.model.handle import (
    FileStateHandle,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    StreamStateHandle,
)
from dstl_core.savepoint.edit.upgrade import SavepointUpgrade
from dstl_core.savepoint.gc import collect_garbage
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, as_lines, snapshot
from tests.job_files import make_old
from tests.s3_proxy import s3_proxy
from tests.s3_server import S3Server

__all__ = ["run"]

CHANGELOGS = [
    "a-hashmap-changelog-checkpoint-files",
    "a-rocksdb-changelog-materialized",
    "o-rescaled-claim-changelog",
]
CHECKPOINTS = [
    *CHANGELOGS,
    "a-hashmap-checkpoint",
    "a-rocksdb-checkpoint-incremental",
    "a-rocksdb-checkpoint-incremental-flink2.0.2",
    "a-rocksdb-heaptimers-checkpoint",
    "o-rescaled-claim-rocksdb",
    "o-sql-topn-rocksdb-incremental",
    "x-filemerging-hashmap",
    "x-lsm-rocksdb-incremental",
    "x-rescaled-rocksdb-incremental",
]
SAVEPOINTS = [
    "a-hashmap-native",
    "a-rocksdb-native-incremental",
    "o-hard-keys-rocksdb",
    "o-ttl-maps-rocksdb",
]
CHECKPOINT = "a-rocksdb-checkpoint-incremental"
RENAME = {"a-keyed": "renamed"}


def lines(loaded: Snapshot, **labels: str) -> Iterator[dict[str, Any]]:
    for operator in loaded.operators:
        for line in operator.dump():
            yield line | {"op": labels.get(operator.label.replace("-", "_"), operator.label)}


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def first_keyed(loaded: Snapshot) -> str:
    return next(each.label for each in loaded.operators if each.keyed_handles)


def copied(name: str, folder: Path) -> Path:
    """A snapshot in a folder of its own, for notes are left beside files that are shared."""
    whole = folder / name
    shutil.copytree(GOLDEN / name, whole)
    return whole / snapshot(name).relative_to(GOLDEN / name)


@pytest.mark.parametrize("name", CHECKPOINTS + SAVEPOINTS)
@pytest.mark.parametrize("files", ["share", "copy"])
def test_what_does_not_change_is_what_it_was(tmp_path: Path, name: str, files: Any) -> None:
    before, out = Snapshot.load(copied(name, tmp_path)), tmp_path / "out"
    label = first_keyed(before)

    rewrite_savepoint(before, out, rename={label: "renamed"}, files=files)

    after = Snapshot.load(out, allow_roots=[] if files == "copy" else [str(tmp_path)])
    expected = [
        line | {"op": "renamed" if line["op"] == label else line["op"]} for line in lines(before)
    ]
    assert as_lines(lines(after)) == as_lines(expected)
    assert verify_snapshot(after).findings == []
    assert [each.form() for each in after.operators] == [each.form() for each in before.operators]
    assert after.metadata.properties == before.metadata.properties
    kinds = {type(each) for each in file_handles(after.metadata)}
    if files == "copy":
        assert kinds <= {RelativeFileStateHandle}
        # A list in merged files names folders of the source, which Flink deletes with a claimed
        # snapshot.
        assert all(
            listed is None or listed.file_merging is None
            for operator in after.operators
            for subtask in operator.state.subtasks
            for listed in (subtask.managed_operator_state, subtask.raw_operator_state)
        )
    else:
        assert RelativeFileStateHandle not in kinds
        assert names_in(out) == {"_metadata", "_dstl.json"}


def test_a_copy_is_the_same_bytes_and_a_file_of_two_handles_is_copied_once(tmp_path: Path) -> None:
    # Both subtasks of a rescaled job name the same table files.
    before = Snapshot.load(snapshot("x-rescaled-rocksdb-incremental"))
    rewrite_savepoint(before, tmp_path / "out", remove=["src"], files="copy")
    after = Snapshot.load(tmp_path / "out")

    old, new = file_handles(before.metadata), file_handles(after.metadata)

    assert len(new) == len(names_in(tmp_path / "out") - {"_metadata", "_dstl.json"})
    wanted = sorted(before.resolver.read(each) for each in dict.fromkeys(old))
    assert sorted(after.resolver.read(each) for each in new) == wanted


@pytest.mark.parametrize(
    ("name", "options", "form"),
    [
        (CHECKPOINT, {"rename": RENAME}, "share"),
        (CHECKPOINT, {"remove": ["sink"]}, "share"),
        ("a-hashmap-checkpoint", {"rename": RENAME}, "share"),
        ("a-rocksdb-native-incremental", {"rename": RENAME}, "copy"),
        # Nothing is edited: the copy is for another state backend, or for an archive.
        (CHECKPOINT, {}, "canonical"),
        (CHECKPOINT, {"rename": RENAME, "files": "canonical"}, "canonical"),
        # Every key may move to another file.
        (CHECKPOINT, {"rename": RENAME, "max_parallelism": 256}, "canonical"),
        (CHECKPOINT, {"split": {("a-keyed", "names"): ["names"]}}, "share"),
        ("a-hashmap-checkpoint", {"split": {("a-keyed", "names"): ["names"]}}, "canonical"),
        # A job with a changelog restores with CLAIM only.
        ("a-rocksdb-changelog-materialized", {"rename": RENAME}, "copy"),
        ("a-hashmap-canonical", {"rename": RENAME}, "canonical"),
    ],
)
def test_the_edit_and_its_source_decide(name: str, options: dict[str, Any], form: str) -> None:
    from dstl_core.savepoint.edit.rewrite import edit_by_names

    if "split" in options:
        options = {"split": {("a-keyed", "apart"): ["names"]}}
    assert edit_by_names(Snapshot.load(snapshot(name)), **options).kept_files == form


def test_a_relocation_is_an_edit(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    job = snapshot(CHECKPOINT).parent
    shutil.copytree(job, elsewhere)
    [old] = {
        handle.path.rsplit("/", 2)[0]
        for handle in file_handles(Snapshot.load(elsewhere / "chk-1").metadata)
        if isinstance(handle, FileStateHandle)
    }
    alone = tmp_path / "alone" / "chk-1"
    shutil.copytree(elsewhere / "chk-1", alone)

    source = Snapshot.load(alone, relocate={old: str(elsewhere)})
    rewrite_savepoint(source, tmp_path / "out")

    after = Snapshot.load(tmp_path / "out", allow_roots=[str(elsewhere), str(alone)])
    assert names_in(tmp_path / "out") == {"_metadata", "_dstl.json"}
    assert as_lines(lines(after)) == as_lines(lines(Snapshot.load(snapshot(CHECKPOINT))))


def test_an_operator_that_changes_is_canonical_and_the_others_stay(tmp_path: Path) -> None:
    before = Snapshot.load(copied(CHECKPOINT, tmp_path))
    rewrite_savepoint(before, tmp_path / "out", max_parallelism=512, files="share")
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(tmp_path)])
    handles = after["a-keyed"].keyed_handles
    assert all(isinstance(each, KeyGroupsSavepointStateHandle) for each in handles)
    sorted_lines = in_any_order(lines(after))
    assert sorted_lines == in_any_order(lines(before))


def in_any_order(dumped: Iterable[dict[str, Any]]) -> list[str]:
    return as_lines({k: v for k, v in line.items() if k != "kg"} for line in dumped)


def test_onto_its_own_folder_only_the_metadata_changes(tmp_path: Path) -> None:
    job = tmp_path / "94ee8bb4a62d2cde06306c091e999da9"
    shutil.copytree(snapshot(CHECKPOINT).parent, job)
    before = {path: path.read_bytes() for path in job.rglob("*") if path.is_file()}

    rewrite_savepoint(Snapshot.load(job / "chk-1"), job / "chk-1", rename=RENAME, mode="overwrite")

    after = {path: path.read_bytes() for path in job.rglob("*") if path.is_file()}
    changed = {path for path in after if before.get(path) != after[path]}
    assert changed == {job / "chk-1" / "_metadata", job / "chk-1" / "_dstl.json"}
    assert before.keys() <= after.keys()
    assert len(list(Snapshot.load(job / "chk-1")["renamed"].dump())) > 30


def of_flink_1(name: str, folder: Path) -> Path:
    """State without Kryo is the same in Flink 1.20, whose metadata has version 4."""
    place = copied(name, folder)
    file = load_metadata_file(open_file_io(Location.parse(place)), Location.parse(place))
    (place / "_metadata").write_bytes(write_metadata(replace(file.metadata, version=4)))
    return place


@pytest.mark.parametrize("name", ["a-rocksdb-native-incremental", CHECKPOINT])
@pytest.mark.parametrize("files", ["share", "copy"])
def test_an_upgrade_keeps_operators_with_nothing_to_convert(
    tmp_path: Path, name: str, files: Any
) -> None:
    before = Snapshot.load(of_flink_1(name, tmp_path))
    upgrade = SavepointUpgrade(before, "2.2", files=files)
    upgrade.write(tmp_path / "out")
    after = Snapshot.load(tmp_path / "out", allow_roots=[str(tmp_path)])
    assert [each.form() for each in after.operators] == [each.form() for each in before.operators]
    assert as_lines(lines(after)) == as_lines(lines(before))
    assert verify_snapshot(after).findings == []
    assert (names_in(tmp_path / "out") == {"_metadata", "_dstl.json"}) == (files == "share")
    notes = list(tmp_path.rglob("_dstl_shared_*.json"))
    assert bool(notes) == (files == "share") == bool(upgrade.shares_files_in)


def test_an_upgrade_is_canonical_unless_it_is_told(tmp_path: Path) -> None:
    before = Snapshot.load(of_flink_1(CHECKPOINT, tmp_path))
    SavepointUpgrade(before, "2.2").write(tmp_path / "out")
    assert {each.form() for each in Snapshot.load(tmp_path / "out").operators} == {
        "canonical",
        "none",
    }
    with pytest.raises(ConfigError, match="expected share, copy, canonical or None, got 'link'"):
        SavepointUpgrade(before, "2.2", files="link")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ S3


@pytest.fixture
def on_s3(s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, job: Path) -> str:
    """The URL of a checkpoint whose handles spell the scheme as a plugin of Flink does."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    base = f"{bucket}/ckpt/{job.name}"
    files = open_file_io(Location.parse(base))
    metadata = Snapshot.load(job / "chk-1").metadata
    spelled = base.replace("s3://", "s3a://")

    def moved(stream: StreamStateHandle) -> StreamStateHandle:
        if not isinstance(stream, FileStateHandle):
            return stream
        return replace(stream, path=f"{spelled}/{'/'.join(stream.path.split('/')[-2:])}")

    raw = write_metadata(with_every_stream(metadata, moved))
    for path in job.rglob("*"):
        if path.is_file():
            data = raw if path.name == "_metadata" else path.read_bytes()
            files.write_new(Location.parse(f"{base}/{path.relative_to(job)}"), data)
    return f"{base}/chk-1"


def with_every_stream(metadata: CheckpointMetadata, change: ChangeStream) -> CheckpointMetadata:
    operators = []
    for operator in metadata.operators:
        subtasks = []
        for subtask in operator.subtasks:
            keyed = subtask.managed_keyed_state
            if isinstance(keyed, SnapshotFilesHandle):
                keyed = with_streams(keyed, change)
            subtasks.append(replace(subtask, managed_keyed_state=keyed))
        operators.append(replace(operator, subtasks=tuple(subtasks)))
    return replace(metadata, operators=tuple(operators))


def test_the_store_copies_objects(
    on_s3: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_folder = on_s3.rsplit("/", 1)[0]
    base = job_folder.rsplit("/", 2)[0]
    with s3_proxy(s3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.server.endpoint_url)
        before = Snapshot.load(on_s3)
        copied = rewrite_savepoint(before, f"{base}/copied", rename=RENAME, files="copy")
        read = {path.rsplit("/", 1)[1] for method, path in proxy.requests if method == "GET"}
    assert read <= {"_metadata", "_dstl.json", base.removeprefix("s3://")}
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint_url)
    assert as_lines(lines(Snapshot.load(copied), renamed="a-keyed")) == as_lines(lines(before))


@pytest.mark.slow
def test_objects_are_shared_and_copied(on_s3: str) -> None:
    job_folder = on_s3.rsplit("/", 1)[0]
    base = job_folder.rsplit("/", 2)[0]
    before = Snapshot.load(on_s3)
    expected = as_lines(lines(before))

    shared = rewrite_savepoint(before, f"{base}/shared", rename=RENAME)
    copied = rewrite_savepoint(before, f"{base}/copied", rename=RENAME, files="copy")

    loaded = Snapshot.load(shared, allow_roots=[job_folder])
    assert as_lines(lines(loaded, renamed="a-keyed")) == expected
    paths = {
        file_handle.path
        for file_handle in file_handles(loaded.metadata)
        if isinstance(file_handle, FileStateHandle)
    }
    assert {path.split("://")[0] for path in paths} == {"s3a", "s3"}
    files = open_file_io(Location.parse(base))
    assert {each.location.name for each in files.list_folder(Location.parse(shared))} == {
        "_metadata",
        "_dstl.json",
    }
    assert as_lines(lines(Snapshot.load(copied), renamed="a-keyed")) == expected
    # The checkpoint is gone; what the other snapshot shares stays, and the note says so.
    files.delete(Location.parse(f"{on_s3}/_metadata"))
    kept = collect_garbage(f"{base}/ckpt", flink_job_stopped=True, older_than_ms=-86_400_000)
    assert (kept.garbage, kept.snapshots) == ([], 2)
    # Whoever looks into the folder of the checkpoint alone finds the note beside it.
    kept = collect_garbage(on_s3, flink_job_stopped=True, older_than_ms=-86_400_000)
    assert (kept.garbage, kept.snapshots) == ([], 1)


# ------------------------------------------------------------------------------ what is refused


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The folder of a job with a checkpoint, that a test may change."""
    folder = tmp_path / "base" / "94ee8bb4a62d2cde06306c091e999da9"
    shutil.copytree(snapshot(CHECKPOINT).parent, folder)
    return folder


def test_a_lost_file_is_named_and_nothing_is_published(job: Path, tmp_path: Path) -> None:
    copy = tmp_path / "source"
    rewrite_savepoint(Snapshot.load(job / "chk-1"), copy, remove=["sink"], files="copy")
    lost = min(names_in(copy) - {"_metadata", "_dstl.json"})
    (copy / lost).unlink()
    for files in ("share", "copy"):
        with pytest.raises((SavepointError, StorageError), match=lost):
            rewrite_savepoint(
                Snapshot.load(copy),
                tmp_path / files,
                rename=RENAME,
                files=files,  # type: ignore[arg-type]
            )
        assert not (tmp_path / files / "_metadata").exists()
    assert not list(copy.glob("_dstl_shared_*"))


def test_a_short_file_is_named(job: Path, tmp_path: Path) -> None:
    short = sorted((job / "shared").iterdir())[0]
    short.write_bytes(short.read_bytes()[:-1])
    for files in ("share", "copy"):
        with pytest.raises((SavepointError, ValueError), match=short.name):
            rewrite_savepoint(
                Snapshot.load(job / "chk-1"),
                tmp_path / files,
                rename=RENAME,
                files=files,  # type: ignore[arg-type]
            )
        assert not (tmp_path / files / "_metadata").exists()


def test_files_of_a_pipeline_are_not_shared(job: Path, tmp_path: Path) -> None:
    (job / "_dstl").mkdir()
    (job / "_dstl" / "log").write_bytes(b"{}")
    with pytest.raises(ConfigError, match="it deletes what its own checkpoints do not need"):
        rewrite_savepoint(Snapshot.load(job / "chk-1"), tmp_path / "out", rename=RENAME)
    assert not (tmp_path / "out" / "_metadata").exists()
    rewrite_savepoint(Snapshot.load(job / "chk-1"), tmp_path / "out", rename=RENAME, files="copy")


def test_another_store_gets_a_copy_or_nothing(job: Path) -> None:
    source = Snapshot.load(job / "chk-1")
    with pytest.raises(ConfigError, match="choose a folder on file, or copy them"):
        rewrite_savepoint(source, "memory://kept/out", rename=RENAME)
    rewrite_savepoint(source, "memory://kept/out", rename=RENAME, files="copy")
    assert as_lines(lines(Snapshot.load("memory://kept/out"), renamed="a-keyed")) == as_lines(
        lines(source)
    )


def test_in_flight_data_is_refused(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("x-unaligned-hashmap"))
    with pytest.raises(SavepointError, match="in-flight data of an unaligned checkpoint"):
        rewrite_savepoint(source, tmp_path / "out", rename={"slow": "slower"}, files="share")


def test_a_wrong_word_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected share, copy, canonical or None, got 'link'"):
        edit_savepoint(Snapshot.load(snapshot(CHECKPOINT))).with_files("link")  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------- garbage


def collect(base: Path, **options: Any) -> set[str]:
    garbage_report = collect_garbage(str(base), flink_job_stopped=True, delete=True, **options)
    return {each.location.name for each in garbage_report.garbage}


def test_gc_keeps_what_a_snapshot_elsewhere_shares(job: Path, tmp_path: Path) -> None:
    files = {path.name for path in (*(job / "shared").iterdir(), *(job / "chk-1").iterdir())}
    files -= {"_metadata"}
    rewrite_savepoint(Snapshot.load(job / "chk-1"), tmp_path / "out", rename=RENAME)
    # The job has subsumed its checkpoint, but for what another process held open.
    (job / "chk-1" / "_metadata").unlink()
    make_old(job)

    assert collect(job.parent) == set()
    assert collect(job) == set()
    assert collect(job / "shared") == set()
    assert collect(job / "chk-1") == set()
    (tmp_path / "latest").symlink_to(job / "chk-1")
    assert collect(tmp_path / "latest") == set()

    after = Snapshot.load(tmp_path / "out", allow_roots=[str(job)])
    assert verify_snapshot(after).findings == []
    (tmp_path / "out" / "_metadata").unlink()
    with pytest.raises(SavepointError, match="and delete the note file:"):
        collect(job.parent)
    for note in job.rglob("_dstl_shared_*.json"):
        note.unlink()
    assert collect(job.parent) == files


def test_a_damaged_note_stops_the_collection(job: Path, tmp_path: Path) -> None:
    rewrite_savepoint(Snapshot.load(job / "chk-1"), tmp_path / "out", rename=RENAME)
    [note] = (job / "shared").glob("_dstl_shared_*.json")
    for damage in (b"", b"[]", b"{}", b'{"version": 2, "snapshot": "/x"}', b'{"version": 1}'):
        note.write_bytes(damage)
        with pytest.raises(SavepointError, match="Nothing is collected"):
            collect(job)


def test_a_snapshot_of_a_snapshot_that_shares_leaves_its_own_notes(
    job: Path, tmp_path: Path
) -> None:
    rewrite_savepoint(Snapshot.load(job / "chk-1"), tmp_path / "one", rename=RENAME)
    middle = Snapshot.load(tmp_path / "one", allow_roots=[str(job)])
    rewrite_savepoint(middle, tmp_path / "two", rename={"renamed": "again"})
    assert len(list((job / "shared").glob("_dstl_shared_*.json"))) == 2
    assert len(list(job.glob("_dstl_shared_*.json"))) == 2
    assert names_in(job / "chk-1") == names_in(snapshot(CHECKPOINT))


def test_a_folder_without_write_permission_is_one_sentence(job: Path, tmp_path: Path) -> None:
    (job / "shared" / "x").mkdir()
    source = Snapshot.load(job / "chk-1")

    def refuse(*_: object) -> bool:
        raise StorageError("Cannot publish: Permission denied.")

    source.file_io.publish_once = refuse  # type: ignore[method-assign]
    with pytest.raises(StorageError, match=r"no note can be left there for dstl gc .*--copy"):
        rewrite_savepoint(source, tmp_path / "out", rename=RENAME)
    assert not (tmp_path / "out" / "_metadata").exists()


# -------------------------------------------------------------------------------- command line


def test_the_command_says_what_is_shared(run: Any, job: Path, tmp_path: Path) -> None:
    source, out = str(job / "chk-1"), str(tmp_path / "out")
    code, printed, _ = run("rewrite", source, out, "--rename", "a-keyed=renamed", "--dry-run")
    assert code == 0
    assert printed.splitlines()[0].endswith("rocksdb files -> rocksdb files, shared")
    *_, shared, forecast, end = printed.splitlines()
    assert forecast.startswith("reads 0 bytes, writes 0 bytes; ")
    assert [shared, end] == [
        f"shares files in file:{job}/chk-1, file:{job}/shared: keep them, and restore with claim "
        f"mode NO_CLAIM; to read it with dstl, allow them (--allow-root)",
        "nothing was written",
    ]
    code, printed, _ = run("rewrite", source, out, "--rename", "a-keyed=renamed", "--json")
    assert code == 0 and f'"file:{job}/shared"' in printed
    # A snapshot of that one needs the same files, and not the folder of that one.
    again = run("rewrite", out, f"{out}5", "--rename", "renamed=x", "--allow-root", str(job))
    assert f"shares files in file:{job}/chk-1, file:{job}/shared: keep" in again.out
    code, printed, _ = run("rewrite", source, f"{out}2", "--rename", "a-keyed=renamed", "--copy")
    assert code == 0 and "shares" not in printed and "rocksdb files, copied" in printed
    code, printed, _ = run("rewrite", source, f"{out}3", "--rename", "a-keyed=x", "--canonical")
    assert code == 0 and "rocksdb files -> canonical" in printed
    code, printed, _ = run("rewrite", source, f"{out}4", "--share", "--max-parallelism", "256")
    assert code == 0 and "rocksdb files -> canonical" in printed and "shares" not in printed


def test_the_options_exclude_each_other(run: Any, job: Path, tmp_path: Path) -> None:
    for command in (
        ["rewrite", str(job / "chk-1"), str(tmp_path / "out")],
        ["offsets", str(job / "chk-1"), "--out", str(tmp_path / "out")],
        ["committables", str(job / "chk-1"), "--out", str(tmp_path / "out")],
        ["upgrade", str(job / "chk-1"), str(tmp_path / "out")],
    ):
        code, _, error = run(*command, "--share", "--copy")
        assert code == 2 and is_one_sentence(error)
        assert "--share and --copy exclude each other" in error


def test_further_folders_are_a_list() -> None:
    """The letters of a text would be folders: all files, with a slash among them."""
    with pytest.raises(ConfigError, match="allow_roots is wrong: expected a list of folders, got"):
        Snapshot.load(snapshot(CHECKPOINT), allow_roots="/data")
