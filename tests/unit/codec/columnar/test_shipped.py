"""Kernels that come with the package: used where they fit, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from dstl_core.codec.columnar.kernels import jit, shipped

SCRIPTS = Path(__file__).parents[4] / "scripts"
MODULE = """
from dstl_core.codec.columnar.kernels.jit import kernel

def adder(step):
    @kernel
    def add(number):
        return number + step

    return add

one, two = adder(1), adder(2)
"""
WRITE = """
import sys
from pathlib import Path
import compile_kernels
compile_kernels.write_into(Path(sys.argv[1]))
import steps
steps.one(1), steps.two(1)
"""
READ = """
import sys
from pathlib import Path
from numba.core import event
from dstl_core.codec.columnar.kernels import jit
jit.SHIPPED_FOLDER = Path(sys.argv[1])
import steps
listener = event.RecordingListener()
event.register("numba:compile", listener)
print(steps.one(1), steps.two(1), sum(event.is_start for _, event in listener.buffer))
"""


def run(code: str, shipped_to: Path, modules: Path, **variables: str) -> str:
    paths = [str(modules), str(SCRIPTS), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}
    command = [sys.executable, "-c", code, str(shipped_to)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_they_run_where_nothing_can_be_kept_until_their_module_changes(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(MODULE)
    run(WRITE, tmp_path / "shipped", tmp_path)
    written = files_of(tmp_path / "shipped")
    assert sorted(Path(name).suffix for name in written) == [".nbc", ".nbc", ".nbi"]
    nowhere = {"HOME": "/proc/no-such-home", "NUMBA_CACHE_DIR": ""}
    assert run(READ, tmp_path / "shipped", tmp_path, **nowhere) == "2 3 0\n"
    assert run(READ, tmp_path / "shipped", tmp_path, NUMBA_DISABLE_JIT="1") == "2 3 0\n"
    (tmp_path / "steps.py").write_text(MODULE.replace("number + step", "number - step"))
    assert run(READ, tmp_path / "shipped", tmp_path, **nowhere) == "0 -1 2\n"
    assert files_of(tmp_path / "shipped") == written


def test_a_folder_of_this_process_is_found(tmp_path: Path) -> None:
    folder = tmp_path / shipped.shipped_name("digest")
    assert shipped.shipped_folder("digest", tmp_path) is None
    folder.mkdir()
    assert shipped.shipped_folder("digest", tmp_path) == folder


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("numba.__version__", "0.61.0"),
        ("llvmlite.__version__", "0.44.0"),
        ("sys.implementation", SimpleNamespace(cache_tag="cpython-399")),
        ("llvmlite.binding.get_process_triple", lambda: "aarch64-apple-darwin23"),
    ],
)
def test_a_folder_for_something_else_is_not(
    name: str, other: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / shipped.shipped_name("digest")).mkdir()
    assert shipped.shipped_folder("digest", tmp_path) is not None
    assert shipped.shipped_folder("another digest", tmp_path) is None
    monkeypatch.setattr(name, other)
    assert shipped.shipped_folder("digest", tmp_path) is None


def test_a_processor_without_the_features_compiles_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / shipped.shipped_name("digest")
    folder.mkdir()
    features = {"avx2", "fma"}
    monkeypatch.setattr(shipped, "shipped_processor", lambda: shipped.Processor("p", features))
    folder = tmp_path / shipped.shipped_name("digest")
    folder.mkdir()
    for own, expected in (
        ("+sse2,+avx2,+fma", folder),
        ("+sse2,+avx2,-fma", None),
        ("", None),
    ):
        monkeypatch.setattr(numba.core.config, "CPU_FEATURES", own)
        assert shipped.shipped_folder("digest", tmp_path) == expected


def test_an_install_from_source_has_none() -> None:
    assert jit.SHIPPED_FOLDER is None
