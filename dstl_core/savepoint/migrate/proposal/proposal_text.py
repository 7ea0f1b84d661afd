"""Writes a proposed declaration as YAML, with its notes as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][\w./$<-]*")
_WORDS = frozenset(["null", "true", "false", "yes", "no", "on", "off", "y", "n"])
_WIDTH = 96

Notes = Mapping[str, tuple[Sequence[str], Mapping[str, Sequence[str]]]]


def proposal_lines(
    declaration: Mapping[str, Any], notes: Notes, job_notes: Sequence[str]
) -> Iterator[str]:
    """The lines of the file.

    Args:
        declaration: The declaration, as plain values.
        notes: Operator to its notes, and those of its states.
        job_notes: Notes about the whole job.
    """
    yield from _comments(job_notes, 0)
    for name, value in declaration.items():
        if name != "operators":
            yield f"{name}: {flow(value)}"
            continue
        yield "operators:"
        for label, rules in value.items():
            yield f"  {flow(label)}:"
            yield from _operator(rules, *notes.get(label, ((), {})))
    declared = declaration.get("operators", {})
    for label, (operator_notes, state_notes) in notes.items():
        if label not in declared and (operator_notes or state_notes):
            yield f"# {label}"
            yield from _comments(operator_notes, 0, "#   ")
            for state, texts in state_notes.items():
                yield from _comments([f"{state}: {each}" for each in texts], 0, "#   ")


def _operator(
    rules: Mapping[str, Any], notes: Sequence[str], state_notes: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    yield from _comments(notes, 4)
    states = rules.get("states", {})
    for state, texts in state_notes.items():
        if state not in states:
            yield from _comments([f"{state}: {each}" for each in texts], 4)
    for name, value in rules.items():
        if name != "states":
            yield f"    {name}: {flow(value)}"
    if states:
        yield "    states:"
        for state, rule in states.items():
            yield from _comments(state_notes.get(state, ()), 6)
            yield f"      {flow(state)}: {flow(rule)}"


def _comments(notes: Sequence[str], indent: int, mark: str = "# ") -> Iterator[str]:
    """Notes as comments, wrapped."""
    lead = " " * indent + mark
    for note in notes:
        line = lead
        for word in note.replace("\n", " ").split(" "):
            if len(line) + len(word) > _WIDTH and line.strip() != mark.strip():
                yield line.rstrip()
                line = lead + "  "
            line += f"{word} "
        yield line.rstrip()


def flow(value: Any) -> str:
    """A value on one line, as YAML."""
    match value:
        case Mapping():
            return (
                "{" + ", ".join(f"{flow(name)}: {flow(each)}" for name, each in value.items()) + "}"
            )
        case list() | tuple():
            return f"[{', '.join(map(flow, value))}]"
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        case str() if re.fullmatch(r"\d+_[A-Za-z][\w-]*", value):
            return value  # a uid of a compiled plan
    return json.dumps(value, ensure_ascii=False)
