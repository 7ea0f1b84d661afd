"""The function of an operator with declared aggregates: merges a reduced batch, gives output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.aggregates.aggregate_merge import Columns, Merge
from dstl_core.codec.columnar.types.java_decimals import (
    BIG_DECIMAL,
    DIGITS,
    element_of,
    with_scale,
)
from dstl_core.errors import ConfigError, InvariantViolation, StateMigrationError
from dstl_core.functions import ColumnResult, KeyedColumnFunction


def part_name(at: int, part: str) -> str:
    """The column of a reduced batch that has a part of an aggregate."""
    return f"__dstl_{at}_{part}"


class AggregateMerge(KeyedColumnFunction):
    """Merges a reduced batch into the states of all aggregates of an operator.

    Args:
        merges: The aggregates.
        output: Columns of the output, the key first; None if there is no output.
    """

    order_insensitive = True

    def __init__(self, merges: Sequence[Merge], output: pa.Schema | None = None) -> None:
        self.merges = tuple(merges)
        self.states = tuple(state for each in merges for state in each.states)  # type: ignore[misc]
        self._output = output

    def process_batch(
        self, keys: pa.Array, state: pa.RecordBatch, rows: pa.RecordBatch
    ) -> ColumnResult:
        if len(keys) != rows.num_rows:
            raise InvariantViolation("a reduced batch has two rows with the same key")
        names: list[str] = []
        columns: Columns = []
        for at, merge in enumerate(self.merges):
            held = [state.column(each.name) for each in merge.states]
            _check_whole(merge, held)
            parts = [rows.column(part_name(at, each)) for each in merge.parts]
            columns += merge.merge(held, parts)
            names += [each.name for each in merge.states]
        return ColumnResult(pa.RecordBatch.from_arrays(columns, names=names))

    def combined(self, one: pa.RecordBatch, other: pa.RecordBatch) -> pa.RecordBatch:
        """The states of keys, from two states of each. ``other`` is the newer one."""
        columns: Columns = []
        for merge in self.merges:
            names = [each.name for each in merge.states]
            held, newer = ([side.column(name) for name in names] for side in (one, other))
            columns += merge.combined(held, newer)
        return pa.RecordBatch.from_arrays(columns, names=[each.name for each in self.states])

    def output_of_changes(self, keys: pa.Array, state: pa.RecordBatch) -> pa.RecordBatch | None:
        """A row for each key: the key, and the values of the aggregates in the output."""
        if self._output is None:
            return None
        key, *fields = self._output
        merges = {each.name: each for each in self.merges}
        columns = [keys]
        for field in fields:
            merge = merges[field.name]
            value = merge.final([state.column(each.name) for each in merge.states])
            columns.append(_in_output(value, field, merge))
        return pa.RecordBatch.from_arrays(columns, names=[key.name, *(f.name for f in fields)])


def output_schema_of(
    uid: str, key: pa.Field, merges: Sequence[Merge], scales: Mapping[str, Sequence[int | None]]
) -> pa.Schema:
    """The columns of an output.

    Args:
        uid: The uid of the operator, for errors.
        key: The column of the key.
        merges: The aggregates in the output.
        scales: Digits after the point of the decimals that aggregates keep, by name.

    Raises:
        ConfigError: Two columns have the same name, or a decimal has no scale.
    """
    fields = [key]
    for merge in merges:
        kind = merge.final_type
        if merge.name == key.name:
            raise ConfigError(
                f"The output of operator {uid!r} has two columns {key.name!r}: the key and an "
                f"aggregate; rename the aggregate."
            )
        if pa.types.is_struct(kind) and kind != BIG_DECIMAL:
            parts = zip(kind, scales[merge.name], strict=False)
            kind = pa.struct(
                [part.with_type(_output_type(uid, merge, part.type, at)) for part, at in parts]
            )
        else:
            scale = next(iter(scales[merge.name]), None)
            kind = _output_type(uid, merge, kind, scale)
        fields.append(pa.field(merge.name, kind))
    return pa.schema(fields)


def _output_type(uid: str, merge: Merge, kind: pa.DataType, scale: int | None) -> pa.DataType:
    """The type of values, or of lists of values, in the output: decimals have one scale there."""
    if BIG_DECIMAL not in (kind, element_of(kind)):
        return kind
    if scale is None:
        raise ConfigError(
            f"The aggregate {merge.name!r} of operator {uid!r} is in the output, and its "
            f"decimals have no scale; give it a type such as 'decimal(38, 2)', or give a "
            f"schema."
        )
    decimals = pa.decimal128(DIGITS, scale)
    return decimals if kind == BIG_DECIMAL else pa.list_(decimals)


def _check_whole(merge: Merge, held: Columns) -> None:
    """Raises StateMigrationError if another aggregate wrote the state.

    A key that has the first state of an aggregate has the others of ``always``. Without its order,
    for one, a value would lose to every row that comes.
    """
    first = held[0]
    for at in merge.always:
        other, state = held[at], merge.states[at]
        if other.null_count and pc.any(pc.and_(first.is_valid(), other.is_null())).as_py():
            name = merge.states[0].name
            raise StateMigrationError(
                f"The aggregate {merge.name!r} of operator {merge.uid!r} keeps {name!r} with "
                f"{state.name!r}, and the restored state has values of {name!r} without it: an "
                f"aggregate of another kind wrote them, for example one with keeps_order=False. "
                f"Declare that one, or give this one a new name."
            )


def _in_output(value: pa.Array, field: pa.Field, merge: Merge) -> pa.Array:
    """Casts values to their type in the output."""
    if pa.types.is_struct(field.type):
        parts = [
            _in_output(pc.struct_field(value, [at]), part, merge)
            for at, part in enumerate(field.type)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=value.is_null())
    try:
        kind = element_of(field.type) or field.type
        return with_scale(value, kind.scale) if pa.types.is_decimal(kind) else value
    except pa.ArrowInvalid:
        raise ConfigError(
            f"A value of state {merge.name!r} of operator {merge.uid!r} does not fit "
            f"{field.type}, its type in the output; give the aggregate a type with more digits "
            f"after the point, for example 'decimal(38, 6)'."
        ) from None
