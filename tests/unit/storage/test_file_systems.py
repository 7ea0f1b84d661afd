"""File systems of fsspec beyond local disks and S3: nothing is kept, and URLs name hosts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import s3fs

from dstl_core.errors import ConfigError
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.file_systems import file_system, file_system_at
from dstl_core.storage.location import Location
from tests.s3_server import S3Server


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Location]:
    """The URL of a web server that shows ``tmp_path``."""
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Location.parse(f"http://127.0.0.1:{server.server_port}/root")
        server.shutdown()
        thread.join()


def test_a_web_server_is_asked_each_time(web: Location, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").write_bytes(b"old")
    files = open_file_io(web, {"use_listings_cache": True})
    listed = [each.location.name for each in files.list_folder(web)]
    assert (listed, files.size(web.child("a"))) == (["a"], 3)
    assert files.read_bytes(web.child("a")) == b"old"
    (tmp_path / "root" / "a").write_bytes(b"newer")
    (tmp_path / "root" / "b").write_bytes(b"x")
    assert [each.location.name for each in files.list_folder(web)] == ["a", "b"]
    assert files.size(web.child("a")) == 5
    assert files.read_bytes(web.child("a"), 0, 5) == b"newer"
    assert files.size(web.child("none")) is None


@pytest.mark.parametrize("protocol", ["simplecache", "filecache", "blockcache"])
def test_a_file_system_that_is_a_cache_is_refused(protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"{protocol!r} keeps copies of files"):
        FsspecFileIO(protocol, {"target_protocol": "memory"})


@pytest.mark.slow
def test_users_of_equal_options_share_connections(s3: S3Server) -> None:
    shared = file_system("s3", s3.storage_options)
    assert file_system("s3", dict(s3.storage_options)) is shared
    assert file_system("s3", {**s3.storage_options, "secret": "other"}) is not shared
    assert s3fs.S3FileSystem(**s3.storage_options) is not shared


def test_the_host_of_a_url_is_an_option() -> None:
    fs, path = file_system_at("http", "host:80/a/b", {})
    assert (fs.protocol, path) == (("http", "https"), "http://host:80/a/b")
    _, path = file_system_at("s3", "bucket/a/b", {"anon": True})
    assert path == "bucket/a/b"


@pytest.mark.slow
def test_keys_that_are_no_paths_are_not_listed(s3: S3Server, bucket: str) -> None:
    root = Location.parse(bucket).child("root")
    files = open_file_io(root, s3.storage_options)
    raw = s3fs.S3FileSystem(skip_instance_cache=True, **s3.storage_options)
    for key in ("", "/x", "../up", "./here", " b", "a ", "c#d", "k_$folder$"):
        raw.call_s3("put_object", Bucket=root.path.split("/")[1], Key=f"root/{key}", Body=b"x")
    listed = [each.location.name for each in files.list_folder(root)]
    assert listed == [" b", "a ", "c#d", "k_$folder$"]
    assert [files.size(root.child(name)) for name in listed] == [1, 1, 1, 1]


def test_credentials_of_the_environment_belong_to_a_file_system(monkeypatch):
    """Client libraries look for credentials once, and keep what they found."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    before = file_system("memory", {})
    assert file_system("memory", {}) is before
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert file_system("memory", {}) is not before
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    assert file_system("memory", {}) is before
