from __future__ import annotations

import pytest

from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError


def test_options_go_by_our_name_or_flinks_key() -> None:
    by_name = ChangelogOptions.of(base_path="/a", preemptive_persist_threshold=5)
    by_key = ChangelogOptions.of(
        **{
            "state.changelog.dstl.dfs.base-path": "/a",
            "state.changelog.dstl.dfs.preemptive-persist-threshold": 5,
        }
    )
    assert by_name == by_key
    assert ChangelogOptions.of(base_path="/a").preemptive_persist_threshold == 5_242_880
    assert ChangelogOptions.of(base_path="/a").compression_enabled is False


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "base-path: Field required"),
        ({"base_path": "/a", "no_such": 1}, "no_such: Extra inputs are not permitted"),
        ({"base_path": "/a", "preemptive_persist_threshold": -1}, "greater than or equal to 0"),
        ({"base_path": "/a", "compression_enabled": "perhaps"}, "valid boolean"),
    ],
)
def test_a_wrong_option_is_one_sentence(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        ChangelogOptions.of(**values)
    assert str(caught.value).startswith("An option is wrong: ")
    assert "\n" not in str(caught.value)


def test_options_do_not_change() -> None:
    options = ChangelogOptions.of(base_path="/a")
    with pytest.raises(ValueError, match="frozen"):
        options.base_path = "/b"  # type: ignore[misc]
