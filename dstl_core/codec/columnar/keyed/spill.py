"""Divides a key group that is too large for memory by key into files.

Every key is in exactly one part, so the parts can be joined one after the other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import IO

import numpy as np

from dstl_core.codec.columnar.kernels.hashing import hash_rows
from dstl_core.codec.columnar.keyed.byte_index import SEED, Ranges
from dstl_core.codec.columnar.keyed.decoder import StateDecoder
from dstl_core.codec.columnar.keyed.runs import runs_of
from dstl_core.codec.columnar.keyed.sections import Section, SectionChunk
from dstl_core.codec.columnar.keyed.spans import SpanBatch
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.program import Int64s
from dstl_core.codec.keyed_canonical import END_OF_SECTION
from dstl_core.temporary_files import in_temporary_files, let_go


def parted_sections(
    batches: Iterable[SpanBatch],
    decoders: Mapping[int, StateDecoder],
    key_group: int,
    prefix_bytes: int,
    parts: int,
) -> Iterator[SectionChunk]:
    """The records of one key group as ``parts`` sections; all records of a key are in one part.

    Offsets in later messages count in a part. The keys of all records are already checked.

    Raises:
        StorageError: The folder of temporary files is full.
    """
    with ExitStack() as files:
        spools: list[IO[bytes]] = []
        for _ in range(parts):
            spools.append(tempfile.TemporaryFile(prefix="dstl-"))  # noqa: SIM115  # let_go closes it
            files.callback(let_go, spools[-1])
        for batch in batches:
            for state, decoder in decoders.items():
                records = batch.take(batch.states == state)
                if len(records):
                    buckets = _parts_of(decoder.key_ranges(records), parts)
                    runs = runs_of(
                        records.spans, state, buckets, records.key_groups, parts, prefix_bytes
                    )
                    for part, spool in enumerate(spools):
                        start, end = runs.bounds[part], runs.bounds[part + 1]
                        with in_temporary_files():
                            spool.write(runs.data.slice(start, end - start))
        for spool in spools:
            with in_temporary_files():
                spool.seek(0)  # writes what the buffer has
            data = spool.read() + END_OF_SECTION
            yield SectionChunk(data, [Section(key_group, 0, len(data), 0)])


def _parts_of(keys: Ranges, parts: int) -> Int64s:
    starts, ends = np.ascontiguousarray(keys.starts), np.ascontiguousarray(keys.ends)
    hashes = np.empty(len(keys), np.int64)
    hash_rows(address_of(starts), address_of(ends), 8, len(keys), SEED, address_of(hashes))
    parted: Int64s = (hashes >> 32) % parts
    return parted
