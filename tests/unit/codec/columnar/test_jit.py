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
from dstl_core.private_folders import private_folder


def test_a_new_folder_is_the_users_alone(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "cache" / "kernels")
    assert folder is not None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert private_folder(tmp_path / "cache" / "kernels") == folder


def test_any_changed_source_gives_another_folder(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one")
    before = jit.digest_of(tmp_path)
    (tmp_path / "a.py").write_text("two")
    assert jit.digest_of(tmp_path) != before
    assert jit.CACHE_FOLDER is None or jit.CACHE_FOLDER.name == jit.DIGEST


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path, mode: int) -> None:
    folder = private_folder(tmp_path / "cache" / "kernels")
    assert folder is not None
    folder.chmod(mode)
    assert private_folder(tmp_path / "cache" / "kernels") is None


def test_a_link_is_refused(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "cache" / "kernels")
    assert folder is not None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert private_folder(tmp_path / "cache" / "kernels") is None


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: me + 1)
    assert private_folder(tmp_path / "cache" / "kernels") is None


def test_a_place_where_nothing_can_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert private_folder(tmp_path / "file" / "kernels") is None


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
