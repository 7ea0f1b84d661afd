"""Reduces a batch in Spark to a row per key: the parts of aggregates and the sums of row hashes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from dstl_core.aggregates import Aggregate
from dstl_core.codec.columnar.types.java_decimals import DIGITS
from dstl_core.codec.columnar.types.type_layouts import layout_of
from dstl_core.codec.serializers import AnySerializer, Types
from dstl_core.errors import ConfigError
from dstl_core.job.spec.fingerprint import HIGH_COLUMN, LOW_COLUMN, ROWS_COLUMN, TIME_COLUMN
from dstl_core.job.spec.operators import AggregateOperator
from dstl_core.operators.aggregate_merge import (
    FLOATING,
    HALF,
    LOW,
    WHOLE,
    Average,
    ByBatch,
    ByOrder,
    CountMerge,
    DecimalSum,
    Extreme,
    FloatSum,
    Merge,
    Moments,
    WholeSum,
    part_name,
)
from dstl_core.operators.aggregated_windows import (
    END_COLUMN,
    LATE_COLUMN,
    LATEST_COLUMN,
    NO_START,
    START_COLUMN,
    AggregatedWindows,
    AlignedWindows,
)
from dstl_core.operators.gathered_merges import CountsByValue, DecayedSum
from dstl_core.operators.list_merges import BoundedList
from dstl_core.operators.row_reduction import is_reduced_by_columns
from dstl_core.operators.sketch_merges import DistinctSketch, Histogram, QuantileSketch
from dstl_core.operators.wide_sums import LEAST_HIGH, SCALE
from dstl_core.spark.engine.schema import arrow_type_from_spark, quoted
from dstl_core.spark.job.row_identity import identity_of
from dstl_core.state.backends.timers import MAX_WATERMARK, MIN_WATERMARK
from dstl_core.state.windows.windowing import EventTimeSessionWindows

_DISTINCT = (
    T.BooleanType,
    T.NumericType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_OF_FIXED_WIDTH = (
    T.BooleanType,
    T.IntegralType,
    T.FloatType,
    T.DoubleType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_WITH_EQUAL_VALUES = (T.FloatType, T.DoubleType, T.StructType, T.ArrayType)
"""Types that have, or may contain, different values that Spark groups as one."""
_MOST_BUCKETS = (1 << 31) - 1
_KEY_COLUMN = "__dstl_key"
_LAST_START = "__dstl_last_start"
_PLACE_COLUMN = "__dstl_window_place"
_TIME_COLUMN = "__dstl_time"
_SESSION_COLUMN = "__dstl_session"
_LATE_ROW = "__dstl_late_row"
EPOCH = "timestamp_ntz '1970-01-01'"
"""The beginning of time, as Spark writes it."""
_SECONDS = (("DAY", 86_400), ("HOUR", 3_600), ("MINUTE", 60))


def check_columns(rows: DataFrame, operator: AggregateOperator) -> None:
    """Raises ConfigError if a column is missing, or if an aggregate cannot keep its values."""
    for name, aggregate in operator.items:
        for column in aggregate.columns:
            if column not in rows.columns:
                raise ConfigError(
                    f"There is no column {column!r} in the input of {operator.uid!r}, which the "
                    f"aggregate {name!r} needs; it has: {', '.join(rows.columns)}."
                )
    for (name, aggregate), merge in zip(operator.items, operator.function.merges, strict=True):
        if isinstance(merge, CountMerge):
            continue
        assert aggregate.column is not None
        kind = rows.schema[aggregate.column].dataType
        where = f"The aggregate {name!r} of operator {operator.uid!r}"
        if isinstance(merge, Moments | QuantileSketch | Histogram):
            _check_number(where, aggregate.column, kind, Types.DOUBLE)
            continue
        if isinstance(merge, DistinctSketch):
            _check_distinct(where, aggregate.column, kind)
            continue
        kept = [each.serializer for each in merge.states]
        if isinstance(merge, BoundedList | CountsByValue | DecayedSum):
            kept = list(merge.kinds)
        if isinstance(merge, Average | WholeSum | FloatSum | DecimalSum | DecayedSum):
            _check_number(where, aggregate.column, kind, kept[0])
        else:
            _check_value(where, aggregate.column, kind, kept[0])
        if aggregate.order_by and aggregate.keeps_order:
            order = rows.schema[aggregate.order_by[0]].dataType
            _check_value(where, aggregate.order_by[0], order, kept[1])


def _check_number(where: str, column: str, kind: T.DataType, state: AnySerializer) -> None:
    fits = (
        isinstance(kind, T.IntegralType)
        or (state in FLOATING and isinstance(kind, T.NumericType))
        or (state == Types.BIG_DEC and isinstance(kind, T.DecimalType))
    )
    if not fits:
        raise _wrong_type(where, column, kind, state)


def _check_distinct(where: str, column: str, kind: T.DataType) -> None:
    if not isinstance(kind, _DISTINCT):
        raise ConfigError(
            f"{where} counts values of simple types, and the column {column!r} is "
            f"{kind.simpleString()}; cast the column, for example to a string."
        )


def _check_value(where: str, column: str, kind: T.DataType, state: AnySerializer) -> None:
    found, wanted = arrow_type_from_spark(kind), layout_of(state).arrow_type
    fits = (
        found == wanted
        or (state in WHOLE and isinstance(kind, T.IntegralType))
        or (state in FLOATING and isinstance(kind, T.IntegralType | T.FloatType | T.DoubleType))
        or (state == Types.BIG_DEC and isinstance(kind, T.DecimalType))
        or (state == Types.LOCAL_TIME and isinstance(kind, T.LongType))
    )
    if not fits:
        raise _wrong_type(where, column, kind, state)


def _wrong_type(where: str, column: str, kind: T.DataType, state: AnySerializer) -> ConfigError:
    return ConfigError(
        f"{where} has the type {state.type_name}, and the column {column!r} is "
        f"{kind.simpleString()}; cast the column, or declare its type."
    )


def is_reduced_in_tasks(operator: AggregateOperator, schema: T.StructType) -> bool:
    """Whether tasks reduce rows of this schema themselves, so that Spark does not group them."""
    if operator.window is not None:
        return False
    for (_, aggregate), merge in zip(operator.items, operator.function.merges, strict=True):
        if aggregate.column is None:
            continue
        kind = schema[aggregate.column].dataType
        if not isinstance(kind, _OF_FIXED_WIDTH):
            return False
        if not is_reduced_by_columns(merge, arrow_type_from_spark(kind)):
            return False
    return True


def reduced(
    rows: DataFrame,
    operator: AggregateOperator,
    hashes: str,
    *extra: str,
    watermark: int = MIN_WATERMARK,
) -> DataFrame:
    """A row per key, or per key and window: the parts of all aggregates, the number of rows and
    their hash sum. If late rows are an output, equal ones of windows of a fixed size have a row.

    Args:
        rows: The batch, with the columns ``hashes`` and ``extra``.
        operator: The operator with the aggregates.
        hashes: The column with the hash of each row.
        extra: Columns that depend only on the key. The result has them, too.
        watermark: Event time before the batch, in milliseconds.
    """
    value, one = F.col(quoted(hashes)), F.lit(1)
    key, window = F.col(quoted(operator.key_by)), []
    identity = _identity_of_key(key, rows.schema[operator.key_by].dataType)
    if isinstance(operator.function, AggregatedWindows):
        time, assigner = _time(rows, operator), operator.function.assigner
        until = _late_until(operator.function, watermark)
        if isinstance(assigner, EventTimeSessionWindows):
            gap = assigner.gap
            rows = _with_sessions(rows, time, gap, [identity, *extra])
            extra = (*extra, _SESSION_COLUMN)
            start, end = F.min(_TIME_COLUMN), F.max(_TIME_COLUMN) + F.lit(gap)
            window = [start.alias(START_COLUMN), end.alias(END_COLUMN)]
            if until is not None:
                window.append(_late_of_session(operator.function, until).alias(LATE_COLUMN))
        else:
            rows = _with_windows(rows, time, assigner)
            latest = F.col(_PLACE_COLUMN) == 0
            value, one = F.when(latest, value), F.when(latest, one)
            extra = (*extra, START_COLUMN)
            if until is not None:
                # A late row is a part of the key, which keeps Spark's aggregation by hash.
                is_late = latest & (F.col(START_COLUMN) <= F.lit(until))
                rows = rows.withColumn(_LATE_ROW, F.when(is_late, _late_row(operator.function)))
                extra = (*extra, _LATE_ROW)
        window.append(F.count(one).alias(LATEST_COLUMN))
        window.append(F.max(_TIME_COLUMN).alias(TIME_COLUMN))
    found = [
        F.count(one).alias(ROWS_COLUMN),
        *(
            part.alias(name)
            for name, part in zip((HIGH_COLUMN, LOW_COLUMN), _halves(value), strict=True)
        ),
    ]
    for at, (_, aggregate) in enumerate(operator.items):
        merge = operator.function.merges[at]
        parts = _parts(merge, aggregate, rows.schema)
        found += [
            part.alias(part_name(at, name)) for name, part in zip(merge.parts, parts, strict=True)
        ]
    if isinstance(rows.schema[operator.key_by].dataType, _WITH_EQUAL_VALUES):
        found.append(F.first(key).alias(operator.key_by))
        identity = identity.alias(_KEY_COLUMN)
    groups = rows.groupBy(identity, *extra).agg(*found, *window)
    groups = groups.drop(_KEY_COLUMN, _SESSION_COLUMN)
    if _LATE_ROW in extra:
        late = F.when(F.col(_LATE_ROW).isNotNull(), F.array(_LATE_ROW))
        groups = groups.withColumn(LATE_COLUMN, late).drop(_LATE_ROW)
    return groups


def _identity_of_key(key: Column, kind: T.DataType) -> Column:
    """The column to group by. Spark takes -0.0 for 0.0, which are two keys in state."""
    return F.struct(*identity_of(key, kind)) if isinstance(kind, _WITH_EQUAL_VALUES) else key


def _late_until(function: AggregatedWindows, watermark: int) -> int | None:
    """The last start of a window that has expired at a watermark; None if no row is late, or if
    late rows are no output.
    """
    if function.side_output_late_data is None or watermark == MIN_WATERMARK:
        return None
    if watermark == MAX_WATERMARK:
        return MAX_WATERMARK
    assigner = function.assigner
    length = assigner.gap if isinstance(assigner, EventTimeSessionWindows) else assigner.size
    found = watermark - function.allowed_lateness - length + 1
    return None if found < MIN_WATERMARK else found


def _late_row(function: AggregatedWindows) -> Column:
    """The columns of a late row."""
    assert function.side_output_late_data is not None
    return F.struct(*(F.col(quoted(each)) for each in function.side_output_late_data.names))


def _late_of_session(function: AggregatedWindows, until: int) -> Column:
    """The rows of a session that has expired, unless the session belongs to one in the state."""
    time = F.col(_TIME_COLUMN)
    rows = F.collect_list(F.when(time <= F.lit(until), _late_row(function)))
    return F.when(F.max(time) <= F.lit(until), rows)


def _time(rows: DataFrame, operator: AggregateOperator) -> Column:
    """The time of a row in milliseconds; ``NO_START`` if its windows have no bounds of 64 bits."""
    assert operator.event_time is not None
    assert isinstance(operator.function, AggregatedWindows)
    time = millis(F.col(quoted(operator.event_time)), rows.schema[operator.event_time].dataType)
    assigner = operator.function.assigner
    first, last = F.lit(assigner.first_time), F.lit(assigner.last_time)
    return F.when(time.isNull() | time.between(first, last), time).otherwise(F.lit(NO_START))


def _with_sessions(rows: DataFrame, time: Column, gap: int, key: Sequence[Any]) -> DataFrame:
    """The time of each row, and the number of its session among those of its key in the batch.

    A row without a time is a session.
    """
    rows = rows.withColumn(_TIME_COLUMN, time)
    in_order = Window.partitionBy(*key).orderBy(_TIME_COLUMN)
    before = F.lag(_TIME_COLUMN).over(in_order)
    goes_on = F.coalesce(F.try_subtract(_TIME_COLUMN, before) <= F.lit(gap), F.lit(False))
    rows = rows.withColumn(_SESSION_COLUMN, (~goes_on).cast("long"))
    return rows.withColumn(_SESSION_COLUMN, F.sum(_SESSION_COLUMN).over(in_order))


def _with_windows(rows: DataFrame, time: Column, assigner: AlignedWindows) -> DataFrame:
    """A row for each window of a row: its start, and its place, 0 for the latest window.

    A row without a time has one start, which is null; so has one of ``NO_START``.
    """
    slide, offset = F.lit(assigner.slide), F.lit(assigner.offset)
    rows = rows.withColumn(_TIME_COLUMN, time)
    time, none = F.col(_TIME_COLUMN), F.col(_TIME_COLUMN) == F.lit(NO_START)
    start = F.when(none, time).otherwise(time - F.pmod(time - offset, slide))
    rows = rows.withColumn(_LAST_START, start)
    last = F.col(_LAST_START)
    if assigner.size == assigner.slide:
        return rows.select("*", last.alias(START_COLUMN), F.lit(0).alias(_PLACE_COLUMN))
    # Windows of a row: as many as the slide fits into the size, and one more for some rows.
    least, rest = divmod(assigner.size, assigner.slide)
    count = F.lit(least) + (time - last < F.lit(rest)).cast("int")
    starts = F.sequence(last, last - slide * (count - F.lit(1)), -slide)
    found = F.when(last.isNull() | none, F.array(last)).otherwise(starts)
    return rows.select("*", F.posexplode(found).alias(_PLACE_COLUMN, START_COLUMN))


def millis(time: Column, kind: T.DataType) -> Column:
    """A time in milliseconds, rounded down."""
    if isinstance(kind, T.TimestampType):
        return F.unix_millis(time)
    if isinstance(kind, T.TimestampNTZType):  # it has no zone, and must not get the session's
        since = time - F.expr(EPOCH)
        seconds = sum(
            (F.extract(F.lit(unit), since).cast("long") * F.lit(n) for unit, n in _SECONDS),
            F.extract(F.lit("SECOND"), since),
        )
        return F.floor(seconds * F.lit(1000)).cast("long")
    return time.cast("long")


def _parts(merge: Merge, aggregate: Aggregate, schema: T.StructType) -> list[Column]:
    if aggregate.column is None:
        return [F.count(F.lit(1))]
    value, kind = F.col(quoted(aggregate.column)), schema[aggregate.column].dataType
    if isinstance(kind, T.IntegralType) and merge.states[0].serializer in FLOATING:
        value, kind = value.cast("double"), T.DoubleType()
    match merge:
        case CountMerge() if aggregate.how == "count_null":
            return [F.count(F.when(value.isNull(), F.lit(1)))]
        case CountMerge():
            return [F.count(value)]
        case Average():
            return [*_parts(merge.total, aggregate, schema), F.count(value)]
        case WholeSum():
            return _halves(value.cast("long"))
        case FloatSum():
            return [F.sum(each) for each in _tiers(value.cast("double"))]
        case DecimalSum():
            scale = kind.scale if isinstance(kind, T.DecimalType) else 0
            return [F.try_sum(value.cast(T.DecimalType(DIGITS, scale))), F.count(value)]
        case Extreme():
            plain = _one_zero(value, kind)
            return [F.max(plain) if aggregate.how in ("max", "bool_or") else F.min(plain)]
        case DistinctSketch():
            sketch = F.hll_sketch_agg(_hashable(value, kind), merge.lg_k)
            return [F.when(F.count(value) > 0, sketch)]
        case QuantileSketch():
            number = _one_zero(value.cast("double"), T.DoubleType())
            numbers = F.when(~F.isnan(number), number)
            sketch = F.kll_sketch_agg_double(numbers, merge.k)
            return [F.when(F.count(numbers) > 0, sketch)]
        case Histogram():
            return _bucket_counts(value.cast("double"), merge.bounds)
        case CountsByValue():
            return [F.collect_list(value)]
        case DecayedSum():
            time = F.col(quoted(aggregate.order_by[0]))
            row = F.struct(value.cast("double").alias("value"), time.alias("time"))
            rows = F.collect_list(F.when(value.isNotNull() & time.isNotNull(), row))
            return [rows.getField("value"), rows.getField("time")]
        case BoundedList():
            return _lists(merge, _orders(aggregate, schema), _one_zero(value, kind))
        case ByOrder():
            [order] = _orders(aggregate, schema)
            return _best(aggregate, _one_zero(value, kind), [order], order.isNotNull())
        case ByBatch():
            orders = _orders(aggregate, schema)
            return _best(aggregate, _one_zero(value, kind), orders, F.lit(True))[:1]
        case _:
            return _moments(value.cast("double"))


def _best(
    aggregate: Aggregate, value: Column, orders: list[Column], counts: Column
) -> list[Column]:
    """The value and the first column of the order, of the row that is first or last."""
    if aggregate.how in ("first", "last"):
        counts = counts & value.isNotNull()
    fields = [each.alias(f"order{at}") for at, each in enumerate(orders)]
    row = F.when(counts, F.struct(*fields, value.alias("value")))
    best = F.max(row) if aggregate.how in ("last", "max_by") else F.min(row)
    return [best.getField("value"), best.getField("order0")]


def _orders(aggregate: Aggregate, schema: T.StructType) -> list[Column]:
    """The columns of the order."""
    return [_one_zero(F.col(quoted(each)), schema[each].dataType) for each in aggregate.order_by]


def _tiers(value: Column) -> tuple[Column, Column]:
    """Doubles in the tiers of ``wide_sums``; NaN is larger than any number, in Spark, too."""
    high = F.abs(value) >= F.lit(LEAST_HIGH)
    return F.when(high, value / F.lit(SCALE)), F.when(~high, value)


def _moments(value: Column) -> list[Column]:
    """The parts of ``Moments``."""
    high, low = _tiers(value)
    is_finite = F.abs(value) < F.lit(float("inf"))
    counted = F.count(low)
    high = F.when(is_finite, high)
    high_counted = F.count(high)
    return [
        F.count(value) - high_counted,
        F.avg(low),
        F.var_pop(low) * counted,
        high_counted,
        F.avg(high),
        F.var_pop(high) * high_counted,
        F.sum(F.when(~is_finite, value)),
    ]


def _one_zero(value: Column, kind: T.DataType) -> Column:
    """0.0 and -0.0 are the same number, so only one of them is kept. Decimals have one zero, and
    an addition would take their last digit.
    """
    is_floating = isinstance(kind, T.FloatType | T.DoubleType)
    return value + F.lit(0).cast(kind) if is_floating else value


def _hashable(value: Column, kind: T.DataType) -> Column:
    """Casts a value to a type that Spark's sketches accept."""
    if isinstance(kind, T.IntegralType | T.BooleanType):
        return value.cast("long")
    if isinstance(kind, T.DateType):
        return F.unix_date(value).cast("long")
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(value)
    if isinstance(kind, T.StringType | T.BinaryType):
        return value
    return _one_zero(value, kind).cast("string")


def _bucket_counts(value: Column, bounds: Sequence[float]) -> list[Column]:
    """The numbers of the buckets that have values, and how many; a bucket may come twice.

    Spark's approximate histogram is exact as long as it need not join buckets. Its plan has the
    same size for any number of bounds.
    """
    found = F.histogram_numeric(_bucket(value, bounds), F.lit(_MOST_BUCKETS))
    return [found.getField("x"), found.getField("y").cast("array<bigint>")]


def _bucket(value: Column, bounds: Sequence[float]) -> Column:
    """How many bounds are not above a value. NaN is larger than any number, in Spark, too."""
    ends = _constants(bounds, "double")
    steps = [1 << each for each in reversed(range(len(bounds).bit_length()))]

    def search(below: Column, step: Column) -> Column:
        after = below + step
        is_below = F.get(ends, after - F.lit(1)) <= value  # null beyond the last bound
        return F.when(is_below, after).otherwise(below)

    return F.when(value.isNotNull(), F.aggregate(_constants(steps, "int"), F.lit(0), search))


def _constants(values: Sequence[float], kind: str) -> Column:
    """An array of numbers as one constant of the plan."""
    return F.split(F.lit(",".join(map(repr, values))), ",").cast(f"array<{kind}>")


def _lists(merge: BoundedList, orders: list[Column], value: Column) -> list[Column]:
    """The first or last values, and their orders."""
    if merge.distinct:
        return [F.slice(F.array_sort(F.collect_set(value)), 1, merge.size)]
    counts = value.isNotNull()
    for each in orders:
        counts = counts & each.isNotNull()
    fields = [each.alias(f"order{at}") for at, each in enumerate(orders)]
    row = F.when(counts, F.struct(*fields, value.alias("value")))
    best = F.max_by if merge.largest else F.min_by
    found = best(row, row, merge.size)
    return [found.getField("value"), *(found.getField("order0") for _ in orders)]


def _halves(value: Column) -> list[Column]:
    """The sums of the upper and of the lower 32 bits, which do not overflow."""
    return [
        F.sum(F.shiftright(value, HALF)),
        F.sum(value.bitwiseAND(F.lit(LOW))),
    ]
