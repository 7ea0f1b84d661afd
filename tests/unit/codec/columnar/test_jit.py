"""Where compiled kernels may be kept."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from dstl_core.codec.columnar.kernels import jit


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("one")
    return folder


def test_a_new_folder_is_the_users_alone(tmp_path: Path, sources: Path) -> None:
    folder = jit.kernel_folder(tmp_path / "cache", sources)
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert jit.kernel_folder(tmp_path / "cache", sources) == folder


def test_any_changed_source_gives_another_folder(tmp_path: Path, sources: Path) -> None:
    before = jit.kernel_folder(tmp_path / "cache", sources)
    (sources / "a.py").write_text("two")
    assert jit.kernel_folder(tmp_path / "cache", sources) != before


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_folder_that_others_can_enter_is_refused(
    tmp_path: Path, sources: Path, mode: int
) -> None:
    folder = jit.kernel_folder(tmp_path / "cache", sources)
    assert folder is not None
    folder.chmod(mode)
    assert jit.kernel_folder(tmp_path / "cache", sources) is None


def test_a_link_is_refused(tmp_path: Path, sources: Path) -> None:
    folder = jit.kernel_folder(tmp_path / "cache", sources)
    assert folder is not None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert jit.kernel_folder(tmp_path / "cache", sources) is None


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert jit.kernel_folder(tmp_path / "cache", sources) is None


def test_a_place_where_nothing_can_be_made_is_no_error(tmp_path: Path, sources: Path) -> None:
    (tmp_path / "file").write_text("")
    assert jit.kernel_folder(tmp_path / "file", sources) is None


def test_the_users_own_compiled_functions_stay_where_they_are() -> None:
    configured = os.environ.get("NUMBA_CACHE_DIR", "")
    assert configured == numba.config.CACHE_DIR


@pytest.mark.slow
def test_kernels_run_without_any_home() -> None:
    # A worker of a locked-down cluster: no home to write to, a package that cannot be written.
    code = (
        "from dstl_core.codec.columnar.kernels import jit\n"
        "assert jit.CACHE_FOLDER is None, jit.CACHE_FOLDER\n"
        "assert jit.kernel(lambda x: x + 1)(1) == 2\n"
    )
    environment = {**os.environ, "HOME": "/proc/no-such-home", "NUMBA_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=120)
