"""A mini cluster of real Flink with its REST endpoint, in a JVM that is driven by lines."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.integration.flink.checker import Java, find_jars

SOURCES = Path(__file__).with_name("java-rest")
LOG_CONFIGURATION = Path(__file__).with_name("java") / "log4j2.properties"
OPENED = ("java.lang", "java.util", "java.util.concurrent", "java.net", "java.nio", "java.time")


class FlinkRestCluster:
    """Owns the JVM; close it.

    Args:
        work: A folder for the classes, Flink's temporary files and the log.
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
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        command = [str(java.java), "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += opens
        command += [f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}", "-cp", classpath]
        self._log = (work / "cluster.log").open("wb")
        self._process = subprocess.Popen(
            [*command, "dstl.rest.RestCluster", str(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )
        self.url = self._read()

    def start(
        self, name: str, uid: str, *, max_parallelism: int, elements: int, snapshot: str | None
    ) -> str:
        """Submits a job that counts per key; returns its id once all elements are counted."""
        line = f"start {name} {uid} {max_parallelism} {elements} {snapshot or '-'}\n"
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            log = Path(self._log.name).read_text(errors="replace")
            raise RuntimeError(f"the cluster's JVM ended:\n{log[-3000:]}")
        return line

    def close(self) -> None:
        """Ends the JVM by the end of its input; by force if that takes longer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()
