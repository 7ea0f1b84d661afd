"""An S3 server in a process of its own, on 127.0.0.1, which refuses every key but its own.

``python -m tests.s3_server`` writes the port on one line and serves until its standard input ends,
so the server never outlives the tests. ``S3_SERVER_KEY`` and ``S3_SERVER_SECRET`` are the key pair.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote

import s3fs

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True)
class S3Server:
    """What a client needs to reach the server, in the form of each kind of client."""

    endpoint_url: str
    key: str
    secret: str = field(repr=False)

    @property
    def storage_options(self) -> dict[str, Any]:
        """For fsspec."""
        return {
            "key": self.key,
            "secret": self.secret,
            "endpoint_url": self.endpoint_url,
        }

    @property
    def environment(self) -> dict[str, str]:
        """For a process that takes its credentials from the environment."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint_url,
        }

    def make_bucket(self, name: str) -> str:
        """Makes a bucket; returns its URL."""
        s3fs.S3FileSystem(skip_instance_cache=True, **self.storage_options).mkdir(name)
        return f"s3://{name}"


@contextmanager
def s3_server(key: str = "test-key", secret: str = "test-secret") -> Iterator[S3Server]:
    """Runs a server in a process of its own until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.s3_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "S3_SERVER_KEY": key,
            "S3_SERVER_SECRET": secret,
        },
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            port = int(process.stdout.readline())
            yield S3Server(f"http://127.0.0.1:{port}", key, secret)
        finally:
            process.stdin.close()


class _KeyChecked:
    """A WSGI layer in front of moto: checks the signature of a request, one request at a time.

    One at a time because moto looks whether a key exists before it writes it: between the two,
    another thread could write, and ``If-None-Match`` would let both in. The body is read before,
    so that a client that stops in the middle of a request holds up nobody.
    """

    def __init__(self, app: Any, key: str, secret: str) -> None:
        self._app = app
        self._key = key
        self._secret = secret
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_TRANSFER_ENCODING" in environ:
            body = environ["wsgi.input"].read()
        else:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        code = self._refusal(environ)
        if code:
            text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))]
            start("403 Forbidden", headers)
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
        environ["wsgi.input"] = io.BytesIO(body)
        with self._lock:
            answer = self._app(environ, start)
            try:
                return list(answer)
            finally:
                if hasattr(answer, "close"):
                    answer.close()

    def _refusal(self, environ: dict[str, Any]) -> str | None:
        """S3's code of the error, or None for a request that is signed with the server's key."""
        kind, _, rest = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        query = dict(parse_qsl(environ.get("QUERY_STRING", "")))
        if query.get("X-Amz-Algorithm") == _ALGORITHM:  # an address that was signed
            fields = {name.removeprefix("X-Amz-"): value for name, value in query.items()}
            date, payload = fields["Date"], "UNSIGNED-PAYLOAD"
        elif kind == _ALGORITHM:
            fields = dict(part.strip().split("=", 1) for part in rest.split(","))
            date = environ["HTTP_X_AMZ_DATE"]
            payload = environ.get("HTTP_X_AMZ_CONTENT_SHA256", "")
        else:
            return "AccessDenied"
        key, *scope = fields["Credential"].split("/")
        if key != self._key:
            return "InvalidAccessKeyId"
        signed = fields["SignedHeaders"], payload
        signature = _signature(environ, self._secret, date, scope, *signed)
        if not hmac.compare_digest(signature, fields["Signature"]):
            return "SignatureDoesNotMatch"
        return None


def _signature(
    environ: dict[str, Any], secret: str, date: str, scope: list[str], signed: str, payload: str
) -> str:
    """AWS Signature Version 4 of a request, as its own headers or its address describe it."""
    headers = "".join(f"{name}:{_header(environ, name)}\n" for name in signed.split(";"))
    raw_path, _, raw_query = environ["REQUEST_URI"].partition("?")
    pairs = (part.partition("=") for part in raw_query.split("&") if part)
    query = "&".join(
        sorted(f"{name}={value}" for name, _, value in pairs if name != "X-Amz-Signature")
    )
    request = "\n".join(
        [
            environ["REQUEST_METHOD"],
            quote(raw_path, safe="/%~"),
            query,
            headers,
            signed,
            payload,
        ]
    )
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join([_ALGORITHM, date, "/".join(scope), digest])
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _header(environ: dict[str, Any], name: str) -> str:
    variable = name.upper().replace("-", "_")
    plain = variable in ("CONTENT_TYPE", "CONTENT_LENGTH")
    value = environ.get(variable if plain else f"HTTP_{variable}", "")
    return " ".join(value.split())


def _serve() -> None:
    from moto.server import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # keeps connections open, as S3 does

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Of one service: to find out for each request which one is meant takes most of its time.
    app = _KeyChecked(
        create_backend_app("s3"),
        os.environ["S3_SERVER_KEY"],
        os.environ["S3_SERVER_SECRET"],
    )
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    server.shutdown()


if __name__ == "__main__":
    _serve()
