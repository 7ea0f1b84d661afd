"""Functions over keyed state, by the names of Flink's Python DataStream API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dstl_core.errors import UserFunctionError
from dstl_core.state.backend import HashMapKeyedStateBackend
from dstl_core.state.descriptor import ListStateDescriptor, ValueStateDescriptor
from dstl_core.state.keyed_access import ListState, ValueState

Row = Mapping[str, Any]


class RuntimeContext:
    """Where a function registers its state, in ``open``."""

    def __init__(self, backend: HashMapKeyedStateBackend, subtask_index: int, parallelism: int):
        self._backend = backend
        self.subtask_index = subtask_index
        self.parallelism = parallelism

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """The value state of a descriptor."""
        return self._backend.get_value_state(descriptor)

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """The list state of a descriptor."""
        return self._backend.get_list_state(descriptor)


@dataclass(slots=True)
class Context:
    """What a function may ask while it processes an element."""

    current_key: Any

    def get_current_key(self) -> Any:
        return self.current_key


class KeyedProcessFunction(ABC):
    """Processes the rows of each key, with state per key.

    ``open`` runs once per subtask and run, then ``process_element`` once per row, in the order the
    run asks for. A function whose result does not depend on that order says so.
    """

    order_insensitive: ClassVar[bool] = False

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027  # need not be defined
        """Registers state. Every state has to be registered here."""

    @abstractmethod
    def process_element(self, value: Row, ctx: Context) -> Iterable[Row] | None:
        """Takes one row (column name to value); gives or yields output rows."""

    def close(self) -> None:  # noqa: B027  # need not be defined
        """Runs after the last row."""


class KeyedProcessOperator:
    """Feeds rows to a function on a backend. One thread."""

    def __init__(
        self,
        function: KeyedProcessFunction,
        backend: HashMapKeyedStateBackend,
        key_column: str,
        *,
        subtask_index: int,
        parallelism: int,
    ) -> None:
        self._function = function
        self._backend = backend
        self._key_column = key_column
        self._context = Context(None)
        with _user_code(function, "open"):
            function.open(RuntimeContext(backend, subtask_index, parallelism))

    def process(self, row: Row) -> Iterable[Row]:
        """Applies one row; gives the output rows."""
        key = row[self._key_column]
        self._backend.set_current_key(key)
        self._context.current_key = key
        with _user_code(self._function, "process_element"):
            return list(self._function.process_element(row, self._context) or ())

    def close(self) -> None:
        with _user_code(self._function, "close"):
            self._function.close()


class _user_code:
    """Names the function and the method in whatever a user's code raises."""

    __slots__ = ("_function", "_method")

    def __init__(self, function: object, method: str) -> None:
        self._function = function
        self._method = method

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            name = f"{type(self._function).__name__}.{self._method}"
            raise UserFunctionError(
                f"The function {name} raised {type(error).__name__}: {error}"
            ) from error
