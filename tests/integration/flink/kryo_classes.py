"""Random classes of a job, whose values the Kryo of both lines of Flink writes and reads.

``java-kryo`` makes values of them by their fields.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.integration.flink.checker import (
    CACHE,
    COMPILE_TIMEOUT_S,
    JVM_FLAGS,
    FlinkCheckerError,
    Java,
)
from tests.made_once import made_once

PROGRAM = Path(__file__).with_name("java-kryo")
KIT = PROGRAM / "g" / "Kit.java"
RUN_TIMEOUT_S = 600

PRIMITIVES = ("boolean", "byte", "char", "short", "int", "long", "float", "double")
BOXED = ("Boolean", "Byte", "Character", "Short", "Integer", "Long", "Float", "Double")
KEYS = (
    "String",
    *BOXED[1:],
    "BigInteger",
    "UUID",
    "LocalDate",
    "Instant",
    "Duration",
    "Kit.Color",
)
"""Types with an order, which is the same in each run."""
SCALARS = (
    *BOXED,
    *("String", "CharSequence", "StringBuilder", "Number", "Comparable<?>"),
    *("BigInteger", "BigDecimal", "UUID", "BitSet", "URI", "Pattern", "Class<?>", "Currency"),
    *("Locale", "Locale", "java.text.SimpleDateFormat", "Throwable", "IllegalStateException"),
    *("Date", "java.sql.Timestamp", "Short", "AtomicInteger", "AtomicLong", "AtomicBoolean"),
    *("OptionalInt", "OptionalLong", "OptionalDouble", "LocalDate", "LocalTime"),
    *("LocalDateTime", "Instant", "Duration", "Period", "Year", "YearMonth", "MonthDay"),
    *("ZoneOffset", "OffsetDateTime", "OffsetTime", "ZonedDateTime"),
    *("Kit.Color", "Kit.Color", "Kit.Shape", "Object", "java.io.Serializable"),
)
OBJECTS = ("Kit.Leaf", "Kit.Open", "Kit.Under", "Kit.Named", "Kit.Bound", "Kit.Node")
LISTS = ("List", "ArrayList", "LinkedList", "Collection", "Vector", "CopyOnWriteArrayList")
QUEUES = ("Queue", "Deque", "ArrayDeque", "ConcurrentLinkedQueue")
SETS = ("Set", "HashSet", "LinkedHashSet")
SORTED = ("TreeSet", "PriorityQueue", "SortedSet", "ConcurrentSkipListSet")
MAPS = ("Map", "HashMap", "LinkedHashMap", "ConcurrentHashMap", "ConcurrentMap", "Hashtable")
SORTED_MAPS = ("TreeMap", "SortedMap", "ConcurrentSkipListMap")


class _Types:
    """Types of fields as Java writes them."""

    def __init__(self, source: random.Random, others: Sequence[str]) -> None:
        self._random = source
        self._others = others

    def field(self) -> str:
        if self._random.random() < 0.15:
            return self._random.choice(PRIMITIVES)
        return self._reference(0)

    def _reference(self, depth: int) -> str:
        chance = self._random.random()
        if depth > 2 or chance < 0.3:
            return self._random.choice(SCALARS)
        if chance < 0.42:
            return self._random.choice((*OBJECTS, *self._others))
        if chance < 0.56:
            return self._array(depth)
        if chance < 0.92:
            return self._container(depth)
        if chance < 0.95:
            return f"Optional<{self._argument(depth)}>"
        if chance < 0.96:
            return f"Kit.Arrays<{self._random.choice(('String', 'Kit.Leaf', 'Kit.Open'))}>"
        if chance < 0.98:
            return f"Kit.Gen<{self._random.choice(('String', 'Kit.Leaf', 'Integer', 'Kit.Open'))}>"
        return f"Kit.Two<{self._random.choice(KEYS)}, {self._random.choice(('Kit.Leaf', 'Long'))}>"

    def _array(self, depth: int) -> str:
        choice = self._random.randrange(6)
        if choice < 2:
            return f"{self._random.choice(PRIMITIVES)}[]"
        if choice < 4:
            return f"{self._random.choice((*BOXED, 'String', 'Kit.Color', 'Kit.Leaf'))}[]"
        return f"{self._reference(depth + 1)}[]"

    def _argument(self, depth: int) -> str:
        chance = self._random.random()
        if chance < 0.06:
            return "?"
        if chance < 0.1:
            return self._random.choice(
                ("? extends Number", "? extends Kit.Leaf", "? super Integer")
            )
        return self._reference(depth + 1)

    def _container(self, depth: int) -> str:
        choice = self._random.randrange(12)
        pick = self._random.choice
        if choice < 3:
            return f"{pick(LISTS)}<{self._argument(depth)}>"
        if choice == 3:
            return f"{pick(QUEUES)}<{self._argument(depth)}>"
        if choice == 4:
            return f"{pick(SETS)}<{pick(KEYS)}>"
        if choice < 7:
            return f"{pick(SORTED)}<{pick(KEYS)}>"
        if choice == 7:
            return "EnumSet<Kit.Color>"
        if choice < 10:
            return f"{pick(MAPS)}<{pick(KEYS)}, {self._argument(depth)}>"
        if choice == 10:
            return f"{pick(SORTED_MAPS)}<{pick(KEYS)}, {self._argument(depth)}>"
        return pick(("List", "Map", "ArrayList", "TreeMap"))


ARRAYS_AS_ARGUMENTS = (
    "public Optional<Class<?>[]> a0;",
    "public ArrayDeque<Optional<Kit.Color>[]> a1;",
    "public TreeMap<Integer, Optional<BigInteger>[]> a2;",
    "public Kit.Arrays<Kit.Open> a3;",
)
"""Fields whose type arguments are arrays of types with arguments: every run has them."""

JAVA_STREAMS = (
    "public Locale l0, l1;",
    "public ArrayList<Locale> l2;",
    "public List<Locale> l3;",
    "public java.text.SimpleDateFormat d0, d1;",
    "public Throwable e0, e1;",
    "public List<IllegalStateException> e2;",
    "public Map<String, Throwable> e3;",
    "private final Object[] o0 = null;",
)
"""Fields of classes that Java's serialization stores, each in one stream for a Kryo value. Elements
of lists and maps become values of their own.
"""


@dataclass(frozen=True)
class RandomClasses:
    """Names of the classes, and their jar."""

    names: tuple[str, ...]
    sources: dict[str, str]


def random_classes(seed: int, count: int) -> RandomClasses:
    """Classes of many kinds of fields; the same seed gives the same ones."""
    source = random.Random(seed)
    names = ["Arrays", "Streams", "Stored"]
    pojo = [each for each in JAVA_STREAMS if each.startswith("public")]
    sources = {
        "Arrays": _text("public class Arrays", ARRAYS_AS_ARGUMENTS, "public Arrays() {}"),
        "Streams": _text("public class Streams", pojo, "public Streams() {}"),
        "Stored": _text("public class Stored", JAVA_STREAMS, "public Stored() {}"),
    }
    for number in range(count):
        name = f"C{number}"
        sources[name] = _class(name, source, names)
        names.append(name)
    return RandomClasses(tuple(f"g.{each}" for each in names), sources)


def _class(name: str, source: random.Random, others: list[str]) -> str:
    types = _Types(source, (*others[-8:], name))
    is_pojo = source.random() < 0.35
    above = ""
    if not is_pojo and source.random() < 0.25:
        above = source.choice((" extends Kit.Open", " extends Kit.Gen<Kit.Leaf>"))
    fields, starts = [], []
    for number in range(source.randrange(1, 7)):
        kind, field = types.field(), f"{source.choice('fFaZ')}{number}"
        if is_pojo:
            fields.append(f"public {kind} {field};")
            continue
        flags = source.choice(("private ", "private final ", "final ", "public ", ""))
        if flags.endswith("final "):
            zero = "false" if kind == "boolean" else "0" if kind in PRIMITIVES else "null"
            starts.append(f"{field} = {zero};")
        fields.append(f"{flags}{kind} {field};")
    head = "public" if is_pojo else source.choice(("public", "final", "public final", ""))
    maker = "public " if is_pojo else ""
    return _text(f"{head} class {name}{above}", fields, f"{maker}{name}() {{ {' '.join(starts)} }}")


def _text(head: str, fields: Sequence[str], maker: str) -> str:
    members = "".join(f"  {each}\n" for each in (*fields, maker))
    return (
        "package g;\nimport java.math.*; import java.net.*; import java.time.*;\n"
        "import java.util.*; import java.util.concurrent.*; import java.util.concurrent.atomic.*;\n"
        f"import java.util.regex.*;\n{head} {{\n{members}}}\n"
    )


def compile_classes(classes: RandomClasses, folder: Path, jars: Sequence[Path] = ()) -> Path:
    """The jar of the classes, which may name classes of other jars."""
    written, out = folder / "sources", folder / "classes"
    written.mkdir(parents=True)
    for name, text in classes.sources.items():
        (written / f"{name}.java").write_text(text)
    _javac([KIT, *sorted(written.glob("*.java"))], out, jars)
    jar = folder / "job.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for path in sorted(out.rglob("*.class")):
            archive.write(path, path.relative_to(out))
    return jar


def compile_program(jars: Sequence[Path]) -> Path:
    """The folder of the program that writes and reads values with a release of Flink; compiled once
    for the same sources and jars.
    """
    sources = sorted(PROGRAM.rglob("*.java"))
    digest = hashlib.sha256()
    for part in (*(jar.name.encode() for jar in jars), *(each.read_bytes() for each in sources)):
        digest.update(len(part).to_bytes(8, "big") + part)

    def compile_into(classes: Path, scratch: Path) -> None:
        _javac(sources, classes, jars)

    return made_once(CACHE / f"kryo-{digest.hexdigest()[:16]}", compile_into)


def _javac(sources: Sequence[Path], out: Path, jars: Sequence[Path]) -> None:
    options = ["-proc:none", "-nowarn", "-Xlint:none", "--release", "17", "-d", str(out)]
    options += ["-cp", os.pathsep.join(map(str, jars)) or "."]
    done = subprocess.run(
        [Java.find().javac, *options, *sources],
        capture_output=True,
        text=True,
        timeout=COMPILE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise FlinkCheckerError(f"The classes do not compile:\n{done.stderr[:4000]}")


def exchange(
    mode: str, jars: Sequence[Path], job_jar: Path, lines: Iterable[str]
) -> list[list[str]]:
    """The parts of each line that the program answers, in a JVM of its own."""
    classpath = os.pathsep.join(map(str, [compile_program(jars), *jars, job_jar]))
    command = [str(Java.find().java), *JVM_FLAGS, "-cp", classpath, "dstl.kryo.Exchange", mode]
    done = subprocess.run(
        command,
        input="\n".join(lines).encode(),
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise FlinkCheckerError(f"The JVM failed:\n{done.stderr[-3000:].decode(errors='replace')}")
    return [line.split("\t") for line in done.stdout.decode().splitlines()]
