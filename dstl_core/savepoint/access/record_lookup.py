"""Finds the stored records of a few keys by kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.codec.keyed_records import RecordFormat
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import StateMetaInfoSnapshot
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.read.keyed_reader import KeyFilter
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.stored_records import open_part_records

Places = list[list[int]]
"""The addresses of the start and the end of a key, and of its value."""


def rows_of_keys(
    operator: OperatorSnapshot,
    handle: KeyedStateHandle,
    key_group: KeyGroupRange,
    keys: Sequence[Any],
) -> Iterator[tuple[StateMetaInfoSnapshot, AnySerializer, Places]]:
    """Yields states with the type of their keys, and the places of records of the wanted keys. The
    places are valid until the next item is asked for.

    Raises:
        NotInColumnsError: Keys of this type have no readable end.
        FormatError: A record is damaged.
    """
    stored = open_part_records(operator, handle, key_group)
    if stored is None:
        return
    key_type = stored.header.key_serializer
    formats = [RecordFormat(meta.as_key_value(), key_type) for meta in stored.header.states]
    decoders = [StateDecoder(each, stored.prefix_bytes, EXACT_OPTIONS) for each in formats]
    wanted = KeyFilter(key_type, keys, operator.max_parallelism)
    for record_format in formats:
        yield record_format.meta, key_type, []
    with stored.context():
        for batch in stored.records([True] * len(formats)):
            states = batch.states
            for state in np.unique(states).tolist():
                matched = wanted.apply(decoders[state], batch.take(states == state))
                if len(matched):
                    yield formats[state].meta, key_type, matched.spans[:, : scan.TAG].tolist()
