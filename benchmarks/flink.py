"""Real Flink as a peer: its jars, and small programs compiled against them."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).with_name("java")


def jars() -> list[Path]:
    """Those of the folder that DSTL_FLINK_LIB names, else of the installed wheel; none is fine."""
    folder = os.environ.get("DSTL_FLINK_LIB")
    if folder is None:
        try:
            wheel = importlib.metadata.distribution("apache-flink-libraries")
        except importlib.metadata.PackageNotFoundError:
            return []
        folder = str(wheel.locate_file("pyflink/lib"))
    return sorted(Path(folder).glob("*.jar"))


def compiled_classpath(work: Path) -> str | None:
    """Compiles the runners; None without jars or a Java development kit."""
    libraries = jars()
    if not libraries or shutil.which("javac") is None or shutil.which("java") is None:
        return None
    return compiled(work, sorted(SOURCES.rglob("*.java")), libraries)


def compiled(work: Path, sources: Sequence[Path], libraries: Sequence[Path]) -> str:
    """Compiles programs; returns the classpath with them."""
    classpath = os.pathsep.join(map(str, [work, *libraries]))
    command = ["javac", "-nowarn", "-d", str(work), "-cp", classpath, *map(str, sources)]
    subprocess.run(command, check=True)
    return classpath


def version() -> str:
    """Of the distribution jar."""
    [name] = [jar.stem for jar in jars() if jar.name.startswith("flink-dist-")]
    return name.removeprefix("flink-dist-")
