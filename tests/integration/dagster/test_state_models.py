"""Wrong states in YAML: one sentence that names the state, where the YAML has it."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from dstl_core.errors import ConfigError
from dstl_dagster import StatefulPipelineComponent

pytestmark = pytest.mark.dagster


def pipeline_with(**state: Any) -> Any:
    return StatefulPipelineComponent.from_attributes_dict(
        attributes={
            "name": "payments",
            "uid": "totals",
            "events": {"path": "payments", "partition_column": "day"},
            "partitions": {"start": "2026-01-01"},
            "key_by": "account",
            "columns": "account string, amount bigint",
            "states": {"wrong": state},
        }
    ).pipeline


@pytest.mark.parametrize(
    ("state", "message"),
    [
        # The names of a version before.
        ({"how": "quantiles", "column": "amount", "points": [0.5]}, "quantiles has no option 'po"),
        (
            {"how": "top", "column": "amount", "size": 2},
            "top has no option 'size': .*, limit",
        ),
        ({"how": "sum", "column": "amount", "order_by": "a"}, "sum has no option 'order_by': exp"),
        ({"how": "sum"}, "The aggregate sum needs 'column': expected column, type, got none"),
        ({"how": "last", "column": "amount"}, "last needs 'order_by': expected .*, got column"),
        ({"how": "average", "column": "amount"}, "An aggregate is one of .*, got 'average'"),
        ({"column": "amount"}, "An aggregate is one of .*, got None"),
        ({"how": ["sum"]}, r"An aggregate is one of .*, got \['sum'\]"),
    ],
)
def test_wrong_names_are_one_sentence(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError) as failed:
        pipeline_with(**state)
    [error] = [error for error in failed.value.errors() if error["loc"][-1] == "wrong"]
    assert re.search(message, error["msg"])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"how": "top", "column": "amount", "limit": "{{ 'x' }}"},
            "limit .* whole number",
        ),
        ({"how": "sum", "column": "{{ env.DSTL_NOT_SET }}"}, "The aggregate sum needs a column"),
        ({"how": "quantiles", "column": "amount", "probabilities": [2]}, "from 0 to 1, got"),
    ],
)
def test_wrong_values_name_the_state(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"The state 'wrong' of pipeline 'payments': .*{message}"):
        _ = pipeline_with(**state)


def test_what_is_right_passes_and_the_schema_describes_each_aggregate() -> None:
    assert pipeline_with(how="sum", column="{{ 'amount' }}").job.states["wrong"].column == "amount"
    schema = StatefulPipelineComponent.get_model_cls().model_json_schema()
    assert schema["$defs"]["SumState"]["additionalProperties"] is False
    assert "column" in schema["$defs"]["SumState"]["required"]
