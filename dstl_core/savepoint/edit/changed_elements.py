"""Edits of the source of a rewriting: other elements of list states, other names of states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from dstl_core.codec.operator_state import write_operator_stream
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import ByteStreamStateHandle, OperatorStateMode
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

Elements = list[bytes]
Change = Callable[[int, Elements], Elements]
"""Subtask and the bytes of its elements, to those of the copy."""
PlanLine = dict[str, Any]
"""What becomes of a state or of an operator, as ``SavepointEdit.plan`` says it."""


class SourceEdit(Protocol):
    """An edit that is made before the savepoint is written: the source gets other elements of
    operator state, or other names of states.
    """

    def applied_to(self, snapshot: Snapshot) -> tuple[Snapshot, list[PlanLine]]:
        """The changed snapshot, and the lines of the plan about the change."""
        ...


def plan_line(operator: OperatorSnapshot, action: str, state: str, **facts: Any) -> PlanLine:
    """The line about a state that is edited in the source."""
    return {
        "operator": operator.label,
        "action": action,
        "bytes": None,
        "states": [state],
        **facts,
    }


def with_elements(operator: OperatorSnapshot, state: str, change: Change) -> OperatorState:
    """The operator with other elements in a list state; other states stay as they are.

    Raises:
        FormatError: The operator state is damaged.
    """
    changed: dict[int, OperatorSubtaskState] = {}
    by_index = {each.index: each for each in operator.state.subtasks}
    for subtask, handle, reader in operator.operator_state_readers():
        lists, broadcasts = [], []
        for info in handle.states:
            meta = reader.header.state(info)
            if info.mode is OperatorStateMode.BROADCAST:
                broadcasts.append((meta, reader.raw_pairs(info)))
                continue
            elements = reader.raw_elements(info)
            lists.append((meta, change(subtask, elements) if info.name == state else elements))
        raw, infos = write_operator_stream(lists, broadcasts)
        stream = ByteStreamStateHandle(f"{operator.operator_id.hex}-{subtask}", raw)
        new = replace(handle, stream=stream, states=infos, file_merging=None)
        changed[subtask] = replace(by_index[subtask], managed_operator_state=new)
    subtasks = tuple(changed.get(each.index, each) for each in operator.state.subtasks)
    return replace(operator.state, subtasks=subtasks)


def with_operators(snapshot: Snapshot, states: Mapping[OperatorID, OperatorState]) -> Snapshot:
    """The snapshot with other states of some operators."""
    operators = tuple(states.get(each.operator_id, each) for each in snapshot.metadata.operators)
    metadata = replace(snapshot.metadata, operators=operators)
    file = replace(snapshot.file, metadata=metadata)
    changed = Snapshot(file, snapshot.file_io, snapshot.resolver, snapshot.registry)
    changed.kryo = snapshot.kryo
    changed.edited = snapshot.edited | states.keys()
    for old, new in zip(snapshot.operators, changed.operators, strict=True):
        if "key_type" in vars(old):  # it may be one that a person gave
            new.key_type = old.key_type
    return changed
