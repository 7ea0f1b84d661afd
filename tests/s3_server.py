"""An S3 server of this process, on 127.0.0.1."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import ThreadedMotoServer

from dstl_core.storage.file_io import FsspecFileIO


@contextmanager
def s3_server() -> Iterator[dict[str, Any]]:
    """Runs the server; gives the storage options that reach it."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield {
            "key": "key",
            "secret": "secret",
            "endpoint_url": f"http://{host}:{port}",
            "skip_instance_cache": True,
        }
    finally:
        server.stop()


def make_bucket(storage_options: dict[str, Any], name: str) -> None:
    FsspecFileIO("s3", storage_options)._fs.mkdir(name)
