import pickle

from dstl_core.spark.engine.sent_apart import SentApart

BUILT = []


class Part:
    def __init__(self, number):
        self.number = number

    def __setstate__(self, state):
        BUILT.append(state["number"])
        self.__dict__.update(state)


def test_a_task_builds_only_the_part_that_it_asks_for():
    sent = pickle.loads(pickle.dumps(SentApart(map(Part, range(3)))))
    assert BUILT == []
    assert sent[1].number == 1
    assert BUILT == [1]
