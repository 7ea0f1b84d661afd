"""Whether types of state can be read back, before state of these types is written.

A snapshot names the class of a serializer. A later process finds the reader of that class in its
registry, or cannot restore the state.
"""

from __future__ import annotations

from collections.abc import Iterable

from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.python_values import stored_type
from dstl_core.codec.serializers import (
    BUILT_IN,
    AnySerializer,
    SerializerRegistry,
    SnapshotContext,
    UnknownSerializer,
    write_snapshot,
)
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.errors import ConfigError, FormatError


def check_readable(
    uid: str,
    key_type: AnySerializer | None,
    metas: Iterable[StateMetaInfoSnapshot],
    registry: SerializerRegistry,
) -> None:
    """Raises ConfigError if a registry cannot read back a type of an operator's state.

    Args:
        uid: The operator.
        key_type: The type of its keys; None without keyed state.
        metas: Its states.
        registry: The registry of the job.
    """
    if key_type is not None:
        _check(stored_type(key_type), f"The key type of operator {uid!r}", registry)
    for meta in metas:
        for _, serializer in meta.serializers:
            _check(serializer, f"State {meta.name!r} of operator {uid!r}", registry)


def _check(serializer: AnySerializer, what: str, registry: SerializerRegistry) -> None:
    classes = [type(each) for each in _parts(serializer)]
    if UnknownSerializer in classes:
        return  # restored bytes, which are written as they were read
    foreign = [each for each in _parts(serializer) if BUILT_IN.get(each.snapshot_class) is None]
    if not foreign:
        return
    name = foreign[0].snapshot_class
    out = DataOutput()
    write_snapshot(out, serializer)
    try:
        stored = SnapshotContext(registry).read_snapshot(DataInput(out.to_bytes()))
    except FormatError as error:
        raise ConfigError(
            f"{what} has the serializer {type(foreign[0]).__name__}, and another process cannot "
            f"restore what it writes ({error}); register a reader of {name!r} in a copy of "
            f"BUILT_IN, and give the copy to the job (serializers=)."
        ) from error
    if stored != serializer:
        raise ConfigError(
            f"{what} has the serializer {type(foreign[0]).__name__}, and the reader of {name!r} "
            f"returns another one: expected {serializer!r}, got {stored!r}; let the reader return "
            f"an equal serializer, e.g. of a frozen dataclass."
        )


def _parts(serializer: AnySerializer) -> list[AnySerializer]:
    return [serializer, *(below for each in serializer.nested for below in _parts(each))]
