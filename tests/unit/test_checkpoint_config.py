"""Checkpointing by Flink's keys, those of older releases too."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dstl_core.checkpoint.store.properties import CheckpointRetentionPolicy
from dstl_core.config import ChangelogOptions, CheckpointConfig
from dstl_core.errors import ConfigError
from dstl_core.job.spec.job_spec import task_changelog_options

ROOT = Path(__file__).parents[2]


def test_the_options_of_flinks_documents() -> None:
    config = CheckpointConfig.of(
        **{
            "state.backend.type": "hashmap",
            "execution.checkpointing.dir": "file:///checkpoints",
            "execution.checkpointing.savepoint-dir": "file:///savepoints",
            "execution.checkpointing.interval": "30 s",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.timeout": 600_000,
            "execution.checkpointing.max-concurrent-checkpoints": 1,
            "execution.checkpointing.min-pause": "5000 ms",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        }
    )
    assert config.state_backend_type == "hashmap"
    assert config.checkpoint_dir == "file:///checkpoints"
    assert config.savepoint_dir == "file:///savepoints"
    assert (config.interval_ms, config.timeout_ms, config.min_pause_ms) == (30_000, 600_000, 5_000)
    assert config.max_concurrent_checkpoints == 1
    policy = CheckpointRetentionPolicy.of_option(config.externalized_checkpoint_retention)
    assert policy is CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("state.backend", "state.backend.type", "hashmap"),
        ("state.checkpoints.dir", "execution.checkpointing.dir", "file:///checkpoints"),
        ("state.savepoints.dir", "execution.checkpointing.savepoint-dir", "file:///savepoints"),
        ("state.checkpoints.num-retained", "execution.checkpointing.num-retained", 3),
        ("execution.savepoint-restore-mode", "execution.state-recovery.claim-mode", "CLAIM"),
    ],
)
def test_keys_of_older_releases_warn_and_hold(old: str, new: str, value: object) -> None:
    with pytest.warns(DeprecationWarning, match=f"use {new}"):
        config = CheckpointConfig.of(**{old: value})
    assert config == CheckpointConfig.of(**{new: value})


def options_read() -> set[str]:
    """The attributes that the code reads from what it calls options or a configuration."""
    owner = re.compile(r"(\w+\.)*_?(options|config)")
    return {
        node.attr
        for path in (ROOT / "dstl_core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and owner.fullmatch(ast.unparse(node.value))
    }


@pytest.mark.slow
def test_every_option_has_a_reader() -> None:
    named = {*CheckpointConfig.model_fields, *ChangelogOptions.model_fields}
    # The mode has one value.
    assert named - options_read() == {"mode"}


def test_less_than_exactly_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="EXACTLY_ONCE"):
        CheckpointConfig.of(mode="AT_LEAST_ONCE")


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"execution.checkpointing.mode": "exactly_once"}, "mode", "EXACTLY_ONCE"),
        ({"execution.state-recovery.claim-mode": "claim"}, "claim_mode", "CLAIM"),
        (
            {"execution.checkpointing.externalized-checkpoint-retention": "retain_on_cancellation"},
            "externalized_checkpoint_retention",
            "RETAIN_ON_CANCELLATION",
        ),
    ],
)
def test_names_of_constants_are_read_in_any_case_as_flink_reads_them(
    options: dict[str, str], name: str, value: str
) -> None:
    assert getattr(CheckpointConfig.of(options), name) == value


def test_a_constant_that_is_not_supported_is_refused_by_name() -> None:
    key = "execution.state-recovery.claim-mode"
    with pytest.raises(ConfigError, match=f"{key}: expected NO_CLAIM or CLAIM, got 'LEGACY'"):
        CheckpointConfig.of({key: "LEGACY"})
    with pytest.raises(ConfigError, match=r"has no option execution\.checkpointing\.unaligned"):
        CheckpointConfig.of({"execution.checkpointing.unaligned.enabled": True})


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"state.changelog.enabled": "false"}, "give changelog=False to the job instead"),
        ({"storage": "memory"}, "expected state.changelog.storage 'filesystem', got 'memory'"),
    ],
)
def test_what_a_job_does_not_do_is_refused(option: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        task_changelog_options("/data", option)


def test_what_a_job_does_anyway_may_be_said() -> None:
    options = {"state.changelog.enabled": "true", "state.changelog.storage": "filesystem"}
    assert task_changelog_options("/data", options).base_path == "/data"
