from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dstl_core.checkpoint.store.metadata_file import (
    Sidecar,
    load_metadata_file,
    publish_metadata_file,
)
from dstl_core.errors import ConfigError, FormatError, StateFileNotFoundError, StorageError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

METADATA = CheckpointMetadata(
    3,
    7,
    (
        OperatorState(OperatorID.for_uid("counter"), 1, 128, (), uid="counter"),
        OperatorState(OperatorID.for_uid("nameless"), 1, 128, ()),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "chk-7")


def publish(folder: Location, notes: dict[str, Any] | None = None) -> tuple[str, int]:
    return publish_metadata_file(open_file_io(folder), folder, METADATA, notes or {})


def test_published_metadata_is_loaded_by_folder_or_by_file(folder: Location) -> None:
    digest, size = publish(folder, {"kind": "test"})
    for path in (folder, folder.child("_metadata")):
        file = load_metadata_file(open_file_io(folder), path)
        assert file.folder == folder
        assert [each.operator_id for each in file.metadata.operators] == [
            operator.operator_id for operator in METADATA.operators
        ]
        assert (file.sha256, file.size) == (digest, size)
        assert file.sidecar == Sidecar(
            digest, {OperatorID.for_uid("counter"): "counter"}, {"kind": "test"}
        )
    raw = Path(folder.path, "_metadata").read_bytes()
    assert (hashlib.sha256(raw).hexdigest(), len(raw)) == (digest, size)


def test_a_snapshot_is_never_overwritten(folder: Location) -> None:
    digest, _ = publish(folder, {"n": 1})
    with pytest.raises(StorageError, match="A snapshot is already there"):
        publish(folder, {"n": 2})
    file = load_metadata_file(open_file_io(folder), folder)
    assert file.sha256 == digest
    assert file.sidecar is not None
    assert file.sidecar.notes == {"n": 1}


def test_the_sidecar_of_somebody_else_is_not_touched(folder: Location) -> None:
    # Between the sidecar and the metadata of another writer.
    files = open_file_io(folder)
    files.publish_once(folder.child("_dstl.json"), b"theirs")
    with pytest.raises(StorageError, match="has an unfinished snapshot"):
        publish(folder)
    assert files.read_bytes(folder.child("_dstl.json")) == b"theirs"
    assert files.size(folder.child("_metadata")) is None


def test_facts_that_are_not_json_are_refused_before_anything_is_written(folder: Location) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        publish(folder, {"x": float("nan")})
    assert open_file_io(folder).list_folder(folder) == []


def test_a_snapshot_without_a_sidecar_loads(folder: Location) -> None:
    publish(folder)
    open_file_io(folder).delete(folder.child("_dstl.json"))
    assert load_metadata_file(open_file_io(folder), folder).sidecar is None


def test_a_sidecar_of_other_metadata_says_nothing(folder: Location) -> None:
    publish(folder)
    path = Path(folder.path, "_dstl.json")
    body = json.loads(path.read_bytes())
    path.write_text(json.dumps({**body, "metadata_sha256": "0" * 64}))
    assert load_metadata_file(open_file_io(folder), folder).sidecar is None


def test_no_snapshot(tmp_path: Path, folder: Location) -> None:
    message = r"There is no snapshot: expected a file _metadata in file:.*chk-7; give the folder"
    files = open_file_io(folder)
    for path in (folder, folder.child("_metadata")):
        with pytest.raises(StateFileNotFoundError, match=message):
            load_metadata_file(files, path)
    Path(folder.path, "_metadata").mkdir(parents=True)
    with pytest.raises(StateFileNotFoundError, match=message):
        load_metadata_file(files, folder)


def test_damaged_metadata_names_its_file(folder: Location) -> None:
    Path(folder.path).mkdir()
    Path(folder.path, "_metadata").write_bytes(b"")
    with pytest.raises(FormatError, match=r"ends too early.*\[file:.*chk-7/_metadata\]"):
        load_metadata_file(open_file_io(folder), folder)


GOOD: dict[str, Any] = {
    "version": 1,
    "metadata_sha256": "0" * 64,
    "uids": {"00" * 16: "uid"},
    "facts": {},
}


def test_a_sidecar_round_trips() -> None:
    sidecar = Sidecar("0" * 64, {OperatorID(bytes(16)): "日本\ud800"}, {"a": [1, {"b": None}]})
    assert Sidecar.from_bytes(sidecar.to_bytes()) == sidecar
    assert b"decimals" not in sidecar.to_bytes()
    declared = replace(
        sidecar,
        decimals={
            OperatorID(bytes(16)): {"total": (18, 2), "日本": (38, 0), "row": {"f0": (9, 3)}}
        },
    )
    assert Sidecar.from_bytes(declared.to_bytes()) == declared


DEEP = json.loads('{"f0": ' * 40 + "[18, 2]" + "}" * 40)


@pytest.mark.parametrize(
    "wrong",
    [[18], [2, 18], [39, 2], [0, 0], [18, -1], "182", ["a", 1], None, {"f0": [39, 2]}, DEEP],
)
def test_a_declared_decimal_that_is_none_is_damage(wrong: object) -> None:
    body = {**GOOD, "decimals": {"00" * 16: {"total": wrong}}}
    with pytest.raises(FormatError, match="is damaged"):
        Sidecar.from_bytes(json.dumps(body).encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"7",
        b"[" * 100_000,
        json.dumps(GOOD).replace('"facts": {}', '"facts": {"a": NaN}').encode(),
        *(
            json.dumps({**GOOD, **change}).encode()
            for change in (
                {"version": 2},
                {"version": "1"},
                {"uids": []},
                {"uids": {"00": "uid"}},
                {"uids": None},
                {"facts": 5},
                {"facts": ["ab", "c"]},
            )
        ),
        *(
            json.dumps({key: value for key, value in GOOD.items() if key != missing}).encode()
            for missing in GOOD
        ),
    ],
)
def test_damaged_sidecars_are_format_errors_that_name_the_file(
    folder: Location, raw: bytes
) -> None:
    publish(folder)
    path = Path(folder.path, "_dstl.json")
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=r"A sidecar _dstl\.json is damaged .*delete") as caught:
        load_metadata_file(open_file_io(folder), folder)
    assert caught.value.context["location"] == f"file:{path}"
