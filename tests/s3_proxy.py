"""An HTTP proxy in front of an S3 server: answers get lost, cut or late when a test says so.

The client signs its requests for the proxy's address, and the proxy forwards headers as they are,
so the server does not notice the proxy.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from tests.s3_server import S3Server


class How(Enum):
    """What happens to a request."""

    LOSE = "applied, answered with 500"
    DROP = "applied, and the connection is closed without an answer"
    FAIL = "not applied, answered with 500"
    CONFLICT = "not applied, answered with 409: another conditional request is under way"
    TRUNCATE = "answered with the first half of the body"
    HANG = "not answered until the proxy ends"


@dataclass
class Fault:
    """What happens to the next ``times`` requests of a method whose path ends in ``name``."""

    how: How
    method: str
    name: str = ""
    times: int = 1
    query: str = ""
    """Part of the query string."""


@dataclass
class S3Proxy:
    """A running proxy. ``server`` is what reaches the S3 server through it."""

    server: S3Server
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Method and path of every request, in order of arrival."""
    headers: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request, with names in lower case."""

    def take(self, method: str, target: str) -> How | None:
        """What is to happen to a request."""
        path, _, query = target.partition("?")
        self.requests.append((method, unquote(path)))
        for fault in self.faults:
            wanted = fault.method == method and unquote(path).endswith(fault.name)
            if wanted and fault.query in query and fault.times > 0:
                fault.times -= 1
                return fault.how
        return None


@contextmanager
def s3_proxy(upstream: S3Server) -> Iterator[S3Proxy]:
    """Runs a proxy in front of a server until the block ends."""
    address = urlsplit(upstream.endpoint_url).netloc
    ended = threading.Event()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                proxy.headers.append(headers)
                how = proxy.take(self.command, self.path)
            if how is How.HANG:
                ended.wait()
                self.close_connection = True
            elif how is How.FAIL:
                self.answer(500, b"<Error><Code>InternalError</Code></Error>")
            elif how is How.CONFLICT:
                code = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
                self.answer(409, code)
            else:
                self.pass_on(body, how)

        def pass_on(self, body: bytes, how: How | None) -> None:
            connection = http.client.HTTPConnection(address)
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if how is How.LOSE:
                self.answer(500, b"<Error><Code>InternalError</Code></Error>")
            elif how is How.DROP:
                self.close_connection = True
            else:
                self.answer(answer.status, content, answer, cut=how is How.TRUNCATE)

        def answer(
            self,
            status: int,
            content: bytes,
            answer: http.client.HTTPResponse | None = None,
            *,
            cut: bool = False,
        ) -> None:
            self.send_response_only(status)
            headers = dict(answer.headers.items()) if answer is not None else {}
            if self.command != "HEAD" or answer is None:
                headers = {n: v for n, v in headers.items() if n.lower() != "content-length"}
                headers["Content-Length"] = str(len(content))
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        listener.block_on_close = False
        url = f"http://127.0.0.1:{listener.server_port}"
        proxy = S3Proxy(replace(upstream, endpoint_url=url))
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield proxy
        finally:
            ended.set()
            listener.shutdown()
            thread.join()
