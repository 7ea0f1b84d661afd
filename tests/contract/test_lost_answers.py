"""Answers of an S3 server that get lost, cut or never come."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

import pytest

from dstl_core.checkpoint.store.metadata_file import load_metadata_file, publish_metadata_file
from dstl_core.clock import SystemClock
from dstl_core.errors import FencedError, StateFileNotFoundError, StorageError
from dstl_core.storage import multipart
from dstl_core.storage.commit_log import CommitLog
from dstl_core.storage.file_io import FsspecFileIO, open_file_io
from dstl_core.storage.location import Location
from tests.s3_proxy import Fault, How, S3Proxy, s3_proxy
from tests.s3_server import S3Server
from tests.unit.checkpoint.test_metadata_file import METADATA

PART = 5 << 20  # S3 refuses smaller ones, but for the last


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    with s3_proxy(s3) as running:
        yield running


@pytest.fixture
def root(bucket: str) -> Location:
    return Location.parse(bucket).child("root")


@pytest.fixture
def files(proxy: S3Proxy, root: Location) -> FsspecFileIO:
    return open_file_io(root, proxy.server.storage_options)


@pytest.fixture
def impatient(proxy: S3Proxy, root: Location) -> FsspecFileIO:
    """A client that repeats a request once, where the test loses every answer."""
    options = {**proxy.server.storage_options, "config_kwargs": {"retries": {"max_attempts": 1}}}
    return open_file_io(root, options)


@pytest.mark.parametrize("how", [How.LOSE, How.DROP])
def test_a_state_file_whose_answer_was_lost_is_written(
    proxy: S3Proxy, files: FsspecFileIO, root: Location, how: How
) -> None:
    place = root.child("state")
    proxy.faults = [Fault(how, "PUT", "/state")]
    files.write_new(place, b"content")
    assert files.read_bytes(place) == b"content"
    assert proxy.requests.count(("PUT", place.path)) == 2, "the client repeats it"
    with pytest.raises(StorageError, match="there already"):
        files.write_new(place, b"another")


def test_a_file_in_parts_whose_last_answers_were_lost_is_written(
    proxy: S3Proxy, impatient: FsspecFileIO, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", PART)
    place = root.child("state")
    content = bytes(2 * PART + 1)
    proxy.faults = [Fault(How.LOSE, "POST", "/state", query="uploadId", times=100)]
    impatient.write_new(place, content)
    assert proxy.faults[0].times < 100
    assert impatient.size(place) == len(content)


@pytest.mark.parametrize("how", [How.LOSE, How.DROP])
@pytest.mark.parametrize("name", ["_dstl.json", "_metadata"])
def test_metadata_whose_answer_was_lost_is_published(
    proxy: S3Proxy, files: FsspecFileIO, root: Location, name: str, how: How
) -> None:
    proxy.faults = [Fault(how, "PUT", name)]
    digest, _ = publish_metadata_file(files, root, METADATA, {"note": 1})
    file = load_metadata_file(files, root)
    assert file.sha256 == digest
    assert file.sidecar is not None and file.sidecar.notes == {"note": 1}
    assert proxy.faults[0].times == 0


@pytest.mark.parametrize("how", [How.LOSE, How.DROP])
def test_a_record_whose_answer_was_lost_stands(
    proxy: S3Proxy, files: FsspecFileIO, root: Location, how: How
) -> None:
    mine = CommitLog(files, root, SystemClock())
    proxy.faults = [Fault(how, "PUT", f"/{number}.json") for number in (1, 2)]
    assert mine.claim("a").number == 1
    assert mine.append("a", "commit", {"checkpoint_id": 1}).number == 2
    assert [fault.times for fault in proxy.faults] == [0, 0]
    assert len(files.list_folder(root)) == 2


def test_a_record_of_somebody_else_is_not_mine(
    proxy: S3Proxy, files: FsspecFileIO, root: Location, s3: S3Server
) -> None:
    mine = CommitLog(files, root, SystemClock())
    mine.claim("a")
    theirs = CommitLog(open_file_io(root, s3.storage_options), root, SystemClock())
    theirs.claim("b")
    proxy.faults = [Fault(How.LOSE, "PUT", "/2.json")]
    with pytest.raises(FencedError, match="'b' claimed it with record 2"):
        mine.append("a", "commit", {"checkpoint_id": 1})


def test_every_answer_of_a_put_may_be_lost(
    proxy: S3Proxy, impatient: FsspecFileIO, root: Location
) -> None:
    proxy.faults = [Fault(How.LOSE, "PUT", "/slot", times=100)]
    assert impatient.publish_once(root.child("slot"), b"mine") is True
    assert impatient.publish_once(root.child("slot"), b"other") is False


def test_a_put_that_never_arrives_is_an_error(
    proxy: S3Proxy, impatient: FsspecFileIO, root: Location
) -> None:
    proxy.faults = [Fault(How.FAIL, "PUT", times=100)]
    for write in (impatient.write_new, impatient.publish_once):
        with pytest.raises(StorageError, match=r"Cannot (write|publish) s3://.*InternalError"):
            write(root.child("slot"), b"mine")
    proxy.faults = []
    assert impatient.size(root.child("slot")) is None


def test_a_conflict_of_two_conditional_puts_is_settled_by_trying_again(
    proxy: S3Proxy, files: FsspecFileIO, root: Location
) -> None:
    proxy.faults = [Fault(How.CONFLICT, "PUT", times=2)]
    assert files.publish_once(root.child("slot"), b"mine") is True
    proxy.faults = [Fault(How.CONFLICT, "PUT", times=2)]
    assert files.publish_once(root.child("slot"), b"other") is False
    proxy.faults = [Fault(How.CONFLICT, "PUT", times=1000)]
    with pytest.raises(StorageError, match="ConditionalRequestConflict"):
        files.publish_once(root.child("second"), b"mine")


def test_an_answer_that_is_cut_is_asked_for_again(
    proxy: S3Proxy, files: FsspecFileIO, root: Location
) -> None:
    content = bytes(range(256)) * 1000
    files.write_new(root.child("state"), content)
    proxy.faults = [Fault(How.TRUNCATE, "GET", "/state", times=2)]
    assert files.read_bytes(root.child("state")) == content
    assert files.read_bytes(root.child("state"), 1000, 9000) == content[1000:9000]
    proxy.faults = [Fault(How.TRUNCATE, "GET", "/state", times=1000)]
    with pytest.raises(StorageError, match=r"Cannot read s3://.*/state"):
        files.read_bytes(root.child("state"), 1000, 9000)


def test_a_bucket_that_is_not_there(files: FsspecFileIO) -> None:
    place = Location.parse("s3://no-such-bucket/root/file")
    with pytest.raises(StateFileNotFoundError, match="Cannot read s3://no-such-bucket/root/file"):
        files.read_bytes(place)
    for write in (files.write_new, files.publish_once, files.replace):
        with pytest.raises(
            StorageError, match=r"Cannot \w+ s3://no-such-bucket/.*no such bucket or folder"
        ):
            write(place, b"x")


def test_an_endpoint_that_does_not_answer_is_an_error(proxy: S3Proxy, root: Location) -> None:
    options = {
        **proxy.server.storage_options,
        "config_kwargs": {"read_timeout": 0.1, "retries": {"max_attempts": 0}},
    }
    proxy.faults = [Fault(How.HANG, method, times=100) for method in ("GET", "HEAD", "PUT")]
    files = open_file_io(root, options)
    for act in (files.read_bytes, files.list_folder, files.size):
        with pytest.raises(StorageError, match=r"Cannot [a-z ]+ s3://.*: Read timeout on endpoint"):
            act(root)
    with pytest.raises(StorageError, match=r"Cannot publish s3://.*: Read timeout on endpoint"):
        files.publish_once(root.child("slot"), b"x")


def test_a_secret_in_an_endpoint_is_not_shown(root: Location) -> None:
    options = {
        "key": "k",
        "secret": "s",
        "endpoint_url": "http://127.0.0.1:9/?token=planted-secret",
    }
    with pytest.raises(StorageError, match=r"http://127.0.0.1:9/\?token=\*\*\*") as caught:
        open_file_io(root, options).read_bytes(root)
    assert "planted-secret" not in "".join(traceback.format_exception(caught.value))
