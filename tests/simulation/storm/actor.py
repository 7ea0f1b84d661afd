"""What the processes of the storm have in common: lines to the one who started them, and strikes.

A strike kills or stops a process at a call that changes the store. On a local folder the process
strikes itself, at a call that an audit hook counts; on S3 the proxy strikes, before or after it has
passed a request on. Whoever was stopped is woken by the one who started it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from random import Random
from typing import Any

_CHANGES = ("os.link", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CALLS_BETWEEN_STRIKES = 250


def say(**line: Any) -> None:
    """One line to the one who started this process; whole, or not at all."""
    os.write(1, json.dumps(line).encode() + b"\n")


def say_error(error: Exception) -> None:
    """A call of an actor has failed, which it may; the details go to the log."""
    say(stopped=type(error).__name__)
    sys.stderr.write(f"pid {os.getpid()}: {error}\n")


def name_of(path: str) -> str:
    """What kind of file a path is, for the counts."""
    if path.endswith("/_metadata") or "/._metadata." in path:
        return "metadata"
    if "/_dstl/log" in path:
        return "commit log"
    if "/taskowned" in path:
        return "materialization"
    return "other" if "/dstl/" not in path else "segment"


def draw_strike(random: Random) -> tuple[int, signal.Signals]:
    """After how many calls, and what."""
    calls = int(random.expovariate(1 / CALLS_BETWEEN_STRIKES))
    return calls, random.choice([signal.SIGKILL, signal.SIGSTOP])


class StrikesItself:
    """An audit hook that ends or stops this process at some call that changes files.

    Args:
        folder: Only what happens below it counts.
        random: Says when, and how.
    """

    def __init__(self, folder: str, random: Random) -> None:
        self._folder = folder
        self._random = random
        self._left, self._signal = draw_strike(random)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
                return
        elif event not in _CHANGES:
            return
        path = arguments[0]
        if not isinstance(path, str) or not path.startswith(self._folder):
            return
        if event == "os.link":
            path = arguments[1]
        self._left -= 1
        if self._left > 0:
            return
        struck, (self._left, self._signal) = self._signal, draw_strike(self._random)
        say(strike=struck.name, pid=os.getpid(), at=f"{event} of {name_of(path)}")
        os.kill(os.getpid(), struck)


def live(
    module: str,
    environment: Mapping[str, str],
    base: str,
    seed: int,
    life: int,
    output: Connection,
    errors: str,
) -> None:
    """What a process of the storm does: runs an actor until it is killed.

    Args:
        module: Its ``run`` is the actor; ``IS_STRUCK`` says whether strikes reach it.
        environment: How it reaches the store.
        base: Where the pipeline lies.
        seed: Of the storm.
        life: Tells it from all other processes of the storm.
        output: Where ``say`` goes.
        errors: The file that gets what it logs.
    """
    os.dup2(output.fileno(), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    os.environ.update(environment)
    actor = importlib.import_module(module)
    if actor.IS_STRUCK and "://" in base:
        # The proxy knows by it whom to strike.
        os.environ["AWS_SDK_UA_APP_ID"] = f"pid-{os.getpid()}"
    elif actor.IS_STRUCK:
        folder = base.removeprefix("file:")
        sys.addaudithook(StrikesItself(folder, Random(f"{seed} {life} strikes")))
    actor.run(base, seed, Random(f"{seed} {life}"))
