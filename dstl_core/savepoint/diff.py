"""What differs between two snapshots: added, removed and changed entries per operator and state.

Entries are compared by their text form, so two snapshots of any form, backend and parallelism
compare. Operators are matched by id. If both have the same number of key groups, one range of them
is in memory at a time; else a whole operator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from dstl_core.codec.serializers import JsonValue
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.entries import KeyedEntry, OperatorStateEntry, TimerEntry
from dstl_core.savepoint.entry_reader import BYTES_AT_ONCE, EntryReader
from dstl_core.savepoint.snapshot import OperatorSnapshot, Snapshot

Change = Literal["added", "removed", "changed"]
_PLACE = ("op", "kind", "state", "service", "subtask", "key", "ns")


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs. ``before`` and ``after`` are text forms; None where it is absent."""

    operator: str
    kind: str
    state: str
    change: Change
    key: JsonValue
    namespace: JsonValue
    before: JsonValue
    after: JsonValue

    def to_json(self) -> dict[str, JsonValue]:
        return {
            "op": self.operator,
            "kind": self.kind,
            "state": self.state,
            "change": self.change,
            "key": self.key,
            "ns": self.namespace,
            "before": self.before,
            "after": self.after,
        }


def diff_snapshots(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """Every entry that is not the same in both. What only Java classes can read is left out."""
    old = {each.operator_id: each for each in before.operators}
    new = {each.operator_id: each for each in after.operators}
    for operator_id in sorted(old.keys() | new.keys()):
        yield from _diff_operator(old.get(operator_id), new.get(operator_id))


def _diff_operator(
    before: OperatorSnapshot | None, after: OperatorSnapshot | None
) -> Iterator[Difference]:
    present = [each for each in (before, after) if each is not None]
    label = present[-1].label
    if len({each.max_parallelism for each in present}) == 1:
        size = max(each.state.state_size for each in present)
        parts = max(1, -(-size // BYTES_AT_ONCE))
        splits: list[KeyGroupRange | None] = [
            *present[0].key_group_splits(min(parts, present[0].max_parallelism))
        ]
    else:
        splits = [None]
    for split in splits:
        yield from _diff_lines(label, _lines(before, split), _lines(after, split))
    yield from _diff_lines(label, _operator_state(before), _operator_state(after))


Lines = dict[str, dict[str, Any]]


def _lines(operator: OperatorSnapshot | None, split: KeyGroupRange | None) -> Lines:
    """The keyed entries and timers of some key groups, by place."""
    if operator is None:
        return {}
    whole = KeyGroupRange(0, operator.max_parallelism - 1)
    reader = EntryReader(operator, None, key_groups=split or whole)
    return _by_place(reader.readable_keyed())


def _operator_state(operator: OperatorSnapshot | None) -> Lines:
    if operator is None:
        return {}
    reader = EntryReader(operator, None)
    return _by_place(each for each in reader.operator_state_entries() if each.is_readable)


def _by_place(entries: Iterator[KeyedEntry | TimerEntry | OperatorStateEntry]) -> Lines:
    found: Lines = {}
    for entry in entries:
        line = entry.to_line()
        # An operator without a uid on one side is the same operator; timers differ by their time.
        place = [line.get(name) for name in _PLACE[1:]] + [line.get("ts")]
        found[json.dumps(place, sort_keys=True)] = line
    return found


def _diff_lines(label: str, before: Lines, after: Lines) -> Iterator[Difference]:
    for place in before.keys() | after.keys():
        old, new = before.get(place), after.get(place)
        if old is not None and new is not None and _value(old) == _value(new):
            continue
        change: Change = "added" if old is None else "removed" if new is None else "changed"
        line = new or old or {}
        yield Difference(
            label,
            line["kind"],
            line.get("state") or line.get("service") or "",
            change,
            line.get("key"),
            line.get("ns"),
            None if old is None else _value(old),
            None if new is None else _value(new),
        )


def _value(line: dict[str, Any]) -> JsonValue:
    value: JsonValue = line.get("ts") if "ts" in line else line.get("value")
    return value


def counts_of(differences: Iterator[Difference]) -> dict[tuple[str, str, str], dict[str, int]]:
    """Numbers of added, removed and changed entries by operator, kind and state."""
    found: dict[tuple[str, str, str], dict[str, int]] = {}
    for each in differences:
        counts = found.setdefault(
            (each.operator, each.kind, each.state), {"added": 0, "removed": 0, "changed": 0}
        )
        counts[each.change] += 1
    return found
