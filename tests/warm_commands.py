"""A process that has imported what ``dstl`` and Dagster's commands need, and forks for each call.

A command imports for 3 to 5 seconds and works for a tenth of one. Tests call them a hundred times.
The fork is the command: the same entry point with the caller's arguments, folder, variables and
files. ``docs/bin`` has the callers.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

CALLERS = Path(__file__).parent / "docs" / "bin"
"""A folder for the ``PATH``."""
VARIABLE = "DSTL_TESTS_COMMANDS"
"""The variable by which the caller knows the socket."""
OF_DSTL = ("dstl_core.cli", "dstl_core.savepoint")
"""What the command ``dstl`` needs of packages."""
_PACKAGES = (*OF_DSTL, "dstl_core.job", "dstl_core.local", "dstl_dagster")
_ALSO = (
    "pandas",  # pyarrow imports it for the first array
    *("create_dagster.cli", "dagster._cli", "dagster._daemon", "dagster._grpc"),
    *(f"dagster_dg_cli.cli.{name}" for name in ("check", "launch", "list", "scaffold")),
)


@contextlib.contextmanager
def warm_commands(packages: Sequence[str] = ()) -> Iterator[str]:
    """The socket of such a process, which ends with the block.

    Args:
        packages: What it imports; by default what all commands need.
    """
    with (
        tempfile.TemporaryDirectory(prefix="dstl-") as folder,
        subprocess.Popen(
            [sys.executable, "-m", __name__, f"{folder}/commands", *packages],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,  # its end ends the process
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield f"{folder}/commands"


def _import_what_commands_need(packages: Sequence[str]) -> None:
    for name in packages or _PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in () if packages else _ALSO:
        importlib.import_module(name)


def _request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    message, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    parts = [message]
    while part := connection.recv(1 << 16):
        parts.append(part)
    return json.loads(b"".join(parts)), files


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Goes on as the command, to the end of this process."""
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    scripts = Path(sys.executable).parent
    sys.argv[:] = [str(scripts / request["command"]), *request["arguments"]]
    folders = [
        path for path in request["variables"].get("PYTHONPATH", "").split(os.pathsep) if path
    ]
    sys.path[:] = [str(scripts), *folders, *(path for path in sys.path[1:] if path not in folders)]
    [entry] = importlib.metadata.entry_points(group="console_scripts", name=request["command"])
    sys.exit(entry.load()())


def _answer(connection: socket.socket) -> None:
    """Runs in a fork of its own; tells the exit code of the command, which is another one."""
    request, files = _request(connection)
    command = os.fork()
    if command == 0:
        connection.close()
        _become(request, files)
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    connection.sendall(bytes([code if code >= 0 else 128 - code]))
    os._exit(0)


def _forget_those_that_ended() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while select.select([listener, sys.stdin], [], [])[0] == [listener]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _answer(connection)
            connection.close()
            _forget_those_that_ended()


def main() -> None:
    path, *packages = sys.argv[1:]
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has none of its parent's threads
    _import_what_commands_need(packages)
    gc.collect()
    gc.freeze()
    _serve(path)


if __name__ == "__main__":
    main()
