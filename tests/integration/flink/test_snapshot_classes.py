"""Every snapshot class in the jars of Flink is on the page of serializers, so that a new one fails
here and not at a user.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden_files import GOLDEN
from tests.integration.flink.checker import find_jars
from tests.integration.flink.releases import RELEASES, jars_of

INTERFACE = "org/apache/flink/api/common/typeutils/TypeSerializerSnapshot"
FLINK = "org/apache/flink/"
OF_PYFLINK = (
    "org.apache.flink.streaming.api.utils.",
    "org.apache.flink.table.runtime.typeutils.serializers.python.",
)
NOT_A_CLASS = 0x0200 | 0x0400
"""Flags of interfaces and abstract classes."""
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4}


@dataclass(frozen=True)
class Header:
    """The head of a class file, read here so that no parser of dstl says what it should find."""

    name: str
    flags: int
    parents: tuple[str, ...]


def header_of(raw: bytes) -> Header:
    (count,) = struct.unpack_from(">H", raw, 8)
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    at, index = 10, 1
    while index < count:
        tag = raw[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", raw, at + 1)
            texts[index] = raw[at + 3 : at + 3 + size].decode("latin-1")
            at += 3 + size
        elif tag in (7, 19, 20):
            (classes[index],) = struct.unpack_from(">H", raw, at + 1)
            at += 3
        else:
            at += 1 + _SIZES[tag]
        index += 2 if tag in (5, 6) else 1
    flags, own, parent, interfaces = struct.unpack_from(">4H", raw, at)
    parents = [parent, *struct.unpack_from(f">{interfaces}H", raw, at + 8)]
    names = tuple(texts[classes[each]] for each in parents if each)
    return Header(texts[classes[own]], flags, names)


def headers_in(jar: zipfile.ZipFile) -> Iterator[Header]:
    """Classes of Flink in a jar, and in the jars inside it, such as that of the planner."""
    for name in jar.namelist():
        if name.startswith(FLINK) and name.endswith(".class"):
            yield header_of(jar.read(name))
        elif name.endswith(".jar"):
            with zipfile.ZipFile(io.BytesIO(jar.read(name))) as inner:
                yield from headers_in(inner)


def snapshot_classes(jars: Sequence[Path]) -> set[str]:
    headers: dict[str, Header] = {}
    for path in jars:
        with zipfile.ZipFile(path) as jar:
            headers |= {each.name: each for each in headers_in(jar)}
    known = {INTERFACE}
    while more := {
        name
        for name, header in headers.items()
        if name not in known and known & set(header.parents)
    }:
        known |= more
    concrete = {name for name in known & set(headers) if not headers[name].flags & NOT_A_CLASS}
    return {name.replace("/", ".") for name in concrete}


def listed(release: str) -> set[str]:
    """The classes of a line of Flink, as the page of serializers has them."""
    lines = (GOLDEN / "serializer-snapshots" / "classes.tsv").read_text().splitlines()
    minor = release.rpartition(".")[0] + "."
    return {
        name
        for name, _, versions in (line.partition("\t") for line in lines)
        if any(each.startswith(minor) for each in versions.split())
    }


def test_every_snapshot_class_of_the_installed_flink_is_listed() -> None:
    jars = find_jars()
    jars += sorted((jars[0].parents[1] / "opt").glob("flink-python*.jar"))
    [release] = [jar.stem.rpartition("-")[2] for jar in jars if jar.name.startswith("flink-dist")]
    classes = snapshot_classes(jars)
    assert len(classes) > 90
    assert classes == listed(release)


@pytest.mark.soak
@pytest.mark.parametrize("release", RELEASES)
def test_every_snapshot_class_of_other_releases_is_listed(release: str) -> None:
    """The fetched jars are those in ``lib``, without PyFlink's."""
    expected = {each for each in listed(release) if not each.startswith(OF_PYFLINK)}
    assert snapshot_classes(jars_of(release)) == expected
