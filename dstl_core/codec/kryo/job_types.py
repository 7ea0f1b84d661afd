"""A registry whose types are read with what is known of the job's classes."""

from __future__ import annotations

from dataclasses import replace

from dstl_core.codec.classfile.case_classes import case_class_fields
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.kryo.flink_types import FlinkTypes, JobPojoSerializer
from dstl_core.codec.kryo.kryo_serializer import KryoClasses, kryo_reader
from dstl_core.codec.serializers.base import (
    AnySerializer,
    SerializerRegistry,
    SnapshotContext,
    SnapshotReader,
)
from dstl_core.codec.serializers.libraries.flink_scala_api import READERS as LIBRARY_READERS
from dstl_core.codec.serializers.libraries.flink_scala_api import CaseClassSerializer
from dstl_core.codec.serializers.opaque import READERS as OPAQUE_READERS
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import READERS as POJO_READERS
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.scala import READERS as SCALA_READERS
from dstl_core.codec.serializers.scala import ScalaCaseClassSerializer, ScalaTuple2Serializer
from dstl_core.errors import FormatError

_KRYO = KryoSerializer.snapshot_class
_POJO = PojoSerializer.snapshot_class
CASE_CLASSES = {
    serializer.snapshot_class: (SCALA_READERS | LIBRARY_READERS)[serializer.snapshot_class]
    for serializer in (ScalaCaseClassSerializer, ScalaTuple2Serializer, CaseClassSerializer)
}
"""Types whose fields have names in the class files of the job."""


def with_job_types(registry: SerializerRegistry, kryo: KryoClasses) -> SerializerRegistry:
    """A registry whose Kryo values are read; with jars, POJOs of unregistered subclasses are, too,
    and case classes have the names of their fields. Readers of your own stay; those of an earlier
    call make room for the new ones.
    """
    with_job = registry.copy()
    if _is_free(registry.get(_KRYO), OPAQUE_READERS[_KRYO]):
        with_job.register(_KRYO, _JobReader(kryo_reader(kryo)))
    has_jar = not kryo.layouts.classes.is_empty
    if has_jar and _is_free(registry.get(_POJO), POJO_READERS[_POJO]):
        with_job.register(_POJO, _JobReader(_pojo_reader(FlinkTypes(kryo))))
    for name, built_in in CASE_CLASSES.items() if has_jar else ():
        if _is_free(registry.get(name), built_in):
            with_job.register(name, _JobReader(_case_class_reader(built_in, kryo.layouts.classes)))
    return with_job


class _JobReader:
    """A reader that knows the classes of one job, and the Kryo of one version of Flink."""

    def __init__(self, read: SnapshotReader) -> None:
        self._read = read

    def __call__(self, data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
        return self._read(data, version, context)


def _is_free(reader: SnapshotReader | None, built_in: SnapshotReader) -> bool:
    """Whether a reader is none that a user has registered."""
    return reader is built_in or isinstance(reader, _JobReader)


def _pojo_reader(types: FlinkTypes) -> SnapshotReader:
    def read(data: DataInput, version: int, context: SnapshotContext) -> JobPojoSerializer:
        pojo = POJO_READERS[_POJO](data, version, context)
        assert isinstance(pojo, PojoSerializer)  # as its snapshot class says
        return JobPojoSerializer(
            pojo.pojo_class,
            pojo.fields,
            pojo.registered,
            pojo.others,
            find_subclass=types.pojo,
        )

    return read


def _case_class_reader(read_plain: SnapshotReader, classes: JobClasses) -> SnapshotReader:
    def read(data: DataInput, version: int, context: SnapshotContext) -> AnySerializer:
        serializer = read_plain(data, version, context)
        assert isinstance(serializer, ScalaCaseClassSerializer)  # as its snapshot class says
        if serializer.is_tuple:
            return serializer
        try:
            class_file = classes.get(serializer.scala_class)
        except FormatError as error:
            return replace(serializer, problem=str(error))
        if class_file is None:
            return serializer
        return replace(serializer, names=case_class_fields(class_file, len(serializer.fields)))

    return read
