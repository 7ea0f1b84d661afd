"""The entries of a snapshot, with their text form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dstl_core.codec.big_decimal import BigDecimal
from dstl_core.codec.serializers import (
    AnySerializer,
    JsonValue,
    ListSerializer,
    MapSerializer,
    OpaqueValue,
    TupleSerializer,
    value_text,
)
from dstl_core.codec.serializers.numbers import BigDecSerializer
from dstl_core.codec.serializers.runtime import TtlValue
from dstl_core.codec.serializers.structs import Row, RowSerializer
from dstl_core.errors import FormatError
from dstl_core.model.checkpoint import DeclaredDecimals
from dstl_core.model.shown_state import ShownState

EVENT_TIMER, PROC_TIMER = "event-timer", "proc-timer"
OP_LIST, OP_UNION, OP_BROADCAST = "op-list", "op-union", "op-broadcast"


class StateForms(Protocol):
    """How states are shown whose stored form is not what the job sees."""

    def key_text(self, key_type: AnySerializer, key: Any) -> JsonValue: ...

    def shown(
        self, name: str, kind: str, value_type: AnySerializer, value: Any
    ) -> ShownState | None:
        """A state's value as the job sees it; None if that is the stored one.

        Raises:
            FormatError: It cannot be shown.
        """
        ...


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """One entry of a keyed state: a value, a whole list, or a whole map (as pairs)."""

    operator: str
    kind: str
    state: str
    key: Any
    key_group: int
    namespace: Any
    value: Any
    key_type: AnySerializer
    namespace_type: AnySerializer
    value_type: AnySerializer
    decimals: DeclaredDecimals | None = field(default=None, compare=False)
    """What was declared of decimals in the value, which ``to_line`` shows."""
    key_decimals: DeclaredDecimals | None = field(default=None, compare=False)
    forms: StateForms | None = field(default=None, compare=False)
    """How ``to_line`` shows the entry."""

    _seen: tuple[ShownState | None, str] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    @property
    def is_readable(self) -> bool:
        """Whether dstl can read all of the entry, without a Java class of the job."""
        return not self.reason and (
            self._as_job_sees()[0] is not None or unread_part(self.value) is None
        )

    def _as_job_sees(self) -> tuple[ShownState | None, str]:
        """The value as the job sees it, if that is not the stored one, and why it cannot be shown.
        It is decoded once.
        """
        if self._seen is None:
            shown, problem = None, ""
            if self.forms is not None:
                try:
                    shown = self.forms.shown(self.state, self.kind, self.value_type, self.value)
                except FormatError as error:
                    problem = error.message
            object.__setattr__(self, "_seen", (shown, problem))
        assert self._seen is not None  # set above
        return self._seen

    @property
    def reason(self) -> str:
        """Why the entry is not readable; empty if nothing says."""
        shown, problem = self._as_job_sees()
        if shown is not None or problem:
            return problem
        pairs = self.value if self.kind == "map" and isinstance(self.value, list) else ()
        return _reason([self.value, *(part for pair in pairs for part in pair)])

    def to_line(self) -> dict[str, JsonValue]:
        """The entry as ``dstl dump`` prints it."""
        line = {
            "op": self.operator,
            "kind": self.kind,
            "state": self.state,
            "key": _key_text(self),
            "kg": self.key_group,
            "ns": value_text(self.namespace_type, self.namespace),
        }
        shown, _ = self._as_job_sees()
        if shown is None:
            return line | {"value": self._value_text()}
        if shown.has_stored_form:
            line["stored"] = {"state": self.state, "kind": self.kind}
        guess = {} if shown.guess is None else {"guess": shown.guess}
        return line | {"state": shown.name, "kind": shown.kind} | guess | {"value": shown.value}

    def _value_text(self) -> JsonValue:
        if self.kind != "map" or self.is_readable or isinstance(self.value, OpaqueValue):
            if isinstance(self.value, OpaqueValue):
                return value_text(self.value_type, self.value)
            shown = declared_value(self.value_type, self.value, self.decimals)
            return value_text(self.value_type, shown)
        key_type, item_type = self.value_type.nested[-2:]
        return [
            [value_text(key_type, key), None if item is None else value_text(item_type, item)]
            for key, item in self.value
        ]


@dataclass(frozen=True, slots=True)
class TimerEntry:
    """A timer; ``timestamp`` in milliseconds."""

    operator: str
    kind: str
    service: str
    key: Any
    key_group: int
    namespace: Any
    timestamp: int
    key_type: AnySerializer
    namespace_type: AnySerializer
    key_decimals: DeclaredDecimals | None = field(default=None, compare=False)
    forms: StateForms | None = field(default=None, compare=False)

    def to_line(self) -> dict[str, JsonValue]:
        return {
            "op": self.operator,
            "kind": self.kind,
            "service": self.service,
            "key": _key_text(self),
            "kg": self.key_group,
            "ns": value_text(self.namespace_type, self.namespace),
            "ts": self.timestamp,
        }


def _key_text(entry: KeyedEntry | TimerEntry) -> JsonValue:
    """The key of an entry, with its declared decimals."""
    if entry.forms is not None:
        return entry.forms.key_text(entry.key_type, entry.key)
    return value_text(entry.key_type, declared_value(entry.key_type, entry.key, entry.key_decimals))


@dataclass(frozen=True, slots=True)
class OperatorStateEntry:
    """A list state of one subtask, or a whole union or broadcast state (``subtask`` is None)."""

    operator: str
    kind: str
    state: str
    subtask: int | None
    value: Any
    value_type: AnySerializer

    @property
    def is_readable(self) -> bool:
        return unread_part(self.value) is None

    @property
    def reason(self) -> str:
        """Why the entry is not readable; empty if nothing says."""
        return _reason([self.value] if isinstance(self.value, OpaqueValue) else self.value)

    def to_line(self) -> dict[str, JsonValue]:
        line: dict[str, JsonValue] = {
            "op": self.operator,
            "kind": self.kind,
            "state": self.state,
        }
        if self.subtask is not None:
            line["subtask"] = self.subtask
        if self.is_readable or isinstance(self.value, OpaqueValue):
            line["value"] = value_text(self.value_type, self.value)
        else:
            line["value"] = [value_text(self.value_type.nested[0], item) for item in self.value]
        return line


def unread_part(value: Any) -> OpaqueValue | None:
    """The first part of a state's value that only Java can read; None if there is none.

    Args:
        value: A value, the elements of a list, or the pairs of a map.
    """
    if isinstance(value, OpaqueValue):
        return value
    if not isinstance(value, list):
        return None
    for item in value:
        for part in item if isinstance(item, tuple) else (item,):
            if isinstance(part, OpaqueValue):
                return part
    return None


def _reason(values: Iterable[Any]) -> str:
    reasons = (each.reason for each in values if isinstance(each, OpaqueValue))
    return next((each for each in reasons if each), "")


Entry = KeyedEntry | TimerEntry | OperatorStateEntry


@dataclass(frozen=True, slots=True)
class Expiry:
    """Hides expired values as Flink does: their last access is ``ttl_ms`` ago or longer."""

    ttl_ms: int
    now_ms: int

    @property
    def live_after(self) -> int:
        """A value is live if its last access is later than this, a number of 64 bits."""
        return max(self.now_ms - self.ttl_ms, -(1 << 63))

    def without_expired(self, entry: KeyedEntry) -> KeyedEntry | None:
        """The entry without its expired values; None if no value is left. State without TTL is
        unchanged.
        """
        value = entry.value
        if isinstance(value, TtlValue):
            return entry if self._is_live(value) else None
        if entry.kind == "list" and isinstance(value, list):
            kept = [item for item in value if self._is_live(item)]
        elif entry.kind == "map" and isinstance(value, list):
            kept = [(key, item) for key, item in value if self._is_live(item)]
        else:
            return entry
        return replace(entry, value=kept) if kept else None

    def _is_live(self, value: Any) -> bool:
        return not isinstance(value, TtlValue) or value.last_access > self.live_after


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Part of a snapshot that only Java classes of the job can read.

    ``entry`` has the known part of an entry. It is None if even the key is unknown; then this
    represents any number of entries of the key group.
    """

    operator: str
    kind: str
    state: str
    key_group: int | None
    reason: str
    entry: KeyedEntry | OperatorStateEntry | None = None


@dataclass
class _UnreadableState:
    reason: str
    entries: int = 0
    hidden: set[int | None] = field(default_factory=set)


class UnreadableCounts:
    """Counts unreadable entries by state, and holds none of them."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str, str], _UnreadableState] = {}

    def add(self, unreadable: Unreadable) -> None:
        key = unreadable.operator, unreadable.kind, unreadable.state
        known = self._states.setdefault(key, _UnreadableState(unreadable.reason))
        if unreadable.entry is None:
            known.hidden.add(unreadable.key_group)
        else:
            known.entries += 1

    def merge(self, other: UnreadableCounts) -> None:
        for key, state in other._states.items():
            known = self._states.setdefault(key, _UnreadableState(state.reason))
            known.entries += state.entries
            known.hidden |= state.hidden

    def sentences(self) -> Iterator[str]:
        """A sentence for each state with unreadable entries, without keys and values."""
        for (operator, kind, name), state in self._states.items():
            counts = [f"{state.entries} entries"] if state.entries else []
            counts += [f"all of {len(state.hidden)} key groups"] if state.hidden else []
            yield (
                f"not readable: operator {operator!r}, {kind} state {name!r}, "
                f"{' and '.join(counts)} ({state.reason})"
            )


def summarize(unreadable: Iterable[Unreadable]) -> Iterator[str]:
    """Makes a sentence for each state with unreadable entries."""
    counts = UnreadableCounts()
    for problem in unreadable:
        counts.add(problem)
    return counts.sentences()


def declared_value(serializer: AnySerializer, value: Any, decimals: DeclaredDecimals | None) -> Any:
    """A value with its decimals in their declared scale; a number that does not fit stays as it is.

    Args:
        serializer: The stored type.
        value: A value of it.
        decimals: What was declared of it; None if nothing was.
    """
    if value is None or decimals is None:
        return value
    if isinstance(serializer, RowSerializer) and isinstance(decimals, Mapping):
        fields = [
            declared_value(kind, item, decimals.get(f"f{at}"))
            for at, (kind, item) in enumerate(zip(serializer.fields, value.fields, strict=True))
        ]
        return Row(value.kind, tuple(fields))
    if isinstance(serializer, TupleSerializer) and isinstance(decimals, Mapping):
        return tuple(
            declared_value(kind, item, decimals.get(f"f{at}"))
            for at, (kind, item) in enumerate(zip(serializer.fields, value, strict=True))
        )
    if isinstance(serializer, MapSerializer) and isinstance(decimals, Mapping):
        of_key, of_value = decimals.get("key"), decimals.get("value")
        return [
            (
                declared_value(serializer.key, key, of_key),
                declared_value(serializer.value, item, of_value),
            )
            for key, item in value
        ]
    if isinstance(serializer, ListSerializer):
        return [declared_value(serializer.element, each, decimals) for each in value]
    if isinstance(decimals, Mapping):
        return value
    if isinstance(serializer, BigDecSerializer):
        return _scaled(value, *decimals)
    return value


def _scaled(value: BigDecimal, digits: int, scale: int) -> BigDecimal:
    missing = scale - value.scale
    # A stored scale is any number of 32 bits, so it is bounded before the power is taken.
    if not 0 <= missing <= digits:
        return value
    unscaled = value.unscaled * 10**missing
    return BigDecimal(unscaled, scale) if abs(unscaled) < 10**digits else value
