"""Two storage resources with different keys and endpoints in one process, on every engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from dstl_core.errors import ConfigError, StorageError
from dstl_core.savepoint.read.snapshot import Snapshot
from dstl_core.spark.savepoints.data_source import register
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from dstl_dagster import DstlStorageResource
from dstl_dagster.resources import S3Credentials
from tests.integration.dagster.small_pipeline import (
    LOCAL,
    PAYMENTS,
    SPARK,
    expected_totals,
    small_defs,
    totals_in,
)
from tests.s3_server import S3Server, s3_server

pytestmark = pytest.mark.dagster
DAYS = ("2026-01-01", "2026-01-02")


def storage_on(server: S3Server, base: str) -> DstlStorageResource:
    credentials = S3Credentials(
        access_key_id=server.key,
        secret_access_key=server.secret,
        endpoint_url=server.endpoint_url,
    )
    return DstlStorageResource(base_path=base, credentials=credentials)


@pytest.fixture(scope="module")
def other_server() -> Iterator[S3Server]:
    with s3_server("other-key", "other-secret") as server:
        yield server


@pytest.fixture
def storages(
    s3: S3Server, bucket: str, other_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> list[DstlStorageResource]:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    other = other_server.make_bucket(f"other-{Location.parse(bucket).name}")
    return [storage_on(s3, f"{bucket}/dstl"), storage_on(other_server, f"{other}/dstl")]


def run(storage: DstlStorageResource, instance: dg.DagsterInstance, day: str, engine: Any) -> None:
    [asset, *_] = [
        candidate
        for candidate in small_defs(storage).assets or ()
        if isinstance(candidate, dg.AssetsDefinition)
    ]
    resources = {"storage": storage, "engine": engine}
    done = dg.materialize([asset], instance=instance, partition_key=day, resources=resources)
    assert done.success


def test_two_storages_work_side_by_side(
    storages: list[DstlStorageResource], instance: dg.DagsterInstance
) -> None:
    for day, engine in zip(DAYS, (SPARK, LOCAL), strict=True):
        for storage in storages:
            run(storage, instance, day, engine)
    session = SPARK.spark_session
    register(session)
    for storage in storages:
        assert totals_in(storage) == expected_totals(*DAYS)
        store = PAYMENTS.store(storage)
        path = store.path_of(store.require_latest())
        rows = session.read.format("savepoint").option("operator.uid", "totals").load(path)
        assert {row.state_key: row.total for row in rows.collect()} == {
            account: total for account, (_, total, _) in expected_totals(*DAYS).items()
        }
        changes = session.read.format("state-changelog").load(path)
        assert changes.count() > 0
    assert not [name for name in os.environ if name.startswith("AWS_")]
    assert not [value for value in os.environ.values() if "-secret" in value]


def test_each_server_refuses_the_others_key(
    storages: list[DstlStorageResource], s3: S3Server, other_server: S3Server
) -> None:
    for storage, wrong in zip(storages, (other_server, s3), strict=True):
        place = Location.parse(storage.base_path).child("file")
        storage.connect()
        open_file_io(place).write_new(place, b"x")
        own = s3 if wrong is other_server else other_server
        options = {**wrong.storage_options, "endpoint_url": own.endpoint_url}
        with pytest.raises(StorageError, match=r"Cannot read .*; check the storage options"):
            open_file_io(place, options).read_bytes(place)


def test_one_place_has_one_key(storages: list[DstlStorageResource], other_server: S3Server) -> None:
    first = storages[0]
    first.connect()
    storage_on(other_server, f"{first.base_path}/deeper").connect()
    with pytest.raises(ConfigError, match=r"reach s3://bucket-\d+/dstl with different") as caught:
        storage_on(other_server, first.base_path.replace("s3://", "s3a://") + "/").connect()
    assert "secret" not in str(caught.value)


def test_a_second_folder_is_reached_when_it_is_named(s3: S3Server, bucket: str) -> None:
    place = f"{bucket}/flink/chk-1"
    storage = storage_on(s3, f"{bucket}/dstl")
    storage.connect()
    with pytest.raises(StorageError):  # there are no credentials for it
        Snapshot.load(place)
    storage.model_copy(update={"also_reaches": [f"{bucket}/flink"]}).connect()
    with pytest.raises(FileNotFoundError):
        Snapshot.load(place)


def test_profiles_lie_where_nobody_else_reads(
    storages: list[DstlStorageResource], tmp_path: Path
) -> None:
    from dstl_core.storage.profiles import profile_file

    storages[0].connect()
    path = Path(profile_file())
    assert "test-secret" in path.read_text()
    modes = [each.stat().st_mode & 0o777 for each in (path, path.parent, path.parent.parent)]
    assert modes == [0o600, 0o700, 0o700]
