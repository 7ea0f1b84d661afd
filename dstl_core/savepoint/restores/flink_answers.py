"""Asks real Flink whether it reads stored state with the types of a job. It runs code of the job.

One Java process serves all questions. ``FlinkTypes.java`` opens the functions of the job with a
context that writes down their descriptors. Flink makes the serializers, compares them with the
stored ones, and reads stored values.
"""

from __future__ import annotations

import binascii
import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dstl_core.errors import ConfigError
from dstl_core.state.tables.compatibility import FlinkVersion, parse_flink_version

_PROGRAM = Path(__file__).with_name("FlinkTypes.java")
_DISTRIBUTION = "apache-flink-libraries"
_JAR = re.compile(r"flink-dist(?:_[\d.]+)?-(\d[\w.]*?)\.jar")
TIMEOUT_S = 300
_MOST_ANSWERS = 16 << 20
_MOST_MESSAGE = 2000
_OPENED = (
    "java.io",
    "java.lang",
    "java.lang.reflect",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
)
"""What Flink's own start scripts open to its reflection."""


@dataclass(frozen=True)
class Question:
    """Whether Flink reads a state.

    Args:
        function: The class that declares the state; None to derive the type from ``value_class``.
        state: The name of the state.
        kind: value, list, map, reducing, aggregating.
        value_class: The class of its values.
        snapshot: The stored serializer snapshot: class name, version, content.
        values: Some stored values.
    """

    function: str | None
    state: str
    kind: str
    value_class: str | None
    snapshot: bytes
    values: Sequence[bytes]


@dataclass(frozen=True)
class Answer:
    """What Flink says.

    Args:
        word: compatible, migration, incompatible; unreadable (the stored snapshot cannot be
            loaded), fails (a value cannot be read), kind (the job declares another kind of state),
            unknown (the job does not show its type).
        read: How many values Flink read.
        sentence: Flink's own, or that of Java.
        wanted: Of compatible, migration and incompatible: the snapshot of the serializer that the
            job declares.
    """

    word: str
    read: int
    sentence: str
    wanted: bytes = b""


@dataclass(frozen=True)
class FlinkInstallation:
    """The jars of a Flink, and a Java development kit to run them."""

    java: str
    jars: tuple[Path, ...]
    release: str

    @property
    def version(self) -> FlinkVersion:
        return parse_flink_version(self.release)

    @classmethod
    def find(cls, folder: str | os.PathLike[str] | None = None) -> FlinkInstallation:
        """Finds Flink in a folder, or the wheel of this Python, and Java in JAVA_HOME or PATH.

        Raises:
            ConfigError: One of them is missing, or the rules of the release are not known.
        """
        home = os.environ.get("JAVA_HOME")
        path = os.pathsep.join(filter(None, [home and f"{home}/bin", os.environ.get("PATH")]))
        java = shutil.which("java", path=path)
        if java is None:
            raise ConfigError(
                f"Java is missing, and --run starts it (expected java in JAVA_HOME="
                f"{home or 'unset'} or on the PATH); install a Java development kit >= 17, e.g. "
                f"openjdk-17-jdk-headless."
            )
        jars: list[Path] = []
        for library_folder in _folders(folder):
            jars = jars or sorted(library_folder.glob("*.jar"))
        names = [name for each in jars if (name := _JAR.fullmatch(each.name))]
        if not names:
            place = "this Python" if folder is None else os.fspath(folder)
            raise ConfigError(
                f"Flink is missing, and --run starts it (expected flink-dist-*.jar in {place}); "
                f"name the folder of an installation (--flink DIR), or install its jars: pip "
                f"install --no-deps {_DISTRIBUTION}."
            )
        installation = cls(java, tuple(jars), names[0][1])
        parse_flink_version(installation.release)
        return installation

    def ask(
        self,
        questions: Sequence[Question],
        jars: Sequence[str | os.PathLike[str]],
        timeout_s: float = TIMEOUT_S,
    ) -> list[Answer]:
        """Runs all questions in one process. It executes code of the jars.

        Raises:
            ConfigError: Java or Flink does not run, or does not end in time.
        """
        with tempfile.TemporaryDirectory(prefix="dstl-run-") as folder:
            asked, answered = Path(folder, "questions"), Path(folder, "answers")
            lines = (_line(number, each) for number, each in enumerate(questions))
            asked.write_text("\n".join(lines), encoding="utf-8")
            classpath = os.pathsep.join([*map(os.path.abspath, jars), *map(str, self.jars)])
            command = [self.java, "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command += [f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in _OPENED]
            command += ["-Dfile.encoding=UTF-8", "-cp", classpath, str(_PROGRAM)]
            with Path(folder, "log").open("w+b") as log:
                try:
                    done = subprocess.run(
                        [*command, str(asked), str(answered)],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        cwd=folder,
                        timeout=timeout_s,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    raise ConfigError(
                        f"Flink {self.release} did not answer within {timeout_s:g} s; check with "
                        f"the jar alone (without --run)."
                    ) from None
                log.seek(0)
                message = log.read(_MOST_MESSAGE).decode(errors="replace")
            if done.returncode or not answered.is_file():
                raise ConfigError(
                    f"Flink {self.release} does not run: expected an answer of {self.java}, got "
                    f"exit code {done.returncode} ({' '.join(message.split()) or 'no message'}); "
                    f"--run needs a Java development kit >= 17."
                )
            with answered.open(encoding="utf-8", errors="replace") as text:
                return _answers(text.read(_MOST_ANSWERS), len(questions))


def _folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    if folder is not None:
        return [Path(folder), Path(folder, "lib")]
    try:
        wheel = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(wheel.locate_file("pyflink/lib")))]


def _line(number: int, question: Question) -> str:
    state = b64encode(question.state.encode("utf-8", "replace")).decode()
    named = [question.function or "", state, question.kind, question.value_class or ""]
    values = [question.snapshot, *question.values]
    return "\t".join([str(number), *named, *(b64encode(each).decode() for each in values)])


def _answers(text: str, count: int) -> list[Answer]:
    """One answer for each question; those that are missing are unknown."""
    answers = [Answer("unknown", 0, "Flink gave no answer")] * count
    for line in text.splitlines():
        number, _, rest = line.partition("\t")
        parts = rest.split("\t")
        if number.isdecimal() and int(number) < count and len(parts) == 4 and parts[1].isdecimal():
            with contextlib.suppress(binascii.Error):  # an answer that was cut
                wanted = b64decode(parts[3], validate=True)
                answers[int(number)] = Answer(parts[0], int(parts[1]), parts[2], wanted)
    return answers
