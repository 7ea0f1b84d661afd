"""An HTTP proxy in front of an S3 server that does what networks and stores do on bad days.

It stands in front of ``AWS_ENDPOINT_URL``, and says its port, then every fault and every strike.
Requests are passed on byte for byte, so their signatures hold.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import time
from enum import Enum
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from urllib.parse import urlsplit

from tests.simulation.storm.actor import name_of, say

IS_STRUCK = False
_PID = re.compile(r"app/pid-(\d+)")
_CHANGES = ("PUT", "POST", "DELETE")


class Fault(Enum):
    """What happens to a request."""

    NONE = "none"
    UNAVAILABLE = "503 before it was applied"
    ERROR_AFTER = "500 after it was applied"
    DROP_BEFORE = "dropped before it was applied"
    DROP_AFTER = "dropped after it was applied"
    SLOW_BEFORE = "slow before it was applied"
    SLOW_AFTER = "slow after it was applied"
    REPEATED = "applied twice, answered by the second"


_WEIGHTS = {
    Fault.UNAVAILABLE: 0.0015,
    Fault.ERROR_AFTER: 0.0015,
    Fault.DROP_BEFORE: 0.0015,
    Fault.DROP_AFTER: 0.0015,
    Fault.SLOW_BEFORE: 0.004,
    Fault.SLOW_AFTER: 0.004,
    Fault.REPEATED: 0.0015,
}
SLOW_S = 0.2
REQUESTS_BETWEEN_STRIKES = 80
"""Of those that change the store, which may be struck before and after they are applied."""


class _Dice:
    """Draws faults and strikes; one for all connections."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lock = threading.Lock()

    def fault(self) -> Fault:
        with self._lock:
            faults = [*_WEIGHTS, Fault.NONE]
            shares = [*_WEIGHTS.values(), 1 - sum(_WEIGHTS.values())]
            return self._random.choices(faults, shares)[0]

    def strike(self) -> signal.Signals | None:
        with self._lock:
            if self._random.random() * REQUESTS_BETWEEN_STRIKES >= 0.5:
                return None
            return self._random.choice([signal.SIGKILL, signal.SIGSTOP])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._behind = HTTPConnection(self.server.behind)

    def finish(self) -> None:
        self._behind.close()
        super().finish()

    def handle_any(self) -> None:
        body = self._body()
        fault = self.server.dice.fault()
        if fault is not Fault.NONE:
            say(fault=fault.value, method=self.command)
        if fault is Fault.UNAVAILABLE:
            self._answer(503, b"SlowDown")
            return
        if fault is Fault.DROP_BEFORE:
            self._drop()
            return
        if fault is Fault.SLOW_BEFORE:
            time.sleep(SLOW_S)
        self._strike("before")
        answer = self._pass_on(body)
        if fault is Fault.REPEATED:
            answer = self._pass_on(body)
        self._strike("after")
        if fault is Fault.SLOW_AFTER:
            time.sleep(SLOW_S)
        if fault is Fault.ERROR_AFTER:
            self._answer(500, b"InternalError")
        elif fault is Fault.DROP_AFTER:
            self._drop()
        else:
            self._send(answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # As it came: it is passed on in the same chunks.
        raw = b""
        while True:
            line = self.rfile.readline()
            chunk = self.rfile.read(int(line.split(b";")[0], 16) + 2)
            raw += line + chunk
            if chunk == b"\r\n":
                return raw

    def _pass_on(self, body: bytes) -> bytes:
        """The server's answer, whole."""
        try:
            return self._exchange(body)
        except (HTTPException, OSError):
            self._behind.close()  # it had been idle too long
            return self._exchange(body)

    def _exchange(self, body: bytes) -> bytes:
        behind = self._behind
        behind.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            behind.putheader(name, value)
        behind.endheaders(body or None)
        answer = behind.getresponse()
        content = answer.read()
        lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
        lines += [
            f"{name}: {value}"
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "transfer-encoding", "content-length")
        ]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        if length is not None:
            lines.append(f"Content-Length: {length}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + content

    def _answer(self, status: int, code: bytes) -> None:
        body = b"<Error><Code>%b</Code><Message>of the storm</Message></Error>" % code
        if self.command == "HEAD":
            body = b""
        head = f"HTTP/1.1 {status} Bad\r\nContent-Type: application/xml\r\n"
        self._send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _send(self, answer: bytes) -> None:
        try:
            self.connection.sendall(answer)
        except OSError:
            self.close_connection = True  # whoever asked is gone

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _strike(self, when: str) -> None:
        """Kills or stops the process that has sent this request."""
        match = _PID.search(self.headers.get("User-Agent", ""))
        if match is None or self.command not in _CHANGES:
            return
        struck = self.server.dice.strike()
        if struck is None:
            return
        pid = int(match[1])
        say(strike=struck.name, pid=pid, at=f"{when} {self.command} of {name_of(self.path)}")
        try:
            os.kill(pid, struck)
        except ProcessLookupError:
            pass  # another connection of it was struck

    def log_message(self, format: str, *args: object) -> None:
        """Faults are told by ``say``."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behind: str, random: Random) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        parts = urlsplit(behind)
        self.behind = parts.netloc
        self.dice = _Dice(random)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed leaves its connection; anything else ends the storm."""
        error = sys.exception()
        if not isinstance(error, OSError):
            say(crashed=repr(error))


def run(base: str, seed: int, random: Random) -> None:
    server = _Server(os.environ["AWS_ENDPOINT_URL"], random)
    say(port=server.server_port)
    server.serve_forever()
