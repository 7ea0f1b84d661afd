"""Settings that make a session of Spark start fast."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dstl_core.errors import ConfigError
from dstl_core.spark.session_start import (
    DAEMON,
    OPTIONS,
    archive_folder,
    archive_of,
    kept_archive,
    require_answer,
    start_settings,
    units_on,
)

DAEMON_OF_DSTL = {DAEMON: "dstl_core.spark.worker_daemon"}


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Java, for a user without an archive."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"')
    return tmp_path / "java"


def keep_archive() -> Path:
    folder = archive_folder()
    assert folder is not None
    archive = archive_of(folder, 3)
    archive.write_bytes(b"jsa")
    return archive


def test_without_an_archive_the_options_stay(java: Path) -> None:
    assert start_settings() == DAEMON_OF_DSTL
    assert start_settings("-Xmx1g", is_local=False) == {OPTIONS: "-Xmx1g"}


def test_the_archive_is_added_to_the_options(java: Path) -> None:
    archive = keep_archive()
    added = f'"-XX:SharedArchiveFile={archive}" -Xlog:cds*=off -Xlog:class+path=off'
    assert start_settings() == {**DAEMON_OF_DSTL, OPTIONS: added}
    assert start_settings("-Xmx1g", is_local=False) == {OPTIONS: f"-Xmx1g {added}"}


def test_an_archive_of_the_user_stays(java: Path) -> None:
    keep_archive()
    own = "-XX:SharedArchiveFile=/own.jsa"
    assert start_settings(own)[OPTIONS] == own


def test_a_cut_archive_is_not_used(java: Path) -> None:
    archive = keep_archive()
    assert kept_archive() == archive
    archive.write_bytes(b"js")
    assert kept_archive() is None
    assert start_settings() == DAEMON_OF_DSTL


def test_another_java_has_another_archive(java: Path) -> None:
    keep_archive()
    (java / "release").write_text('JAVA_VERSION="21.0.1"')
    assert kept_archive() is None


@pytest.mark.parametrize("change", ["a jar has another time", "a jar has another size", "a jar"])
def test_jars_that_are_installed_anew_have_another_archive(
    java: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    jars = java.with_name("spark") / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core.jar").write_bytes(b"classes")
    monkeypatch.setenv("SPARK_HOME", str(jars.parent))
    archive = keep_archive()
    assert kept_archive() == archive
    if change == "a jar has another time":
        os.utime(jars / "spark-core.jar", (0, 0))
    elif change == "a jar has another size":
        time = (jars / "spark-core.jar").stat().st_mtime
        (jars / "spark-core.jar").write_bytes(b"other classes")
        os.utime(jars / "spark-core.jar", (time, time))
    else:
        (jars / "spark-sql.jar").write_bytes(b"classes")
    assert kept_archive() is None


def test_an_archive_where_others_can_write_is_not_used(java: Path) -> None:
    keep_archive().parent.chmod(0o755)
    assert kept_archive() is None


def test_a_session_that_does_not_start_is_said(tmp_path: Path) -> None:
    """In another process: in this one there may be a session already."""
    start = "from dstl_core.spark.session_start import units_on; units_on('local[1]').__enter__()"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, env=environment)
    last = done.stderr.decode().splitlines()[-1]
    assert "ConfigError: Spark does not start with the master 'local[1]' (" in last
    assert last.endswith("Spark needs a Java runtime >= 17.")


def test_a_master_that_nobody_answers_for_is_said_before_spark_starts() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        dead = f"127.0.0.1:{bound.getsockname()[1]}"
        with (
            pytest.raises(ConfigError, match=rf"No master of Spark answers at 'spark://{dead}'"),
            units_on(f"spark://{dead}"),
        ):
            pass
        with socket.create_server(("127.0.0.1", 0)) as alive:
            require_answer(f"spark://{dead},127.0.0.1:{alive.getsockname()[1]}")


@pytest.mark.parametrize("master", ["nonsense", "local[", "host:7077", ""])
def test_what_is_no_master_is_said_before_spark_starts(master: str) -> None:
    """Spark itself prints a stack of Java for it."""
    with pytest.raises(ConfigError, match=r"expected one such as local\[4\], .*, got "):
        require_answer(master)


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local-cluster[2,1,1024]", "yarn", "k8s://host:6443", "spark://host"],
)
def test_other_masters_are_for_spark_to_judge(master: str) -> None:
    require_answer(master)
