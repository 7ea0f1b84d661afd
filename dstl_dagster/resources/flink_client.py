"""Flink's REST interface, as far as savepoints need it.

Source: ``SavepointHandlers``, ``StopWithSavepointRequestBody``, ``SavepointTriggerRequestBody`` and
``SavepointDisposalHandlers`` of Flink 2.2.1.
"""

from __future__ import annotations

import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from dstl_core.errors import ConfigError, DstlError
from dstl_core.savepoint.restores.job_match import JobDescription
from dstl_core.storage.redaction import redacted

if TYPE_CHECKING:
    import requests

MAX_ANSWER_BYTES = 64 << 20
_RETRIES = 3
_BACKOFF_S = 0.2
"""The first wait between two tries; each further one is twice as long."""
_UNAVAILABLE = (502, 503, 504)
"""Of a proxy, or of a job manager that starts: the same request may succeed a moment later."""
_JOB_ID = re.compile(r"[0-9a-f]{32}")


class FlinkClusterError(DstlError):
    """A Flink cluster refused, failed, or did not answer."""


@dataclass(frozen=True)
class FlinkJob:
    """A job in the cluster's overview."""

    job_id: str
    name: str
    status: str


@dataclass(frozen=True)
class FlinkCheckpoint:
    """A completed checkpoint or savepoint."""

    checkpoint_id: int
    path: str
    is_savepoint: bool
    trigger_ms: int


class FlinkClient:
    """Calls the REST interface of one cluster. It keeps settings only.

    What only reads is asked up to four times while the cluster is unavailable.

    Args:
        url: The REST endpoint, e.g. ``http://jobmanager:8081``.
        timeout_s: Timeout of one request.
        headers: Sent with each request, e.g. an authorization.
    """

    def __init__(
        self, url: str, *, timeout_s: float = 30.0, headers: Mapping[str, str] | None = None
    ) -> None:
        scheme = urllib.parse.urlsplit(url).scheme
        if scheme not in ("http", "https"):
            raise ConfigError(
                f"Flink's REST URL is http or https, got {scheme or redacted(url)!r}."
            )
        if redacted(url) != url:
            raise ConfigError(
                f"Flink's REST URL holds a password, got {redacted(url)!r}; give the credentials "
                f"as headers, since the URL is shown and stored."
            )
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = dict(headers or {})

    def overview(self) -> dict[str, Any]:
        """Slots, task managers, version."""
        return self._request("GET", "/overview")

    def jobs(self) -> list[FlinkJob]:
        """All jobs that the cluster lists, running jobs first."""
        jobs = [
            FlinkJob(str(job["jid"]), str(job["name"]), str(job["state"]))
            for job in self._request("GET", "/jobs/overview")["jobs"]
        ]
        return sorted(jobs, key=lambda job: (job.status != "RUNNING", job.name))

    def job(self, name_or_id: str) -> FlinkJob:
        """Finds the job of an id, or the one running job of a name.

        Raises:
            FlinkClusterError: No job matches, or more than one does.
        """
        jobs = self.jobs()
        if _JOB_ID.fullmatch(name_or_id):
            matching = [job for job in jobs if job.job_id == name_or_id]
        else:
            matching = [job for job in jobs if job.name == name_or_id and job.status == "RUNNING"]
        if len(matching) != 1:
            known = ", ".join(f"{job.name} {job.job_id} {job.status}" for job in jobs) or "none"
            raise FlinkClusterError(
                f"Expected one job {name_or_id!r}, found {len(matching)}; it has: {known}.",
                location=self._url,
            )
        return matching[0]

    def checkpoints(self, job_id: str) -> list[FlinkCheckpoint]:
        """The latest completed checkpoints and savepoints, oldest first."""
        history = self._request("GET", f"/jobs/{job_id}/checkpoints")["history"]
        completed = [
            FlinkCheckpoint(
                int(checkpoint["id"]),
                str(checkpoint["external_path"]),
                bool(checkpoint["is_savepoint"]),
                int(checkpoint["trigger_timestamp"]),
            )
            for checkpoint in history
            if checkpoint["status"] == "COMPLETED" and checkpoint.get("external_path")
        ]
        return sorted(completed, key=lambda checkpoint: checkpoint.checkpoint_id)

    def plan(self, job_id: str) -> JobDescription:
        """The operators in the plan of a job: the first operator of each chain.

        ``check_restore`` takes it.
        """
        return JobDescription.from_rest_plan(self._request("GET", f"/jobs/{job_id}/plan"))

    def trigger_savepoint(
        self,
        job_id: str,
        target: str | None,
        *,
        native: bool = False,
        trigger_id: str | None = None,
    ) -> str:
        """Requests a savepoint; returns the id to poll with.

        A request that is repeated with the same id takes no second savepoint.
        """
        body = {
            "target-directory": target,
            "cancel-job": False,
            "formatType": "NATIVE" if native else "CANONICAL",
            "triggerId": trigger_id or uuid4().hex,
        }
        return str(self._request("POST", f"/jobs/{job_id}/savepoints", body)["request-id"])

    def stop_with_savepoint(
        self,
        job_id: str,
        target: str | None,
        *,
        drain: bool = False,
        native: bool = False,
        trigger_id: str | None = None,
    ) -> str:
        """Stops the job with a savepoint; returns the id to poll with."""
        body = {
            "targetDirectory": target,
            "drain": drain,
            "formatType": "NATIVE" if native else "CANONICAL",
            "triggerId": trigger_id or uuid4().hex,
        }
        return str(self._request("POST", f"/jobs/{job_id}/stop", body)["request-id"])

    def savepoint_result(self, job_id: str, trigger_id: str) -> str | None:
        """The path of a requested savepoint; None while it is in progress.

        Raises:
            FlinkClusterError: The savepoint failed. The message has Flink's cause.
        """
        operation = self._operation(f"/jobs/{job_id}/savepoints/{trigger_id}", "savepoint")
        return None if operation is None else str(operation["location"])

    def dispose_savepoint(self, path: str) -> str:
        """Requests the deletion of a savepoint with its files; returns the id to poll with."""
        body = {"savepoint-path": path}
        return str(self._request("POST", "/savepoint-disposal", body)["request-id"])

    def disposal_is_done(self, trigger_id: str) -> bool:
        """Whether a deletion is complete.

        Raises:
            FlinkClusterError: The deletion failed. The message has Flink's cause.
        """
        return self._operation(f"/savepoint-disposal/{trigger_id}", "disposal") is not None

    def _operation(self, path: str, what: str) -> dict[str, Any] | None:
        answer = self._request("GET", path)
        if answer["status"]["id"] != "COMPLETED":
            return None
        operation: dict[str, Any] = answer.get("operation") or {}
        failure = operation.get("failure-cause")
        if failure is not None:
            raise FlinkClusterError(
                f"The {what} failed in Flink: {_first_line(failure)}", location=self._url
            )
        return operation

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        import requests

        try:
            with (
                _session() as session,
                session.request(
                    method,
                    self._url + path,
                    json=body,
                    headers=self._headers,
                    timeout=self._timeout_s,
                    stream=True,
                ) as answer,
            ):
                raw = _bounded(answer)
        except (requests.RequestException, OSError) as error:
            raise FlinkClusterError(
                f"Flink did not answer {method} {path} ({error}); check the URL and that the job "
                f"manager runs.",
                location=self._url,
            ) from error
        if not answer.ok:
            raise FlinkClusterError(
                f"Flink refused {method} {path}: {answer.status_code} {_errors_of(raw)}",
                location=self._url,
                status=answer.status_code,
            )
        return _parsed(raw, method, path)


def _session() -> requests.Session:
    """A session that asks again. Only what changes nothing is asked a second time once it was sent;
    what did not reach the cluster is, too.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3 import Retry

    session = requests.Session()
    session.auth = lambda request: request  # the headers are ours, and not those of ~/.netrc
    retries = Retry(
        _RETRIES,
        backoff_factor=_BACKOFF_S,
        status_forcelist=_UNAVAILABLE,
        allowed_methods=("GET",),
        raise_on_status=False,
        respect_retry_after_header=False,  # a proxy may ask for hours
    )
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    return session


def _bounded(answer: requests.Response) -> bytes:
    """The body of an answer, and no more of it than one byte above the limit."""
    raw = bytearray()
    for chunk in answer.iter_content(1 << 20):
        raw += chunk
        if len(raw) > MAX_ANSWER_BYTES:
            break
    return bytes(raw[: MAX_ANSWER_BYTES + 1])


def _parsed(raw: bytes, method: str, path: str) -> dict[str, Any]:
    try:
        if len(raw) > MAX_ANSWER_BYTES:
            raise ValueError(f"more than {MAX_ANSWER_BYTES} bytes")
        answer = json.loads(raw)
        if not isinstance(answer, dict):
            raise ValueError(f"a {type(answer).__name__}")
    except (ValueError, RecursionError) as error:
        raise FlinkClusterError(
            f"Flink's answer to {method} {path} is no JSON object ({error})."
        ) from error
    return answer


def _errors_of(raw: bytes) -> str:
    try:
        errors = json.loads(raw)["errors"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "without a reason"
    if not isinstance(errors, list):
        errors = [] if errors is None else [errors]
    lines = (line.strip() for error in errors for line in str(error).splitlines())
    return next((line for line in lines if line), "without a reason")


def _first_line(failure: Any) -> str:
    """The innermost cause in a serialized throwable."""
    if not isinstance(failure, dict):
        return str(failure)
    lines = str(failure.get("stack-trace", "")).splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else next(iter(lines), str(failure.get("class", "unknown")))


def poll_until(
    look: Callable[[], Any], *, what: str, timeout_s: float, interval_s: float = 0.5
) -> Any:
    """Polls ``look`` until it returns a value, and returns that value.

    Raises:
        FlinkClusterError: The time is up.
    """
    waiting = Event()
    deadline = time.monotonic() + timeout_s
    while True:
        result = look()
        if result:
            return result
        if time.monotonic() > deadline:
            raise FlinkClusterError(
                f"{what} took more than {timeout_s:g} s; it may still end, look at the cluster."
            )
        waiting.wait(interval_s)
