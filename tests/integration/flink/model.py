"""What state has to hold, in plain Python: the expectation of the tests against real Flink.

Updates have the form that ``FlinkChecker.restore`` takes, with keys and values in the text form of
``dstl dump`` (NaN as text and so on). The model knows nothing of bytes, key groups or dstl_core.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tests.integration.flink.checker import Entry, State


def text(value: Any) -> str:
    """Compact JSON: unlike ``==`` it tells -0.0 from 0.0, 1 from 1.0 and True from 1."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def texts(entries: Iterable[Entry], *without: str) -> list[str]:
    """Entries in an order of their own, ready to be compared; ``without`` leaves out fields."""
    return sorted(text({k: v for k, v in each.items() if k not in without}) for each in entries)


class Model:
    """The state of one operator.

    A list, map or accumulator that is empty is no entry, as in Flink.
    """

    def __init__(self, op: str, states: Sequence[State]) -> None:
        self.op = op
        self._states = {state.name: state for state in states}
        self._values: dict[str, tuple[Entry, Any]] = {}
        self._timers: dict[str, Entry] = {}

    def copy(self) -> Model:
        return copy.deepcopy(self)

    def declare(self, *states: State) -> None:
        self._states |= {state.name: state for state in states}

    def apply(self, updates: Iterable[Entry]) -> None:
        for update in updates:
            if "service" in update:
                self._change_timer(update)
            else:
                self._change_value(update)

    def _change_timer(self, update: Entry) -> None:
        timer: Entry = {"op": self.op, "kind": update["kind"], "service": update["service"]}
        timer |= {"key": update["key"], "ns": update.get("ns"), "ts": update["ts"]}
        if update["do"] == "register":
            self._timers[text(timer)] = timer
        else:
            self._timers.pop(text(timer), None)

    def fire(self, watermark: int) -> list[Entry]:
        """The event-time timers that a watermark fires; they are gone then."""
        due = [
            (name, timer)
            for name, timer in self._timers.items()
            if timer["kind"] == "event-timer" and timer["ts"] <= watermark
        ]
        for name, _ in due:
            del self._timers[name]
        return [timer for _, timer in due]

    def _change_value(self, update: Entry) -> None:
        state = self._states[update["state"]]
        scope: Entry = {"op": self.op, "kind": state.kind, "state": state.name}
        scope |= {"key": update["key"], "ns": update.get("ns")}
        place = text(scope)
        old = self._values[place][1] if place in self._values else None
        new = _changed(state.kind, old, update)
        if new is None or (state.kind in ("list", "map") and not new):
            self._values.pop(place, None)
        else:
            self._values[place] = (scope, new)

    def entries(self) -> list[Entry]:
        """Every entry and timer as ``dstl dump`` prints it, but without key groups."""
        values = [
            {**scope, "value": _sorted_pairs(value) if scope["kind"] == "map" else value}
            for scope, value in self._values.values()
        ]
        return values + list(self._timers.values())


def _changed(kind: str, old: Any, update: Entry) -> Any:
    value: Any = update.get("value")
    match kind, update["do"]:
        case _, "clear":
            return None
        case "value" | "list", "update":
            return value
        case "list", "add":
            return (old or []) + [value]
        case "list", "add_all":
            return (old or []) + value
        case "map", "put":
            return {**(old or {}), text(update["map_key"]): [update["map_key"], value]}
        case "map", "remove":
            return {k: v for k, v in (old or {}).items() if k != text(update["map_key"])}
        case "reducing" | "aggregating", "add":
            return value if old is None else _plus(old, value)
        case unknown:
            raise ValueError(unknown)


def _plus(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return [_plus(a, b) for a, b in zip(left, right, strict=True)]
    return left + right


def _sorted_pairs(pairs: dict[str, list[Any]]) -> list[list[Any]]:
    return [pairs[key] for key in sorted(pairs)]
