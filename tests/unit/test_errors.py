from __future__ import annotations

import copy
import inspect
import pickle
import re

import pytest

from dstl_core import errors
from dstl_core.errors import (
    ConfigError,
    DstlError,
    FormatError,
    InvariantViolation,
    NoSuchStateError,
    StateFileNotFoundError,
    StorageError,
    TruncatedDataError,
    error_context,
    flags_in_messages,
)

ERROR_CLASSES = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, DstlError)
]


def drawn_tree() -> dict[str, tuple[str | None, list[str]]]:
    """Name -> (parent in the drawing, names in brackets), read from the module's docstring."""
    tree: dict[str, tuple[str | None, list[str]]] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.fullmatch(r"    ([ │├└─]*)(\w+)(?:\((\w+)\))?", line)
        if match is None:
            continue
        depth, name = len(match[1]), match[2]
        path = [(level, above) for level, above in path if level < depth]
        tree[name] = (path[-1][1] if path else None, [match[3]] if match[3] else [])
        path.append((depth, name))
    return tree


def test_the_drawing_shows_exactly_the_classes() -> None:
    classes = {cls.__name__ for cls in ERROR_CLASSES} | {"InvariantViolation"}
    assert set(drawn_tree()) == classes


@pytest.mark.parametrize("cls", ERROR_CLASSES, ids=lambda cls: cls.__name__)
def test_the_drawing_shows_the_bases(cls: type[DstlError]) -> None:
    parent, others = drawn_tree()[cls.__name__]
    bases = [base.__name__ for base in cls.__bases__]
    assert bases == ([parent] if parent else ["Exception"]) + others


def test_an_invariant_violation_is_no_dstl_error() -> None:
    assert not issubclass(InvariantViolation, DstlError)
    assert issubclass(InvariantViolation, AssertionError)


@pytest.mark.parametrize("cls", ERROR_CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_survive_pickle_with_their_context(cls: type[DstlError], again: object) -> None:
    error = cls("It broke", location="file:/a", key_group=3)
    unpickled = again(error)  # type: ignore[operator]
    assert type(unpickled) is cls
    assert unpickled.context == {"location": "file:/a", "key_group": 3}
    assert str(unpickled) == str(error) == "It broke [file:/a]"


def test_a_pickled_format_error_does_not_grow_its_message() -> None:
    error = FormatError("It broke", offset=7, field="size", expected=1, got=2)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "It broke: expected 1, got 2, field size, at byte 7"
    assert again.context == {"offset": 7, "field": "size", "expected": 1, "got": 2}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FormatError("It broke"), "It broke"),
        (FormatError("It broke", expected="a flag"), "It broke: expected a flag"),
        (FormatError("It broke", got=9), "It broke: got 9"),
        (FormatError("It broke", offset=0), "It broke, at byte 0"),
        (FormatError("It broke", expected=0, got=0), "It broke: expected 0, got 0"),
    ],
)
def test_a_format_error_says_only_what_it_knows(error: FormatError, text: str) -> None:
    assert str(error) == text


@pytest.mark.parametrize(
    ("cls", "plain"),
    [
        (ConfigError, ValueError),
        (FormatError, ValueError),
        (TruncatedDataError, EOFError),
        (StorageError, OSError),
        (StateFileNotFoundError, FileNotFoundError),
        (NoSuchStateError, KeyError),
    ],
)
def test_plain_except_clauses_still_work(cls: type[DstlError], plain: type[Exception]) -> None:
    with pytest.raises(plain):
        raise cls("no")


def test_a_message_names_an_option_as_its_reader_does() -> None:
    error = ConfigError("Give the type of the key (key_types, --key-type).", location="chk-1")
    assert str(error) == "Give the type of the key (key_types). [chk-1]"
    with flags_in_messages():
        assert str(error) == "Give the type of the key (--key-type). [chk-1]"
        again = pickle.loads(pickle.dumps(error))
    assert again.message == "Give the type of the key (key_types)."


def test_a_key_error_of_ours_shows_its_sentence_not_its_repr() -> None:
    assert str(NoSuchStateError("State 'x' is not there.")) == "State 'x' is not there."


def test_error_context_adds_and_never_overwrites() -> None:
    with (
        pytest.raises(StorageError) as caught,
        error_context(location="outer", operator="u"),
        error_context(location="inner"),
    ):
        raise StorageError("no", errno=5)
    assert caught.value.context == {"errno": 5, "location": "inner", "operator": "u"}


def test_error_context_leaves_other_exceptions_alone() -> None:
    with pytest.raises(RuntimeError, match=r"^mine$"), error_context(location="x"):
        raise RuntimeError("mine")
