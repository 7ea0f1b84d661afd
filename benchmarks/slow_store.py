"""A store that takes its time: serves a folder as a bucket of S3, and lets each request wait.

``python -m benchmarks.slow_store FOLDER MILLISECONDS`` prints its port. For each line of its input
it prints how many requests came since the last one, by method, and the bytes of their answers. It
ends with its input. It takes any key, and files are sent by the system, so that it costs little of
the processor that the client needs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_MODIFIED = "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT"
_MOST_HEADER_BYTES = 1 << 16


@dataclass
class _Bucket:
    folder: Path
    wait_s: float
    counts: Counter[str] = field(default_factory=Counter)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of a connection until it ends."""
        try:
            while True:
                head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = {
                    name.lower(): text for name, _, text in (x.partition(": ") for x in lines)
                }
                await asyncio.sleep(self.wait_s)
                method, target, _ = head.split(" ")
                await self._answer(method, target, headers.get("range", ""), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(
        self, method: str, target: str, asked: str, writer: asyncio.StreamWriter
    ) -> None:
        url = urlsplit(target)
        _, bucket, *rest = unquote(url.path).split("/", 2)
        key = rest[0] if rest else ""
        query = parse_qs(url.query)
        if not key or "list-type" in query:
            self.counts["LIST"] += 1
            _say(writer, 200, self._listed(bucket, query.get("prefix", [""])[0]))
            return
        file = self.folder / key
        if not file.is_file():
            missing = b"<Error><Code>NoSuchKey</Code></Error>"
            _say(writer, 404, missing if method == "GET" else b"")
            return
        size = file.stat().st_size
        start, end = 0, size
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(size, int(last) + 1) if last else size
        place = [f"Content-Range: bytes {start}-{end - 1}/{size}"] if asked else []
        _head(writer, 206 if asked else 200, end - start, 'ETag: "0"', _MODIFIED, *place)
        self.counts[f"{method} range" if asked else method] += 1
        if method == "GET":
            self.counts["bytes"] += end - start
            with file.open("rb") as stream:
                loop = asyncio.get_running_loop()
                await loop.sendfile(writer.transport, stream, start, end - start)

    def _listed(self, bucket: str, prefix: str) -> bytes:
        base = self.folder / prefix
        folders = base.is_dir() and prefix.endswith("/")
        names = [each.name for each in base.iterdir()] if folders else []
        keys = "".join(
            f"<Contents><Key>{escape(prefix + name)}</Key><Size>{(base / name).stat().st_size}"
            f"</Size><ETag>0</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
            for name in names
        )
        return (
            f"<ListBucketResult><Name>{escape(bucket)}</Name><KeyCount>{len(names)}</KeyCount>"
            f"<IsTruncated>false</IsTruncated>{keys}</ListBucketResult>"
        ).encode()


def _head(writer: asyncio.StreamWriter, status: int, size: int, *lines: str) -> None:
    text = "\r\n".join([f"HTTP/1.1 {status} -", f"Content-Length: {size}", *lines, "", ""])
    writer.write(text.encode())


def _say(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    _head(writer, status, len(body))
    writer.write(body)


async def _main(folder: Path, wait_s: float) -> None:
    bucket = _Bucket(folder, wait_s)
    server = await asyncio.start_server(bucket.serve, "127.0.0.1", limit=_MOST_HEADER_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(bucket.counts), flush=True)
        bucket.counts.clear()
    os._exit(0)  # connections of clients may still wait


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), float(sys.argv[2]) / 1000))
