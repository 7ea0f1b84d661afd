"""Pickles are read as plain data, and nothing that they name is imported or called."""

from __future__ import annotations

import collections
import datetime
import decimal
import functools
import os
import pickle
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstl_core.codec.data_io import DataInput
from dstl_core.codec.pyflink import pickles
from dstl_core.codec.pyflink.coders import pickled
from dstl_core.codec.pyflink.pickles import read_pickle
from dstl_core.codec.serializers.collections import text_key
from dstl_core.errors import FormatError, UnreadableValueError

PROTOCOLS = (2, 3, 4, 5)


class Point(NamedTuple):
    x: int
    y: str


class Bag:
    def __init__(self, n: int) -> None:
        self.n = n
        self.tags = ["a"]


class Slotted:
    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 1


class Calls:
    """Its pickle calls a function, as a hostile one does."""

    def __init__(self, called: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = called, arguments

    def __reduce__(self) -> Any:
        return self._reduced


PLUS_TWO = datetime.timezone(datetime.timedelta(hours=2))
CASES: list[tuple[Any, Any]] = [
    (None, None),
    (True, True),
    (-(2**31), -(2**31)),
    (2**70 + 3, 2**70 + 3),
    (1.5, 1.5),
    (float("inf"), "Infinity"),
    ("é\ud800", "é\ud800"),
    (b"\x00\xff", "00ff"),
    (bytearray(b"\x01"), "01"),
    ((1, (2,), ()), [1, [2], []]),
    ([1, [2]], [1, [2]]),
    ({"b": 1, "a": [2]}, [["a", [2]], ["b", 1]]),
    ({(1, 2): None}, [[[1, 2], None]]),
    ({2, 1}, [1, 2]),
    (frozenset([3]), [3]),
    (datetime.datetime(2024, 5, 6, 7, 8, 9, 10), "2024-05-06T07:08:09.000010"),
    (datetime.datetime(2024, 5, 6, tzinfo=PLUS_TWO), "2024-05-06T00:00:00+02:00"),
    (datetime.datetime(2024, 5, 6, tzinfo=datetime.UTC), "2024-05-06T00:00:00+00:00"),
    (datetime.date(2024, 1, 2), "2024-01-02"),
    (datetime.time(1, 2, 3, fold=1), "01:02:03"),
    (datetime.timedelta(1, 2, 3), [1, 2, 3]),
    (decimal.Decimal("1.50"), "1.50"),
    (decimal.Decimal("NaN"), "NaN"),
    (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (collections.OrderedDict([("z", 1)]), [["z", 1]]),
    (collections.defaultdict(list, {"k": [1]}), [["k", [1]]]),
    (collections.Counter("aab"), [["a", 2], ["b", 1]]),
    (collections.deque([1, 2], maxlen=3), [1, 2]),
    (complex(1, -2), "(1-2j)"),
    (range(1, 9, 2), "range(1, 9, 2)"),
]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("value", "text"), CASES, ids=lambda case: str(case)[:30])
def test_plain_data_is_read(value: Any, text: Any, protocol: int) -> None:
    assert pickled(pickle.dumps(value, protocol)) == text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_are_what_the_pickle_stores_of_them(protocol: int) -> None:
    here = __name__
    read = functools.partial(pickle.dumps, protocol=protocol)
    assert pickled(read(Bag(8))) == {"@class": f"{here}.Bag", "n": 8, "tags": ["a"]}
    assert pickled(read(Point(1, "b"))) == {"@class": f"{here}.Point", "_1": 1, "_2": "b"}
    assert pickled(read(Slotted())) == {"@class": f"{here}.Slotted", "left": 1}
    assert pickled(read([Bag, len])) == [
        {"@class": f"{here}.Bag"},
        {"@class": ("builtins" if protocol > 2 else "__builtin__") + ".len"},
    ]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.lists(inner).map(tuple),
)


def text_of(value: Any) -> Any:
    """The text form by the rules of the page, for plain data alone."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        pairs = [[key, text_of(item)] for key, item in value.items()]
        return sorted(pairs, key=lambda pair: text_key(pair[0]))
    return [text_of(each) for each in value] if isinstance(value, list | tuple) else value


@given(plain, st.sampled_from(PROTOCOLS))
def test_random_plain_data_is_read(value: Any, protocol: int) -> None:
    assert pickled(pickle.dumps(value, protocol)) == text_of(value)


# ------------------------------------------------------------------------------------- hostile


def short(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


def named(module: str, name: str) -> bytes:
    return short(module) + short(name) + b"\x93"


MARKED = "tests.unit.codec.pyflink.marked"


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ((os.system, "touch marked"), "posix.system"),
        ((eval, "1"), "builtins.eval"),
        ((getattr, "a", "upper"), "builtins.getattr"),
        ((__import__, "os"), "builtins.__import__"),
        ((open, "marked", "w"), "open"),
        ((functools.partial, print), "functools.partial"),
    ],
)
def test_a_pickle_that_would_call_something_is_refused_by_name(
    called: tuple[Any, ...], name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for raw in (pickle.dumps(Calls(*called)), pickle.dumps({"deep": [Calls(*called)]})):
        with pytest.raises(UnreadableValueError, match=f"would call .*{name}"):
            pickled(raw)
    assert list(tmp_path.iterdir()) == []


HOSTILE = {
    "a class by value of cloudpickle": (
        named("cloudpickle.cloudpickle", "_make_skeleton_class") + b")R",
        "would call cloudpickle.cloudpickle._make_skeleton_class",
    ),
    "the result of a call is called": (named("builtins", "set") + b")R)R", "would call an object"),
    "a method of a text": (short("join") + b")R", "would call an object of the pickle"),
    "state of a class": (named("os", "environ") + b"}b", "would set the state of a os.environ"),
    "a persistent id": (b"Q", "a persistent id"),
    "a persistent id as a line": (b"Pabc\n", "a persistent id"),
    "an extension": (b"\x82\x01", "an extension code"),
    "INST": (b"(ios\nsystem\n", r"INST"),
    "OBJ": (b"(" + named("os", "system") + b"o", r"OBJ"),
    "a buffer elsewhere": (b"\x97", "a buffer outside"),
    "a name of a module that is not there": (
        named(MARKED, "f") + b")R",
        f"would call {MARKED}.f",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_instructions_that_run_something_are_refused(case: str) -> None:
    body, message = HOSTILE[case]
    with pytest.raises(UnreadableValueError, match=message):
        pickled(b"\x80\x04" + body + b".")


WRONG = {
    "no end": b"\x80\x04N",
    "nothing on the stack": b"\x80\x04.",
    "values left": b"\x80\x04NN.",
    "a mark left": b"\x80\x04(N.",
    "no mark": b"\x80\x04]e.",
    "items of a number": b"\x80\x04K\x01K\x02a.",
    "items of a tuple": b"\x80\x04)K\x02a.",
    "keys of a list": b"\x80\x04]K\x01K\x02s.",
    "a key without a value": b"\x80\x04}(K\x01u.",
    "a memo that is not there": b"\x80\x04h\x07.",
    "a class of numbers": b"\x80\x04K\x01K\x02\x93.",
    "arguments that are no tuple": b"\x80\x04" + named("builtins", "set") + b"]R.",
    "a month 13": b"\x80\x04" + named("datetime", "date") + b"C\x04\x07\xe8\x0d\x01\x85R.",
    "a date of a text": b"\x80\x04" + named("datetime", "date") + short("abcd") + b"\x85R.",
    "too many arguments": b"\x80\x04" + named("decimal", "Decimal") + b"(K\x01K\x02K\x03tR.",
    "no decimal": b"\x80\x04" + named("decimal", "Decimal") + short("x") + b"\x85R.",
    "a dict of numbers": b"\x80\x04" + named("collections", "OrderedDict") + b"]K\x01a\x85R.",
    "a length beyond the end": b"\x80\x04X\xff\xff\xff\x7fabc.",
    "a negative length": b"\x80\x04\x8b\xff\xff\xff\xff.",
    "no UTF-8": b"\x80\x04\x8c\x01\xff.",
    "an unknown instruction": b"\x80\x04\x01.",
    "protocol 0": b"\x80\x00N.",
    "protocol 9": b"\x80\x09N.",
    "no protocol": b"I1\n.",
    "empty": b"",
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_bytes_are_one_kind_of_error(case: str) -> None:
    with pytest.raises(FormatError):
        pickled(WRONG[case])


def laughs(times: int) -> bytes:
    """A list of two of the list before, and so on."""
    return b"\x80\x04]\x94" + b"".join(
        b"](h" + bytes([at]) + b"h" + bytes([at]) + b"e\x94" for at in range(times)
    )


LARGE = {
    "a text of 2 ** 60 lists": laughs(60) + b".",
    "a large text named often": b"\x80\x04]"
    + b"X\x00\x80\x00\x00"
    + b"a" * 0x8000
    + b"\x940]("
    + b"h\x00" * 30_000
    + b"e.",
    "a list that holds itself": b"\x80\x04]\x94h\x00a.",
    "a dict that holds itself": b"\x80\x04}\x94K\x01h\x00s.",
    "deep": b"\x80\x04" + b"]" * 5_000 + b"a" * 4_999 + b".",
    "an integer of 100,000 bytes": b"\x80\x04\x8b\xa0\x86\x01\x00" + b"\x7f" * 100_000 + b".",
}


@pytest.mark.parametrize("case", LARGE)
def test_a_small_pickle_is_no_large_text(case: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            pickled(LARGE[case])
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


HOLDS = {
    "lists": b"]",
    "dicts": b"}",
    "sets": b"\x8f",
    "empty tuples": b")",
    "tuples": b"N\x85",
    "marks": b"(",
    "memos": b"N\x94",
}


@pytest.mark.parametrize("case", HOLDS)
def test_what_a_pickle_holds_is_counted(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte of each takes a hundred bytes of memory."""
    monkeypatch.setattr(pickles, "MAX_HELD", 1_000)
    with pytest.raises(UnreadableValueError, match="holds more than 1000 containers"):
        pickled(b"\x80\x04" + HOLDS[case] * 1_001 + b".")
    with pytest.raises(FormatError, match=r"on its stack|no mark|takes a value"):
        pickled(b"\x80\x04" + HOLDS[case] * 1_000 + b".")


def damaged(raw: bytes) -> Iterator[bytes]:
    for at in range(len(raw)):
        yield raw[:at]
        for change in (0x01, 0x80, 0xFF, 0x2E ^ raw[at], 0x52 ^ raw[at]):
            yield raw[:at] + bytes([raw[at] ^ change]) + raw[at + 1 :]


def test_a_pickle_with_any_byte_changed_is_data_or_an_error() -> None:
    """Also where the change makes it call (``R``) or end (``.``)."""
    whole = pickle.dumps([each for each, _ in CASES] + [Bag(1), Point(2, "c")], 4)
    tried = 0
    for raw in damaged(whole):
        data = DataInput(raw)
        try:
            read_pickle(data)
            pickled(raw)
        except FormatError:
            pass
        tried += 1
    assert tried == 6 * len(whole)
