"""A definition that changes is never mixed: random changes, inputs and restated inputs.

The expected state is computed in Python: each aggregate has seen the inputs since it began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.errors import ConfigError
from tests.examples import examples

Rows = list[tuple[str, int, int]]
"""Rows of an input: key, ``v`` and ``w``."""
KINDS: Mapping[str, tuple[Callable[[], Any], Callable[[Rows], dict[str, Any]]]] = {
    "count": (aggregates.count, lambda rows: {"": len(rows)}),
    "sum v": (lambda: aggregates.sum("v"), lambda rows: {"": sum(v for _, v, _ in rows)}),
    "sum w": (lambda: aggregates.sum("w"), lambda rows: {"": sum(w for _, _, w in rows)}),
    "max v": (lambda: aggregates.max("v"), lambda rows: {"": max(v for _, v, _ in rows)}),
    "min w": (lambda: aggregates.min("w"), lambda rows: {"": min(w for _, _, w in rows)}),
    "avg v": (
        lambda: aggregates.avg("v"),
        lambda rows: {"_sum": float(sum(v for _, v, _ in rows)), "_count": len(rows)},
    ),
}
"""An aggregate, and the ends of the names of its states to their values of the rows of a key."""
NAMES = ("a", "b", "c", "ab")
NUMBERS = st.integers(-9, 9)
ROWS = st.lists(st.tuples(st.sampled_from("xyz"), NUMBERS, NUMBERS), max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("input"), ROWS),
        st.tuples(
            st.sampled_from(["rename", "drop", "add", "redefine", "backfill"]),
            st.integers(0, 9),
            st.sampled_from(sorted(KINDS)),
            st.booleans(),
        ),
        st.tuples(st.just("again"), st.integers(1, 4), ROWS),
        st.just(("widen",)),
    ),
    min_size=6,
    max_size=12,
)


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of the pipeline.

    Args:
        kind: One of ``KINDS``.
        number: Stays the same while its values go on, also under another name.
        since: The first input that it has seen.
        from_first: Whether it was backfilled.
    """

    kind: str
    number: int
    since: int
    from_first: bool = False


Definition = dict[str, Aggregate]


@dataclass
class Pipeline:
    """A pipeline, and what is expected of it."""

    base: Path
    definition: Definition = field(default_factory=lambda: {"a": Aggregate("sum v", 0, 1)})
    v: pa.DataType = field(default_factory=pa.int32)
    inputs: dict[int, pa.Table] = field(default_factory=dict)
    before: dict[int, Definition] = field(default_factory=dict)
    """The definition before each input."""
    changed: list[tuple[int, Definition]] = field(default_factory=list)
    """Each definition that a change made, with the input after it."""
    evolve: dict[str, Any] = field(default_factory=dict)
    """The last change, which stays in a repository."""
    numbers: int = 0

    @property
    def job(self) -> StatefulJob:
        states = {name: KINDS[kept.kind][0]() for name, kept in self.definition.items()}
        v = "int" if self.v == pa.int32() else "bigint"
        schema = f"k string, v {v}, w bigint"
        operator = AggregateOperator("totals", "k", states, schema=schema)
        engine = LocalEngine(threads=1)
        return StatefulJob(
            engine, "job", str(self.base), operator, max_parallelism=4, num_retained=99
        )

    # ------------------------------------------------------------------------- steps

    def run(self, number: int, rows: Rows, *, rewind: bool = False) -> None:
        columns = [[row[at] for row in rows] for at in range(3)]
        types = (pa.string(), self.v, pa.int64())
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        table = pa.table(dict(zip("kvw", arrays, strict=True)))
        self.job.run(table, number, rewind=rewind)
        self.inputs = {at: held for at, held in self.inputs.items() if at < number}
        self.inputs[number] = table
        self.check()

    def change(self, definition: Definition, **changes: Any) -> None:
        """Another definition: without its changes it is refused where values would be lost."""
        old, latest = self.definition, self.job.latest()
        self.definition = definition
        self.changed.append((max(self.inputs, default=0) + 1, definition))
        given_up = [
            aggregate
            for name, aggregate in old.items()
            if name not in definition or definition[name].kind != aggregate.kind
        ]
        if given_up:
            with pytest.raises(ConfigError):
                self.job.migrate()
            with pytest.raises(ConfigError):
                self.run(max(self.inputs, default=0) + 1, [("x", 1, 1)])
            assert self.job.latest() == latest
        self.evolve = changes
        self.migrate()
        self.check()
        made = self.job.latest()
        self.migrate()
        assert self.job.latest() == made, "a repeated call commits nothing"

    def migrate(self, **options: Any) -> None:
        self.job.migrate(**self.evolve, batches=self.inputs.__getitem__, **options)

    def again(self, number: int, rows: Rows) -> None:
        """An input runs again, and with it goes what came after it."""
        latest, held = self.job.latest(), self.before[number]
        try:
            self.migrate(before_input=number)
        except ConfigError as error:
            assert "The definition has changed since that state" in str(error)
            assert self.is_ambiguous(number), error
            assert self.job.latest() == latest
            return
        self.definition = {
            name: self.restated(name, kept, held, number) for name, kept in self.definition.items()
        }
        self.before = {at: known for at, known in self.before.items() if at < number}
        self.before[number] = self.definition
        self.run(number, rows, rewind=True)

    def restated(self, name: str, aggregate: Aggregate, held: Definition, number: int) -> Aggregate:
        """What an aggregate is where an input runs again that it may not have seen."""
        if aggregate.from_first:
            return replace(aggregate, since=1)
        for known in held.values():
            if known.number == aggregate.number:
                return known
        same = held.get(name)
        if same is not None and same.kind == aggregate.kind:
            return same  # it went and came back
        return replace(aggregate, since=number)

    def is_ambiguous(self, number: int) -> bool:
        """Whether a name was free since an input, and was taken again."""
        seen: dict[str, set[int]] = {}
        every = [*self.before.items(), *self.changed]
        since = [known for at, known in every if at >= number]
        for definition in [*since, self.definition]:
            for name, aggregate in definition.items():
                seen.setdefault(name, set()).add(aggregate.number)
        return any(len(numbers) > 1 for numbers in seen.values())

    # ---------------------------------------------------------------------- expected

    def check(self) -> None:
        if self.job.latest() is None:
            return
        operator = self.job.snapshot()["totals"]
        held = {
            state.name: {entry.key: entry.value for entry in operator.keyed_entries(state.name)}
            for state in operator.states
        }
        expected: dict[str, dict[str, Any]] = {}
        for name, aggregate in self.definition.items():
            for end in ("_sum", "_count") if aggregate.kind == "avg v" else ("",):
                expected[name + end] = {
                    key: KINDS[aggregate.kind][1](rows)[end]
                    for key, rows in self.rows_since(aggregate.since).items()
                }
        assert held == expected

    def rows_since(self, number: int) -> dict[str, Rows]:
        rows: dict[str, Rows] = {}
        for at, table in self.inputs.items():
            for row in table.to_pylist() if at >= number else ():
                rows.setdefault(row["k"], []).append((row["k"], row["v"], row["w"]))
        return rows


def changed(pipeline: Pipeline, what: str, at: int, kind: str, backfill: bool) -> None:
    old, following = dict(pipeline.definition), max(pipeline.inputs, default=0) + 1
    pipeline.numbers += 1
    new = Aggregate(kind, pipeline.numbers, 1 if backfill else following, backfill)
    name = sorted(old)[at % len(old)]
    free = [name for name in NAMES if name not in old]
    target = free[at % len(free)] if free else None
    rest = {other: known for other, known in old.items() if other != name}
    begins = {"backfill" if backfill else "start_empty": [name]}
    match what:
        case "rename" if target:
            pipeline.change({**rest, target: old[name]}, rename={name: target})
        case "drop" if rest:
            pipeline.change(rest, drop=[name])
        case "add" if target:
            pipeline.change({**old, target: new}, **({"backfill": [target]} if backfill else {}))
        case "redefine" if kind != old[name].kind:
            pipeline.change({**rest, name: new}, **begins)
        case "backfill":
            pipeline.change(
                {**rest, name: replace(old[name], since=1, from_first=True)}, backfill=[name]
            )


@settings(max_examples=examples(30), deadline=None)
@example(
    [
        ("rename", 8, "count", False),
        ("add", 8, "max v", False),
        ("rename", 7, "avg v", False),
        ("add", 3, "count", False),
        ("again", 2, [("y", -9, -1)]),
    ]
)
@given(STEPS)
def test_each_aggregate_has_seen_the_inputs_since_it_began(steps: list[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as folder:
        pipeline = Pipeline(Path(folder))
        for step in [("input", [("x", 1, 2), ("y", 3, 4)]), *steps]:
            match step:
                case ("input", rows):
                    number = max(pipeline.inputs, default=0) + 1
                    pipeline.before[number] = pipeline.definition
                    pipeline.run(number, rows)
                case ("again", back, rows):
                    pipeline.again(max(1, max(pipeline.inputs) + 1 - back), rows)
                case ("widen",):
                    pipeline.v = pa.int64()
                    pipeline.change(pipeline.definition)
                case (what, at, kind, backfill):
                    changed(pipeline, what, at, kind, backfill)
