"""Composite keys, sections and change sets come back as they were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.change_format import read_change_set, segment_body, write_change_set
from dstl_core.codec.composite_key import CompositeKeyCodec
from dstl_core.codec.data_io import DataInput, DataOutput
from dstl_core.codec.keyed_canonical import read_section, write_section
from dstl_core.codec.serializers import AnySerializer, serialize_to_bytes
from dstl_core.codec.snappy_frames import compress_frames, decompress_frames
from dstl_core.model.change import StateChange
from tests.property.strategies import KEYS, NAMESPACES, Typed

Parts = tuple[int, bytes, bytes, bytes]


def parts_of(key: Typed, namespace: Typed) -> st.SearchStrategy[Parts]:
    return st.tuples(
        st.integers(0, 127),
        key[1].map(lambda value: serialize_to_bytes(key[0], value)),
        namespace[1].map(lambda value: serialize_to_bytes(namespace[0], value)),
        st.binary(max_size=6),
    )


KEYED_PARTS: st.SearchStrategy[tuple[AnySerializer, AnySerializer, Parts, Parts]] = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(NAMESPACES)
).flatmap(
    lambda types: st.tuples(
        st.just(types[0][0]), st.just(types[1][0]), parts_of(*types), parts_of(*types)
    )
)


@given(KEYED_PARTS, st.sampled_from([1, 2]))
def test_stored_keys_round_trip_and_never_collide(
    drawn: tuple[AnySerializer, AnySerializer, Parts, Parts], prefix_bytes: int
) -> None:
    key_type, namespace_type, one, other = drawn
    codec = CompositeKeyCodec(prefix_bytes, key_type, namespace_type)
    assert codec.split(codec.encode(*one)) == one
    scope = one[1] + one[2]
    assert codec.read_scope(DataInput(scope + one[3])) == (one[1], one[2])
    assert (codec.encode(*one) == codec.encode(*other)) == (one == other)


RECORDS = st.lists(
    st.tuples(
        st.builds(
            lambda head, rest: bytes((head,)) + rest, st.integers(0, 127), st.binary(max_size=9)
        ),
        st.binary(max_size=9),
    ),
    max_size=5,
)


@given(st.lists(st.tuples(st.integers(0, 4), RECORDS), max_size=6))
def test_sections_round_trip(runs: list[tuple[int, list[tuple[bytes, bytes]]]]) -> None:
    raw = write_section(runs)
    expected = [(state, key, value) for state, records in runs for key, value in records]
    if not expected:
        assert raw == b""
        return
    data = DataInput(raw + b"rest")
    assert [(each.state_id, each.key, each.value) for each in read_section(data, 5)] == expected
    assert data.remaining == len(b"rest")


CHANGES = st.lists(
    st.builds(StateChange, st.integers(-1, 40) | st.integers(0, 32767), st.binary(max_size=12)),
    min_size=1,
    max_size=60,
)


@given(st.lists(CHANGES, min_size=1, max_size=4), st.booleans())
def test_change_sets_round_trip(sets: list[list[StateChange]], compressed: bool) -> None:
    body = DataOutput()
    offsets = []
    for changes in sets:
        offsets.append(body.position)
        write_change_set(body, changes)
    raw = body.to_bytes()
    segment = b"\1" + compress_frames(raw) if compressed else b"\0" + raw
    for changes, offset in zip(sets, offsets, strict=True):
        read = list(read_change_set(segment_body(segment), offset))
        by_group: dict[int, list[StateChange]] = {}
        for change in changes:
            by_group.setdefault(change.key_group, []).append(change)
        groups = list(dict.fromkeys(change.key_group for change in read))
        # Metadata first, every group in one piece, and the order inside it kept.
        assert read == [change for group in groups for change in by_group[group]]
        assert set(groups) == set(by_group)
        assert -1 not in groups[1:]


@given(st.binary(min_size=1, max_size=5000), st.integers(1, 40))
def test_compression_round_trips(raw: bytes, times: int) -> None:
    packed = compress_frames(raw * times)
    assert decompress_frames(packed, 0, len(packed)) == raw * times
