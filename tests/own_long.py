"""A serializer of somebody's own, whose class takes the place of Flink's ``LongSerializer``.

In a copy of a snapshot that Flink wrote, the name of another class stands for that of Flink's, and
the values stay. So whatever reads the copy with this registry answers what it answers of the
original, and dstl itself does not know the class.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from dstl_core.codec.serializers import BUILT_IN, TypeSerializer
from dstl_core.codec.serializers.primitives import long_java_hash

FLINKS = "org.apache.flink.api.common.typeutils.base.LongSerializer$LongSerializerSnapshot"
OWN = "com.example.".ljust(len(FLINKS), "x")
REGISTRY_NAME = f"{__name__}:REGISTRY"


@dataclass(frozen=True)
class OwnLong(TypeSerializer[int]):
    """Eight bytes, big-endian."""

    snapshot_class = OWN
    snapshot_version = 2
    type_name: str = "Long"
    length = 8

    def serialize(self, value, out):
        out.write_i64(value)

    def deserialize(self, data):
        return data.read_i64("value")

    def java_hash(self, value):
        return long_java_hash(value)


REGISTRY = BUILT_IN.copy()
REGISTRY.register(OWN, lambda data, version, context: OwnLong())
NAMED_ANEW = BUILT_IN.copy()
NAMED_ANEW.register(FLINKS, lambda data, version, context: OwnLong(type_name="Cents"))
"""For savepoints that Flink takes while a test runs."""
HUGE = BUILT_IN.copy()
HUGE.register(OWN, lambda data, version, context: OwnLong(type_name=str(bytearray(1 << 60))))
"""It needs more memory than any machine has."""
NO_REGISTRY = {OWN: OwnLong()}
"""What somebody may name by mistake."""


def with_own_class(source: Path, folder: Path) -> Path:
    """A copy of a folder of snapshots, whose files name the own class and are as old as before."""
    shutil.copytree(source, folder)
    for file in folder.rglob("*"):
        if file.is_file():
            times = file.stat()
            file.write_bytes(file.read_bytes().replace(FLINKS.encode(), OWN.encode()))
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    return folder
