"""A Spark Connect server of real Spark, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pyspark

ROOT = Path(__file__).parents[2]
_STARTED_WITHIN_S = 180


@contextmanager
def connect_server(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Gives the URL of a server that can import the project.

    Args:
        folder: Takes its log.
        more: What its environment has, beside that of this process.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = Path(pyspark.__file__).parent
    confs = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.pyspark.python": sys.executable,
    }
    words = [word for key, value in confs.items() for word in ("--conf", f"{key}={value}")]
    command = [str(home / "bin" / "spark-submit"), *words]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT), **(more or {})}
    log = folder / "connect.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(port, server, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    pause = Event()
    for _ in range(_STARTED_WITHIN_S * 5):
        if server.poll() is not None:
            raise AssertionError(f"the server ended: {log.read_text()[-2000:]}")
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        pause.wait(0.2)
    raise AssertionError(f"the server does not answer: {log.read_text()[-2000:]}")
