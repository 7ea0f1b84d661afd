"""Real Flink for tests: compiles the checker in ``java/`` and restores snapshots with it.

One JVM with a mini cluster serves many cases. A case goes to its stdin as one JSON line; the answer
comes back as one line on stdout. Entries have the form of ``dstl dump``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from tests.made_once import made_once

SOURCES = Path(__file__).with_name("java")
CACHE = Path(__file__).parents[3] / ".flink"
DISTRIBUTION = "apache-flink-libraries"
COMPILE_TIMEOUT_S = 300
CASE_TIMEOUT_S = 60
GRACE_S = 60
"""Added to a case's time before the JVM is given up: it may have to start, and to cancel a job."""
END_TIMEOUT_S = 20
LOG_TAIL_BYTES = 3000

Entry = dict[str, Any]


class FlinkCheckerError(Exception):
    """The checker itself does not work: nothing to run it with, a crash, no answer in time."""


class FlinkRestoreError(Exception):
    """Flink refused or failed: its own messages, outermost first."""


@dataclass(frozen=True)
class State:
    """A declared state.

    Args:
        kind: value, list, map, reducing, aggregating; op-list, op-union, op-broadcast.
        type: Of a value or element: string, long, int, double, float, boolean, tuple<..>,
            list<..>, map<..,..>, rowdata<..> (a SQL row of plain types), kryo (a UUID).
        map_key: Type of the keys of map and op-broadcast state.
        ns: Namespace of keyed state: void or timewindow.
        ttl_ms: Time to live of keyed state; 0 for none.
    """

    name: str
    kind: str
    type: str
    map_key: str | None = None
    ns: str = "void"
    ttl_ms: int = 0


@dataclass(frozen=True)
class TimerService:
    """A declared timer service; functions that register timers use ``user-timers``."""

    service: str = "user-timers"
    ns: str = "void"


@dataclass(frozen=True)
class Windows:
    """Flink's own window operator. Its keys are strings, its elements tuple<string,long,long>: key,
    number, time. Its updates are elements: ``{"op", "key", "value", "ts"}``. What its windows give
    is in ``fired``: ``{"op", "key", "ns", "value": [..]}``, elements or the accumulator.

    Args:
        assigner: tumbling, sliding, session, processing (tumbling by the clock), count or global.
        function: reduce (sum of the numbers, last time), aggregate (sum and count; an accumulator
            of tuple<long,long>), row (count, sum and smallest number; an accumulator of a row of
            three longs) or process.
        size: Of a window, or the gap of sessions (milliseconds); of a count window, elements.
        slide: Of sliding windows.
        lateness: That is allowed (milliseconds).
        trigger: count, purging (the same, that purges) or continuous; None for the assigner's own.
        every: Elements or milliseconds of the trigger.
        keep: Elements that an evictor leaves; None for no evictor.
        with_state: Whether the value states ``per-window`` and ``per-key`` count what fires; the
            counts are reported as ``"of window"`` and ``"of key"``.
    """

    assigner: str
    function: str
    size: int = 0
    slide: int = 0
    lateness: int = 0
    trigger: str | None = None
    every: int = 0
    keep: int | None = None
    with_state: bool = False


@dataclass(frozen=True)
class Operator:
    """A declared operator, by uid or else by hash. ``key`` is None if it is not keyed.

    Without ``max_parallelism`` Flink takes that of the snapshot. With ``windows`` it needs nothing
    but its uid, and reports no entries. With ``chained_to`` it stands in the vertex of that
    operator, and gets no updates. ``source_uid`` is the uid of the source of its updates.
    """

    uid: str | None = None
    key: str | None = None
    states: Sequence[State] = ()
    timers: Sequence[TimerService] = ()
    operator_states: Sequence[State] = ()
    hash: str | None = None
    max_parallelism: int | None = None
    windows: Windows | None = None
    chained_to: str | None = None
    source_uid: str | None = None


@dataclass(frozen=True)
class Restored:
    """What Flink held after a restore, the timers that fired since, and the savepoint and the
    checkpoints that it took.
    """

    entries: list[Entry]
    fired: list[Entry]
    savepoint: str | None
    checkpoints: list[str]


@dataclass(frozen=True)
class Table:
    """An append-only table of a SQL job: columns with their types, as of ``State``, and rows."""

    name: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Emitted:
    """The rows of a query's changelog, as ``[kind, field..]``, and the savepoint after them."""

    rows: list[list[Any]]
    savepoint: str


@dataclass(frozen=True)
class Taken:
    """The folder of a savepoint that a job took, and of the one after its next input."""

    savepoint: str
    after: str | None


@dataclass(frozen=True)
class Java:
    """The two programs of a Java development kit."""

    java: Path
    javac: Path

    @classmethod
    def find(cls) -> Java:
        """Those of JAVA_HOME, else those on the PATH."""
        home = os.environ.get("JAVA_HOME")
        path = os.pathsep.join(filter(None, [home and f"{home}/bin", os.environ.get("PATH")]))
        programs = [shutil.which(program, path=path) for program in ("java", "javac")]
        if not all(programs):
            raise FlinkCheckerError(
                f"Tests against real Flink need a Java development kit >= 17 (java and javac; "
                f"looked at JAVA_HOME={home or 'unset'}, then PATH); install one, e.g. "
                f"openjdk-17-jdk-headless."
            )
        return cls(*(Path(str(program)) for program in programs))


def find_jars() -> list[Path]:
    """The jars of the Flink wheel, or those of the folder that DSTL_FLINK_LIB names."""
    folder = os.environ.get("DSTL_FLINK_LIB")
    if folder is None:
        try:
            wheel = importlib.metadata.distribution(DISTRIBUTION)
            folder = str(wheel.locate_file("pyflink/lib"))
        except importlib.metadata.PackageNotFoundError:
            folder = "nowhere"
    jars = sorted(Path(folder).glob("*.jar"))
    if not any(jar.name.startswith("flink-dist-") for jar in jars):
        raise FlinkCheckerError(
            f"Flink's jars are missing (expected flink-dist-*.jar in {folder}); run "
            f"'make test-flink', which installs {DISTRIBUTION}, or set DSTL_FLINK_LIB."
        )
    return jars


def compile_checker(java: Java, jars: Sequence[Path]) -> Path:
    """The folder of the compiled checker; compiled once for the same sources, jars and javac."""
    sources = sorted(SOURCES.rglob("*.java"))
    is_old = any(jar.name.startswith("flink-dist-1.") for jar in jars)
    digest = hashlib.sha256(str(java.javac.resolve()).encode())
    for part in (*(jar.name.encode() for jar in jars), *(each.read_bytes() for each in sources)):
        digest.update(len(part).to_bytes(8, "big") + part)

    def compile_into(classes: Path, scratch: Path) -> None:
        options = ["-proc:none", "-nowarn", "--release", "17", "-d", str(classes)]
        options += ["-cp", os.pathsep.join(map(str, jars))]
        compiled = _for_flink_1(sources, scratch / "sources") if is_old else sources
        done = subprocess.run(
            [java.javac, *options, *compiled],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise FlinkCheckerError(f"The restore checker does not compile:\n{done.stderr}")

    return made_once(CACHE / f"classes-{digest.hexdigest()[:16]}", compile_into)


def _for_flink_1(sources: Sequence[Path], folder: Path) -> list[Path]:
    """The sources with the places that classes had before they were called legacy."""
    folder.mkdir()
    moved = []
    for source in sources:
        text = source.read_text().replace(".functions.source.legacy.", ".functions.source.")
        moved.append(folder / source.name)
        moved[-1].write_text(text)
    return moved


_MAIN = "dstl.check.Main"
# What Flink's own start scripts open to its reflection.
_OPENED = [
    "java.io",
    "java.lang",
    "java.lang.reflect",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "sun.nio.ch",
]
JVM_FLAGS = [
    "-Xmx1g",
    # Short-lived and small: what starts fast is fast here.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    f"-Dlog4j2.configurationFile={SOURCES / 'log4j2.properties'}",
]


class _Jvm:
    """A child process that answers a line with a line. Its stderr goes to the end of a log file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        self._stdin: IO[bytes] = self._process.stdin  # type: ignore[assignment]  # is a pipe
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        """Passes on every line; an empty one says that there are no more."""
        stdout: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # is a pipe
        with stdout:
            for line in stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Raises: FlinkCheckerError: No answer. The process is of no use any more."""
        try:
            self._stdin.write(line + b"\n")
            self._stdin.flush()
            answer = self._answers.get(timeout=timeout_s)
        except BrokenPipeError:
            answer = b""
        except queue.Empty:
            raise self._error(f"did not answer within {timeout_s} s") from None
        if not answer:
            raise self._error("ended by itself")
        return answer

    def _error(self, what: str) -> FlinkCheckerError:
        tail = self._log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        return FlinkCheckerError(f"The JVM of the checker {what}; its log ends with:\n{tail}")

    def close(self, timeout_s: float) -> None:
        """Ends the process: by the end of its input, by force if that takes longer."""
        # What is still buffered for a process that is gone cannot be written any more.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()


class FlinkChecker:
    """Restores snapshots, one at a time. Owns one JVM, started at the first case and after a crash.

    Args:
        work: A folder for Flink's temporary files and the JVM's log.
        jars: Those of another release; by default of the one that is installed.
        job_jars: Jars of the jobs that ``run_job`` runs.
    """

    def __init__(
        self, work: Path, jars: Sequence[Path] | None = None, job_jars: Sequence[Path] = ()
    ) -> None:
        java = Java.find()
        jars = find_jars() if jars is None else jars
        classpath = os.pathsep.join(map(str, [compile_checker(java, jars), *jars, *job_jars]))
        self._command = [str(java.java), *JVM_FLAGS, "-cp", classpath, _MAIN, str(work)]
        self._log = work / "jvm.log"
        self._jvm: _Jvm | None = None

    def restore(
        self,
        snapshot: str | os.PathLike[str] | None,
        operators: Sequence[Operator],
        *,
        backend: str = "hashmap",
        parallelism: int = 1,
        max_parallelism: int | None = None,
        changelog: bool = False,
        strict: bool = True,
        updates: Sequence[Entry] = (),
        watermark: int | None = None,
        fires: int = 0,
        savepoint_to: str | os.PathLike[str] | None = None,
        savepoint_format: str = "canonical",
        checkpoints: int = 0,
        claim_mode: str | None = None,
        settings: Mapping[str, str] | None = None,
        timeout_s: int = CASE_TIMEOUT_S,
    ) -> Restored:
        """Restores a snapshot in a real job and says what it holds.

        Args:
            snapshot: Folder of a savepoint or retained checkpoint (a path, or as ``file:/..``);
                None starts an empty job.
            operators: What the job declares.
            backend: hashmap or rocksdb.
            parallelism: Of every operator, at most 4.
            max_parallelism: Of operators that set none; None leaves it to Flink.
            changelog: Whether the job runs on the changelog state backend.
            strict: Whether state that no operator claims is refused.
            updates: Applied after the entries were read, each to one state or timer:
                ``{"op", "key", "state", "do", "value"..}`` with do = update, add, add_all, put,
                remove (both with "map_key"), clear; ``{"op", "key", "service", "kind", "ts",
                "do"}`` with do = register, delete; operator state takes "subtask" for "key".
            watermark: Emitted after the updates (milliseconds).
            fires: How many timers and windows to wait for: those of the clock fire when they like.
            savepoint_to: Folder in which Flink takes a savepoint after all that.
            savepoint_format: canonical or native.
            checkpoints: How many incremental checkpoints Flink takes after the updates, before the
                savepoint. It retains the last one.
            claim_mode: CLAIM or NO_CLAIM; None leaves it to Flink.
            settings: Further settings of the job.

        Raises:
            FlinkRestoreError: Flink could not restore, or the job failed.
            FlinkCheckerError: No answer in time, or the JVM ended.
        """
        case = {
            "snapshot": None if snapshot is None else _flink_path(snapshot),
            "operators": [asdict(operator) for operator in operators],
            "backend": backend,
            "parallelism": parallelism,
            "max_parallelism": max_parallelism,
            "changelog": changelog,
            "strict": strict,
            "updates": list(updates),
            "watermark": watermark,
            "fires": fires,
            "savepoint_to": None if savepoint_to is None else _flink_path(savepoint_to),
            "savepoint_format": savepoint_format,
            "checkpoints": checkpoints,
            "claim_mode": claim_mode,
            "settings": dict(settings or {}),
            "timeout_s": timeout_s,
        }
        answer = self._ask(case, timeout_s)
        return Restored(
            answer["entries"], answer["fired"], answer.get("savepoint"), answer["checkpoints"]
        )

    def run_sql(
        self,
        snapshot: str | os.PathLike[str] | None,
        query: str,
        tables: Sequence[Table],
        *,
        savepoint_to: str | os.PathLike[str],
        savepoint_format: str = "canonical",
        backend: str = "hashmap",
        parallelism: int = 1,
        strict: bool = True,
        timeout_s: int = CASE_TIMEOUT_S,
    ) -> Emitted:
        """Restores a job that Flink's SQL planner made of a query, feeds it the tables' rows, and
        takes a savepoint once all of them are through. Arguments and errors as of ``restore``.
        """
        described = [
            {"name": table.name, "columns": list(table.columns.items()), "rows": list(table.rows)}
            for table in tables
        ]
        case = {
            "snapshot": None if snapshot is None else _flink_path(snapshot),
            "query": query,
            "tables": described,
            "backend": backend,
            "parallelism": parallelism,
            "changelog": False,
            "strict": strict,
            "savepoint_to": _flink_path(savepoint_to),
            "savepoint_format": savepoint_format,
            "timeout_s": timeout_s,
        }
        answer = self._ask(case, timeout_s)
        return Emitted([each["row"] for each in answer["fired"]], answer["savepoint"])

    def read_numbers(
        self,
        snapshot: str | os.PathLike[str],
        source: str,
        *,
        last_number: int,
        parallelism: int = 1,
        timeout_s: int = CASE_TIMEOUT_S,
    ) -> list[int]:
        """Restores a ``NumberSequenceSource`` of this uid and reads it to its end: the numbers
        that it gave, sorted. State of other operators is left out. Errors as of ``restore``.
        """
        read = self._read_source(snapshot, source, parallelism, timeout_s, last_number=last_number)
        return sorted(map(int, read))

    def read_lines(
        self,
        snapshot: str | os.PathLike[str],
        source: str,
        *,
        folder: str | os.PathLike[str],
        parallelism: int = 1,
        timeout_s: int = CASE_TIMEOUT_S,
    ) -> list[str]:
        """Restores a bounded ``FileSource`` of lines of text of this uid and reads it to its end:
        the lines that it gave, in any order. State of other operators is left out. Errors as of
        ``restore``.
        """
        return self._read_source(
            snapshot, source, parallelism, timeout_s, folder=_flink_path(folder)
        )

    def _read_source(
        self,
        snapshot: str | os.PathLike[str],
        source: str,
        parallelism: int,
        timeout_s: int,
        **options: Any,
    ) -> list[str]:
        case = {
            "snapshot": _flink_path(snapshot),
            "source": source,
            "parallelism": parallelism,
            "backend": "hashmap",
            "changelog": False,
            "strict": False,
            "timeout_s": timeout_s,
            **options,
        }
        return [each["element"] for each in self._ask(case, timeout_s)["fired"]]

    def run_job(
        self,
        snapshot: str | os.PathLike[str],
        job: str,
        *,
        savepoint_to: str | os.PathLike[str],
        backend: str = "hashmap",
        parallelism: int = 1,
        max_parallelism: int = 128,
        following: range | None = None,
        timeout_s: int = CASE_TIMEOUT_S,
    ) -> Taken:
        """Restores a job of one of the ``job_jars``, and takes a savepoint of it.

        Args:
            snapshot: As of ``restore``.
            job: The class, whose static method ``build`` makes the job.
            savepoint_to: As of ``restore``; it is canonical.
            backend: As of ``restore``.
            parallelism: Of operators that set none.
            max_parallelism: Of operators that set none.
            following: Numbers that its operator ``feed`` gives after that, in place of those of the
                source. A second savepoint is taken after them.
            timeout_s: As of ``restore``.

        Raises:
            FlinkRestoreError: Flink could not restore, or the job failed.
            FlinkCheckerError: No answer in time, or the JVM ended.
        """
        case = {
            "snapshot": _flink_path(snapshot),
            "job": job,
            "savepoint_to": _flink_path(savepoint_to),
            "savepoint_format": "canonical",
            "backend": backend,
            "parallelism": parallelism,
            "max_parallelism": max_parallelism,
            "next": following and [following.start, following.stop],
            "changelog": False,
            "strict": True,
            "timeout_s": timeout_s,
        }
        answer = self._ask(case, timeout_s)
        return Taken(answer["savepoint"], answer.get("after"))

    def _ask(self, case: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        if self._jvm is None:
            self._jvm = _Jvm(self._command, self._log)
        try:
            # The JVM keeps to the time itself; this limit is for one that hangs.
            line = self._jvm.ask(json.dumps(case).encode("ascii"), timeout_s + GRACE_S)
        except FlinkCheckerError:
            self.close(timeout_s=0)
            raise
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise FlinkRestoreError(answer["error"])
        return answer

    def close(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """Ends the JVM, if there is one."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.close(timeout_s)


def _flink_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    # Flink does not decode %-escapes, so this is no real URI.
    return text if text.startswith("file:") else f"file:{os.path.abspath(text)}"
