"""Values of every type that this release writes, and programs over state."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from dstl_core.codec.serializers import (
    AnySerializer,
    TimerSerializer,
    TtlSerializer,
    Types,
    VoidNamespaceSerializer,
)
from dstl_core.codec.serializers.operators.cep import (
    ComputationState,
    DeweyNumberSerializer,
    EventId,
    EventIdSerializer,
    Lockable,
    LockableSerializer,
    NFAState,
    NFAStateSerializer,
    NodeId,
    NodeIdSerializer,
    SharedBufferEdge,
    SharedBufferEdgeSerializer,
    SharedBufferNodeSerializer,
)
from dstl_core.codec.serializers.operators.two_phase_commit import (
    SinkState,
    Transaction,
    TwoPhaseCommitSerializer,
)
from dstl_core.codec.serializers.runtime import Timer, TtlValue
from dstl_core.codec.serializers.window_types import TimeWindow, TimeWindowSerializer

LONGS = st.integers(-(2**63), 2**63 - 1)
# Surrogates too: a lone one is a legal Java string. Two that happen to be a pair become one
# character, as they are one in UTF-16.
TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20).map(
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)

Typed = tuple[AnySerializer, st.SearchStrategy[Any]]

SIMPLE: list[Typed] = [
    (Types.BOOLEAN, st.booleans()),
    (Types.BYTE, st.integers(-128, 127)),
    (Types.SHORT, st.integers(-(2**15), 2**15 - 1)),
    (Types.INT, st.integers(-(2**31), 2**31 - 1)),
    (Types.LONG, LONGS),
    (Types.FLOAT, st.floats(width=32)),
    (Types.DOUBLE, st.floats()),
    (Types.STRING, st.none() | TEXTS),
]
NAMESPACES: list[Typed] = [
    (VoidNamespaceSerializer(), st.none()),
    (TimeWindowSerializer(), st.builds(TimeWindow, LONGS, LONGS)),
    (Types.LONG, LONGS),
    (Types.STRING, TEXTS),
]
KEYS: list[Typed] = [
    (Types.STRING, TEXTS),
    (Types.LONG, LONGS),
    (Types.INT, st.integers(-(2**31), 2**31 - 1)),
    (Types.DOUBLE, st.floats()),
    (Types.TUPLE(Types.STRING, Types.LONG), st.tuples(TEXTS, LONGS)),
    (Types.LIST(Types.SHORT), st.lists(st.integers(-9, 9), max_size=3)),
]


def _nested(children: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    def a_map(key: Typed, value: Typed) -> Typed:
        return Types.MAP(key[0], value[0]), st.lists(st.tuples(key[1], value[1]), max_size=3)

    def a_tuple(fields: list[Typed]) -> Typed:
        return Types.TUPLE(*(each for each, _ in fields)), st.tuples(*(each for _, each in fields))

    return st.one_of(
        children.map(lambda pair: (Types.LIST(pair[0]), st.lists(pair[1], max_size=4))),
        st.builds(a_map, children, children),
        st.lists(children, min_size=1, max_size=3).map(a_tuple),
        children.map(lambda pair: (TtlSerializer(pair[0]), st.builds(TtlValue, LONGS, pair[1]))),
        st.sampled_from(KEYS).flatmap(
            lambda key: st.sampled_from(NAMESPACES).map(
                lambda namespace: (
                    TimerSerializer(key[0], namespace[0]),
                    st.builds(Timer, LONGS, key[1], namespace[1]),
                )
            )
        ),
    )


TYPES: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from([*SIMPLE, *NAMESPACES]), _nested, max_leaves=6
)
# ------------------------------------------------------------------ state of Flink's operators

_INTS = st.integers(-(2**31), 2**31 - 1)
_NODE_TYPE = NodeIdSerializer(EventIdSerializer())
_EDGE_TYPE = SharedBufferEdgeSerializer(_NODE_TYPE, DeweyNumberSerializer())
_VERSIONS = st.lists(_INTS, max_size=3).map(tuple)
_EVENTS = st.builds(EventId, _INTS, LONGS)
_NODES = st.none() | st.builds(NodeId, _EVENTS, st.none() | TEXTS)
_MATCHES = st.lists(
    st.builds(
        ComputationState,
        st.none() | TEXTS,
        _NODES,
        _VERSIONS,
        LONGS,
        LONGS,
        st.none() | _EVENTS,
    ),
    max_size=3,
)
_TRANSACTIONS = st.builds(Transaction, LONGS, LONGS)
OPERATOR_TYPES: list[Typed] = [
    (
        NFAStateSerializer(DeweyNumberSerializer(), _NODE_TYPE, EventIdSerializer()),
        st.builds(NFAState, _MATCHES, _MATCHES),
    ),
    (
        LockableSerializer(SharedBufferNodeSerializer(_EDGE_TYPE)),
        st.builds(
            Lockable,
            _INTS,
            st.lists(
                st.builds(Lockable, _INTS, st.builds(SharedBufferEdge, _NODES, _VERSIONS)),
                max_size=3,
            ),
        ),
    ),
    (
        TwoPhaseCommitSerializer(Types.LONG, Types.STRING),
        st.builds(
            SinkState,
            st.none() | _TRANSACTIONS,
            st.lists(_TRANSACTIONS, max_size=3),
            st.none() | TEXTS,
        ),
    ),
]
EVERY_TYPE: st.SearchStrategy[Typed] = TYPES | st.sampled_from(OPERATOR_TYPES)
EVERY_TYPED_VALUE: st.SearchStrategy[tuple[AnySerializer, Any]] = EVERY_TYPE.flatmap(
    lambda typed: typed[1].map(lambda value: (typed[0], value))
)
