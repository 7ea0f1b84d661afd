"""Which options reach which place, and where they are kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dstl_core.errors import ConfigError
from dstl_core.storage import profiles
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import (
    options_for,
    profile_file,
    register_profile,
    use_profile_file,
)


@pytest.fixture(autouse=True)
def own_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """This process knows no profiles, and has its temporary folder here."""
    monkeypatch.setattr(profiles, "_PROCESS", profiles._ProcessProfiles())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(profiles.VARIABLE, raising=False)
    yield


def reach(path: str) -> Any:
    return options_for(Location.parse(path)).get("key")


def test_the_longest_base_decides() -> None:
    register_profile(Location.parse("s3://b"), {"key": "bucket"})
    register_profile(Location.parse("s3a://b//deep/"), {"key": "deep"})
    register_profile(Location.parse("gs://b"), {"key": "google"})
    register_profile(Location.parse("s3://b/deep/environment"), {})
    assert reach("s3://b/x") == reach("s3://b") == reach("s3://b/deeper") == "bucket"
    assert reach("s3://b/deep") == reach("s3p://b/deep/x") == "deep"
    assert reach("s3://b/deep/environment/x") is None
    assert reach("gcs://b/x") == "google"
    assert reach("s3://bb/x") is reach("abfs://b/x") is None


def test_a_place_has_one_profile() -> None:
    register_profile(Location.parse("s3://b/x"), {"key": "one", "secret": "hidden"})
    register_profile(Location.parse("s3://b/x/"), {"key": "one", "secret": "hidden"})
    with pytest.raises(ConfigError, match=r"reach s3://b/x with different") as caught:
        register_profile(Location.parse("s3a://b//x"), {"key": "one", "secret": "other"})
    assert "hidden" not in str(caught.value)
    assert reach("s3://b/x") == "one"


def test_a_local_folder_leaves_no_file(tmp_path: Path) -> None:
    register_profile(Location.parse(tmp_path), {})
    assert list(tmp_path.iterdir()) == []


WORKER = """
import sys
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import options_for, use_profile_file
use_profile_file(sys.argv[1])
for line in sys.stdin:
    print(options_for(Location.parse(line.strip())).get("key"), flush=True)
"""


def test_a_worker_sees_what_is_registered_later() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, profile_file()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None

        def ask(path: str) -> str:
            worker.stdin.write(path + "\n")
            worker.stdin.flush()
            return worker.stdout.readline().strip()

        assert ask("s3://a/x") == "None"
        register_profile(Location.parse("s3://a"), {"key": "a"})
        assert ask("s3://a/x") == "a"
        register_profile(Location.parse("s3://b"), {"key": "b"})
        assert [ask("s3://a/x"), ask("s3://b/x"), ask("s3://c/x")] == ["a", "b", "None"]
        worker.stdin.close()


def test_a_file_of_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "given.json"
    path.write_text(json.dumps([{"base": "s3://a", "options": {"key": "given"}}]))
    path.chmod(0o600)
    monkeypatch.setenv(profiles.VARIABLE, str(path))
    assert reach("s3://a/x") == "given"
    register_profile(Location.parse("s3://a"), {"key": "own"})
    assert reach("s3://a/x") == "own", "what the process says itself counts more"


def test_a_file_that_is_missing_or_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "given.json"
    monkeypatch.setenv(profiles.VARIABLE, str(path))
    with pytest.raises(ConfigError, match=r"given\.json cannot be read \(No such file"):
        reach("s3://a")
    for text in ("{", "[1]", '[{"base": "s3://a"}]', '{"base": "hidden"}', '["hidden"]'):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match=r"given\.json are damaged") as caught:
            reach("s3://a")
        assert "hidden" not in str(caught.value)
    use_profile_file(str(tmp_path / "of a driver on another machine"))
    monkeypatch.delenv(profiles.VARIABLE)
    assert reach("s3://a") is None


@pytest.mark.parametrize("mode", [0o644, 0o666, 0o620, 0o604])
def test_a_file_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = tmp_path / "given.json"
    path.write_text("[]")
    path.chmod(mode)
    monkeypatch.setenv(profiles.VARIABLE, str(path))
    with pytest.raises(ConfigError, match=f"not private: .*mode {mode:03o}"):
        reach("s3://a")


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    root = tmp_path / f"dstl-profiles-{os.getuid()}"
    root.mkdir()
    root.chmod(0o755)
    with pytest.raises(ConfigError, match="not private"):
        register_profile(Location.parse("s3://a"), {"key": "a"})
    root.rmdir()
    root.symlink_to(tmp_path)
    with pytest.raises(ConfigError, match="not private"):
        register_profile(Location.parse("s3://b"), {"key": "a"})


DRIVER = """
import sys
from dstl_core.storage.location import Location
from dstl_core.storage.profiles import profile_file, register_profile
register_profile(Location.parse("s3://a"), {"key": "a"})
print(profile_file(), flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_secrets_are_gone_when_their_process_is(tmp_path: Path) -> None:
    def driver() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    (killed, of_killed), (running, of_running) = driver(), driver()
    with killed, running:
        assert of_killed.exists() and of_running.exists()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert of_killed.exists()
        third, of_third = driver()
        with third:
            assert not of_killed.parent.exists(), "the next process cleans up"
            assert of_running.exists(), "and leaves the living alone"
            third.communicate("go\n")
        assert not of_third.parent.exists()
        running.communicate("go\n")
    assert not of_running.parent.exists()
