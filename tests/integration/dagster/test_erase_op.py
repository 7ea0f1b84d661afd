"""Keys go from a pipeline by an op, and a check says whether input has brought them back."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from dstl_dagster.pipelines import build_erase_op, build_erased_check
from tests.integration.dagster.small_pipeline import PAYMENTS, expected_totals, totals_in
from tests.integration.dagster.test_verb_ops import job_of, launch, message_of
from tests.unpacked import files_with

__all__ = ["launch"]
pytestmark = pytest.mark.dagster
DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
GONE = "account-3"


def test_an_op_erases_keys_and_a_check_says_if_they_are_back(
    run_days, launch, storage, instance, tmp_path
):
    assert run_days(DAY).success
    file = tmp_path / "persons.txt"
    file.write_text(f"{GONE}\n")
    check = build_erased_check(PAYMENTS, {"totals": str(file)})

    def checked():
        defs = dg.Definitions(asset_checks=[check], resources={"storage": storage})
        job = defs.resolve_implicit_global_asset_job_def()
        ran = job.execute_in_process(instance=instance)
        [evaluation] = ran.get_asset_check_evaluations()
        return evaluation

    assert not checked().passed
    job = job_of(build_erase_op(PAYMENTS, name="forget"))
    config = {"config": {"keys": {"totals": str(file)}}}
    store = PAYMENTS.store(storage)
    store.begin("a-run-of-another-instance")
    assert "a-run-of-another-instance is at work" in message_of(launch(job, forget=config))
    store.end("a-run-of-another-instance")

    done = launch(job, forget=config)
    assert done.success and done.output_for_node("forget") == 1
    left = expected_totals(DAY)
    del left[GONE]
    assert totals_in(storage) == left
    assert files_with(Path(store.layout.root.path), GONE) == []
    evaluation = checked()
    assert evaluation.passed
    assert GONE not in str(evaluation.metadata) + "".join(str(event) for event in done.all_events)

    assert run_days(NEXT_DAY).success  # has the account again
    assert not checked().passed
