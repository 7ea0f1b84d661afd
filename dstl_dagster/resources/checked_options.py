"""Wrong options of a resource in one sentence, where the validation library has several lines."""

from typing import Any, ClassVar

from pydantic import ConfigDict, ValidationError

from dstl_core.config import option_problem
from dstl_core.errors import ConfigError

_HIDES = "hide_input_in_errors"


class CheckedOptions:
    """Base of resources and their parts, before Dagster's own, which also makes them of run
    configuration.
    """

    model_config: ClassVar[ConfigDict]

    def __init__(self, **values: Any) -> None:
        """Makes the resource.

        Raises:
            ConfigError: An option is wrong. The sentence names each one.
        """
        try:
            super().__init__(**values)
        except ValidationError as error:
            name, hides = type(self).__name__, type(self).model_config.get(_HIDES, False)
            # Of several ways to write one value, each has a problem; the first names it.
            problems: dict[str, Any] = {}
            for problem in error.errors(include_url=False):
                problems.setdefault(".".join(map(str, problem["loc"])), problem)
            said = [_sentence(place, problem, hides) for place, problem in problems.items()]
            raise ConfigError(f"An option of {name} is wrong: {'; '.join(said)}.") from None


def _sentence(place: str, problem: dict[str, Any], hides: Any) -> str:
    if not place:
        return str(problem.get("ctx", {}).get("error", problem["msg"])).rstrip(".")
    value = problem.pop("input") if hides else problem["input"]
    if value is None:  # Dagster's value of an option that is not given
        return f"{place} is missing"
    return option_problem(place, problem)
