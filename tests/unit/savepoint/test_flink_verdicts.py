"""What Flink is asked about the states of a snapshot; ``make test-flink`` has its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.savepoint.restores import flink_verdicts
from dstl_core.savepoint.restores.flink_answers import Answer
from dstl_core.savepoint.restores.flink_verdicts import StateOfJob, by_flink
from dstl_core.savepoint.restores.restore_result import RestoreLine
from dstl_core.state.tables.compatibility import Rules, Verdict
from tests.golden_files import snapshot


class Asked:
    """Keeps the questions, and cannot answer one."""

    release = "2.2.1"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def ask(self, questions: Sequence[Any], jars: object) -> list[Answer]:
        self.sizes = [sum(map(len, each.values)) for each in questions]
        return [Answer("unknown", 0, "") for _ in questions]


@pytest.mark.parametrize("most_bytes", [2_000, 500, 0])
def test_values_of_many_states_have_a_limit_together(
    monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """51 states of 33 to 952 bytes; a value is never cut."""
    monkeypatch.setattr(flink_verdicts, "_MOST_BYTES_TOGETHER", most_bytes)
    source = Snapshot.load(snapshot("b-types-hashmap"))
    states = {
        (operator.label, info.name): StateOfJob(operator, info, "job.Function", True)
        for operator in source.operators
        for info in operator.states
    }
    lines = [RestoreLine(label, Verdict.UNKNOWN, state=name) for label, name in states]
    flink: Any = Asked()
    by_flink(lines, states, flink, (), Rules(), JobClasses())
    longest = 64
    assert len(flink.sizes) > 40, "every state is asked about, with values or without"
    assert sum(flink.sizes) < most_bytes + longest
    assert sum(flink.sizes) >= min(most_bytes, 2_000)
