"""An aggregate whose states stay as they are, while others of its operator read rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from dstl_core.aggregates.aggregate import Aggregate, Kept
from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.aggregates.rows_of_keys import Numbers, RowsOfKeys
from dstl_core.codec.serializers import AnySerializer


@dataclass(frozen=True)
class Untouched(Aggregate):
    """Has the states of another aggregate, reads no column, and keeps what it has.

    Args:
        of: The other aggregate.
    """

    of: Aggregate
    column: str | None = None

    def __post_init__(self) -> None:
        """Does nothing: the other aggregate is checked."""

    @property
    def definition(self) -> str:
        return self.of.definition

    @property
    def kept(self) -> tuple[Kept, ...]:
        return self.of.kept

    def merge(self, uid: str, name: str, kinds: Sequence[AnySerializer]) -> Merge:
        return UntouchedMerge(self.of.merge(uid, name, kinds))


class UntouchedMerge(Merge):
    """Keeps the states of another merge.

    Args:
        of: The other merge.
    """

    parts: ClassVar = ("untouched",)

    def __init__(self, of: Merge) -> None:
        states = {state.name[len(of.name) :]: state.serializer for state in of.states}
        super().__init__(of.uid, of.name, states)

    @property
    def always(self) -> Sequence[int]:
        return ()

    def _reduced(self, rows: RowsOfKeys) -> Columns:
        return [pa.nulls(rows.keys, pa.bool_())]

    def merge(self, held: Columns, parts: Columns) -> Columns:
        return held

    def joined(self, parts: Columns, numbers: Numbers, keys: int) -> Columns:
        return [pa.nulls(keys, pa.bool_())]
