"""Spark Connect: a client of a real server reads, writes, runs jobs and materializes assets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.integration.connect_server import ROOT, connect_server
from tests.integration.dagster.small_pipeline import expected_totals
from tests.s3_server import S3Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("connect")
    bucket = s3.make_bucket("spark-connect")
    with connect_server(folder, s3.environment) as url:
        words = ["-m", "tests.integration.connect_scenario", url, str(folder), bucket]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **s3.environment},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    notes: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return notes


def test_the_session_is_one_of_spark_connect(seen: dict[str, Any]) -> None:
    assert seen["session"].startswith("pyspark.sql.connect")


def test_savepoints_are_written_and_read(seen: dict[str, Any]) -> None:
    assert seen["read"] == seen["reader"] == [["a", 1], ["b", 2]]
    assert seen["sql"] == [2]


def test_workers_rewrite_a_savepoint(seen: dict[str, Any]) -> None:
    assert seen["rewritten"]["ok"]
    assert seen["rewritten"]["entries"] > 0


def test_jobs_are_described_by_a_tag(seen: dict[str, Any]) -> None:
    assert seen["described"]
    assert seen["tags left"] == []


def test_jobs_run_epochs(seen: dict[str, Any]) -> None:
    assert seen["job"] == [["a", 3], ["c", 20]]
    assert seen["changes"]
    assert seen["output"] == [["a", 3], ["c", 20]], "read back from S3"


def test_assets_are_materialized_on_the_remote(seen: dict[str, Any]) -> None:
    expected = sorted(expected_totals("2026-01-01").items())
    assert seen["dagster"] == [[key, list(values)] for key, values in expected]
