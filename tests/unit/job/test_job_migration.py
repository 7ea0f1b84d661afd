"""``migrate`` converts the state of an earlier definition, as one commit."""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from dstl_core import AggregateOperator, KeyedOperator, LocalEngine, StatefulJob, aggregates
from dstl_core.errors import ConfigError, DstlError, InputChangedError, RestoreError
from dstl_core.functions import KeyedProcessFunction
from dstl_core.job.spec.operators import LocalCopies
from dstl_core.savepoint.verify.verify import verify_snapshot
from dstl_core.state.tables.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.storage.file_io import FsspecFileIO
from dstl_core.windows import TumblingEventTimeWindows
from tests.unit.local.killed_epoch import OPERATIONS

SCHEMA = "k string, v int, w double, d decimal(10,2), t timestamp_ntz"
ROWS = pa.table(
    {
        "k": ["a", "a", "b"],
        "v": pa.array([1, 2, 5], pa.int32()),
        "w": [1.5, 2.5, 3.5],
        "d": pa.array([Decimal("1.25"), None, Decimal("7.50")], pa.decimal128(10, 2)),
        "t": pa.array([0, 1000, 2000], pa.timestamp("ms")),
    }
)
JobOf = Callable[..., StatefulJob]
OLD = {"m": aggregates.max("v"), "mean": aggregates.avg("v"), "c": aggregates.count()}
MEAN = {"mean_sum": {"a": 3.0, "b": 5.0}, "mean_count": {"a": 2, "b": 1}}
COUNT, LARGEST = {"a": 2, "b": 1}, {"a": 2, "b": 5}
CHANGES: Mapping[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # new aggregates, arguments, state after the migration, state after the next epoch
    "drop": (
        {"m": aggregates.max("v"), "c": aggregates.count()},
        {"drop": ["mean"]},
        {"m": LARGEST, "c": COUNT},
        {"m": LARGEST, "c": {"a": 4, "b": 2}},
    ),
    "rename": (
        {"top": OLD["m"], "average": OLD["mean"], "c": OLD["c"]},
        {"rename": {"m": "top", "mean": "average"}},
        {
            "top": LARGEST,
            "average_sum": MEAN["mean_sum"],
            "average_count": MEAN["mean_count"],
            "c": COUNT,
        },
        {
            "top": LARGEST,
            "average_sum": {"a": 6.0, "b": 10.0},
            "average_count": {"a": 4, "b": 2},
            "c": {"a": 4, "b": 2},
        },
    ),
    "a wider type": (
        {**OLD, "m": aggregates.max("v", type="bigint")},
        {},
        {"m": LARGEST, **MEAN, "c": COUNT},
        {
            "m": LARGEST,
            "mean_sum": {"a": 6.0, "b": 10.0},
            "mean_count": {"a": 4, "b": 2},
            "c": {"a": 4, "b": 2},
        },
    ),
    "another aggregate": (
        {"m": aggregates.min("v"), "c": OLD["c"]},
        {"start_empty": ["m"], "drop": ["mean"]},
        {"m": {}, "c": COUNT},
        {"m": {"a": 1, "b": 5}, "c": {"a": 4, "b": 2}},
    ),
    "an aggregate with other states": (
        {"m": aggregates.avg("w"), "c": OLD["c"]},
        {"start_empty": ["m"], "drop": ["mean"]},
        {"m_sum": {}, "m_count": {}, "c": COUNT},
        {
            "m_sum": {"a": 4.0, "b": 3.5},
            "m_count": {"a": 2, "b": 1},
            "c": {"a": 4, "b": 2},
        },
    ),
    "a new aggregate": (
        {**OLD, "least": aggregates.min("d")},
        {},
        {"m": LARGEST, **MEAN, "c": COUNT, "least": {}},
        {
            "m": LARGEST,
            "mean_sum": {"a": 6.0, "b": 10.0},
            "mean_count": {"a": 4, "b": 2},
            "c": {"a": 4, "b": 2},
            "least": {"a": Decimal("1.25"), "b": Decimal("7.50")},
        },
    ),
}


@pytest.fixture
def job_of(tmp_path: Path) -> JobOf:
    def make(states: Mapping[str, Any], **options: Any) -> StatefulJob:
        operator = AggregateOperator("u", "k", states, schema=SCHEMA, **options)
        copies = LocalCopies(str(tmp_path / "local"))
        jobs = str(tmp_path / "jobs")
        return StatefulJob(
            LocalEngine(), "job", jobs, operator, local_copies=copies, num_retained=9
        )

    return make


def values_of(job: StatefulJob) -> dict[str, dict[str, Any]]:
    operator = job.snapshot()["u"]
    return {
        state.name: {line["key"]: line["value"] for line in operator.dump(state.name)}
        for state in operator.states
        if state.kind == "value"
    }


def comparable(values: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """A dump shows decimals as text."""
    return {
        name: {
            key: str(value) if isinstance(value, Decimal) else value for key, value in own.items()
        }
        for name, own in values.items()
    }


def files_of(job: StatefulJob) -> list[str]:
    root = Path(job.path.removeprefix("file:"))
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("change", CHANGES)
def test_state_goes_on_under_the_new_definition(job_of: JobOf, change: str) -> None:
    states, arguments, migrated, then = CHANGES[change]
    job_of(OLD).run(ROWS, 1)
    job = job_of(states)
    commit = job.migrate(**arguments)
    assert commit is not None
    assert commit.facts.kind == "migration"
    assert comparable(values_of(job)) == comparable(migrated)
    assert not [file for file in files_of(job) if "/migration/" in file]
    assert job.migrate(**arguments) == commit
    job.run(ROWS, 2)
    assert comparable(values_of(job)) == comparable(then)
    assert job.migrate(**arguments) == job.latest()
    # The count of keys goes on where no state was lost.
    assert job.materialize().facts.kind == "materialization"
    assert job.migrate(**arguments) == job.latest()


def test_nothing_is_committed_where_nothing_changes(job_of: JobOf) -> None:
    job = job_of(OLD)
    assert job.migrate(drop=["x"]) is None
    job.run(ROWS, 1)
    latest = job.latest()
    assert job_of(OLD).migrate(drop=["x"], start_empty=["m"]) == latest


REFUSED = {
    "lost": (
        {"m": OLD["m"], "c": OLD["c"]},
        {},
        "The state 'mean_count' of operator 'u' would be lost: expected 'mean' in the job, or a "
        "change for it; pass drop=['mean'], or rename={'mean': its new name}.",
    ),
    "another definition": (
        {**OLD, "m": aggregates.min("v")},
        {},
        "begin it anew with migrate(start_empty=['m'])",
    ),
    "renamed to another definition": (
        {"least": aggregates.min("v"), "mean": OLD["mean"], "c": OLD["c"]},
        {"rename": {"m": "least"}},
        "The aggregate 'least' of operator 'u' was changed",
    ),
    "renamed to other states": (
        {"m": OLD["m"], "n": OLD["c"], "c": OLD["c"]},
        {"rename": {"mean": "n"}},
        "The state 'mean_count' of operator 'u' cannot become 'n_count', which the job does not "
        "have: expected an aggregate with the same states.",
    ),
    "a name that is not there": (
        OLD,
        {"rename": {"x": "y"}},
        "Nothing in the state is called 'x', so it cannot be renamed; see the names with dstl "
        "inspect.",
    ),
    "a narrower type": (
        {**OLD, "m": aggregates.max("v", type="smallint")},
        {},
        "The state of 'job' cannot become that of the job: operators.u.states.m is wrong: INT does "
        "not fit into SMALLINT",
    ),
    "one name twice": (
        OLD,
        {"rename": {"m": "x"}, "drop": ["m"]},
        "The name 'm' stands twice in rename, drop, start_empty and backfill",
    ),
    "names that change places": (
        {"c": OLD["m"], "mean": OLD["mean"], "m": OLD["c"]},
        {"rename": {"m": "c", "c": "m"}},
        "The name 'm' would pass from one value to another: rename, or several changes together, "
        "makes 'c' of 'm' and 'm' of 'c'; give 'c' a name that nothing had before.",
    ),
    "dropped and declared": (
        OLD,
        {"drop": ["m"]},
        "The name 'm' cannot go: the job declares it. Take it out of drop, or begin it anew with "
        "start_empty=['m'].",
    ),
    "renamed and declared": (
        {**OLD, "n": aggregates.max("v")},
        {"rename": {"m": "n"}},
        "The name 'm' cannot become 'n': operator 'u' has both.",
    ),
    "renamed and still declared": (
        OLD,
        {"rename": {"m": "n"}},
        "The name 'm' cannot become 'n': the job still has 'm', and not the new name.",
    ),
    "renamed to a name with values": (
        {"c": aggregates.max("v"), "mean": OLD["mean"]},
        {"rename": {"m": "c"}},
        "The state 'm' of operator 'u' cannot become 'c', which has values of its own",
    ),
    "begun anew, but gone": (
        {"mean": OLD["mean"], "c": OLD["c"]},
        {"start_empty": ["m"]},
        "The state 'm' of operator 'u' would be lost: expected 'm' in the job",
    ),
    "no id of an input": (
        OLD,
        {"before_input": True},
        "An input id is text or a whole number; got True",
    ),
    "text": (OLD, {"drop": "m"}, "drop is wrong: expected a list of names, got 'm'."),
    "a list": (OLD, {"rename": ["m"]}, "rename is wrong: expected old names to new ones"),
    "a number": (OLD, {"drop": [1]}, "A name is text: expected a name, got 1."),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_decided_is_refused(job_of: JobOf, case: str) -> None:
    states, arguments, message = REFUSED[case]
    job_of(OLD).run(ROWS, 1)
    job = job_of(states)
    latest, files = job.latest(), files_of(job)
    with pytest.raises(ConfigError, match=re.escape(message)):
        job.migrate(**arguments)
    assert job.latest() == latest
    assert files_of(job) == [file for file in files_of(job) if file in files or "log" in file]
    job_of(OLD).run(ROWS, 2)


def test_a_rewind_goes_back_behind_a_migration(job_of: JobOf) -> None:
    job_of(OLD).run(ROWS, 1)
    job_of(OLD).run(ROWS, 2)
    states = {"top": OLD["m"], "mean": OLD["mean"], "c": OLD["c"]}
    change: dict[str, Any] = {"rename": {"m": "top"}}
    job = job_of(states)
    job.migrate(**change)
    job.run(ROWS, 3)
    with pytest.raises(Exception, match="let migrate"):
        job.run(ROWS.slice(0, 1), 2, rewind=True)
    with pytest.raises(InputChangedError):
        job.run(ROWS.slice(0, 1), 2)
    job.migrate(**change, before_input=2)
    assert values_of(job)["c"] == COUNT
    job.run(ROWS.slice(0, 1), 2, rewind=True)
    assert values_of(job)["c"] == {"a": 3, "b": 1}
    job.run(ROWS, 3)
    assert values_of(job)["c"] == {"a": 5, "b": 2}
    assert values_of(job)["top"] == LARGEST


def test_an_aggregate_that_is_gone_is_refused_where_no_row_reaches_its_keys(job_of: JobOf) -> None:
    job_of({"a": aggregates.sum("v")}).run(ROWS.slice(2), 1)
    latest = job_of({"a": aggregates.sum("v")}).latest()
    for key in "cdefgh":  # one of them is of another task than b
        batch = ROWS.slice(0, 1).set_column(0, "k", pa.array([key]))
        with pytest.raises(ConfigError, match="aggregate 'a' of operator 'u' would be lost"):
            job_of({"x": aggregates.sum("v")}).run(batch, 2)
    assert job_of({"a": aggregates.sum("v")}).latest() == latest


def test_a_rewind_behind_several_migrations_makes_all_of_them(job_of: JobOf) -> None:
    first = job_of({"a": aggregates.sum("v"), "b": aggregates.count()})
    first.run(ROWS, 1)
    first.run(ROWS, 2)
    second = job_of({"x": aggregates.sum("v"), "m": aggregates.max("v")})
    second.migrate(rename={"a": "x"}, drop=["b"])
    second.run(ROWS, 3)
    third = job_of({"y": aggregates.sum("v"), "m": aggregates.min("v"), "b": aggregates.count()})
    third.migrate(rename={"x": "y"}, start_empty=["m"])
    third.run(ROWS, 4)
    plan = third.plan_migration(before_input=2)
    changes = {planned.name: planned.change for planned in plan.changes}
    assert changes == {"y": "renamed", "m": "added", "b": "kept"}
    third.migrate(before_input=2)
    third.run(ROWS, 2, rewind=True)
    assert values_of(third) == {
        "y": {"a": 6, "b": 10},
        "m": {"a": 1, "b": 5},
        "b": {"a": 4, "b": 2},
    }


def test_a_name_that_was_taken_back_has_no_change(job_of: JobOf) -> None:
    old, new = {"a": aggregates.sum("v")}, {"b": aggregates.sum("v")}
    job_of(old).run(ROWS, 1)
    job_of(old).run(ROWS, 2)
    job_of(new).migrate(rename={"a": "b"})
    job_of(new).run(ROWS, 3)
    back = job_of(old)
    back.migrate(rename={"b": "a"})
    back.run(ROWS, 4)
    back.migrate(rename={"b": "a"}, before_input=2)
    back.run(ROWS, 2, rewind=True)
    assert values_of(back) == {"a": {"a": 6, "b": 10}}


def test_names_that_were_taken_again_since_are_refused(job_of: JobOf) -> None:
    first = job_of({"a": aggregates.sum("v")})
    first.run(ROWS, 1)
    first.run(ROWS, 2)
    second = job_of({"x": aggregates.sum("v")})
    second.migrate(rename={"a": "x"})
    second.run(ROWS, 3)
    third = job_of({"x": aggregates.sum("v"), "a": aggregates.max("v")})
    third.migrate()
    third.run(ROWS, 4)
    latest = third.latest()
    with pytest.raises(ConfigError) as raised:
        third.migrate(before_input=2)
    assert "has changed since that state, by {'rename': {'a': 'x'}}, and this is made" in str(
        raised.value
    )
    assert third.latest() == latest


def test_a_start_from_a_savepoint_names_the_migration_of_savepoints(tmp_path: Path) -> None:
    def job_of(name: str, states: Mapping[str, Any]) -> StatefulJob:
        operator = AggregateOperator("u", "k", states, schema=SCHEMA)
        return StatefulJob(LocalEngine(), name, str(tmp_path / "jobs"), operator)

    first = job_of("first", {"m": OLD["m"]})
    first.run(ROWS, 1)
    savepoint = first.savepoint(str(tmp_path / "savepoint"))
    for states in ({"n": OLD["m"]}, {"m": aggregates.max("v", type="bigint")}):
        job = job_of("second", states)
        assert job.migrate(rename={"m": "n"}) is None
        with pytest.raises(RestoreError, match=r"\(dstl migrate, for that of a\s+savepoint\)"):
            job.start(savepoint)


def test_a_name_of_a_savepoint_is_not_that_of_a_longer_name(tmp_path: Path) -> None:
    def job_of(name: str, *names: str) -> StatefulJob:
        operator = AggregateOperator("u", "k", dict.fromkeys(names, OLD["m"]), schema=SCHEMA)
        return StatefulJob(LocalEngine(), name, str(tmp_path / "jobs"), operator)

    first = job_of("first", "a", "a_x", "b")
    first.run(ROWS, 1)
    job_of("job", "a", "a_x", "b").start(first.savepoint(str(tmp_path / "savepoint")))
    with pytest.raises(ConfigError, match="The state 'a_x' of operator 'u' would be lost"):
        job_of("job", "b").migrate(drop=["a"])
    job = job_of("job", "n", "a_x", "b")
    job.migrate(rename={"a": "n"})
    assert values_of(job) == {"n": LARGEST, "a_x": LARGEST, "b": LARGEST}


def test_inputs_that_a_migration_undid_are_not_left_out(job_of: JobOf) -> None:
    for number in (1, 2, 3):
        job_of({"c": OLD["c"]}).run(ROWS, number)
    job = job_of({"n": OLD["c"]})
    job.migrate(rename={"c": "n"}, before_input=2)
    job.materialize()
    wrong = "The input 4 would leave inputs out: a migration went back to checkpoint 2, and undid"
    with pytest.raises(ConfigError, match=wrong):
        job.run(ROWS, 4)
    for number in (2, 3, 4):
        job.run(ROWS, number, rewind=number == 2)
    assert values_of(job) == {"n": {"a": 8, "b": 4}}


def test_the_definition_before_can_rewind_a_migration(job_of: JobOf) -> None:
    job_of(OLD).run(ROWS, 1)
    job_of({"c": OLD["c"]}).migrate(drop=["m", "mean"])
    job_of(OLD).run(ROWS.slice(0, 2), 1, rewind=True)
    own = {"m": {"a": 2}, "mean_sum": {"a": 3.0}, "mean_count": {"a": 2}, "c": {"a": 2}}
    assert values_of(job_of(OLD)) == own


class Totals(KeyedProcessFunction):
    """Keeps a total, a list and a timer."""

    order_insensitive = True

    def __init__(self, name: str, kind: str) -> None:
        self.name, self.kind = name, kind

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor(self.name, self.kind))
        self.items = runtime_context.get_list_state(ListStateDescriptor("items", "int"))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.total.update((self.total.value() or 0) + value["v"])
        self.items.add(value["v"])
        ctx.timer_service().register_event_time_timer(1_000_000)


def test_states_of_a_function_by_row(tmp_path: Path) -> None:
    def job_of(name: str, kind: str) -> StatefulJob:
        operator = KeyedOperator("u", "k", "string", Totals(name, kind))
        return StatefulJob(LocalEngine(), "job", str(tmp_path), operator)

    job_of("n", "int").run(ROWS, 1)
    job = job_of("total", "bigint")
    commit = job.migrate(rename={"n": "total"})
    assert commit == job.latest()
    job.run(ROWS, 2)
    operator = job.snapshot()["u"]
    assert values_of(job) == {"total": {"a": 6, "b": 10}}
    items = {line["key"]: sorted(line["value"]) for line in operator.dump("items")}
    assert items == {"a": [1, 1, 2, 2], "b": [5, 5]}
    timers = [state for state in operator.states if state.kind == "event-timer"]
    assert [line["key"] for line in operator.dump(timers[0].name)] == ["b", "a"]


class Sums(KeyedProcessFunction):
    """Keeps a sum in each of its states."""

    order_insensitive = True

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds = kinds

    def open(self, runtime_context: Any) -> None:
        descriptors = itertools.starmap(ValueStateDescriptor, self.kinds.items())
        self.sums = [runtime_context.get_state(each) for each in descriptors]

    def process_element(self, value: Any, ctx: Any) -> None:
        for state in self.sums:
            state.update((state.value() or 0) + value["v"])


SUMS = {"a": 3, "b": 5}
OF_FUNCTION = {
    # arguments, states of the job, values after the migration
    "drop": ({"drop": ["n"]}, {"n_visits": "int"}, {"n_visits": SUMS}),
    "rename": (
        {"rename": {"n": "total"}},
        {"total": "int", "n_visits": "int"},
        {"total": SUMS, "n_visits": SUMS},
    ),
    "begin anew": (
        {"start_empty": ["n"]},
        {"n": "string", "n_visits": "int"},
        {"n": {}, "n_visits": SUMS},
    ),
}


@pytest.mark.parametrize("change", OF_FUNCTION)
def test_a_name_is_that_of_one_state_of_a_function(tmp_path: Path, change: str) -> None:
    def job_of(kinds: Mapping[str, str]) -> StatefulJob:
        operator = KeyedOperator("u", "k", "string", Sums(kinds))
        return StatefulJob(LocalEngine(), "job", str(tmp_path), operator)

    arguments, states, values = OF_FUNCTION[change]
    job_of({"n": "int", "n_visits": "int"}).run(ROWS, 1)
    job = job_of(states)
    commit = job.migrate(**arguments)
    assert values_of(job) == values
    assert job.migrate(**arguments) == commit


def test_a_state_is_not_taken_for_that_of_another_aggregate(job_of: JobOf) -> None:
    job_of({"a": aggregates.max("w"), "a_sum": aggregates.max("w")}).run(ROWS, 1)
    states = {"a": aggregates.avg("w"), "b": aggregates.max("w")}
    job = job_of(states)
    with pytest.raises(ConfigError, match="since the aggregate 'a' of the job has a state of that"):
        job.migrate(start_empty=["a"], rename={"a_sum": "b"})
    with pytest.raises(ConfigError, match="The state 'a_sum' of operator 'u' would be lost"):
        job.migrate(start_empty=["a"])
    job_of({"b": aggregates.max("w")}).migrate(rename={"a_sum": "b"}, drop=["a"])
    job = job_of(states)
    change: dict[str, Any] = {"start_empty": ["a"], "rename": {"a_sum": "b"}}
    job.migrate(**change)
    job.run(ROWS, 2)
    # The average has a state of the name by now.
    assert job.migrate(**change) == job.latest()
    assert values_of(job) == {
        "a_sum": {"a": 4.0, "b": 3.5},
        "a_count": COUNT,
        "b": {"a": 2.5, "b": 3.5},
    }


def test_an_aggregate_keeps_a_state_that_begins_with_another_name(job_of: JobOf) -> None:
    kept = aggregates.corr("v", "w")
    job_of({"a": kept, "a_other": aggregates.max("v")}).run(ROWS, 1)
    before = values_of(job_of({"a": kept, "a_other": aggregates.max("v")}))
    job = job_of({"a": kept})
    job.migrate(drop=["a_other"])
    assert values_of(job) == {name: own for name, own in before.items() if name != "a_other"}


def test_a_name_that_comes_back_is_not_dropped_again(job_of: JobOf) -> None:
    job_of(OLD).run(ROWS, 1)
    change: dict[str, Any] = {"rename": {"mean": "average"}, "drop": ["m"]}
    states = {"average": OLD["mean"], "c": OLD["c"]}
    job_of(states).migrate(**change)
    job = job_of({**states, "m": OLD["m"]})
    with pytest.raises(ConfigError, match="The name 'm' cannot go: the job declares it"):
        job.migrate(**change)
    job.migrate(rename=change["rename"])
    assert values_of(job)["m"] == {}


def test_a_change_is_for_the_operators_that_declare_it(tmp_path: Path) -> None:
    def job_of(
        first: Mapping[str, Any], second: Mapping[str, Any] | None, **options: Any
    ) -> StatefulJob:
        operators = [
            AggregateOperator(uid, "k", states, schema=SCHEMA)
            for uid, states in (("x", first), ("y", second))
            if states is not None
        ]
        jobs = (LocalEngine(), "job", str(tmp_path), operators[0])
        return StatefulJob(*jobs, downstream=operators[1:], **options)

    def values(job: StatefulJob) -> dict[str, Any]:
        return {
            f"{uid}.{state.name}": {
                line["key"]: line["value"] for line in job.snapshot()[uid].dump(state.name)
            }
            for uid in ("x", "y")
            for state in job.snapshot()[uid].states
        }

    old = {"m": OLD["m"], "c": OLD["c"]}
    job_of(old, old).run(ROWS, 1)
    job = job_of({"n": OLD["m"]}, old)
    change: dict[str, Any] = {"rename": {"m": "n"}, "drop": ["c"]}
    commit = job.migrate(**change)
    assert values(job) == {"x.n": LARGEST, "y.m": LARGEST, "y.c": COUNT}
    assert job.migrate(**change) == commit
    gone = job_of({"n": OLD["m"]}, None)
    with pytest.raises(ConfigError, match="The state of operator 'y' would be lost: expected an"):
        gone.migrate()
    allowed = job_of({"n": OLD["m"]}, None, allow_non_restored_state=True)
    allowed.migrate()
    assert [operator.label for operator in allowed.snapshot().operators] == ["x"]


def test_aggregates_of_windows_stay(job_of: JobOf) -> None:
    windows: dict[str, Any] = {
        "event_time": "t",
        "window": TumblingEventTimeWindows.of("1 min"),
    }
    job_of({"m": aggregates.max("v"), "c": aggregates.count()}, **windows).run(ROWS, 1)
    wrong = "The aggregates of operator 'u' cannot change: open windows keep all of them in one"
    for states in (
        {"m": aggregates.max("v")},
        {"m": aggregates.max("v", type="bigint"), "c": aggregates.count()},
        {"m": aggregates.max("w", type="int"), "c": aggregates.count()},
    ):
        with pytest.raises(ConfigError, match=wrong):
            job_of(states, **windows).migrate()


class Killed(BaseException):
    """The end of a process: every later storage operation raises it, too."""


def kill_at(patch: pytest.MonkeyPatch, at: int) -> None:
    """The process dies before its storage operation of a number."""
    numbers = itertools.count()

    def dying(operation: Any) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            if next(numbers) >= at:
                raise Killed
            return operation(*args, **options)

        return called

    for name in OPERATIONS:
        patch.setattr(FsspecFileIO, name, dying(getattr(FsspecFileIO, name)))


@pytest.mark.slow
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_before_a_storage_operation_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    def job_of(name: str) -> StatefulJob:
        operator = AggregateOperator("u", "k", {name: OLD["c"]}, schema=SCHEMA)
        groups: dict[str, Any] = {"parallelism": 1, "max_parallelism": 4}
        return StatefulJob(LocalEngine(), "job", str(tmp_path / "jobs"), operator, **groups)

    job_of("c").run(ROWS, 1)
    shutil.copytree(tmp_path / "jobs", tmp_path / "start")
    kills = 0
    for at in itertools.count(0, step):
        shutil.rmtree(tmp_path / "jobs")
        shutil.copytree(tmp_path / "start", tmp_path / "jobs")
        with monkeypatch.context() as patch:
            kill_at(patch, at)
            with contextlib.suppress(Killed):
                job_of("n").migrate(rename={"c": "n"})
                break
        kills += 1
        job = job_of("n")
        job.migrate(rename={"c": "n"})
        assert values_of(job) == {"n": COUNT}, at
        assert not [file for file in files_of(job) if "/migration/" in file], at
        assert verify_snapshot(job.snapshot()).findings == []
    assert kills > 40 // step


ADDRESSED = pa.table(
    {
        "place": pa.array(
            [{"land": "de", "city": c} for c in ("b", "m", "b")]
            + [{"land": "fr", "city": c} for c in ("p", "l")],
            pa.struct([("land", pa.string()), ("city", pa.string())]),
        ),
        "land": ["de", "de", "de", "fr", "fr"],
        "v": pa.array([1, 7, None, 3, 4], pa.int64()),
        "t": pa.array([1, 2, 3, 4, 5], pa.int64()),
    }
)
BY_CITY = "place struct<land: string, city: string>, land string, v bigint, t bigint"
MERGED = {
    "n": aggregates.count(),
    "total": aggregates.sum("v"),
    "least": aggregates.min("v"),
    "m": aggregates.max("v"),
    "mean": aggregates.avg("v"),
}


def test_a_coarser_key_merges_the_states_of_keys_that_become_one(tmp_path: Path) -> None:
    def job_of(key: str, states: Any = MERGED, name: str = "job") -> StatefulJob:
        operator = AggregateOperator("u", key, states, schema=BY_CITY)
        jobs = str(tmp_path / "jobs")
        return StatefulJob(LocalEngine(), name, jobs, operator, num_retained=9)

    job_of("place").run(ADDRESSED, 1)
    change: dict[str, Any] = {"rekey": {"u": "key.f0"}}
    job = job_of("land")
    with pytest.raises(ConfigError, match=r"migrate\(rekey=\.\.\)"):
        job.migrate()
    plan = job.plan_migration(**change)
    assert (plan.changes[0].change, plan.changes[0].before, plan.changes[0].after) == (
        "re-keyed",
        "key_by='place'",
        "key_by='land'",
    )
    commit = job.migrate(**change)
    assert job.migrate(**change) == commit
    job.run(ADDRESSED, 2)
    rows = pa.concat_tables([ADDRESSED, ADDRESSED])  # noqa: F841  # DuckDB reads it
    expected = duckdb.sql(
        "SELECT land, min(v), max(v), count(v), sum(v)::double, count(*), sum(v)::bigint "
        "FROM rows GROUP BY land"
    ).fetchall()
    states = values_of(job)
    assert sorted(states) == ["least", "m", "mean_count", "mean_sum", "n", "total"]
    assert {(land, *(states[name][land] for name in sorted(states))) for land in ("de", "fr")} == {
        *expected
    }
    # What was committed before runs again behind the new key.
    job.migrate(**change, before_input=2)
    job.run(ADDRESSED.slice(0, 1), 2, rewind=True)
    assert values_of(job)["n"] == {"de": 4, "fr": 2}


def test_decimals_of_keys_that_stay_apart_get_the_new_key(tmp_path: Path) -> None:
    def job_of(key: str) -> StatefulJob:
        states = {"total": aggregates.sum("d"), "least": aggregates.min("d"), "n": OLD["c"]}
        schema = "k string, g string, d decimal(10,2)"
        operator = AggregateOperator("u", key, states, schema=schema)
        return StatefulJob(LocalEngine(), "job", str(tmp_path / "jobs"), operator)

    amounts = pa.array([Decimal("1.25"), None, Decimal("-7.50")], pa.decimal128(10, 2))
    rows = pa.table({"k": ["a", "b", "c"], "g": ["x", "x", "x"], "d": amounts})
    job_of("k").run(rows, 1)
    job = job_of("g")
    plan = job.plan_migration(rekey={"u": "key"})
    assert [planned.change for planned in plan.changes] == ["re-keyed", "kept", "kept", "kept"]
    job.migrate(rekey={"u": "key"})
    amounts_by_key = {"a": "1.25", "c": "-7.50"}
    assert comparable(values_of(job)) == {
        "total": amounts_by_key,
        "least": amounts_by_key,
        "n": {"a": 1, "b": 1, "c": 1},
    }


def test_a_key_that_cannot_change_is_refused(tmp_path: Path) -> None:
    def job_of(key: str, name: str, **states: Any) -> StatefulJob:
        operator = AggregateOperator("u", key, states, schema=BY_CITY)
        return StatefulJob(LocalEngine(), name, str(tmp_path / "jobs"), operator)

    latest = {"latest": aggregates.max_by("v", "t")}
    job_of("place", "job", **latest).run(ADDRESSED, 1)
    job = job_of("land", "job", **latest)
    before = job.latest()
    for rekey, text in (
        ({"u": "key.f0"}, "become one by rekey have state that does not merge: .*'latest'"),
        ({"x": "key.f0"}, "The operator 'x' of rekey has no keys: expected one of 'u'"),
        (["u"], "rekey is wrong"),
    ):
        with pytest.raises(DstlError, match=text):
            job.migrate(rekey=rekey)  # type: ignore[arg-type]  # on purpose
    assert job.latest() == before

    # It may begin anew, as it may with another definition.
    change: dict[str, Any] = {"rekey": {"u": "key.f0"}, "backfill": ["latest"]}
    commit = job.migrate(**change, batches=lambda _: ADDRESSED)
    rows = ADDRESSED  # noqa: F841  # DuckDB reads it
    of_land = duckdb.sql("SELECT land, arg_max_null(v, t) FROM rows GROUP BY land").fetchall()
    assert values_of(job)["latest"] == {land: v for land, v in of_land if v is not None}
    assert job.migrate(**change, batches=lambda _: ADDRESSED) == commit
