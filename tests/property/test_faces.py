"""A declaration of an aggregate means the same in Python, in Dagster and in YAML.

The declarations are made of the fields of the classes, so that a new aggregate is among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import yaml

from dstl_core import AggregateOperator, LocalEngine, StatefulJob
from dstl_core.aggregates import AGGREGATES
from dstl_core.errors import ConfigError
from dstl_core.job.coordination.definitions import definitions_of
from dstl_core.job.spec.operators import LocalCopies, declared_decimals
from dstl_dagster import StatefulPipelineComponent, aggregating_pipeline
from tests.aggregate_declarations import (
    DDL,
    KEY,
    SCHEMA,
    accepted,
    declarations,
    python_of,
    refusal,
    typed_table,
)
from tests.job_files import files_of

pytestmark = pytest.mark.dagster

States = Mapping[str, dict[str, Any]]


def in_python(states: States) -> AggregateOperator:
    wanted = {name: python_of(declared) for name, declared in states.items()}
    return AggregateOperator("u", KEY, wanted, schema=SCHEMA)


def in_dagster(states: States) -> AggregateOperator:
    wanted = {name: python_of(declared) for name, declared in states.items()}
    pipeline = aggregating_pipeline("p", uid="u", key_by=KEY, states=wanted, schema=DDL)
    return pipeline.job.operator  # type: ignore[union-attr, return-value]


def in_yaml(states: States) -> AggregateOperator:
    attributes = {
        "name": "p",
        "uid": "u",
        "events": {"path": "rows", "partition_column": "day"},
        "partitions": {"start": "2026-01-01"},
        "key_by": KEY,
        "columns": DDL,
        "states": dict(states),
    }
    text = yaml.safe_dump(attributes, sort_keys=False)
    component = StatefulPipelineComponent.from_attributes_dict(attributes=yaml.safe_load(text))
    return component.pipeline.job.operator  # type: ignore[union-attr, return-value]


FACES = {"Python": in_python, "Dagster": in_dagster, "YAML": in_yaml}


def meaning(face: Any, states: States) -> Any:
    """What an operator keeps and gives, or why it refuses that."""
    try:
        operator = face(states)
        refusal(operator)
    except ConfigError as error:
        # YAML also names the state, which Python shows by a line of the program.
        return error.message.removeprefix("The state 's' of pipeline 'p': ")
    merges = [
        (type(merge).__name__, merge.parts, [(s.name, s.serializer) for s in merge.states])
        for merge in operator.function.merges
    ]
    named = definitions_of([operator]), declared_decimals(operator), operator.columns
    return merges, named, operator.aggregates


def test_a_declaration_means_the_same_on_every_face() -> None:
    kept, refused = set(), set()
    for declared in chain.from_iterable(islice(declarations(how), 12) for how in AGGREGATES):
        one, *others = [meaning(face, {"s": declared}) for face in FACES.values()]
        assert others == [one, one], declared
        (refused if isinstance(one, str) else kept).add(declared["how"])
    assert len(kept) > len(AGGREGATES) // 2 < len(refused)


def test_a_declaration_gives_the_same_state_on_every_face(tmp_path: Path) -> None:
    states = accepted(2)
    written = []
    for name, face in FACES.items():
        copies = LocalCopies(str(tmp_path / name / "local"))
        job = StatefulJob(
            LocalEngine(), "job", str(tmp_path / name), face(states), local_copies=copies
        )
        for epoch in range(2):
            job.run(typed_table(epoch), epoch)
        written.append(files_of(job))
    assert written[0] == written[1] == written[2]
    assert len(states) == 2 * len(AGGREGATES)
