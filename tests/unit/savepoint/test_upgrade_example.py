"""The job that the how-to of upgrades shows is the one that real Flink runs in the tests."""

from pathlib import Path

from tests.golden_files import GOLDEN

EXAMPLE = Path(__file__).parents[3] / "examples" / "upgrade" / "carts"


def test_the_example_is_the_golden_job() -> None:
    job = GOLDEN / "upgrade-jobs" / "carts"
    files = [each.relative_to(EXAMPLE) for each in EXAMPLE.rglob("*") if each.is_file()]
    assert {"job.jar", "src/carts/Carts.java"} < set(map(str, files))
    assert any(each.name == "_metadata" for each in files)
    for each in files:
        assert (EXAMPLE / each).read_bytes() == (job / each).read_bytes(), each
