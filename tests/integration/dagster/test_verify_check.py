"""The check ``verified`` fails on damage of every file of a snapshot, ``_metadata`` too."""

import shutil
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from dstl_dagster import DstlStorageResource
from dstl_dagster.checks import VerifyCheck
from tests.golden_files import snapshot


def evaluations(folder: Path) -> list[dg.AssetCheckEvaluation]:
    check = VerifyCheck().definition(dg.AssetKey("orders"), lambda storage: str(folder))
    with dg.DagsterInstance.ephemeral() as instance:
        job = dg.Definitions(
            asset_checks=[check],
            resources={"storage": DstlStorageResource(base_path=str(folder.parent))},
        )
        done = job.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=instance, raise_on_error=False
        )
        return done.get_asset_check_evaluations()


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(raw: bytes) -> bytes:
        place = int(at * (len(raw) - 1))
        return raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]

    return flip


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda raw: None,
    "empty": lambda raw: b"",
    "cut by a byte": lambda raw: raw[:-1],
    "cut in half": lambda raw: raw[: len(raw) // 2],
    "other magic number": flipped(0),
    "other length": lambda raw: raw[:20] + b"\x7f" + raw[21:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_metadata_fails_the_check(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "savepoint"
    shutil.copytree(snapshot("a-hashmap-canonical-files"), folder)
    [sound] = evaluations(folder)
    assert sound.passed
    raw = DAMAGE[damage]((folder / "_metadata").read_bytes())
    (folder / "_metadata").unlink()
    if raw is not None:
        (folder / "_metadata").write_bytes(raw)
    [evaluation] = evaluations(folder)
    assert not evaluation.passed
    assert evaluation.severity is dg.AssetCheckSeverity.ERROR
    assert "_metadata" in str(evaluation.metadata["shown"].value)


def test_a_file_of_state_that_is_missing_or_cut_fails_the_check(tmp_path: Path) -> None:
    folder = tmp_path / "savepoint"
    shutil.copytree(snapshot("a-hashmap-canonical-files"), folder)
    files = [path for path in folder.iterdir() if path.name != "_metadata"]
    assert files
    path = max(files, key=lambda file: file.stat().st_size)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    [evaluation] = evaluations(folder)
    assert not evaluation.passed
    path.unlink()
    [evaluation] = evaluations(folder)
    assert not evaluation.passed
