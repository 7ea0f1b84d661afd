"""Values of the job's classes as JSON texts in columns.

The kernels keep a value of Kryo as its bytes. Where the job's jar explains these, one Python call a
value makes the text that ``dstl dump`` prints. State without such values is not slowed down.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa

from dstl_core.codec.columnar.keyed.decoder import value_layout
from dstl_core.codec.columnar.types.layouts import Opaque
from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.keyed_records import RecordFormat, part_of, read_delimited
from dstl_core.codec.kryo.flink_types import JobPojoSerializer
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.serializers import AnySerializer, ListSerializer, deserialize_exactly
from dstl_core.codec.state_meta import KeyedStateType

TextOf = Callable[[bytes], str]


def job_text(record_format: RecordFormat, options: ColumnOptions) -> TextOf | None:
    """What makes the texts of a state whose values are kept as bytes; None if they are not, or if
    the job's classes do not explain them.
    """
    if record_format.kind in (None, KeyedStateType.MAP):
        return None
    if not isinstance(value_layout(record_format, options), Opaque):
        return None
    meta = record_format.meta
    if record_format.kind is KeyedStateType.LIST:
        element = part_of(meta, ListSerializer).element
        return _list_text(element) if _is_of_job(element) else None
    value = meta.value_serializer
    return _value_text(value) if _is_of_job(value) else None


def _is_of_job(serializer: AnySerializer) -> bool:
    if isinstance(serializer, ReadableKryoSerializer):
        return not serializer.classes.layouts.classes.is_empty
    return isinstance(serializer, JobPojoSerializer) or any(map(_is_of_job, serializer.nested))


def _value_text(serializer: AnySerializer) -> TextOf:
    return lambda raw: _json(serializer.to_text(deserialize_exactly(serializer, raw)))


def _list_text(element: AnySerializer) -> TextOf:
    def text(raw: bytes) -> str:
        return _json([element.to_text(each) for each in read_delimited(DataInput(raw), element)])

    return text


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def as_texts(column: pa.Array, text: TextOf) -> pa.Array:
    """The texts of a column of bytes.

    Raises:
        UnreadableValueError: A class of the job is in no jar; the message names it.
    """
    return pa.array(
        [None if each is None else text(each) for each in column.to_pylist()], pa.string()
    )
