"""A parser reads a text, or refuses it in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.texts import BREAKERS, PARSERS, SAMPLES, WORDS, check_text

PIECES = st.one_of(st.sampled_from(WORDS), st.sampled_from(SAMPLES), st.text(max_size=8))


def cut(text: str, start: int, end: int, piece: str) -> str:
    """A text with something else in its middle."""
    first, last = sorted((start % (len(text) + 1), end % (len(text) + 1)))
    return text[:first] + piece + text[last:]


TEXTS = st.one_of(
    st.lists(PIECES, max_size=12).map("".join),
    st.builds(
        cut, st.sampled_from(SAMPLES), st.integers(0, 200), st.integers(0, 200), st.text(max_size=4)
    ),
    st.builds(str.__mul__, st.sampled_from(WORDS), st.integers(1, 200)),
)


@pytest.mark.parametrize("name", PARSERS)
def test_what_has_broken_parsers(name: str) -> None:
    for text in BREAKERS:
        check_text(PARSERS[name], text)


def test_every_sample_is_read_by_some_parser() -> None:
    """A sample that all refuse would explore nothing."""
    for text in SAMPLES:
        assert any(check_text(parse, text) for parse in PARSERS.values()), text


@pytest.mark.parametrize("name", PARSERS)
@given(text=TEXTS)
def test_a_text_is_read_or_refused_in_a_sentence(name: str, text: str) -> None:
    check_text(PARSERS[name], text)
