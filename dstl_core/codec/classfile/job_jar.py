"""Finds classes in the jars of a job. A jar is read, never extracted."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from dstl_core.codec.classfile.class_file import OBJECT, ClassFile, Flag, parse_class_file
from dstl_core.errors import FormatError, error_context

MAX_CLASS_BYTES = 8 << 20
MAX_PARSED_BYTES = 32 << 20
"""Of all classes that are asked for, which are held parsed."""
MAX_NESTED_JAR_BYTES = 128 << 20
"""A jar inside a jar is held in memory."""
MAX_NESTED_JARS = 256
MAX_NESTED_BYTES = 512 << 20
"""Of all jars inside the jars of a job, which are held together."""
MAX_SCANNED_BYTES = 1 << 30
MAX_PARENTS = 128
MAX_ENTRIES = 1 << 18
"""Of all jars of a job and the jars inside them: their names are held, 400 bytes each."""
_LIBRARIES = "lib/"


@dataclass(frozen=True)
class JarFile:
    """A jar: its name for messages, and where its bytes are."""

    name: str
    content: BinaryIO


class JobClasses:
    """Classes by name, from jars in the order in which Java searches them. Not thread-safe.

    Args:
        jars: The job's jar first. Jars in its ``lib/`` folder are searched after it, as Flink does.

    Raises:
        FormatError: A jar is no zip file, or one of its names leaves the jar.
    """

    def __init__(self, jars: Sequence[JarFile] = ()) -> None:
        self._jars: list[_OpenJar] = []
        for jar in jars:
            self._jars.append(_OpenJar(jar, MAX_ENTRIES - _entries(self._jars)))
        self._libraries: list[_OpenJar] | None = None
        self._classes: dict[str, ClassFile | None] = {}
        self._parsed_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no jar at all."""
        return not self._jars

    @property
    def digest(self) -> str:
        """The sha256 (hex) of the names, sizes and checksums of all files."""
        files = [jar.files for jar in self._jars]
        return hashlib.sha256(repr(files).encode()).hexdigest()

    def get(self, name: str) -> ClassFile | None:
        """The class of this name; None if no jar has it.

        Raises:
            FormatError: The class file is damaged.
        """
        if name not in self._classes:
            self._classes[name] = self._find(name)
        return self._classes[name]

    def _find(self, name: str) -> ClassFile | None:
        path = name.replace(".", "/") + ".class"
        for jar in self._jars:
            if path in jar:
                return self._parsed(jar, path, name)
        if self._libraries is None:
            self._libraries = self._open_libraries()
        for jar in self._libraries:
            if path in jar:
                return self._parsed(jar, path, name)
        return None

    def _parsed(self, jar: _OpenJar, path: str, name: str) -> ClassFile:
        class_file, size = jar.class_at(path, name)
        self._parsed_bytes += size
        if self._parsed_bytes > MAX_PARSED_BYTES:
            raise FormatError(
                f"The classes of the jars are too large together, at {name}",
                expected=f"<= {MAX_PARSED_BYTES} bytes unpacked",
            )
        return class_file

    def _open_libraries(self) -> list[_OpenJar]:
        libraries: list[_OpenJar] = []
        held = 0
        entries = _entries(self._jars)
        for jar in self._jars:
            for name, raw in jar.libraries(MAX_NESTED_JARS - len(libraries)):
                held += len(raw)
                if held > MAX_NESTED_BYTES:
                    raise FormatError(
                        f"The jars in {_LIBRARIES} are too large together, at {name}",
                        expected=f"<= {MAX_NESTED_BYTES} bytes unpacked",
                    )
                library = JarFile(name, io.BytesIO(raw))
                libraries.append(_OpenJar(library, MAX_ENTRIES - entries - _entries(libraries)))
        return libraries

    def parents(self, class_file: ClassFile) -> list[ClassFile]:
        """The superclasses that the jars have, nearest first."""
        chain: list[ClassFile] = []
        name = class_file.superclass
        while name not in (None, OBJECT):
            parent = self.get(str(name))
            if parent is None:
                break
            chain.append(parent)
            if len(chain) > MAX_PARENTS:
                raise FormatError(
                    f"Class {class_file.name} has more than {MAX_PARENTS} superclasses"
                )
            name = parent.superclass
        return chain

    def supertypes(self, name: str) -> set[str]:
        """All superclasses and interfaces that the jars tell of a class, and its own name."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            class_name = waiting.pop()
            if class_name in seen:
                continue
            seen.add(class_name)
            class_file = self.get(class_name)
            if class_file is not None:
                waiting += [
                    *class_file.interfaces,
                    *([class_file.superclass] if class_file.superclass else []),
                ]
        return seen

    def class_files(self) -> Iterator[tuple[str, bytes]]:
        """The place and the bytes of every class file of the jars, without those of libraries.

        Raises:
            FormatError: A class file cannot be unpacked, or all of them are too large.
        """
        total = 0
        for jar in self._jars:
            for place, raw in jar.class_files():
                total += len(raw)
                if total > MAX_SCANNED_BYTES:
                    raise FormatError(
                        "The classes of the jars are too large to look for types of states",
                        expected=f"<= {MAX_SCANNED_BYTES} bytes unpacked",
                    )
                yield place, raw

    def has_subclass(self, name: str) -> bool:
        """Whether a class of the jars has this superclass.

        Raises:
            FormatError: A class file is damaged.
        """
        path = name.replace(".", "/").encode()
        for place, raw in self.class_files():
            with error_context(location=place):
                if path in raw and parse_class_file(raw).superclass == name:
                    return True
        return False

    def is_final(self, name: str) -> bool:
        """Whether a class of the jars can have no subclasses."""
        class_file = self.get(name)
        return class_file is not None and class_file.has(Flag.FINAL)


class _ZipFile(zipfile.ZipFile):
    """A zip file that stops where its directory lists too many entries.

    An entry of 46 bytes becomes an object of 400, so the limit holds while they are read.
    """

    def __init__(self, name: str, content: BinaryIO, most: int) -> None:
        self._name = name
        self._most = most
        super().__init__(content)

    @property
    def filelist(self) -> list[zipfile.ZipInfo]:
        return self._entries

    @filelist.setter
    def filelist(self, entries: list[zipfile.ZipInfo]) -> None:
        self._entries = _Entries(self._name, self._most)
        self._entries.extend(entries)


class _Entries(list[zipfile.ZipInfo]):
    def __init__(self, name: str, most: int) -> None:
        super().__init__()
        self._name = name
        self._most = most

    def append(self, entry: zipfile.ZipInfo) -> None:
        if len(self) >= self._most:
            raise FormatError(
                f"The jars have too many entries together, at {self._name}",
                expected=f"<= {MAX_ENTRIES}",
            )
        super().append(entry)


def _entries(jars: Sequence[_OpenJar]) -> int:
    return sum(len(jar) for jar in jars)


class _OpenJar:
    def __init__(self, jar: JarFile, most: int) -> None:
        self.name = jar.name
        try:
            self._zip = _ZipFile(jar.name, jar.content, most)
        except FormatError:
            raise
        except (zipfile.BadZipFile, ValueError, RuntimeError, OSError) as error:
            raise FormatError(
                f"{jar.name} is not a jar: expected a zip file with classes ({error}); give the "
                f"path of the job's jar."
            ) from error
        self._entries = {each.filename: each for each in self._zip.infolist()}
        for name in self._entries:
            if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
                raise FormatError(
                    f"{jar.name} has a name that leaves the jar",
                    expected="names below its root",
                    got=repr(name[:80]),
                )

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def __len__(self) -> int:
        return len(self._zip.filelist)

    @property
    def files(self) -> list[tuple[str, int, int]]:
        """Name, size and checksum of each file, as the jar tells them."""
        return [(own.filename, own.file_size, own.CRC) for own in self._entries.values()]

    def class_at(self, path: str, name: str) -> tuple[ClassFile, int]:
        """A class, and how many bytes its file has."""
        with error_context(location=self._place(path)):
            raw = self._read(path, MAX_CLASS_BYTES)
            class_file = parse_class_file(raw)
            if class_file.name != name:
                raise FormatError(
                    "A class file has the name of another class", expected=name, got=class_file.name
                )
            return class_file, len(raw)

    def _place(self, path: str) -> str:
        return f"{self.name}!/{path}"

    def class_files(self) -> Iterator[tuple[str, bytes]]:
        for name in self._entries:
            if name.endswith(".class") and not name.startswith("META-INF/"):
                yield self._place(name), self._read(name, MAX_CLASS_BYTES)

    def libraries(self, most: int) -> Iterator[tuple[str, bytes]]:
        """The jars inside this one with their names for messages, one after the other.

        Raises:
            FormatError: There are more than ``most``, or one cannot be unpacked or is too large.
        """
        names = [
            entry
            for entry in self._entries
            if entry.startswith(_LIBRARIES) and entry.endswith(".jar")
        ]
        if len(names) > most:
            raise FormatError(
                f"{self.name} has too many jars in {_LIBRARIES}",
                expected=f"<= {most}",
                got=len(names),
            )
        for name in names:
            yield self._place(name), self._read(name, MAX_NESTED_JAR_BYTES)

    def _read(self, path: str, limit: int) -> bytes:
        """The bytes of an entry. What the entry says of its size is not trusted."""
        try:
            with self._zip.open(self._entries[path]) as entry:
                raw = entry.read(limit + 1)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            RuntimeError,
            OSError,
            ValueError,
        ) as error:
            raise FormatError(
                f"{path} in {self.name} cannot be unpacked", got=type(error).__name__
            ) from error
        if len(raw) > limit:
            raise FormatError(
                f"{path} in {self.name} is too large", expected=f"<= {limit} bytes unpacked"
            )
        return raw
