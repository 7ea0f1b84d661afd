"""Other Flink releases, fetched from the package index once: their jars, and their PyFlink."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from tests.integration.flink.checker import CACHE, DISTRIBUTION, FlinkCheckerError
from tests.made_once import made_once

RELEASES = ("1.20.5", "2.0.2", "2.1.3", "2.3.0")
DOWNLOAD_TIMEOUT_S = 1800


def jars_of(release: str) -> list[Path]:
    """The jars of a release: of its wheel, or of its source package.

    Raises:
        FlinkCheckerError: It cannot be fetched; says why.
    """
    folder = made_once(
        CACHE / f"flink-{release}",
        lambda jars, scratch: _unpack(_download(release, scratch), jars),
    )
    return sorted(folder.glob("*.jar"))


def python_of(release: str) -> Path:
    """A Python with PyFlink, which needs older versions of packages that dstl uses.

    Raises:
        subprocess.CalledProcessError: It cannot be installed.
    """
    home = made_once(CACHE / f"pyflink-{release}", lambda home, _: _install(home, release))
    return home / "bin" / "python"


def _install(home: Path, release: str) -> None:
    """Packages of old releases come as sources, which newer tools do not build."""
    python = str(home / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", str(home)],
        [*install, "setuptools<70", "wheel"],
        [*install, "--no-build-isolation", f"apache-flink=={release}"],
    ):
        subprocess.run(command, check=True, timeout=DOWNLOAD_TIMEOUT_S)


def _download(release: str, scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(scratch)]
    if release.startswith("1."):
        # Its source package is built with what is here, and needs an older setuptools.
        command = [_old_tools(scratch), *command[1:], "--no-build-isolation"]
    done = subprocess.run(
        [*command, f"{DISTRIBUTION}=={release}"],
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_TIMEOUT_S,
        check=False,
    )
    archives = [each for each in scratch.iterdir() if each.suffix in (".whl", ".gz")]
    if done.returncode != 0 or not archives:
        raise FlinkCheckerError(f"Flink {release} cannot be fetched:\n{done.stderr[-2000:]}")
    return archives[0]


def _old_tools(scratch: Path) -> str:
    """A Python with the tools that build packages of Flink 1."""
    python = scratch / "tools" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(scratch / "tools")],
        [str(python), "-m", "pip", "install", "--quiet", "setuptools<70", "wheel"],
    ):
        subprocess.run(command, check=True, timeout=DOWNLOAD_TIMEOUT_S)
    return str(python)


def _unpack(package: Path, target: Path) -> None:
    """The jars of ``pyflink/lib`` in a wheel, or of ``deps/lib`` in a source package."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            for name in archive.namelist():
                if Path(name).match("pyflink/lib/*.jar"):
                    with archive.open(name) as jar, (target / Path(name).name).open("wb") as out:
                        shutil.copyfileobj(jar, out)
        return
    with tarfile.open(package) as packed:
        for member in packed:
            if Path(member.name).match("*/deps/lib/*.jar"):
                jar_file = packed.extractfile(member)
                if jar_file is not None:
                    with (target / Path(member.name).name).open("wb") as out:
                        shutil.copyfileobj(jar_file, out)
