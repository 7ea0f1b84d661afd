"""State files that somebody deletes while workers of Spark keep local copies of their content."""

import pytest

from tests.unit.local.test_job_state_files import check_a_file_that_is_gone

pytestmark = pytest.mark.spark


# Every kind with every folder: tests/unit/local/test_job_state_files.py.
@pytest.mark.parametrize(
    ("kind", "folder"),
    [("by row", "taskowned"), ("by column", "dstl"), ("by row in RocksDB", "dstl")],
)
def test_nothing_is_committed_on_a_file_that_is_gone(spark, tmp_path, kind, folder):
    check_a_file_that_is_gone(spark, tmp_path, kind, folder)
