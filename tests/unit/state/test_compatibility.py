"""One rule says whether a type takes the state of another: Flink's own."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.serializers import BUILT_IN, AnySerializer, Types
from dstl_core.codec.serializers.base import (
    SnapshotContext,
    deserialize_exactly,
    serialize_to_bytes,
)
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.errors import RestoreError, StateMigrationError, UnreadableValueError
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.backends.operator_backend import DefaultOperatorStateBackend
from dstl_core.state.tables.compatibility import (
    WITHOUT_CLASSES,
    Verdict,
    compatibility_of,
    compatibility_of_state,
)
from dstl_core.state.tables.descriptor import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from dstl_core.state.tables.evolution import convert, type_after
from dstl_core.state.tables.keyed_state import KeyedState
from dstl_core.state.tables.same_bytes import same_bytes
from dstl_core.testing import ManualClock
from tests.golden_files import GOLDEN
from tests.types_of_jobs import pairs_of_types

PAIRS = [
    json.loads(line)
    for line in gzip.decompress((GOLDEN / "type-pairs/pairs.jsonl.gz").read_bytes()).splitlines()
]
RESTORES = (Verdict.COMPATIBLE_AS_IS, Verdict.AFTER_MIGRATION)
VERDICTS = {
    "as is": Verdict.COMPATIBLE_AS_IS,
    "reconfigured": Verdict.COMPATIBLE_AS_IS,
    "after migration": Verdict.AFTER_MIGRATION,
    "incompatible": Verdict.INCOMPATIBLE,
    "error": Verdict.INCOMPATIBLE,
}


def type_of(snapshot: str) -> AnySerializer:
    data = DataInput(bytes.fromhex(snapshot))
    serializer = SnapshotContext(BUILT_IN).read_snapshot(data)
    data.expect_end("snapshot")
    return serializer


def test_verdicts_are_those_of_flink() -> None:
    """Unknown is the verdict where a field may have been renamed, which Flink does not notice."""
    differing: Counter[Verdict] = Counter()
    for pair in PAIRS:
        old, new = type_of(pair["old"]), type_of(pair["new"])
        verdict = compatibility_of(old, new)
        if verdict.verdict is not VERDICTS[pair["flink"]]:
            if verdict.verdict is Verdict.UNKNOWN:
                assert pair["flink"] == "after migration"
                assert "if it was renamed" in verdict.reason
            else:  # Flink reads the type, and no value of it
                assert verdict.verdict is Verdict.INCOMPATIBLE
                assert any(after is None for _, after, *_ in pair["values"])
            differing[verdict.verdict] += 1
    assert len(PAIRS) == 800
    assert differing == {Verdict.UNKNOWN: 53, Verdict.INCOMPATIBLE: 1}


@pytest.mark.slow
def test_values_after_a_restore_are_those_of_flink() -> None:
    compared = 0
    for pair in PAIRS:
        old, new = type_of(pair["old"]), type_of(pair["new"])
        if compatibility_of(old, new, WITHOUT_CLASSES).verdict not in RESTORES:
            continue
        after, flinks = type_after(old, new), type_of(pair["next"])
        for before, expected, *_ in pair["values"]:
            if expected is None:
                continue  # Flink fails on a null that no header shows
            value = convert(old, after, deserialize_exactly(old, bytes.fromhex(before)), 99)
            raw = serialize_to_bytes(after, value)
            if same_bytes(old, after):
                assert raw.hex() == before
            with suppress(_SubclassUnknown):
                stored = _checked(flinks, bytes.fromhex(expected))
                assert _equal(deserialize_exactly(after, raw), stored), pair["pair"]
                compared += 1
    assert compared == 1614


class _SubclassUnknown(Exception):
    """Flink wrote a subclass that its snapshot names with the first value only."""


def _checked(serializer: AnySerializer, raw: bytes) -> Any:
    try:
        return deserialize_exactly(serializer, raw)
    except UnreadableValueError as error:
        raise _SubclassUnknown from error


def _equal(ours: Any, flinks: Any) -> bool:
    """A new field that may be boxed is null in Flink then, and the default of a primitive here."""
    if isinstance(ours, Pojo) and isinstance(flinks, Pojo):
        return ours.class_name == flinks.class_name and all(
            _equal(ours.fields[name], value) or (value is None and ours.fields[name] in (0, "\0"))
            for name, value in flinks.fields.items()
        )
    if isinstance(ours, list | tuple) and isinstance(flinks, list | tuple):
        return len(ours) == len(flinks) and all(map(_equal, ours, flinks))
    return bool(ours == flinks)


# ------------------------------------------------------------------------------------- the law


def keyed_backend() -> HashMapKeyedStateBackend:
    state = KeyedState(KeyGroupRange(0, 127), 128)
    backend = HashMapKeyedStateBackend(state, Types.STRING, clock=ManualClock())
    backend.set_current_key("k")
    return backend


def restores(old: StateDescriptor, new: StateDescriptor, value: Any) -> bool:
    """Whether keyed state of one descriptor becomes that of another, and its value is readable."""
    backend = keyed_backend()
    namespace = backend.get_value_state(ValueStateDescriptor("other", Types.LONG))._table.meta
    get = backend.get_or_create_keyed_state
    stored: Any = get(namespace.namespace_serializer, old)
    match old:
        case ListStateDescriptor():
            stored.add(value)
        case MapStateDescriptor():
            stored.put(*value)
        case _:
            stored.update(value)
    try:
        changed: Any = get(namespace.namespace_serializer, new)
    except RestoreError:
        return False
    match new:
        case ListStateDescriptor():
            assert len(changed.get()) == 1
        case MapStateDescriptor():
            assert len(list(changed.items())) == 1
        case _:
            changed.value()
    return True


@given(pairs_of_types())
def test_a_restore_fails_exactly_where_the_check_says_so(pair: Any) -> None:
    """``dstl check`` asks the same rule with Flink's classes; a job of dstl has none."""
    old, new, value = pair
    assume(value is not None)  # a state holds no null
    verdict = compatibility_of_state(old, new, is_map=False).verdict
    assert verdict is compatibility_of_state(old, new, is_map=False, rules=WITHOUT_CLASSES).verdict
    values = ValueStateDescriptor("s", old), ValueStateDescriptor("s", new)
    assert restores(*values, value) == (verdict in RESTORES)
    lists = ListStateDescriptor("s", old), ListStateDescriptor("s", new)
    elements = compatibility_of_state(lists[0].serializer, lists[1].serializer, is_map=False)
    assert restores(*lists, value) == (elements.verdict in RESTORES)
    maps = (
        MapStateDescriptor("s", Types.STRING, old),
        MapStateDescriptor("s", Types.STRING, new),
    )
    pairs = compatibility_of_state(maps[0].serializer, maps[1].serializer, is_map=True)
    assert restores(*maps, ("k", value)) == (pairs.verdict in RESTORES)
    keys = MapStateDescriptor("s", old, Types.LONG), MapStateDescriptor("s", new, Types.LONG)
    user_keys = compatibility_of_state(keys[0].serializer, keys[1].serializer, is_map=True)
    assert restores(*keys, (value, 1)) == (user_keys.verdict in RESTORES)


@given(pairs_of_types())
def test_operator_state_follows_the_same_law(pair: Any) -> None:
    old, new, value = pair
    assume(value is not None)  # a state holds no null
    fits = compatibility_of(old, new).verdict in RESTORES
    backend = DefaultOperatorStateBackend()
    backend.get_list_state(ListStateDescriptor("l", old)).add(value)
    backend.get_broadcast_state(MapStateDescriptor("b", old, Types.LONG)).put(value, 1)
    backend.get_broadcast_state(MapStateDescriptor("v", Types.LONG, old)).put(1, value)
    values = ListStateDescriptor("l", new)
    keys, pairs = (
        MapStateDescriptor("b", new, Types.LONG),
        MapStateDescriptor("v", Types.LONG, new),
    )
    if not fits:
        with pytest.raises(StateMigrationError):
            backend.get_list_state(values)
        for descriptor in (keys, pairs):
            with pytest.raises(StateMigrationError):
                backend.get_broadcast_state(descriptor)
        return
    assert len(backend.get_list_state(values).get()) == 1
    for descriptor in (keys, pairs):
        assert len(list(backend.get_broadcast_state(descriptor).items())) == 1
