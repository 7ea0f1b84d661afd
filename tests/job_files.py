"""The files of a job: to compare two jobs that did the same, and to have them old."""

from __future__ import annotations

import os
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

from dstl_core import StatefulJob


def files_of(running: StatefulJob) -> Counter[tuple[str, str]]:
    """The folder and the digest of each file that has no name, id or time of its run."""
    root = Path(running.path.removeprefix("file:"))
    files = [path for path in root.rglob("*") if path.is_file()]
    named = ("_metadata", "_dstl.json")
    return Counter(
        (str(path.parent.relative_to(root)), sha256(path.read_bytes()).hexdigest())
        for path in files
        if path.name not in named and path.suffix != ".json"
    )


def make_old(folder: Path) -> None:
    """Days pass for what is there, and for nothing that is still to be written."""
    then = time.time() - 7 * 86_400
    for path in folder.rglob("*"):
        os.utime(path, (then, then))
