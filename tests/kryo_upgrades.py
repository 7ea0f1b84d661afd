"""The upgrade of single values that Flink wrote with the types of its jobs."""

from __future__ import annotations

import io
from pathlib import Path

from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.job_types import with_job_types
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.kryo.type_changes import TypeChange, TypeChanges
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SnapshotContext,
    deserialize_exactly,
    serialize_to_bytes,
    write_snapshot,
)


class ValueUpgrade:
    """Upgrades values of Flink 1.x.

    Args:
        jar: Of the job.
    """

    def __init__(self, jar: Path) -> None:
        layouts = ClassLayouts(JobClasses([JarFile(jar.name, io.BytesIO(jar.read_bytes()))]))
        self._registry = with_job_types(BUILT_IN, KryoClasses(Dialect.KRYO_2, layouts))
        self._changes = TypeChanges(FlinkTypes(KryoClasses(Dialect.KRYO_5, layouts)))

    def type_of(self, snapshot: bytes) -> AnySerializer:
        return SnapshotContext(self._registry).read_snapshot(DataInput(snapshot))

    def change(self, snapshot: bytes) -> tuple[AnySerializer, TypeChange]:
        """The type of a snapshot, and what becomes of it."""
        old = self.type_of(snapshot)
        return old, self._changes.of(old, None)

    def upgraded(self, snapshot: bytes, stored: bytes) -> tuple[bytes, bytes]:
        """The snapshot and the value after it."""
        old, change = self.change(snapshot)
        new = stored
        if change.convert is not None:
            new = serialize_to_bytes(change.new, change.convert(deserialize_exactly(old, stored)))
        out = DataOutput()
        write_snapshot(out, change.new)
        return out.to_bytes(), new
