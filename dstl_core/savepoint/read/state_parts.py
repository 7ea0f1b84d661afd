"""Parts of operators that become operators of a new savepoint. Importing it loads no kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.state_meta import KeyedBackendHeader, StateMetaInfoSnapshot
from dstl_core.errors import SavepointError
from dstl_core.model.handle import KeyedStateHandle
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.state.tables.keyed_state import StateKey, describe_state, state_key, types_of

if TYPE_CHECKING:
    from dstl_core.codec.columnar.keyed.spans import SpanBatch


class Selection(Protocol):
    """The records that a copy keeps, and how many it leaves out."""

    def kept(
        self, meta: StateMetaInfoSnapshot, key_type: AnySerializer, batch: SpanBatch
    ) -> SpanBatch:
        """The records of a state that stay."""
        ...

    def take(self) -> Counter[str]:
        """How many were left out of each state since the last call."""
        ...

    def give(self, counts: Counter[str]) -> None:
        """Adds what was left out in another process."""
        ...

    def touches(self, operator: OperatorCatalog, handle: KeyedStateHandle) -> bool:
        """Whether a handle has a record that is left out."""
        ...


@dataclass(frozen=True)
class StatesOf:
    """Some states of an operator, by name; None means all. ``select`` may leave out records."""

    operator: OperatorCatalog
    names: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    select: Selection | None = None

    def has(self, name: str) -> bool:
        return name not in self.without and (self.names is None or name in self.names)

    @property
    def metas(self) -> list[StateMetaInfoSnapshot]:
        return [info.meta for info in self.operator.states if self.has(info.name)]


def merged_header(sources: Sequence[StatesOf]) -> KeyedBackendHeader | None:
    """The header with the states of all sources; None without keyed state.

    Timers of the same service become one queue.

    Raises:
        SavepointError: Keys have different types, or two sources have a state with the same name.
    """
    metas: dict[StateKey, StateMetaInfoSnapshot] = {}
    key_type: AnySerializer | None = None
    for source in sources:
        of_source = source.metas
        if not of_source:
            continue
        own_type = source.operator.key_type
        assert own_type is not None  # every source has keyed state here
        if key_type is not None and key_type != own_type.serializer:
            raise SavepointError(
                f"Operators with keys of different types cannot become one: "
                f"{key_type.type_name} and {own_type.serializer.type_name}."
            )
        key_type = own_type.serializer
        for key, meta in {state_key(meta): meta for meta in of_source}.items():
            known = metas.get(key)
            if known is None:
                metas[key] = meta
            elif not (meta.is_queue and types_of(known) == types_of(meta)):
                raise SavepointError(
                    f"Two operators that become one both have a state {meta.name!r} "
                    f"({describe_state(known)}); leave one of them out."
                )
    return None if key_type is None else KeyedBackendHeader(key_type, tuple(metas.values()))
