"""What a benchmark ran on, and where its figures go."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", help="where files go (default: a temporary folder)")


@contextmanager
def work_folder(parent: str | None = None) -> Iterator[Path]:
    """A folder for the files of a run, which is gone after it."""
    work = Path(tempfile.mkdtemp(prefix="dstl-bench-", dir=parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def machine() -> dict[str, Any]:
    """Facts that a figure cannot be read without."""
    cpu = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    packages = ("numba", "numpy", "pyarrow", "cramjam", "fsspec")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": f"{len(cpu)} x {cpu[0] if cpu else 'unknown'}",
        "memory_gib": round(pages / 2**30, 1),
        "load_average": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "commit": _git("rev-parse", "--short", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--untracked-files=no")),
    }


def describe(machine: dict[str, Any]) -> str:
    """One sentence of it; ``load_average_after`` is the caller's."""
    return (
        f"{machine['cpu']}, {machine['memory_gib']} GiB, Python {machine['python']}, load "
        f"{machine['load_average']:.1f} before and {machine['load_average_after']:.1f} after, "
        f"commit {machine['commit']}{' with changes' if machine['dirty'] else ''}."
    )


def _git(*command: str) -> str:
    done = subprocess.run(["git", *command], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def read(name: str) -> Any:
    """The figures of the last run; None if there are none."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def write(name: str, figures: dict[str, Any], table: str) -> None:
    """Writes ``results/<name>.json`` and ``.md``, and prints the table."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(table)
    print(table)
