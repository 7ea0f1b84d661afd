"""A ``FileIO`` in a process of its own: somebody else who writes.

``python -m tests.other_process`` answers calls over its standard input and output, pickled, until
its input ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dstl_core.storage.file_io import FileIO, open_file_io
from dstl_core.storage.location import Location


class OtherProcess:
    """Stands for the file IO of the other process; has all of its methods."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: object) -> Any:
            assert self._process.stdin is not None and self._process.stdout is not None
            pickle.dump((name, arguments), self._process.stdin)
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


@contextmanager
def other_process(root: Location, options: dict[str, Any] | None = None) -> Iterator[OtherProcess]:
    """Starts a process with a file IO for the scheme of ``root``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.other_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None
    with process:
        try:
            pickle.dump((root, options), process.stdin)
            process.stdin.flush()
            yield OtherProcess(process)
        finally:
            process.stdin.close()


def _serve() -> None:
    root, options = pickle.load(sys.stdin.buffer)
    files: FileIO = open_file_io(root, options)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(files, name)(*arguments)
        except Exception as error:
            answer = error
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve()
