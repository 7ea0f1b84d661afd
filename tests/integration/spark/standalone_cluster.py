"""A standalone Spark cluster of two hosts: workers that are bound to two loopback addresses. Spark
speculates on another host only, so neither ``local`` nor ``local-cluster`` ever does.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyspark

from tests.cloud_servers import free_port

HOSTS = ("127.0.0.2", "127.0.0.3")
HOST_VARIABLE = "DSTL_TEST_HOST"
"""Environment variable by which what runs on a worker knows its host."""
START_TIMEOUT_S = 90
END_TIMEOUT_S = 20
_DEPLOY = "org.apache.spark.deploy"


class StandaloneCluster:
    """A master and two workers with one core each; close it.

    Args:
        work: A folder for logs and what executors write, a folder for each worker.
        environment: What the workers have in theirs, beside the name of their host.
    """

    def __init__(self, work: Path, environment: Mapping[str, str] | None = None) -> None:
        self._work = work
        self._processes: list[subprocess.Popen[bytes]] = []
        self._reader: threading.Thread | None = None
        try:
            port = free_port()
            self.url = f"spark://127.0.0.1:{port}"
            address = ["--host", "127.0.0.1", "--port", str(port)]
            master = self._start("master.Master", *address, stdout=subprocess.PIPE, more={})
            _await(master, rf"Starting Spark master at {self.url}")
            for host in HOSTS:
                own = work / host
                (own / "tmp").mkdir(parents=True)
                resources = ["--cores", "1", "--memory", "1g", "--work-dir", str(own)]
                more = {
                    **(environment or {}),
                    "SPARK_LOCAL_DIRS": str(own / "local"),
                    "TMPDIR": str(own / "tmp"),
                    HOST_VARIABLE: host,
                }
                program = ["worker.Worker", "--host", host, *resources, self.url]
                with (work / f"worker-{host}.log").open("wb") as log:
                    self._start(*program, stdout=log, more=more)
            _await(master, *(rf"Registering worker {host}:" for host in HOSTS))
            self._reader = threading.Thread(target=self._keep_log, args=[master])
            self._reader.start()
        except BaseException:
            self.close()
            raise

    def _start(
        self, program: str, *arguments: str, stdout: Any, more: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self._work),
            "SPARK_DAEMON_MEMORY": "256m",
            **more,
        }
        name = f"{_DEPLOY}.{program}"
        # The script ends in exec: the process is the JVM itself.
        command = [str(home / "bin" / "spark-class"), name, "--webui-port", "0", *arguments]
        process = subprocess.Popen(
            command, env=environment, stdout=stdout, stderr=subprocess.STDOUT
        )
        self._processes.append(process)
        return process

    def _keep_log(self, master: subprocess.Popen[bytes]) -> None:
        """Takes what the master goes on to say, or it would wait."""
        assert master.stdout is not None
        with master.stdout, (self._work / "master.log").open("wb") as log:
            shutil.copyfileobj(master.stdout, log)

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
        if self._reader is not None:
            self._reader.join()


def _await(process: subprocess.Popen[bytes], *lines: str) -> None:
    """Waits until a process has said all these lines."""
    assert process.stdout is not None
    said = ""
    while not all(re.search(line, said) for line in lines):
        ready, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        more = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not more:
            raise RuntimeError(f"the cluster does not start:\n{said}")
        said += more.decode(errors="replace")
