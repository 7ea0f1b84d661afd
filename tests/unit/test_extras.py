"""The metadata of the two distributions fit each other, and fit what errors say."""

from __future__ import annotations

import importlib
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from dstl_core import __version__
from dstl_core.errors import ConfigError, MissingPackageError
from dstl_core.extras import EXTRAS, extra_named, require

ROOT = Path(__file__).parents[2]
PLUGIN_FOLDER = ROOT / "dstl_dagster"


def project(folder: Path) -> dict[str, Any]:
    metadata: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return metadata


CORE, PLUGIN = project(ROOT), project(PLUGIN_FOLDER)


@pytest.mark.parametrize("package", EXTRAS)
def test_an_extra_brings_its_package(package: str) -> None:
    required = CORE["optional-dependencies"][EXTRAS[package]]
    assert package.replace("_", "-") in {Requirement(text).name for text in required}


def test_each_extra_brings_a_package_that_an_error_names() -> None:
    larger = {"connect"}  # more of pyspark
    assert set(CORE["optional-dependencies"]) - larger == set(EXTRAS.values())


def test_the_core_requires_no_package_of_an_extra() -> None:
    required = {Requirement(text).name for text in CORE["dependencies"]}
    optional = {name.replace("_", "-") for name in EXTRAS} | {"pandas", "dagster"}
    assert required & optional == set()


def test_the_plugin_brings_spark_and_has_the_other_extras_of_the_core() -> None:
    [core] = [
        requirement
        for requirement in map(Requirement, PLUGIN["dependencies"])
        if requirement.name == "dstl-core"
    ]
    assert core.extras == {"rocksdb", "spark"}
    assert PLUGIN["optional-dependencies"] == {
        extra: [f"dstl-core[{extra}]"] for extra in set(CORE["optional-dependencies"]) - core.extras
    }


def test_both_wheels_have_one_version_and_one_licence() -> None:
    assert CORE["version"] == PLUGIN["version"] == __version__
    assert f"dstl-core[rocksdb,spark]=={__version__}" in PLUGIN["dependencies"]
    assert CORE["requires-python"] == PLUGIN["requires-python"]
    assert (PLUGIN_FOLDER / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_another_missing_module_is_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), extra_named("A page"):
        importlib.import_module("no_such_module")


def test_a_missing_package_is_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ImportError) as caught:
        require("s3fs", "This")
    assert isinstance(caught.value, MissingPackageError) and isinstance(caught.value, ConfigError)
