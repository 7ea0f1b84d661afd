"""The wheels of this tree, and environments that hold only what is installed from them.

uv installs if it is on the PATH, otherwise pip does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PROJECTS = {"dstl_core": ROOT, "dagster_dstl": ROOT / "dstl_dagster"}
"""The folder of each distribution, by the name in its wheel."""


def build_wheel(name: str, folder: Path, *, kernels: bool = False) -> Path:
    """Builds the wheel of a distribution in a folder, with the build backend from the index.

    Args:
        kernels: With kernels that this Python and its packages compile.
    """
    if uv := shutil.which("uv"):
        command = [uv, "build", "--quiet", "--wheel", "--out-dir", folder]
    else:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder]
    compiler = {"DSTL_COMPILE_KERNELS_WITH": sys.executable} if kernels else {}
    environment = {**os.environ, **compiler}
    subprocess.run([*command, PROJECTS[name]], check=True, cwd=folder, env=environment)
    [wheel] = folder.glob(f"{name}-*.whl")
    return wheel


def make_environment(folder: Path, *requirements: str | Path, pinned: bool = True) -> Path:
    """Makes an environment of this Python. It holds the requirements, and what these require.

    Args:
        folder: Where it is.
        requirements: What is installed.
        pinned: Whether versions are those of ``constraints.txt``.

    Returns:
        The folder of its commands.
    """
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    if uv := shutil.which("uv"):
        command = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
        command.append("--no-compile")  # Python compiles what it imports
    versions = ["-c", ROOT / "constraints.txt"] if pinned else []
    subprocess.run([*command, *versions, *requirements], check=True, cwd=folder)
    return python.parent


if __name__ == "__main__":
    target = Path(sys.argv[1]).resolve()
    target.mkdir(exist_ok=True)
    for distribution in PROJECTS:
        with TemporaryDirectory() as made:
            wheel = build_wheel(distribution, Path(made), kernels=True)
            sys.stdout.write(f"{shutil.copy(wheel, target)}\n")
