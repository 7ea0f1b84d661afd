"""``dstl diff``: the entries that differ between two snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    JobsOption,
    JsonOption,
    KeyTypeOption,
    ProtoOption,
    RelocateOption,
    RootOption,
    SparkOption,
    StateTypeOption,
    load,
    runner_of,
)
from dstl_core.cli.output import print_lines, progress, to_json, write_json

KEYS_SHOWN = 5
_MARKS = {"added": "+", "removed": "-", "changed": "~"}

if TYPE_CHECKING:
    from dstl_core.savepoint.compare.diff import Difference


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The snapshot to compare with.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The snapshot that may differ.")],
    jobs: JobsOption = None,
    spark: SparkOption = None,
    as_json: JsonOption = False,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
    state_type: StateTypeOption = None,
    proto: ProtoOption = None,
) -> None:
    """Show what was added, removed or changed from A to B.

    It compares operators, states, their types, the max parallelism, and the entries of every state.

    With --json, each difference is one JSON object a line. The exit code is 1 if anything differs.
    """
    # Looking into a snapshot loads neither Arrow nor the compiler; comparing two does.
    from dstl_core.savepoint.compare.diff import diff_snapshots
    from dstl_core.savepoint.compare.structure_diff import structure_differences

    one = load(a, allow_root, relocate, changelog_base, key_type, jar, state_type, proto)
    two = load(b, allow_root, relocate, changelog_base, key_type, jar, state_type, proto)
    one.require_typed_states(two)
    structure = list(structure_differences(one, two))
    if as_json:
        write_json(each.to_json() for each in structure)
    counts = _Counts()
    total = sum(each.state.state_size for snapshot in (one, two) for each in snapshot.operators)
    with progress("comparing", total, prints_lines=as_json) as advance:
        differences = counts.watch(diff_snapshots(one, two, advance, runner_of(jobs, spark)))
        if as_json:
            write_json(each.to_json() for each in differences)
        else:
            for _ in differences:
                pass
    if not as_json:
        lines = [(str(each), "bold") for each in structure]
        print_lines([*lines, *counts.lines()] or ["no differences"])
    if structure or counts.states:
        raise typer.Exit(1)


class _Counts:
    """Differences by operator and state, with the first few keys of each."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, ...], dict[str, int]] = {}
        self._keys: dict[tuple[tuple[str, ...], str], list[str]] = {}

    def watch(self, differences: Iterable[Difference]) -> Iterator[Difference]:
        for difference in differences:
            if difference.part not in (None, 1):
                yield difference  # of a map that is counted
                continue
            line = difference.line
            name = line["state"] if "state" in line else line["service"]
            place = (str(line["op"]), str(line["kind"]), str(name))
            counts = self.states.setdefault(place, dict.fromkeys(_MARKS, 0))
            counts[difference.change] += 1
            keys = self._keys.setdefault((place, difference.change), [])
            if len(keys) < KEYS_SHOWN:
                keys.append(_key_text(line))
            yield difference

    def lines(self) -> Iterator[str | tuple[str, str]]:
        for place, counts in self.states.items():
            operator, kind, name = place
            summary = ", ".join(f"{count:,} {change}" for change, count in counts.items() if count)
            yield f"{operator} {kind} {name}: {summary}", "bold"
            for change, mark in _MARKS.items():
                keys = self._keys.get((place, change), [])
                for key in keys:
                    yield f"  {mark} {key}"
                if counts[change] > len(keys):
                    yield f"  {mark} .. {counts[change] - len(keys):,} more"


def _key_text(line: dict[str, Any]) -> str:
    """The part of an entry that identifies it."""
    shown = [line["key"]] if "key" in line else []
    shown += [line[name] for name in ("ns", "ts", "subtask") if line.get(name) is not None]
    return " ".join(map(to_json, shown)) or "(all)"
