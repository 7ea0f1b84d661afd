"""One file has many paths, and one answer."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from dstl_core.storage.file_io import FileIO, FileStatus, open_file_io
from dstl_core.storage.file_set import FileSet, RealLocations, real_location
from dstl_core.storage.location import Location
from dstl_core.storage.walk import files_behind, files_below

parse = Location.parse


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "base" / "folder" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    return path


def test_a_local_file_is_known_under_each_of_its_paths(file: Path, tmp_path: Path) -> None:
    beside = file.with_name("beside")
    beside.write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "base")
    (tmp_path / "chain").symlink_to("link")
    (tmp_path / "alias").symlink_to(file)
    (tmp_path / "same").hardlink_to(file)
    paths = [
        *(str(file), f"file:{file}", f"file://{file}", f"{file}/", str(file).replace("/", "//")),
        *(f"{tmp_path}/{name}/folder/file" for name in ("link", "chain", "base/../base", "base/.")),
        *(str(tmp_path / name) for name in ("alias", "same")),
    ]
    for added in paths:
        files = FileSet([parse(added)])
        assert [path for path in paths if parse(path) not in files] == [], added
        assert parse(beside) not in files
        assert parse(tmp_path / "link" / "folder" / "beside") not in files


@pytest.mark.parametrize(
    "path", ["s3://b/k/x", "s3a://b/k/x", "S3://b//k//x", "s3p://b/k/x/", "s3:/b/k/x"]
)
def test_an_object_is_known_under_each_of_its_urls(path: str) -> None:
    files = FileSet([parse("s3://b/k/x")])
    assert parse(path) in files
    assert parse("s3://b/k/x") in FileSet([parse(path)])
    for other in ("s3://b/k/y", "s3://c/k/x", "gs://b/k/x", "/b/k/x", "s3://b/K/x"):
        assert parse(other) not in files


def test_a_file_that_is_not_there_yet_is_known_by_its_place(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "base")
    files = FileSet([parse(tmp_path / "link" / "folder" / "new")])
    file.with_name("new").write_bytes(b"x")
    assert parse(file.with_name("new")) in files


def test_a_name_that_one_file_has_is_enough_and_another_is_not() -> None:
    name, output = str(uuid4()), f"part-00007-{uuid4().hex}.parquet"
    files = FileSet([parse(f"hdfs://host:1/old/{name}"), parse(f"/old/{output}")])
    files.add_all([parse("/old/_metadata")])
    assert parse(f"s3://b/new/{name}") in files
    assert parse(f"/new/{output}") in files
    assert parse("/new/_metadata") not in files
    files.add_name("_metadata")
    assert parse("/new/_metadata") not in files


def test_sets_are_added_to_sets(file: Path) -> None:
    name = str(uuid4())
    both = FileSet([parse("s3://b/x")])
    both.update(FileSet([parse(file), parse(f"/old/{name}")]))
    for path in ("s3a://b/x", str(file), f"/new/{name}"):
        assert parse(path) in both
    assert "s3://b/x" not in both, "a text is no location"


def test_links_that_lead_nowhere_or_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nothing")
    files = FileSet([parse(tmp_path / "loop"), parse(tmp_path / "gone")])
    assert parse(tmp_path / "loop") in files
    assert parse(tmp_path / "nothing") in files
    assert parse(tmp_path / "other") not in files


def test_the_real_location_of_a_file_in_the_root() -> None:
    assert real_location(parse("/")) == Location("file", "/")
    assert Location("file", "/no-such-file") in FileSet([parse("/no-such-file")])


def test_a_walk_shows_links_and_follows_none(file: Path, tmp_path: Path) -> None:
    (tmp_path / "base" / "link").symlink_to(file.parent)
    io = open_file_io(parse(tmp_path))
    links = {os.path.basename(each.location.path): each.is_link for each in _below(io, tmp_path)}
    assert links == {"file": False, "link": True}


def test_behind_a_link_each_folder_is_walked_once(file: Path, tmp_path: Path) -> None:
    (file.parent / "back").symlink_to(tmp_path / "base")
    (tmp_path / "link").symlink_to(tmp_path / "base")
    io = open_file_io(parse(tmp_path))
    statuses = list(files_behind(io, parse(tmp_path / "link")))
    assert sorted(each.location.name for each in statuses) == ["back", "file"]
    assert list(files_behind(io, parse(file))) == []


def _below(io: FileIO, folder: Path) -> list[FileStatus]:
    return list(files_below(io, parse(folder)))


def test_the_canonical_form_of_many_files_is_that_of_each(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "base")
    (tmp_path / "alias").symlink_to(file)
    (file.parent / "beside").symlink_to("file")
    (file.parent / "gone").symlink_to("nowhere")
    real = RealLocations()
    for path in (
        *(str(file), f"{tmp_path}/link/folder/file", f"{tmp_path}/link/folder/beside"),
        *(f"{file.parent}/gone", f"{tmp_path}/link/folder/none", f"{tmp_path}/alias", "/"),
        *("memory://a/b", "s3a://bucket/key"),
    ):
        assert real.of(parse(path)) == real_location(parse(path)), path
