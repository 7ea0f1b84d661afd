"""Snapshots whose keyed state is written again from its columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dstl_core import Snapshot
from dstl_core.codec.columnar.types.type_layouts import EXACT_OPTIONS
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import KeyGroupsSavepointStateHandle, OperatorStreamStateHandle
from dstl_core.model.key_group import compute_key_group_range_for_operator_index
from dstl_core.savepoint.edit.operator_state_copy import spread_operator_state
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.savepoint.read.state_parts import StatesOf
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections

WITH_PROPERTIES = 4
Keyed = dict[int, KeyGroupsSavepointStateHandle | None]
Listed = dict[int, OperatorStreamStateHandle | None]


def copy_through_columns(
    snapshot: Snapshot,
    path: Path,
    *,
    compressed: bool = False,
    memory: int = 1 << 20,
    version: int = 0,
) -> Path:
    """A canonical savepoint of everything that a snapshot holds in managed state; by default of the
    version of its metadata.
    """
    folder = SavepointFolder(path)
    operators = tuple(_copy(each, folder, compressed, memory) for each in snapshot.operators)
    version = version or max(3, snapshot.metadata.version)
    properties = snapshot.metadata.properties if version >= WITH_PROPERTIES else None
    metadata = replace(
        snapshot.metadata, version=version, operators=operators, properties=properties
    )
    folder.publish(metadata, {})
    return path


def _copy(
    operator: OperatorSnapshot, folder: SavepointFolder, compressed: bool, memory: int
) -> OperatorState:
    keyed = _keyed(operator, folder, compressed, memory)
    listed = _listed(operator, folder)
    subtasks = tuple(
        OperatorSubtaskState(
            index,
            managed_operator_state=listed.get(index),
            managed_keyed_state=keyed.get(index),
        )
        for index in range(operator.parallelism)
    )
    return replace(operator.state, subtasks=subtasks, uid=operator.uid)


def _keyed(
    operator: OperatorSnapshot, folder: SavepointFolder, compressed: bool, memory: int
) -> Keyed:
    if operator.key_type is None:
        return {}
    key_type = operator.key_type.serializer
    encoder = KeyedStateEncoder(
        key_type,
        [info.meta.as_key_value() for info in operator.states],
        operator.max_parallelism,
        types=EXACT_OPTIONS,
        compressed=compressed,
    )
    # The Java hash of a POJO is its class's own, so the key groups have to be told.
    told = ("key_group",) if "Pojo" in type(key_type).__name__ else ()
    with KeyedSections(
        encoder.header, encoder.key_groups, encoder.max_parallelism, memory=memory
    ) as sections:
        for info in operator.states:
            columns = (*encoder.schema(info.name).names, *told)
            for batch in operator.flat(info.name, types=EXACT_OPTIONS, columns=columns).read():
                sections.add(encoder.encode(info.name, batch))
        total, parallelism = operator.max_parallelism, operator.parallelism
        return {
            index: folder.add_keyed_stream(
                sections.stream(
                    compute_key_group_range_for_operator_index(total, parallelism, index)
                )
            )
            for index in range(parallelism)
        }


def _listed(operator: OperatorSnapshot, folder: SavepointFolder) -> Listed:
    streams = spread_operator_state([StatesOf(operator)], operator.parallelism)
    return {index: folder.add_operator_state(stream) for index, stream in enumerate(streams)}
