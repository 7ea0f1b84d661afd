"""A store that takes its time: serves a folder as a bucket of S3, and lets each request wait.

``python -m benchmarks.slow_store FOLDER MILLISECONDS`` prints its port. For each line of its input
it prints how many requests came since the last one, by method, and the bytes of their answers. It
ends with its input. It takes any key, and files are sent by the system, so that it costs little of
the processor that the client needs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

COUNTS: Counter[str] = Counter()
_LOCK = threading.Lock()
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"


def _handler(folder: Path, wait_s: float) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, *, with_body: bool) -> None:
            time.sleep(wait_s)
            url = urlsplit(self.path)
            _, bucket, *rest = unquote(url.path).split("/", 2)
            key = rest[0] if rest else ""
            query = parse_qs(url.query)
            if not key or "list-type" in query:
                self._list(bucket, query.get("prefix", [""])[0])
                return
            file = folder / key
            if not file.is_file():
                self._send(404, b"<Error><Code>NoSuchKey</Code></Error>" if with_body else b"")
                return
            size, asked = file.stat().st_size, self.headers.get("Range")
            start, end = 0, size
            if asked:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                start, end = int(first), min(size, int(last) + 1) if last else size
            self.send_response_only(206 if asked else 200)
            self.send_header("Content-Length", str(end - start))
            if asked:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.send_header("ETag", '"0"')
            self.send_header("Last-Modified", _DATE)
            self.end_headers()
            self.wfile.flush()
            with _LOCK:
                COUNTS[f"{self.command} range" if asked else self.command] += 1
                COUNTS["bytes"] += end - start if with_body else 0
            if with_body:
                with file.open("rb") as stream:
                    while start < end:
                        start += os.sendfile(
                            self.connection.fileno(), stream.fileno(), start, end - start
                        )

        def _list(self, bucket: str, prefix: str) -> None:
            with _LOCK:
                COUNTS["LIST"] += 1
            base = folder / prefix
            folders = base.is_dir() and prefix.endswith("/")
            names = [each.name for each in base.iterdir()] if folders else []
            keys = "".join(
                f"<Contents><Key>{escape(prefix + name)}</Key><Size>{(base / name).stat().st_size}"
                f"</Size><ETag>0</ETag><LastModified>2026-01-01T00:00:00Z</LastModified>"
                f"</Contents>"
                for name in names
            )
            self._send(
                200,
                f"<ListBucketResult><Name>{escape(bucket)}</Name><KeyCount>{len(names)}</KeyCount>"
                f"<IsTruncated>false</IsTruncated>{keys}</ListBucketResult>".encode(),
            )

        def _send(self, status: int, body: bytes) -> None:
            self.send_response_only(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def main() -> None:
    folder, milliseconds = Path(sys.argv[1]), float(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(folder, milliseconds / 1000))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    for _ in sys.stdin:
        with _LOCK:
            print(json.dumps(COUNTS), flush=True)
            COUNTS.clear()
    server.shutdown()


if __name__ == "__main__":
    main()
