"""How the counts of a report are kept in a record: as JSON values, which run nothing."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.compare.diff import KeyChanges
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.largest import KeyTotals, Largest
from dstl_core.savepoint.report.state_counts import StateCounts
from dstl_core.savepoint.report.value_counts import (
    AgeCounts,
    NumberCounts,
    TimeCounts,
    WindowCounts,
)

_COUNTS = {
    kind.__name__: kind
    for kind in (
        StateCounts,
        KeyTotals,
        Largest,
        NumberCounts,
        TimeCounts,
        AgeCounts,
        WindowCounts,
        KeyChanges,
    )
}


@dataclass(frozen=True)
class CountsForm:
    """How counts are kept.

    Args:
        options: What is counted; the same for all.
    """

    options: CountOptions

    def facts(self, result: Any) -> Mapping[str, Any]:
        return {"result": self._packed(result)}

    def result(self, facts: Mapping[str, Any]) -> Any:
        return self._counts(facts["result"])

    def _packed(self, value: Any) -> Any:
        """A value as JSON: all but numbers, texts and None says what it is."""
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return ["float", value.hex()]
            case np.ndarray():
                raw = np.ascontiguousarray(value, "<i8").tobytes()
                return ["numbers", b64encode(raw).decode()]
            case CountOptions():
                return ["options"]
            case KeyGroupRange():
                return ["key groups", value.start_key_group, value.end_key_group]
            case list() | tuple() | set():
                return [type(value).__name__, *map(self._packed, value)]
            case dict():  # a Counter is one
                pairs = ([self._packed(key), self._packed(own)] for key, own in value.items())
                return [type(value).__name__, *pairs]
        # What a process sends to another one.
        state = asdict(value) if isinstance(value, KeyChanges) else value.__getstate__()
        return [type(value).__name__, *([key, self._packed(own)] for key, own in state.items())]

    def _counts(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, *parts = value
        match kind:
            case "float":
                return float.fromhex(parts[0])
            case "numbers":
                return np.frombuffer(b64decode(parts[0]), "<i8").astype(np.int64)
            case "options":
                return self.options
            case "key groups":
                return KeyGroupRange(*parts)
            case "list" | "tuple" | "set":
                return _SEQUENCES[kind](map(self._counts, parts))
        pairs = {self._counts(key): self._counts(own) for key, own in parts}
        if kind in ("dict", "Counter"):
            return pairs if kind == "dict" else Counter(pairs)
        known = _COUNTS[kind]
        if known is KeyChanges:
            return KeyChanges(**pairs)
        counts = object.__new__(known)
        vars(counts).update(pairs)
        return counts


_SEQUENCES: Mapping[str, Any] = {"list": list, "tuple": tuple, "set": set}
