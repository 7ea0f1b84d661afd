import pytest

from dstl_core.checkpoint.completed_checkpoint import CompletedCheckpoint
from dstl_core.errors import ConfigError
from dstl_core.spark.lineage import before_input, check_order_of_inputs, commit_of, lineage


def commit(number, parent, input_id=None, restored_from=None):
    facts = {} if input_id is None else {"input": {"id": input_id}}
    if restored_from is not None:
        facts["restored_from"] = restored_from
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


def ids(line):
    return [each.checkpoint_id for each in line]


def test_commits_that_were_undone_are_not_in_the_lineage():
    assert ids(lineage(HISTORY)) == [1, 2, 6]
    assert ids(lineage(HISTORY[:5])) == [1, 2, 3, 4, 5]
    assert lineage([]) == []


def test_an_input_is_found_where_it_counts():
    assert commit_of(lineage(HISTORY), 20) == 2
    assert commit_of(lineage(HISTORY), 30) is None


@pytest.mark.parametrize(("input_id", "place"), [(40, 5), (30, 4), (20, 2), (15, 2), (10, 1)])
def test_the_state_before_an_input(input_id, place):
    line = lineage(HISTORY[:5])
    assert before_input(line, input_id).checkpoint_id == place


def test_there_is_nothing_before_the_first_commit_of_a_log():
    with pytest.raises(ConfigError, match="no checkpoint before the input 5"):
        before_input([commit(2, None, 10)], 5)


def test_ids_grow_and_are_of_one_type():
    line = lineage(HISTORY)
    check_order_of_inputs(line, 20)
    with pytest.raises(ConfigError, match="19 comes after 20 was committed"):
        check_order_of_inputs(line, 19)
    with pytest.raises(ConfigError, match="expected int, got str"):
        check_order_of_inputs(line, "21")
