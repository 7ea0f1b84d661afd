"""States of a pipeline in YAML: a model for each aggregate, made of the fields of its class."""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import dagster as dg
from pydantic import (
    BaseModel,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
)

from dstl_core.aggregates import AGGREGATES, Aggregate, aggregate_of, check_options
from dstl_core.errors import ConfigError


def declared(context: dg.ResolutionContext, states: Mapping[str, BaseModel]) -> dict[str, Any]:
    """The name and the options of each aggregate, with the values of templates."""
    options = {name: state.model_dump(exclude_unset=True) for name, state in states.items()}
    return dict(context.resolve_value(options))


def aggregates_of(pipeline: str, states: Mapping[str, Mapping[str, Any]]) -> dict[str, Aggregate]:
    """The aggregate of each state.

    Args:
        pipeline: The name of the pipeline, for errors.
        states: The name of each state to its aggregate and options.

    Raises:
        ConfigError: An aggregate refuses its options.
    """
    made = {}
    for name, options in states.items():
        try:
            made[name] = aggregate_of(**options)
        except ConfigError as error:
            raise ConfigError(f"The state {name!r} of pipeline {pipeline!r}: {error}") from None
    return made


def _model_of(aggregate: type[Aggregate]) -> type[BaseModel]:
    """The model of an aggregate in YAML. The docstring of its class describes the options."""
    how, text = aggregate.__name__, inspect.cleandoc(aggregate.__doc__ or "")
    hints = get_type_hints(aggregate)
    options: dict[str, Any] = {"how": (Literal[how], _shown(text.split("\n\n")[0], how))}
    for field in fields(aggregate):  # type: ignore[arg-type]  # each is a dataclass
        default = ... if field.default is MISSING else field.default
        about = re.search(rf"^    {field.name}: (.*(?:\n {{8}}.*)*)", text, re.MULTILINE)
        description = about[1] if about else ""
        shown = _shown(description, aggregate.example[field.name], default=default)
        options[field.name] = (_in_yaml(hints[field.name]), shown)
    name = "".join(part.title() for part in how.split("_"))
    model: type[BaseModel] = create_model(f"{name}State", __base__=dg.Model, **options)
    return model


def _shown(description: str, example: Any, **options: Any) -> Any:
    text = " ".join(description.replace("``", "`").split())
    return Field(description=text, examples=[example], **options)


def _in_yaml(hint: Any) -> Any:
    """What a value may be in YAML, where any type is text, and any text may be a template."""
    if hint is Any:
        return str
    if get_origin(hint) is Sequence:
        return list[_in_yaml(get_args(hint)[0])]  # type: ignore[misc]  # known when it runs
    parts = get_args(hint)
    return reduce(or_, map(_in_yaml, parts)) if parts else hint | str


def state(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Refuses names that are wrong in one sentence; pydantic would say it once for each option."""
    if isinstance(value, Mapping):
        # A ConfigError is a ValueError, so its sentence is shown with the line of the state.
        check_options(value.get("how"), [name for name in value if name != "how"])
    return validate(value)


StateModel: Any = Annotated[
    reduce(or_, map(_model_of, AGGREGATES.values())),
    Field(discriminator="how"),
    WrapValidator(state),
]
"""One state: the aggregate that ``how`` names, with its options."""
