"""Turns columns of an old state into columns of a new one, by a rule and by their types.

The same code runs over an empty column before anything is written: that finds every wrong name,
type and cast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dstl_core.codec.logical_types import LogicalType
from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TtlSerializer,
)
from dstl_core.codec.serializers.pojo import PojoSerializer, primitive_default
from dstl_core.codec.serializers.table_types import RowDataSerializer
from dstl_core.errors import ConfigError
from dstl_core.savepoint.expressions.expression import (
    Cast,
    Coalesce,
    Column,
    Empty,
    Expression,
    ListAggregate,
    Literal,
    NullIf,
    Recode,
    Undecided,
    columns_of,
)
from dstl_core.savepoint.expressions.recoded_column import Versions, recoded_column
from dstl_core.savepoint.expressions.sql_cast import (
    arrow_type_of,
    cast_column,
    parse_sql_type,
    rows_of,
)
from dstl_core.savepoint.expressions.typed_values import (
    Kind,
    Values,
    arrow_of,
    constant_in,
    field_column,
    fields_of,
    kind_of,
    literal_values,
    name_of,
    nullable,
    parts_of_row,
)
from dstl_core.state.tables.sql_widening import widens

MOST_KEYS = 5
_EMPTY, _EMPTY_KIND = b"\x00", LogicalType("RAW", False)
"""Source: savepoints of jobs of Flink 2.2.1 with DISTINCT."""


@dataclass
class Misfits:
    """Values that a cast did not take.

    Attributes:
        refused: Place to the number of values that make the migration fail.
        nulled: Place to the number of values that became null by ``cast_or_null``.
        keys: Keys of some refused values, as text.
    """

    refused: dict[str, int] = field(default_factory=dict)
    nulled: dict[str, int] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def add(self, place: str, mask: pa.BooleanArray, keys: pa.Array | None, *, null: bool) -> None:
        into = self.nulled if null else self.refused
        rows = rows_of(mask)
        into[place] = into.get(place, 0) + len(rows)
        if not null and keys is not None and len(keys) == len(mask):
            room = MOST_KEYS - len(self.keys)
            self.keys += [str(keys[row].as_py()) for row in rows[: max(room, 0)]]

    def take(self) -> Misfits:
        """What was added until now, which is no longer here."""
        taken = Misfits(dict(self.refused), dict(self.nulled), list(self.keys))
        for counts in (self.refused, self.nulled, self.keys):
            counts.clear()
        return taken

    def give(self, more: Misfits) -> None:
        """Adds what another one has taken."""
        for counts, added in ((self.refused, more.refused), (self.nulled, more.nulled)):
            for place, count in added.items():
                counts[place] = counts.get(place, 0) + count
        self.keys += more.keys[: max(MOST_KEYS - len(self.keys), 0)]


@dataclass
class Conversion:
    """The conversion of one column of a state: its values, its keys, or its user keys.

    Args:
        where: The place in the declaration, for messages.
        old: The type of the old values; None without old values.
        new: The type of the new values.
        row: Expressions for the columns of the row in the value.
        whole: The expression of the whole value.
        name: What the whole old value is called in expressions.
        classes: New names of POJO classes.
        fields: Fields of POJO classes.
        messages: Messages of Protocol Buffers, for ``recode``.
        misfits: Collects values that do not fit.
    """

    where: str
    old: AnySerializer
    new: AnySerializer
    row: tuple[Expression, ...] | None = None
    whole: Expression | None = None
    name: str = "value"
    classes: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Expression]] = field(default_factory=dict)
    messages: Versions = (None, None)
    misfits: Misfits = field(default_factory=Misfits)
    _keys: pa.Array | None = field(default=None, init=False)
    _others: Mapping[str, Values] = field(default_factory=dict, init=False)

    def apply(
        self, column: pa.Array, others: Mapping[str, Values], keys: pa.Array | None = None
    ) -> pa.Array:
        """The new column.

        Args:
            column: The old column.
            others: Further columns by name: ``key``, ``map_key``.
            keys: Keys that messages may show.

        Raises:
            ConfigError: A name, type or cast is wrong.
        """
        self._keys, self._others = keys, others
        target = arrow_of(self.new)
        old = Values(column, kind_of(self.old))
        if self.whole is not None:
            values = self.value_of(self.whole, self.scope(old, others), len(column), self.where)
            if isinstance(self.old, TtlSerializer) and isinstance(self.new, TtlSerializer):
                return self._accessed(column, values, self.new, target, self.where)
            return self.assign(values, kind_of(self.new), target, self.where)
        return self.assign(old, kind_of(self.new), target, self.where)

    def scope(self, old: Values, others: Mapping[str, Values]) -> dict[str, Values]:
        """What expressions can name: other columns, the old value, and its fields."""
        scope = dict(others)
        kind, column = old.kind, old.column
        if isinstance(kind, TtlSerializer):
            kind, column = kind_of(kind.value), field_column(column, "v")
        scope[self.name] = Values(column, kind)
        for name, field_kind in fields_of(kind) or ():
            scope[name] = Values(field_column(column, name), field_kind)
        return scope

    # ----------------------------------------------------------------------------- expressions

    def value_of(
        self, expression: Expression, scope: Mapping[str, Values], rows: int, where: str
    ) -> Values:
        match expression:
            case Column():
                return self._column(expression, scope, where)
            case Literal():
                return literal_values(expression, rows)
            case Cast():
                return self._cast(expression, scope, rows, where)
            case Coalesce():
                return self._coalesce(expression, scope, rows, where)
            case NullIf():
                return self._null_if(expression, scope, rows, where)
            case Recode():
                of = self.value_of(expression.of, scope, rows, where)
                recoded = recoded_column(expression, of.column, where, self.messages, of.kind)
                return Values(recoded, of.kind)
            case ListAggregate():
                raise ConfigError(
                    f"{where} is wrong: {expression} is over the elements of a list state; it "
                    f"stands alone."
                )
            case Empty():
                return Values(pa.repeat(pa.scalar(_EMPTY, pa.binary()), rows), _EMPTY_KIND)
            case Undecided():
                raise ConfigError(f"{where} is ???: a person has to decide.")

    def _column(self, column: Column, scope: Mapping[str, Values], where: str) -> Values:
        first, *rest = column.path
        if first not in scope:
            known = ", ".join(scope)
            raise ConfigError(
                f"{where} is wrong: there is no old column {first!r}; there are: {known}."
            )
        values = scope[first]
        for name in rest:
            fields = dict(fields_of(values.kind) or parts_of_row(values.kind))
            if name not in fields:
                raise ConfigError(
                    f"{where} is wrong: {first!r} ({name_of(values.kind)}) has no field {name!r}; "
                    f"it has: {', '.join(fields) or 'none'}."
                )
            values = Values(field_column(values.column, name), fields[name])
        return values

    def _cast(self, cast: Cast, scope: Mapping[str, Values], rows: int, where: str) -> Values:
        of = self.value_of(cast.of, scope, rows, where)
        kind = parse_sql_type(cast.type)
        if of.kind is None:
            return Values(pa.nulls(rows, arrow_type_of(kind)), kind)
        if isinstance(of.kind, LogicalType):
            try:
                cast_values, mask = cast_column(of.column, of.kind, kind)
            except ConfigError as error:
                raise ConfigError(f"{where} is wrong: {error.message}") from error
            if mask is not None:
                self.misfits.add(f"{where}: {cast}", mask, self._keys, null=cast.or_null)
            return Values(cast_values, kind)
        fields = fields_of(of.kind)
        if fields is not None and len(fields) == 1:  # a key row of one column
            name, field_type = fields[0]
            inner = {name: Values(field_column(of.column, name), field_type)}
            return self._cast(Cast(Column((name,)), cast.type, cast.or_null), inner, rows, where)
        raise ConfigError(f"{where} is wrong: a value of type {name_of(of.kind)} is never cast.")

    def _coalesce(
        self, expression: Coalesce, scope: Mapping[str, Values], rows: int, where: str
    ) -> Values:
        of = self.value_of(expression.of, scope, rows, where)
        default = literal_values(expression.default, 1)
        if of.kind is None:
            return literal_values(expression.default, rows)
        filled = self.assign(default, of.kind, of.column.type, where)
        if pa.types.is_nested(of.column.type):
            raise ConfigError(f"{where} is wrong: coalesce takes a plain column.")
        kind = of.kind
        if isinstance(kind, LogicalType) and expression.default.value is not None:
            kind = replace(kind, nullable=False)
        return Values(of.column.fill_null(filled[0]), kind)

    def _null_if(
        self, expression: NullIf, scope: Mapping[str, Values], rows: int, where: str
    ) -> Values:
        of = self.value_of(expression.of, scope, rows, where)
        if of.kind is None:
            return of
        if not isinstance(of.kind, LogicalType) or of.kind.children:
            raise ConfigError(f"{where} is wrong: nullif takes a plain column.")
        if expression.unset.value is None:
            raise ConfigError(f"{where} is wrong: nullif takes a constant that is not null.")
        unset = self.assign(literal_values(expression.unset, 1), of.kind, of.column.type, where)
        is_unset = pc.fill_null(pc.equal(of.column, unset[0]), False)
        null = pa.scalar(None, of.column.type)
        return Values(pc.if_else(is_unset, null, of.column), nullable(of.kind))

    # ------------------------------------------------------------------------------ assignment

    def assign(self, values: Values, new: Kind, target: pa.DataType, where: str) -> pa.Array:
        """The values as values of another type, which must hold all of them.

        Raises:
            ConfigError: The type is another one, and needs a cast.
        """
        column, old = values.column, values.kind
        if old is None:
            self._refuse_nulls(column, new, where)
            return pa.nulls(len(column), target)
        if isinstance(old, LogicalType) and isinstance(new, LogicalType) and not old.children:
            if values.constant is not None:
                constant = constant_in(values.constant, old, new, where)
                return pa.repeat(constant.cast(target)[0], len(column))
            return self._leaf(column, old, new, target, where)
        if isinstance(new, TtlSerializer) or isinstance(old, TtlSerializer):
            return self._ttl(column, old, new, target, where)
        if self.row is not None and isinstance(new, RowDataSerializer):
            return self._row(column, old, new, target, where)
        if old == new:
            return column
        if isinstance(old, PojoSerializer) and isinstance(new, PojoSerializer):
            return self._pojo(column, old, new, target, where)
        inner, wanted = fields_of(old), fields_of(new)
        if inner is not None and wanted is not None and len(inner) == len(wanted):
            return self._fields(column, inner, wanted, target, where)
        if inner is not None and len(inner) == 1 and wanted is None:  # a key row of one column
            only = Values(field_column(column, inner[0][0]), inner[0][1])
            return self.assign(only, new, target, where)
        if wanted is not None and len(wanted) == 1 and inner is None:
            return self._fields_of_scalar(values, wanted, target, where)
        if isinstance(old, ListSerializer) and isinstance(new, ListSerializer):
            return self._list(column, old, new, target, where)
        if isinstance(old, MapSerializer) and isinstance(new, MapSerializer):
            return self._map(column, old, new, target, where)
        raise ConfigError(
            f"{where} is wrong: {name_of(old)} does not become {name_of(new)} by itself; "
            f"give columns, value or a cast."
        )

    def _leaf(
        self,
        column: pa.Array,
        old: LogicalType,
        new: LogicalType,
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        if old is _EMPTY_KIND and new.root != "RAW":
            raise ConfigError(f"{where} is wrong: empty() is for a column of type RAW, got {new}.")
        if not widens(nullable(old), nullable(new)):
            raise ConfigError(
                f"{where} is wrong: {old} does not fit into {new} in all cases; write "
                f"cast(.., {nullable(new)}) to try it, or cast_or_null."
            )
        if old.nullable and not new.nullable:
            self._refuse_nulls(column, new, where)
        cast_values, mask = cast_column(column, old, new)
        if mask is not None:
            self.misfits.add(where, mask, self._keys, null=False)
        return cast_values if cast_values.type == target else cast_values.cast(target)

    def _refuse_nulls(self, column: pa.Array, new: Kind, where: str) -> None:
        if isinstance(new, LogicalType) and not new.nullable:
            if column.type == pa.null():
                raise ConfigError(f"{where} is wrong: null does not fit into {new}; give a value.")
            if column.null_count:
                self.misfits.add(
                    f"{where}: null in {new}", column.is_null(), self._keys, null=False
                )

    def _row(
        self, column: pa.Array, old: Kind, new: RowDataSerializer, target: pa.DataType, where: str
    ) -> pa.Array:
        """A row whose columns are given one by one. Its row kind stays."""
        assert self.row is not None
        if len(self.row) != len(new.types):
            raise ConfigError(
                f"{where} is wrong: the new row has {len(new.types)} columns "
                f"({', '.join(map(str, new.types))}), got {len(self.row)} expressions."
            )
        scope = self.scope(Values(column, old), self._others)
        arrays = []
        for at, (expression, kind) in enumerate(zip(self.row, new.types, strict=True)):
            place = f"{where}[{at}]"
            values = self.value_of(expression, scope, len(column), place)
            arrays.append(self.assign(values, kind, target.field(f"f{at}").type, place))
        return _struct(column, arrays, target)

    def _fields(
        self,
        column: pa.Array,
        inner: Sequence[tuple[str, Kind]],
        wanted: Sequence[tuple[str, Kind]],
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        arrays = [
            self.assign(
                Values(field_column(column, old), kind),
                new,
                target.field(name).type,
                f"{where}.{old}",
            )
            for (old, kind), (name, new) in zip(inner, wanted, strict=True)
        ]
        return _struct(column, arrays, target)

    def _fields_of_scalar(
        self, values: Values, wanted: Sequence[tuple[str, Kind]], target: pa.DataType, where: str
    ) -> pa.Array:
        [(name, kind)] = wanted
        assigned = self.assign(values, kind, target.field(name).type, where)
        return _struct(assigned, [assigned], target)

    def _pojo(
        self,
        column: pa.Array,
        old: PojoSerializer,
        new: PojoSerializer,
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        if old.pojo_class != new.pojo_class and self.classes.get(old.pojo_class) != new.pojo_class:
            raise ConfigError(
                f"{where} is wrong: class {old.pojo_class} became {new.pojo_class}; if that is so, "
                f"say classes: {{{old.pojo_class}: {new.pojo_class}}}."
            )
        if pa.types.is_dictionary(column.type) or column.type.get_field_index("$class") >= 0:
            raise ConfigError(f"{where} is wrong: POJOs with subclasses are not converted.")
        rules = self.fields.get(new.pojo_class, {})
        before = dict(fields_of(old) or ())
        scope = {name: Values(field_column(column, name), kind) for name, kind in before.items()}
        wanted = fields_of(new) or []
        for name in rules:
            if name not in dict(wanted):
                raise ConfigError(
                    f"{where} is wrong: class {new.pojo_class} has no field {name!r}; it has: "
                    f"{', '.join(dict(wanted))}."
                )
        # A null would make Flink fail if the Java field is primitive.
        defaults = {name: _default_number(each) for name, _, each in new.fields if each is not None}
        arrays = []
        gone = [name for name in before if name not in dict(wanted)]
        used = {column.path[0] for rule in rules.values() for column in columns_of(rule)}
        for name, kind in wanted:
            place, field_type = f"{where}.{name}", target.field(name).type
            if name in rules:
                values_of_field = self.value_of(rules[name], scope, len(column), place)
            elif name in before:
                values_of_field = scope[name]
            else:
                left = [each for each in gone if each not in used]
                if left:
                    raise ConfigError(
                        f"{place} is new, and {', '.join(left)} is gone: say fields: "
                        f"{{{new.pojo_class}: {{{name}: {{from: {left[0]}}}}}}}, or null if it is "
                        f"not the same."
                    )
                values_of_field = Values(pa.nulls(len(column)), None)
            default = None if values_of_field.kind is not None else defaults.get(name)
            if default is not None:
                arrays.append(pa.repeat(pa.scalar(default).cast(field_type), len(column)))
            else:
                arrays.append(self.assign(values_of_field, kind, field_type, place))
        return _struct(column, arrays, target)

    def _list(
        self,
        column: pa.Array,
        old: ListSerializer,
        new: ListSerializer,
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        elements = Values(column.flatten(), kind_of(old.element))
        elements_assigned = self._below(
            elements, kind_of(new.element), target.value_type, f"{where}[]"
        )
        return pa.ListArray.from_arrays(_offsets(column), elements_assigned, mask=_mask(column))

    def _below(self, values: Values, new: Kind, target: pa.DataType, where: str) -> pa.Array:
        """Values inside a list or map: they are not one for each row."""
        keys, others = self._keys, self._others
        self._keys, self._others = None, {}
        try:
            return self.assign(values, new, target, where)
        finally:
            self._keys, self._others = keys, others

    def _map(
        self,
        column: pa.Array,
        old: MapSerializer,
        new: MapSerializer,
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        entries, row_type = column.flatten(), target.value_type
        parts = [
            self._below(
                Values(field_column(entries, name), kind_of(before)),
                kind_of(after),
                row_type.field(name).type,
                f"{where}.{name}",
            )
            for name, before, after in (("key", old.key, new.key), ("value", old.value, new.value))
        ]
        pairs = pa.StructArray.from_arrays(parts, fields=list(row_type))
        return pa.ListArray.from_arrays(_offsets(column), pairs, mask=_mask(column))

    def _ttl(
        self, column: pa.Array, old: Kind, new: Kind, target: pa.DataType, where: str
    ) -> pa.Array:
        """Times of last access stay."""
        if not (isinstance(old, TtlSerializer) and isinstance(new, TtlSerializer)):
            raise ConfigError(
                f"{where} is wrong: time to live is turned on or off in the same step; let Flink "
                f"do that by itself, in a restart of its own."
            )
        values = Values(field_column(column, "v"), kind_of(old.value))
        return self._accessed(column, values, new, target, where)

    def _accessed(
        self,
        column: pa.Array,
        values: Values,
        new: TtlSerializer,
        target: pa.DataType,
        where: str,
    ) -> pa.Array:
        """New values, each with the time of the last access to the old one."""
        assigned = self.assign(values, kind_of(new.value), target.field("v").type, where)
        arrays = {"ts": field_column(column, "ts"), "v": assigned}
        return pa.StructArray.from_arrays(
            [arrays[each.name] for each in target], fields=list(target)
        )


def _default_number(serializer: AnySerializer) -> int | float | None:
    """As ``primitive_default``; columns hold characters as numbers."""
    default = primitive_default(serializer)
    return ord(default) if isinstance(default, str) else default


def _struct(old: pa.Array, arrays: Sequence[pa.Array], target: pa.DataType) -> pa.Array:
    """A struct with new fields; the row kind and nulls of the old one stay."""
    fields = list(target)
    if fields and fields[0].name == "$row_kind":
        has_kind = pa.types.is_struct(old.type) and old.type.get_field_index("$row_kind") >= 0
        kinds = (
            field_column(old, "$row_kind")
            if has_kind
            else pa.repeat(pa.scalar("+I", fields[0].type), len(old))
        )
        arrays = [kinds, *arrays]
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=_mask(old))


def _mask(old: pa.Array) -> pa.Array | None:
    return old.is_null() if old.null_count else None


def _offsets(column: pa.Array) -> pa.Array:
    """Offsets of a list column into its flattened elements."""
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0))
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.array(offsets)
