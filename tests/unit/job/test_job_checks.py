"""The arguments of a job are checked when it is made, without a session that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dstl_core import EmbeddedRocksDBStateBackend, StatefulJob, aggregates
from dstl_core.changelog import ChangelogOptions
from dstl_core.config import plain
from dstl_core.errors import ConfigError
from dstl_core.job.coordination.job_checks import check_run
from dstl_core.job.spec.job_spec import task_changelog_options
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.storage.location import Location

COUNTS = AggregateOperator("u", "k", {"n": aggregates.count()}, "string")


def job(folder: Path, **arguments: Any) -> StatefulJob:
    defaults = {"engine": None, "name": "j", "base_path": str(folder), "operator": COUNTS}
    return StatefulJob(**{**defaults, **arguments})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": None}, "The name of a job is wrong: expected text, got None"),
        ({"name": ""}, "The name of a job is wrong: expected text, got ''"),
        ({"name": "a\ud800"}, r"The name of a job is wrong: expected text, got 'a\\ud800'"),
        (
            {"engine": "local[2]"},
            "The engine of a job is wrong: expected a SparkSession, .* got 'local",
        ),
        ({"operator": [COUNTS]}, "The operator of the job 'j' is wrong: expected a KeyedOperator"),
        ({"downstream": COUNTS}, "The downstream of .* expected a list of operators"),
        ({"downstream": ["u"]}, r"expected a list of operators, got \['u'\]"),
        ({"parallelism": "2"}, "The parallelism of .* expected a whole number, got '2'"),
        ({"parallelism": True}, "expected a whole number, got True"),
        ({"max_parallelism": 8.0}, "The max_parallelism of .*, got 8.0"),
        ({"num_retained": None}, "The num_retained of .*, got None"),
        ({"num_retained_outputs": "1"}, "The num_retained_outputs of .*, got '1'"),
        ({"retain": 5}, "The retain of .* expected a duration as text, such as '14 days', got 5"),
        ({"checkpoint_timeout_s": "1 h"}, "expected a number of seconds above 0, got '1 h'"),
        ({"checkpoint_timeout_s": 0}, "expected a number of seconds above 0, got 0"),
        ({"checkpoint_timeout_s": float("nan")}, "expected a number of seconds above 0, got nan"),
        ({"changelog_options": "enabled"}, "expected a mapping of options, got 'enabled'"),
        ({"state_backend": "rocksdb"}, "expected an object such as HashMapStateBackend"),
        ({"state_backend": EmbeddedRocksDBStateBackend}, "The state_backend of the job 'j'"),
        ({"local_copies": True}, r"expected LocalCopies\(\.\.\), got True"),
    ],
)
def test_a_wrong_argument_is_one_sentence(
    tmp_path: Path, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        job(tmp_path, **arguments)


def test_options_of_the_changelog_are_a_mapping_or_an_object() -> None:
    for options_given in ({"max_attempts": 7}, ChangelogOptions.of(max_attempts=7)):
        options = task_changelog_options(
            "/data", {"compression_enabled": True, **plain(options_given)}
        )
        assert (options.max_attempts, options.compression_enabled) == (7, True)


@pytest.mark.parametrize("path", [None, b"/data", 5])
def test_a_path_is_text_or_a_path(path: Any) -> None:
    with pytest.raises(ConfigError, match="A path is wrong: expected text or a Path, got "):
        Location.parse(path)


@pytest.mark.parametrize(
    ("order_by", "watermark", "said"),
    [
        (5, None, "The order_by of a run of the job 'j' is wrong: expected a list of names"),
        (
            None,
            "noon",
            "The watermark_ms of .* expected milliseconds as a whole number, got 'noon'",
        ),
    ],
)
def test_a_wrong_argument_of_a_run_is_one_sentence(
    order_by: Any, watermark: Any, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        check_run("j", order_by, watermark)
