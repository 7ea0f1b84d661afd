from __future__ import annotations

import pytest

from dstl_core.errors import ConfigError
from dstl_core.model.change import META_KEY_GROUP, StateChange


def test_a_metadata_change_has_key_group_minus_1() -> None:
    assert META_KEY_GROUP == -1
    assert StateChange.of_metadata_change(b"m") == StateChange(-1, b"m")


def test_a_data_change_cannot_pose_as_metadata() -> None:
    assert StateChange.of_data_change(0, b"d") == StateChange(0, b"d")
    with pytest.raises(ConfigError, match="key group >= 0, got -1"):
        StateChange.of_data_change(-1, b"d")
