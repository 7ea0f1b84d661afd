"""The line of progress of a test run."""

from __future__ import annotations

from tests.progress import FAST_SECONDS, SECONDS, Progress, seconds_of


def test_the_estimate_follows_the_machine() -> None:
    lines: list[str] = []
    now = [0.0]
    progress = Progress(lines.append, lambda: now[0], cores=2)
    slow = [f"tests/integration/browser/test_ui.py::test_{number}" for number in range(10)]
    quick = [f"tests/unit/test_a.py::test_{number}" for number in range(3000)]
    progress.begin([*slow, *quick])
    progress.begin([*slow, *quick])
    assert lines == ["3,010 tests, about 2 min"]  # (10 * 15 + 3000 * 0.025) / 2 s

    for nodeid in slow:  # 75 s by the table, and this machine takes 900
        now[0] += 90.0
        progress.finish(nodeid)
    assert len(lines) == 1 + len(slow)
    # 38 s by the table, at (900 + 60) / (75 + 60) times its pace
    assert lines[-1] == "10 of 3,010 tests, about 4 min left"


def test_a_run_of_less_than_two_minutes_is_told_in_seconds() -> None:
    """81 s are not one minute."""
    lines: list[str] = []
    progress = Progress(lines.append, lambda: 0.0, cores=2, table=FAST_SECONDS)
    progress.begin([f"tests/unit/test_a.py::test_{number}" for number in range(12_000)])
    assert lines == ["12,000 tests, about 90 s"]  # 12,000 * 0.0135 / 2 = 81


def test_every_folder_has_a_weight() -> None:
    spark = "tests/integration/spark/test_job.py::test_a"
    assert seconds_of("tests/unit/savepoint/test_gc.py::test_a", SECONDS) == SECONDS["tests"]
    assert seconds_of(spark, SECONDS) == SECONDS["tests/integration/spark"]
    assert seconds_of(spark, FAST_SECONDS) == FAST_SECONDS["tests"]
