from enum import StrEnum

import numpy as np
import pytest

from dstl_core.checkpoint.store.commit_lineage import lineage
from dstl_core.checkpoint.store.completed_checkpoint import CompletedCheckpoint
from dstl_core.checkpoint.store.epoch_facts import EpochFacts, InputFacts
from dstl_core.errors import ConfigError
from dstl_core.job.spec.lineage import check_order_of_inputs, commit_before, find_input


def commit(number, parent, input_id=None, restored_from=None):
    epoch_input = None if input_id is None else InputFacts(id=input_id, rows=1, hash_sum="0")
    facts = EpochFacts(input=epoch_input, restored_from=restored_from)
    return CompletedCheckpoint(number, parent, "", 0, facts)


# start, 10, 20, materialization, 30, then back to before 20 and 20 again
HISTORY = [
    commit(1, None),
    commit(2, 1, 10, 1),
    commit(3, 2, 20, 2),
    commit(4, 3, None, 3),
    commit(5, 4, 30, 4),
    commit(6, 5, 20, 2),
]


def line_of(history):
    return lineage(history[::-1])


def test_commits_that_were_undone_are_not_in_the_lineage():
    assert [each.checkpoint_id for each in line_of(HISTORY)] == [6, 2, 1]
    assert [each.checkpoint_id for each in line_of(HISTORY[:5])] == [5, 4, 3, 2, 1]
    assert list(lineage([])) == []


def test_a_lineage_ends_where_a_commit_was_restored_from_something_else():
    assert [each.checkpoint_id for each in line_of([*HISTORY, commit(9, 6, 50, 7)])] == [9]


@pytest.mark.parametrize(
    ("input_id", "number", "last"), [(20, 6, 20), (10, 2, 20), (30, None, 20), (15, None, 20)]
)
def test_an_input_is_found_where_it_counts(input_id, number, last):
    place = find_input(line_of(HISTORY), input_id)
    assert place.latest == HISTORY[-1]
    assert (place.commit and place.commit.checkpoint_id, place.last_input) == (number, last)


def test_no_older_commit_is_read_than_is_needed():
    def commits():
        yield from HISTORY[:2:-1]
        raise AssertionError("too far")

    assert find_input(lineage(commits()), 21).commit is None
    line = lineage(each for each in (*HISTORY[4:2:-1], None))
    assert commit_before(line, 31).checkpoint_id == 5


def test_in_an_empty_log_there_is_no_place_for_an_input():
    assert find_input([], 5) is None
    assert find_input([commit(1, None)], 5).last_input is None


@pytest.mark.parametrize(("input_id", "place"), [(40, 5), (30, 4), (20, 2), (15, 2), (10, 1)])
def test_the_state_before_an_input(input_id, place):
    line = line_of(HISTORY[:5])
    assert commit_before(line, input_id).checkpoint_id == place


def test_there_is_nothing_before_the_first_commit_of_a_log():
    with pytest.raises(ConfigError, match="no checkpoint before the input 5"):
        commit_before([commit(2, None, 10)], 5)


def test_ids_grow_and_are_of_one_type():
    check_order_of_inputs(None, 20)
    check_order_of_inputs(20, 20)
    with pytest.raises(ConfigError, match="19 comes before the last committed one, 20"):
        check_order_of_inputs(20, 19)
    with pytest.raises(ConfigError, match="expected int, got str"):
        check_order_of_inputs(20, "21")
    with pytest.raises(ConfigError, match="expected int, got str"):
        commit_before(line_of(HISTORY), "21")
    assert find_input(line_of(HISTORY), "21").commit is None


class Day(StrEnum):
    MONDAY = "2026-11-16"
    TUESDAY = "2026-11-17"


@pytest.mark.parametrize(
    ("last", "following"),
    [("2026-11-16", Day.TUESDAY), (np.str_("a"), "b"), (Day.MONDAY, np.str_("2026-11-17"))],
)
def test_ids_of_subclasses_of_text_are_text(last, following):
    check_order_of_inputs(last, following)
    line = [commit(2, 1, str(last), 1), commit(1, None)]
    assert find_input(line, last).commit is line[0]
    assert find_input(line, following).last_input == last


def test_ids_that_look_alike_are_different_inputs():
    alike = ["", " ", "1", "1 ", "01", "A", "a", "a\0", "e\u0301", "\u00e9", "../x", "x" * 10_000]
    ids = sorted(alike)
    line = [commit(at + 2, at + 1, each, at + 1) for at, each in enumerate(ids)][::-1]
    places = {each: find_input(line, each).commit.checkpoint_id for each in ids}
    assert places == {each: at + 2 for at, each in enumerate(ids)}
    with pytest.raises(ConfigError, match="one type: expected str, got int"):
        check_order_of_inputs("1", 1)
