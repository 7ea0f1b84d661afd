"""Compares two snapshots apart from their entries: operators, states, types, key groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from dstl_core.codec.serializers import AnySerializer
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog, StateInfo
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.state.tables.compatibility import compatibility_of

Change = Literal["added", "removed", "changed"]
What = Literal["operator", "state", "max_parallelism", "kind", "key_type", "namespace_type", "type"]
_UNKNOWN_KIND = "unknown"


@dataclass(frozen=True, slots=True)
class StructureDifference:
    """A property of an operator or state that differs. ``reason`` is the change inside a type."""

    change: Change
    operator: str
    what: What
    state: str | None = None
    kind: str | None = None
    before: str | int | None = None
    after: str | int | None = None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """A line of ``dstl diff --json``; only these lines have the field ``what``."""
        document: dict[str, Any] = {"change": self.change, "op": self.operator, "what": self.what}
        for name in ("kind", "state", "before", "after", "reason"):
            value = getattr(self, name)
            if value not in (None, ""):
                document[name] = value
        return document

    def __str__(self) -> str:
        place = self.operator if self.state is None else f"{self.operator} {self.kind} {self.state}"
        name = self.what.replace("_", " ")
        if self.change != "changed":
            return f"{place}: {name} {self.change}"
        text = f"{place}: {name} changed from {self.before} to {self.after}"
        return f"{text} ({self.reason})" if self.reason else text


def structure_differences(a: Snapshot, b: Snapshot) -> Iterator[StructureDifference]:
    """Compares operators by id and states by name. It reads headers, but no values.

    The storage of state does not count as a difference: neither the backend nor the parallelism.
    Timers without entries do not count either.

    Raises:
        FormatError: A snapshot is damaged.
        RestoreError: The type of a key in a changelog is unknown.
    """
    ours = {each.operator_id: each for each in a.operators}
    theirs = {each.operator_id: each for each in b.operators}
    for operator_id in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(operator_id), theirs.get(operator_id)
        if one is not None and other is not None:
            yield from _of_operator(one, other)
        elif one is not None:
            yield StructureDifference("removed", one.label, "operator")
        elif other is not None:
            yield StructureDifference("added", other.label, "operator")


def _of_operator(one: OperatorCatalog, other: OperatorCatalog) -> Iterator[StructureDifference]:
    label = other.label
    if one.max_parallelism != other.max_parallelism:
        yield StructureDifference(
            "changed",
            label,
            "max_parallelism",
            before=one.max_parallelism,
            after=other.max_parallelism,
        )
    was, now = one.key_type, other.key_type
    # A type that was found by trial may be one of several.
    if was is not None and now is not None and not was.note and not now.note:
        yield from _type(label, "key_type", was.serializer, now.serializer)
    ours, theirs = _states(one), _states(other)
    for place in dict.fromkeys([*ours, *theirs]):
        before, after = ours.get(place), theirs.get(place)
        if before is not None and after is not None:
            yield from _of_state(label, before, after)
        elif before is not None and not before.meta.is_queue:
            yield _state("removed", label, before)
        elif after is not None and not after.meta.is_queue:
            yield _state("added", label, after)


def _of_state(label: str, before: StateInfo, after: StateInfo) -> Iterator[StructureDifference]:
    if before.kind != after.kind and _UNKNOWN_KIND not in (before.kind, after.kind):
        yield StructureDifference(
            "changed", label, "kind", after.name, after.kind, before.kind, after.kind
        )
        return
    was, now = before.meta.as_key_value(), after.meta.as_key_value()
    if was.is_queue or now.is_queue:
        return  # timers have the types of their operator's key and windows
    yield from _type(label, "type", was.value_serializer, now.value_serializer, after)
    names = {name for meta in (was, now) for name, _ in meta.serializers} & set(_PARTS)
    for name in sorted(names):
        yield from _type(label, _PARTS[name], was.serializer(name), now.serializer(name), after)


_PARTS: dict[str, What] = {"NAMESPACE_SERIALIZER": "namespace_type", "KEY_SERIALIZER": "key_type"}


def _type(
    label: str,
    what: What,
    was: AnySerializer,
    now: AnySerializer,
    state: StateInfo | None = None,
) -> Iterator[StructureDifference]:
    if was == now:
        return
    same_name = was.type_name == now.type_name
    yield StructureDifference(
        "changed",
        label,
        what,
        None if state is None else state.name,
        None if state is None else state.kind,
        was.type_name,
        now.type_name,
        compatibility_of(was, now).reason if same_name else "",
    )


def _states(operator: OperatorCatalog) -> dict[tuple[str, bool, bool], StateInfo]:
    keyed, listed = operator.states, operator.operator_states
    return {(info.name, info.meta.is_queue, info in listed): info for info in (*keyed, *listed)}


def _state(change: Change, label: str, info: StateInfo) -> StructureDifference:
    before, after = (None, info.type) if change == "added" else (info.type, None)
    return StructureDifference(change, label, "state", info.name, info.kind, before, after)
