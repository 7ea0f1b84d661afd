"""A standalone Spark cluster of two hosts: workers that are bound to two loopback addresses. Spark
speculates on another host only, so neither ``local`` nor ``local-cluster`` ever does.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path

import pyspark

HOSTS = ("127.0.0.2", "127.0.0.3")
START_TIMEOUT_S = 90
END_TIMEOUT_S = 20
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and two workers with one core each; close it.

    Args:
        work: A folder for logs and what executors write.
    """

    def __init__(self, work: Path) -> None:
        self._work = work
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            port = _free_port()
            self.url = f"spark://127.0.0.1:{port}"
            self._start("master.Master", "--host", "127.0.0.1", "--port", str(port))
            self._await("master.Master", rf"Starting Spark master at {self.url}")
            for host in HOSTS:
                resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(work / host)]
                self._start("worker.Worker", "--host", host, *resources, self.url)
            self._await("master.Master", *(rf"Registering worker {host}:" for host in HOSTS))
        except BaseException:
            self.close()
            raise

    def _start(self, program: str, *arguments: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self._work),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_DIRS": str(self._work / "local"),
        }
        name = f"{_DEPLOY}.{program}"
        with self._log(program).open("ab") as log:
            # The script ends in exec: the process is the JVM itself.
            command = [str(home / "bin" / "spark-class"), name, "--webui-port", "0", *arguments]
            self._processes.append(
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            )

    def _log(self, program: str) -> Path:
        return self._work / f"{program}.log"

    def _await(self, program: str, *lines: str) -> None:
        """Waits until the log of a program has all these lines."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            log = self._log(program).read_text(errors="replace")
            if all(re.search(line, log) for line in lines):
                return
            ended = [each.args for each in self._processes if each.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"the cluster does not start ({ended or 'in time'}):\n{log}")
            time.sleep(0.05)  # between looks at the log of another process

    def close(self) -> None:
        """Ends its processes, by their ids; workers end their executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
