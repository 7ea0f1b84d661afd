from __future__ import annotations

import os
from pathlib import Path

import pytest

from dstl_core.errors import ConfigError, PathNotAllowedError
from dstl_core.storage.location import JobLayout, Location, checkpoint_id_of


@pytest.mark.parametrize(
    ("text", "scheme", "path", "printed"),
    [
        ("/a/b", "file", "/a/b", "file:/a/b"),
        ("/a/./b//c/", "file", "/a/b/c", "file:/a/b/c"),
        ("//a/b", "file", "/a/b", "file:/a/b"),
        ("file:/a/b", "file", "/a/b", "file:/a/b"),
        ("file:///a/b", "file", "/a/b", "file:/a/b"),
        ("FILE:///a/b/", "file", "/a/b", "file:/a/b"),
        ("local:/a", "file", "/a", "file:/a"),
        ("/", "file", "/", "file:/"),
        ("s3://bucket/key", "s3", "/bucket/key", "s3://bucket/key"),
        ("s3a://bucket//key/", "s3a", "/bucket/key", "s3a://bucket/key"),
        ("memory://a/b", "memory", "/a/b", "memory://a/b"),
        ("memory:/a/b", "memory", "/a/b", "memory://a/b"),
        ("/a/b:c", "file", "/a/b:c", "file:/a/b:c"),
        ("2013-11-04T10:00", "file", None, None),
        ("./x:y", "file", None, None),
    ],
)
def test_parse_and_print(text: str, scheme: str, path: str | None, printed: str | None) -> None:
    location = Location.parse(text)
    assert location.scheme == scheme
    assert location.path == (path or os.path.abspath(text))
    assert str(location) == (printed or f"file:{os.path.abspath(text)}")
    assert Location.parse(str(location)) == location


def test_a_plain_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.parse("a/../b") == Location("file", f"{tmp_path}/b")
    assert Location.parse(Path("b")) == Location("file", f"{tmp_path}/b")


@pytest.mark.parametrize(
    "text", ["simplecache::s3://b/k", "a::b", "/a\0b", "file:/a\0", "/a\ud800", "s3://\udfffx"]
)
def test_what_no_path_may_hold(text: str) -> None:
    with pytest.raises(PathNotAllowedError, match="A path is not allowed"):
        Location.parse(text)


def test_bytes_of_the_command_line_that_are_not_utf8_are_a_name() -> None:
    name = os.fsdecode(b"/a/\xff")
    assert Location.parse(name).path == name


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(ConfigError, match="A path is empty"):
        Location.parse("")


@pytest.mark.parametrize(
    ("names", "path"),
    [(("c",), "/a/b/c"), (("c", "d/e"), "/a/b/c/d/e"), (("c/./d//e",), "/a/b/c/d/e")],
)
def test_child(names: tuple[str, ...], path: str) -> None:
    assert Location.parse("/a/b").child(*names) == Location("file", path)


@pytest.mark.parametrize(
    "name", ["..", "../b", "c/..", "c/../../d", "/etc/passwd", "c\0", "c::d", "\ud83d"]
)
def test_a_child_stays_below(name: str) -> None:
    with pytest.raises(PathNotAllowedError):
        Location.parse("/a/b").child(name)


@pytest.mark.parametrize(
    ("root", "other", "inside"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b", "/a/b/c", True),
        ("/a/b", "/a/bc", False),
        ("/a/b", "/a", False),
        ("/", "/a", True),
        ("/a", "s3://a/b", False),
        ("s3://bucket/a", "s3://bucket/a/b", True),
        ("s3://bucket/a", "s3://other/a/b", False),
    ],
)
def test_contains(root: str, other: str, inside: bool) -> None:
    assert Location.parse(root).contains(Location.parse(other)) is inside


def test_parts_of_a_location() -> None:
    location = Location.parse("s3://bucket/a/b")
    assert location.name == "b"
    assert location.parent == Location("s3", "/bucket/a")
    assert location.relative_to(Location.parse("s3://bucket")) == "a/b"
    assert not location.is_local
    assert Location.parse("/a").is_local


def test_the_layout_of_a_job_has_flinks_names() -> None:
    layout = JobLayout.of(Location.parse("s3://bucket/flink"), "ab" * 16)
    root = "s3://bucket/flink/" + "ab" * 16
    assert str(layout.root) == root
    assert str(layout.checkpoint(12)) == f"{root}/chk-12"
    assert str(layout.task_owned) == f"{root}/taskowned"
    assert str(layout.changelog) == f"{root}/dstl"
    assert str(layout.commit_log) == f"{root}/_dstl/log"
    assert str(layout.output(12)) == f"{root}/_dstl/output/chk-12"


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("chk-0", 0),
        ("chk-12", 12),
        ("chk-", None),
        ("chk--1", None),
        ("chk-1a", None),
        ("chk-\u0661", None),
        ("chk-999999999999999999", 999999999999999999),
        ("achk-1", None),
        ("CHK-1", None),
        ("savepoint-1-2", None),
        ("chk-" + "9" * 5000, None),
    ],
)
def test_checkpoint_id_of(name: str, number: int | None) -> None:
    assert checkpoint_id_of(name) == number


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sftp://user:planted@host/a", "sftp://***@host/a"),
        ("sftp:user:planted@host/a", "sftp://***@host/a"),
        ("https://host/a?X-Amz-Signature=planted&x=1", "https://host/a?X-Amz-Signature=***&x=1"),
        ("abfss://c@account.dfs.core.windows.net/a?sv=1&sig=planted", "/a?sv=1&sig=***"),
        ("simplecache::sftp://user:planted@host/a", "simplecache::sftp://***@host/a"),
    ],
)
def test_a_url_with_a_secret_is_refused_and_not_repeated(url: str, shown: str) -> None:
    with pytest.raises(PathNotAllowedError) as caught:
        Location.parse(url)
    assert shown in str(caught.value)
    assert "planted" not in str(caught.value) + str(caught.value.context)


@pytest.mark.parametrize(
    "url",
    [
        "abfss://container@account.dfs.core.windows.net/a",
        "s3://b/a?b=c",
        "file:///a?token=x",
        "/a:b@c",
    ],
)
def test_a_url_without_a_secret_is_a_location(url: str) -> None:
    assert str(Location.parse(url)).endswith(url.rpartition("/")[2])
