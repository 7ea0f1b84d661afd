"""A migration there and back gives the same contents, for random declarations that lose nothing.

The contents between are compared with plain Python: what each change makes of a key and a value.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dstl_core import Snapshot
from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    TtlSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.state_meta import KeyedStateType, StateMetaInfoSnapshot
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint import Migration, SavepointMigration
from dstl_core.savepoint.edit.keyed_units import key_group_ranges_of
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.columns.keyed_encoder import KeyedStateEncoder
from dstl_core.state.columns.keyed_sections import KeyedSections
from tests.examples import examples

Json = Any
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
OLD_CLASS, NEW_CLASS = "shop.Account", "shop.Client"
TIMERS = "_timer_state/event_user-timers"


@dataclass(frozen=True)
class Key:
    """A key, and what becomes of it. ``new_line`` is the text form of the new key."""

    old: AnySerializer
    new: AnySerializer
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    forth: Json
    back: Json
    new_line: Callable[[Any], Json]


@dataclass(frozen=True)
class Change:
    """A state of the old job, and what becomes of it."""

    old: StateMetaInfoSnapshot
    new: StateMetaInfoSnapshot
    arrow: pa.DataType
    values: st.SearchStrategy[Any]
    new_line: Callable[[Any], Json]
    forth: Mapping[str, Json] | None = None
    back: Mapping[str, Json] | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    fields_there: Mapping[str, Json] = field(default_factory=dict)
    fields_back: Mapping[str, Json] = field(default_factory=dict)


def value(name: str, of: AnySerializer) -> StateMetaInfoSnapshot:
    return StateMetaInfoSnapshot.key_value(name, KeyedStateType.VALUE, of)


def a_list(name: str, of: AnySerializer) -> StateMetaInfoSnapshot:
    return StateMetaInfoSnapshot.key_value(name, KeyedStateType.LIST, Types.LIST(of))


def a_map(name: str, key: AnySerializer, of: AnySerializer) -> StateMetaInfoSnapshot:
    return StateMetaInfoSnapshot.key_value(name, KeyedStateType.MAP, Types.MAP(key, of))


def in_order(document: Any) -> str:
    return json.dumps(document, sort_keys=True)


def itself(line: Any) -> Json:
    return line


KEYS = {
    "kept": Key(Types.STRING, Types.STRING, pa.string(), TEXT, None, None, itself),
    "text to number": Key(
        Types.STRING,
        Types.LONG,
        pa.string(),
        LONGS.map(str),
        "cast(key, BIGINT)",
        "cast(key, STRING)",
        int,
    ),
    "number to text": Key(
        Types.LONG,
        Types.STRING,
        pa.int64(),
        LONGS,
        "cast(key, STRING)",
        "cast(key, BIGINT)",
        str,
    ),
    "wider row": Key(
        Types.ROW_DATA("INT", "STRING"),
        Types.ROW_DATA("STRING", "BIGINT"),
        pa.struct([("f0", pa.int32()), ("f1", pa.string())]),
        st.fixed_dictionaries({"f0": st.none() | INTS, "f1": st.none() | TEXT}),
        ["f1", "cast(f0, BIGINT)"],
        ["cast(f1, INT)", "f0"],
        lambda key: ["+I", key["f1"], key["f0"]],
    ),
    "header only": Key(
        Types.ROW_DATA("VARCHAR(6) NOT NULL"),
        Types.ROW_DATA("VARCHAR(50)"),
        pa.struct([("f0", pa.string())]),
        st.fixed_dictionaries({"f0": TEXT}),
        None,
        ["cast(f0, VARCHAR(6))"],
        lambda key: ["+I", key["f0"]],
    ),
}

CHANGES = [
    Change(
        value("total", Types.LONG), value("sum", Types.LONG), pa.int64(), LONGS, itself,
        {"from": "total"}, {"from": "sum"},
    ),
    Change(
        value("narrow", Types.INT), value("narrow", Types.LONG), pa.int32(), INTS, itself,
        None, {"value": "cast(value, INT)"},
    ),
    Change(
        value("number", Types.LONG), value("number", Types.STRING), pa.int64(), LONGS, str,
        {"value": "cast(value, STRING)"}, {"value": "cast(value, BIGINT)"},
    ),
    Change(
        value("acc", Types.ROW_DATA("BIGINT", "STRING", "DOUBLE NOT NULL", "INT NOT NULL")),
        value("acc", Types.ROW_DATA("INT", "BIGINT", "STRING", "DOUBLE")),
        pa.struct([
            ("f0", pa.int64()), ("f1", pa.string()), ("f2", pa.float64()), ("f3", pa.int32()),
        ]),
        st.fixed_dictionaries({
            "f0": st.none() | LONGS, "f1": st.none() | TEXT,
            "f2": st.floats(allow_nan=False, allow_infinity=False), "f3": INTS,
        }),
        lambda row: ["+I", row["f3"], row["f0"], row["f1"], row["f2"]],
        {"columns": ["f3", "f0", "f1", "f2"]}, {"columns": ["f1", "f2", "f3", "f0"]},
    ),
    Change(
        value("nullable", Types.ROW_DATA("INT NOT NULL", "VARCHAR(6)")),
        value("nullable", Types.ROW_DATA("INT", "VARCHAR(9)")),
        pa.struct([("f0", pa.int32()), ("f1", pa.string())]),
        st.fixed_dictionaries({"f0": INTS, "f1": st.none() | TEXT}),
        lambda row: ["+I", row["f0"], row["f1"]],
        None, {"columns": ["f0", "cast(f1, VARCHAR(6))"]},
    ),
    Change(
        value("seen", TtlSerializer(Types.INT)), value("seen", TtlSerializer(Types.STRING)),
        pa.struct([("v", pa.int32()), ("ts", pa.int64())]),
        st.fixed_dictionaries({"v": INTS, "ts": LONGS}),
        lambda seen: {"v": str(seen["v"]), "ts": seen["ts"]},
        {"value": "cast(value, STRING)"}, {"value": "cast(value, INT)"},
    ),
    Change(
        value("price", Types.DOUBLE), a_map("price", Types.STRING, Types.DOUBLE), pa.float64(),
        st.floats(allow_nan=False, allow_infinity=False), lambda price: [["EUR", price]],
        {"map_key": "'EUR'", "value": "value"}, {"value": "first(value)"},
    ),
    Change(
        value("code", Types.INT), a_map("code", Types.LONG, Types.STRING), pa.int32(), INTS,
        lambda code: [[code, str(code)]],
        {"map_key": "cast(value, BIGINT)", "value": "cast(value, STRING)"},
        {"value": "first(cast(value, INT))"},
    ),
    Change(
        value("last", Types.STRING), a_list("history", Types.STRING), pa.string(), TEXT,
        lambda text: [text],
        {"from": "last", "value": "value"}, {"from": "history", "value": "last(value)"},
    ),
    Change(
        a_list("sizes", Types.SHORT), a_list("sizes", Types.LONG), pa.list_(pa.int16()),
        st.lists(st.integers(-(2**15), 2**15 - 1), max_size=4), itself,
        None, {"value": "cast(value, SMALLINT)"},
    ),
    Change(
        a_map("counts", Types.STRING, Types.INT), a_map("numbers", Types.LONG, Types.LONG),
        pa.map_(pa.string(), pa.int32()),
        st.dictionaries(LONGS.map(str), st.none() | INTS, max_size=4).map(
            lambda pairs: list(pairs.items())
        ),
        lambda entries: [[int(key), count] for key, count in entries],
        {"from": "counts", "map_key": "cast(map_key, BIGINT)"},
        {"from": "numbers", "map_key": "cast(map_key, STRING)", "value": "cast(value, INT)"},
    ),
    Change(
        value("account", Types.POJO(OLD_CLASS, name=Types.STRING, points=Types.INT, n=Types.INT)),
        value("account", Types.POJO(NEW_CLASS, n=Types.INT, points=Types.LONG, title=Types.STRING)),
        pa.struct([("name", pa.string()), ("points", pa.int32()), ("n", pa.int32())]),
        st.fixed_dictionaries({"name": st.none() | TEXT, "points": INTS, "n": INTS}),
        lambda pojo: {"points": pojo["points"], "title": pojo["name"], "n": pojo["n"]},
        classes={OLD_CLASS: NEW_CLASS},
        fields_there={"title": {"from": "name"}},
        fields_back={"name": {"from": "title"}, "points": "cast(points, INT)"},
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Numbers of a key and of changes, the rows, and where the states go."""

    key_name: str
    numbers: Sequence[int]
    columns: Mapping[str, pa.Array]
    max_parallelism: int
    parallelism: int
    moves: str

    @property
    def key(self) -> Key:
        return KEYS[self.key_name]

    @property
    def changes(self) -> list[Change]:
        return [CHANGES[each] for each in self.numbers]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    key_name = draw(st.sampled_from(sorted(KEYS)))
    key = KEYS[key_name]
    numbers = draw(st.lists(st.integers(0, len(CHANGES) - 1), min_size=1, max_size=4, unique=True))
    keys = draw(st.lists(key.values, min_size=1, max_size=12, unique_by=in_order))
    size = {"min_size": len(keys), "max_size": len(keys)}
    columns = {"state_key": pa.array(keys, key.arrow)}
    for change in (CHANGES[number] for number in numbers):
        columns[change.old.name] = pa.array(
            draw(st.lists(st.none() | change.values, **size)), change.arrow
        )
    times = draw(st.lists(st.lists(LONGS, max_size=3, unique=True), **size))
    columns[TIMERS] = pa.array(times, pa.list_(pa.int64()))
    max_parallelism = draw(st.sampled_from([1, 17, 128, 300]))
    moves = draw(st.sampled_from(["stays", "new uid", "split"]))
    parallelism = draw(st.integers(1, min(4, max_parallelism)))
    return Case(key_name, numbers, columns, max_parallelism, parallelism, moves)


def savepoint(
    folder: Path,
    operators: Mapping[str, tuple[AnySerializer, Sequence[StateMetaInfoSnapshot]]],
    case: Case,
    columns: Mapping[str, pa.Array] | None = None,
) -> Snapshot:
    """A savepoint with the states of each operator, and with rows in the first one."""
    target = SavepointFolder(folder)
    states = []
    for uid, (key, metas) in operators.items():
        encoder = KeyedStateEncoder(key, metas, case.max_parallelism)
        ranges = key_group_ranges_of(case.max_parallelism, case.parallelism)
        with KeyedSections(encoder.header, encoder.key_groups, case.max_parallelism) as sections:
            for runs in encoder.encode_keyed(pa.table(dict(columns))) if columns else ():
                sections.add(runs)
            subtasks = tuple(
                OperatorSubtaskState(
                    index,
                    managed_keyed_state=target.add_keyed_stream(
                        sections.stream(key_groups), keep_header=index == 0
                    ),
                )
                for index, key_groups in enumerate(ranges)
            )
        operator_id = OperatorID.for_uid(uid)
        states.append(
            OperatorState(operator_id, case.parallelism, case.max_parallelism, subtasks, uid=uid)
        )
    target.publish(CheckpointMetadata(3, 1, tuple(states)), {})
    return Snapshot.load(folder)


def timers(key: AnySerializer) -> StateMetaInfoSnapshot:
    return StateMetaInfoSnapshot.priority_queue(
        TIMERS, TimerSerializer(key, VoidNamespaceSerializer())
    )


def rules(case: Case, changes: Sequence[Change], *, forth: bool) -> dict[str, Json]:
    """What the rule of an operator with these states says of keys and classes."""
    declared: dict[str, Json] = {}
    key = case.key.forth if forth else case.key.back
    if key is not None:
        declared["key"] = key
    for change in changes:
        if change.classes:
            pairs = change.classes.items()
            declared["classes"] = dict(pairs) if forth else {new: old for old, new in pairs}
            fields = (NEW_CLASS, change.fields_there) if forth else (OLD_CLASS, change.fields_back)
            declared["fields"] = dict([fields])
    return declared


def there_and_back(case: Case, work: Path) -> tuple[Snapshot, Snapshot, Snapshot]:
    key, changes = case.key, case.changes
    old = {"op": (key.old, [*(each.old for each in changes), timers(key.old)])}
    source = savepoint(work / "old", old, case, case.columns)
    names = {"stays": ["op"], "new uid": ["other"], "split": ["one", "two"]}[case.moves]
    new = {
        name: (key.new, [each.new for each in changes[at :: len(names)]])
        for at, name in enumerate(names)
    }
    new[names[0]][1].append(timers(key.new))
    template = savepoint(work / "new", new, case)
    declared: dict[str, Json] = {"migration": 1, "operators": {}}
    for at, name in enumerate(names):
        part = changes[at :: len(names)]
        own = {each.new.name: each.forth for each in part if each.forth}
        rule = {**rules(case, part, forth=True), "from": "op", "states": own}
        declared["operators"][name] = rule
    middle = SavepointMigration(Migration.of(declared), source, template, recompute=0.2).write(
        work / "there"
    )
    own = {each.old.name: each.back for each in changes if each.back}
    rule = {**rules(case, changes, forth=False), "from": names, "states": own}
    declared = {"migration": 1, "operators": {"op": rule}}
    migrated = Snapshot.load(middle)
    back = SavepointMigration(Migration.of(declared), migrated, source).write(work / "back")
    return source, migrated, Snapshot.load(back)


def lines_of(lines: Iterable[Mapping[str, Json]], *without: str) -> list[str]:
    texts = []
    for line in lines:
        kept = {name: each for name, each in line.items() if name not in without}
        if kept["kind"] == "map":
            kept["value"] = sorted(kept["value"], key=in_order)
        texts.append(in_order(kept))
    return sorted(texts)


def expected_between(case: Case) -> Iterable[Mapping[str, Json]]:
    """What the new job holds, by the functions of the changes."""
    rows = pa.table(dict(case.columns)).to_pylist()
    for row in rows:
        own = {"key": case.key.new_line(row["state_key"]), "ns": None}
        for change in case.changes:
            before = row[change.old.name]
            if before is not None and before != []:
                kind = change.new.keyed_state_type.value.lower()
                after = change.new_line(before)
                yield {**own, "kind": kind, "state": change.new.name, "value": after}
        for time in row[TIMERS] or ():
            yield {**own, "kind": "event-timer", "service": "user-timers", "ts": time}


@pytest.mark.slow
@settings(max_examples=examples(25))
@given(cases())
def test_there_and_back_gives_the_same_contents(case: Case) -> None:
    with tempfile.TemporaryDirectory() as work:
        source, between, back = there_and_back(case, Path(work))
        lines = (line for each in between.operators for line in each.dump())
        assert lines_of(lines, "op", "kg") == lines_of(expected_between(case))
        assert lines_of(back["op"].dump()) == lines_of(source["op"].dump())
        assert len(back.operators) == 1
