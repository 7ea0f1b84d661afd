"""The client of Flink's REST interface and a cluster that is away, busy or wrong for a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from dstl_dagster.resources import FlinkClient, FlinkClusterError, flink_client

JOB = "0" * 32
Answer = tuple[int, bytes] | None
"""A status and a body; None ends the connection without an answer."""


@dataclass
class Cluster:
    """A server that gives its answers in turn, the last one again and again."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    state = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            state.requests.append((self.command, self.path, self.headers.get("Authorization")))
            reply = state.answers.pop(0) if len(state.answers) > 1 else state.answers[0]
            if reply is None:
                self.close_connection = True
                return
            status, body = reply
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    yield state
    server.shutdown()
    server.server_close()


FINE: Answer = (200, b'{"flink-version": "2.2.1"}')
AWAY: Answer = (503, b'{"errors": ["Leader is not known"]}')


@pytest.mark.parametrize("answers", [[AWAY, AWAY, FINE], [None, None, FINE], [AWAY, None, FINE]])
def test_what_only_reads_is_asked_again(cluster: Cluster, answers: list[Answer]) -> None:
    cluster.answers = answers
    assert FlinkClient(cluster.url).overview() == {"flink-version": "2.2.1"}
    assert len(cluster.requests) == 3


def test_a_cluster_that_stays_away_is_an_error_with_its_reason(cluster: Cluster) -> None:
    cluster.answers = [AWAY]
    with pytest.raises(FlinkClusterError, match="503 Leader is not known"):
        FlinkClient(cluster.url).overview()
    assert len(cluster.requests) == 4


@pytest.mark.parametrize("status", [429, 503])
def test_a_proxy_does_not_say_how_long_the_client_waits(cluster: Cluster, status: int) -> None:
    cluster.answers = [(status, b"{}"), FINE]
    cluster.headers = {"Retry-After": "3600"}
    waits = Thread(target=_overview, args=(FlinkClient(cluster.url),), daemon=True)
    waits.start()
    waits.join(10)
    assert not waits.is_alive()


def _overview(client: FlinkClient) -> None:
    with suppress(FlinkClusterError):
        client.overview()


POSTS: list[Callable[[FlinkClient], str]] = [
    lambda client: client.trigger_savepoint(JOB, "/s"),
    lambda client: client.stop_with_savepoint(JOB, "/s"),
    lambda client: client.dispose_savepoint("/s"),
]


@pytest.mark.parametrize("post", POSTS)
@pytest.mark.parametrize("answer", [AWAY, None])
def test_what_changes_something_is_sent_once(
    cluster: Cluster, post: Callable[[FlinkClient], str], answer: Answer
) -> None:
    cluster.answers = [answer, (200, b'{"request-id": "1"}')]
    with pytest.raises(FlinkClusterError):
        post(FlinkClient(cluster.url))
    assert len(cluster.requests) == 1


@pytest.mark.parametrize("status", [400, 404, 500])
def test_a_refusal_is_not_asked_again(cluster: Cluster, status: int) -> None:
    cluster.answers = [(status, b'{"errors": ["no such job"]}')]
    with pytest.raises(FlinkClusterError, match=f"{status} no such job"):
        FlinkClient(cluster.url).overview()
    assert len(cluster.requests) == 1


@pytest.mark.parametrize(
    ("body", "reason"), [(b"null", "without a reason"), (b'"no such job"', "no such job")]
)
def test_a_refusal_of_another_server_is_an_error_too(
    cluster: Cluster, body: bytes, reason: str
) -> None:
    cluster.answers = [(404, b'{"errors": ' + body + b"}")]
    with pytest.raises(FlinkClusterError, match=f"404 {reason}"):
        FlinkClient(cluster.url).overview()


def test_an_answer_has_a_bound(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink_client, "MAX_ANSWER_BYTES", 1000)
    cluster.answers = [(200, b'{"a": "' + b"x" * 2000 + b'"}')]
    with pytest.raises(FlinkClusterError, match="more than 1000 bytes"):
        FlinkClient(cluster.url).overview()


def test_credentials_are_those_of_the_resource(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login nobody password nothing\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    cluster.answers = [FINE]
    FlinkClient(cluster.url, headers={"Authorization": "Bearer ours"}).overview()
    FlinkClient(cluster.url).overview()
    assert [authorization for *_, authorization in cluster.requests] == ["Bearer ours", None]
