"""Real Flink's changelog writers and reader, in one JVM that is driven by lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.flink.checker import Java, find_jars

SOURCES = Path(__file__).with_name("java-changelog")
LOG_CONFIGURATION = Path(__file__).with_name("java") / "log4j2.properties"
MAIN = "org.apache.flink.changelog.fs.Segments"

Change = tuple[int, bytes]


@dataclass(frozen=True)
class Place:
    """Where a change set lies: file, offset in its body, bytes of the body."""

    path: str
    offset: int
    size: int


class FlinkSegments:
    """Owns the JVM; close it.

    Args:
        work: A folder for the classes and the log.
    """

    def __init__(self, work: Path) -> None:
        java, jars = Java.find(), find_jars()
        classes = work / "classes"
        classpath = os.pathsep.join(map(str, [classes, *jars]))
        sources = [str(path) for path in SOURCES.rglob("*.java")]
        subprocess.run(
            [java.javac, "-proc:none", "-nowarn", "-d", classes, "-cp", classpath, *sources],
            check=True,
            timeout=300,
        )
        self._log = (work / "segments.log").open("wb")
        self._process = subprocess.Popen(
            [
                str(java.java),
                "-Xmx1g",
                "--add-opens=java.base/java.util=ALL-UNNAMED",
                f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
                "-cp",
                classpath,
                MAIN,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="ascii",
        )

    def write(
        self,
        folder: Path,
        steps: Sequence[str],
        *,
        writers: int,
        compressed: bool,
        threshold: int = 1 << 30,
    ) -> list[list[Place]]:
        """Runs ``append``, ``meta`` and ``next`` lines, persists all; the places by writer."""
        head = f"write {folder.as_uri()} {str(compressed).lower()} {threshold} {writers}"
        places: list[list[Place]] = [[] for _ in range(writers)]
        for line in self._ask([head, *steps, "persist"]):
            _, writer, path, offset, size = line.split(" ")
            places[int(writer)].append(Place(path, int(offset), int(size)))
        return places

    def read(self, places: Sequence[Place]) -> list[Change]:
        """The changes behind the places, as one handle."""
        lines = [f"{place.path} {place.offset} {place.size}" for place in places]
        changes = []
        for line in self._ask(["read", *lines, ""]):
            _, key_group, value = line.split(" ")
            changes.append((int(key_group), bytes.fromhex(value)))
        return changes

    def _ask(self, lines: Sequence[str]) -> list[str]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\n".join(lines) + "\n")
        stdin.flush()
        answers = []
        for line in stdout:
            if line == "done\n":
                return answers
            answers.append(line.rstrip("\n"))
        self._log.flush()
        raise AssertionError(f"The JVM ended: {Path(self._log.name).read_text()[-3000:]}")

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(60)
        self._log.close()
