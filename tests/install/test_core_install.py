"""The wheel of the core in an empty environment, without Java, Spark, Dagster and pandas."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.first_day import FIRST_DAY
from tests.golden_files import snapshot
from tests.wheels import build_wheel, make_environment

MOST_BYTES = 500_000_000


@dataclass
class User:
    """Somebody's shell: an environment, a folder, and no command of this machine."""

    commands: Path
    folder: Path

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.commands / words[0], *words[1:]],
            cwd=self.folder,
            env={"PATH": str(self.commands), "HOME": str(self.folder), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=600,
        )

    def output(self, *words: str | Path) -> str:
        ran = self.run(*words)
        assert ran.returncode == 0, f"{words}\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    folder = tmp_path_factory.mktemp("user")
    wheel = build_wheel("dstl_core", folder, kernels=True)
    return User(make_environment(folder / "environment", wheel), folder)


INSTALLED = """
import importlib.metadata, json
print(json.dumps({
    distribution.name: sum(distribution.locate_file(file).stat().st_size
                           for file in distribution.files if file.suffix != ".pyc")
    for distribution in importlib.metadata.distributions()
}))
"""


def test_it_brings_neither_spark_nor_dagster_nor_pandas(user: User) -> None:
    sizes = json.loads(user.output("python", "-c", INSTALLED))
    assert "dstl-core" in sizes
    assert set(sizes) & {"pyspark", "py4j", "dagster", "dagster-dstl", "pandas"} == set()
    assert sum(sizes.values()) <= MOST_BYTES, sizes
    assert shutil.which("java", path=str(user.commands)) is None


def test_the_command_shows_a_savepoint(user: User) -> None:
    shown = user.output("dstl", "inspect", snapshot("a-hashmap-canonical"))
    assert "a-keyed  b4752014cabfcda06294954685ce3a12\n" in shown
    assert "parallelism 2 of 128, " in shown
    assert [line.split() for line in shown.splitlines() if line.startswith("cnt ")] == [
        ["cnt", "value", "Long"]
    ]


JOB = """
import pyarrow as pa
from dstl_core import AggregateOperator, LocalEngine, StatefulJob, aggregates

totals = AggregateOperator(
    "totals", "k", {"total": aggregates.sum("v")}, schema="k string, v bigint", output=True
)
job = StatefulJob(LocalEngine(), "job", "jobs", totals)
job.run(pa.table({"k": ["ada", "bob", "ada"], "v": [1, 2, 3]}), "monday")
result = job.run(pa.table({"k": ["ada"], "v": [10]}), "tuesday")
print(result.output.to_arrow().to_pylist())
job.savepoint("savepoint")
"""


def test_a_job_runs_and_its_savepoint_is_dumped(user: User) -> None:
    assert user.output("python", "-c", JOB) == "[{'k': 'ada', 'total': 14}]\n"
    lines = user.output("dstl", "dump", "savepoint", "--state", "total").splitlines()
    entries = [json.loads(line) for line in lines]
    assert {entry["key"]: entry["value"] for entry in entries} == {"ada": 14, "bob": 2}


def test_the_first_day_compiles_nothing(user: User) -> None:
    assert user.output("python", "-c", FIRST_DAY, "day") == "[]\n"


MODULES = """
import importlib, pkgutil
import dstl_core

def lost(name):
    if not name.startswith("dstl_core.spark"):
        raise

for module in pkgutil.walk_packages(dstl_core.__path__, "dstl_core.", onerror=lost):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            print(module.name, error.name)
        except ImportError as error:
            print(module.name, error.context["package"])
"""


def test_only_modules_of_an_extra_need_its_package(user: User) -> None:
    lines = user.output("python", "-c", MODULES).splitlines()
    lost = {tuple(line.split()) for line in lines}
    outside = {pair for pair in lost if not pair[0].startswith("dstl_core.spark.")}
    assert outside == {
        ("dstl_core.cli.browse.browser", "textual"),
        ("dstl_core.prometheus", "prometheus_client"),
        ("dstl_core.state.backends.rocksdb_store", "rocksdict"),
    }
    assert {package for _, package in lost - outside} == {"pyspark"}


SENTENCES = {
    "from dstl_core import register": (
        "dstl_core.register needs a package that is not installed; "
        "install pyspark: pip install 'dstl-core[spark]'."
    ),
    "StatefulJob('session', 'job', 'jobs', None)": (
        "A job whose engine is a session of Spark needs a package that is not installed; "
        "install pyspark: pip install 'dstl-core[spark]'."
    ),
    "EmbeddedRocksDBStateBackend()": (
        "EmbeddedRocksDBStateBackend needs a package that is not installed; "
        "install rocksdict: pip install 'dstl-core[rocksdb]'."
    ),
    "import dstl_core.prometheus": (
        "The collector for Prometheus needs a package that is not installed; "
        "install prometheus_client: pip install 'dstl-core[prometheus]'."
    ),
    "Snapshot.load('s3://bucket/savepoint')": (
        "No file system for the scheme 's3' (Install s3fs to access S3); "
        "install s3fs: pip install 'dstl-core[s3]'."
    ),
    "Snapshot.load('gs://bucket/savepoint')": (
        "No file system for the scheme 'gcs' (Please install gcsfs to access Google Storage); "
        "install gcsfs: pip install 'dstl-core[gcs]'."
    ),
}
"""What a user reads who lacks a package, by the code."""

ERRORS = """
import json, sys
from dstl_core import EmbeddedRocksDBStateBackend, Snapshot, StatefulJob, errors

messages = []
for code in sys.argv[1:]:
    try:
        exec(code)
    except errors.ConfigError as error:
        messages.append(str(error))
print(json.dumps(messages))
"""


def test_a_missing_package_is_one_sentence_that_names_the_extra(user: User) -> None:
    messages = json.loads(user.output("python", "-c", ERRORS, *SENTENCES))
    assert dict(zip(SENTENCES, messages, strict=True)) == SENTENCES


def test_the_command_says_so_in_one_line(user: User) -> None:
    ran = user.run("dstl", "inspect", "s3://bucket/savepoint")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.endswith("; install s3fs: pip install 'dstl-core[s3]'.\n")
    assert ran.stderr.count("\n") == 1
