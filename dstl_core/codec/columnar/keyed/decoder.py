"""Decodes spans into columns: compiled programs over the keys and values of records."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dstl_core.codec.columnar.kernels import instructions as i
from dstl_core.codec.columnar.kernels import scan
from dstl_core.codec.columnar.kernels.decode import decoder_of
from dstl_core.codec.columnar.keyed.byte_index import Ranges
from dstl_core.codec.columnar.keyed.spans import Refusal, SpanBatch
from dstl_core.codec.columnar.types.addresses import address_of
from dstl_core.codec.columnar.types.layouts import (
    AddressLayout,
    Fixed,
    Layout,
    Nullable,
    Opaque,
)
from dstl_core.codec.columnar.types.output_columns import (
    Allocator,
    ArrowAllocator,
    Densities,
    OutputColumns,
)
from dstl_core.codec.columnar.types.parts import KEY as KEY
from dstl_core.codec.columnar.types.parts import NAMESPACE as NAMESPACE
from dstl_core.codec.columnar.types.parts import TIMESTAMP as TIMESTAMP
from dstl_core.codec.columnar.types.parts import USER_KEY as USER_KEY
from dstl_core.codec.columnar.types.parts import VALUE as VALUE
from dstl_core.codec.columnar.types.program import Code, Label, Program
from dstl_core.codec.columnar.types.type_layouts import (
    DEFAULT_OPTIONS,
    ColumnOptions,
    bounded_layout,
    layout_of,
    list_state_layout,
)
from dstl_core.codec.keyed_records import RecordFormat, part_of, read_framed_record
from dstl_core.codec.serializers import ListSerializer, MapSerializer, TimerSerializer
from dstl_core.codec.state_meta import KeyedStateType
from dstl_core.errors import ColumnValueError, FormatError, InvariantViolation, NotInColumnsError

TIMESTAMP_BYTES = 8
END_OF = {KEY: "key_end", NAMESPACE: "namespace_end"}
"""The columns with the position behind a root."""

OPTION_ERRORS = {
    i.LONE_SURROGATE: "holds a lone surrogate, which a text column cannot hold; read it "
    "with strings=utf16",
    i.NO_UTF8: "holds a SQL string that is not UTF-8, which a text column cannot hold; read it "
    "with strings=utf16",
    i.NULL_KEY: "holds a map with a null key, which a map column cannot hold; read it with "
    "maps=entries",
    i.TOO_LARGE: "holds a value that is too large for a column",
    i.NOT_EXACT: "holds a time that microseconds cannot represent; read it with timestamps=exact",
    i.ROW_KIND: "holds a row that is not an insertion; read it with row_kinds=column",
    i.UNREADABLE: "holds a value that only Java classes of the job can read; read it with "
    "unreadable=null",
    i.NOT_A_COLUMN: "holds a stream element that is not a record, which no column can hold",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """The place where a kernel stopped, and its status code."""

    row: int
    code: int
    address: int


class SpanProgram:
    """One program, run over one pair of words of every span.

    Args:
        roots: The columns by name, in the order of the bytes; they share the program.
        first_word: The word of a span with the start of the bytes; the next word has their end.
        with_lengths: Roots that are followed by their number of bytes.
        null_unreadable: Whether a value that only Java can read becomes null.
    """

    def __init__(
        self,
        roots: Sequence[tuple[str, Layout]],
        first_word: int,
        allocator: Allocator,
        with_lengths: Set[str] = frozenset(),
        *,
        null_unreadable: bool = False,
    ) -> None:
        self.names = [name for name, _ in roots]
        self._layouts = [layout for _, layout in roots]
        self._first_word = first_word
        self._allocator = allocator
        self._densities = Densities()
        self._status = np.zeros(i.STATUS_WORDS, np.int64)
        code = Code()
        for layout in self._layouts:
            layout.nullable = layout.nullable or null_unreadable
            layout.register(code)
        for name, layout in roots:
            emit_root(code, layout, name in with_lengths)
        code.emit(i.END)
        self._columns = code.columns
        self._program: Program = code.finish()
        self._nulls = _null_program(self._layouts) if null_unreadable else None
        self._decode = decoder_of(self._program.operations)

    def arrow_type(self, name: str) -> pa.DataType:
        return self._layouts[self.names.index(name)].arrow_type

    @property
    def keeps_bytes(self) -> bool:
        """Whether a column has the bytes of its values, undecoded."""
        return any(map(_keeps_bytes, self._layouts))

    def run(
        self, batch: SpanBatch, wanted: Set[str], rows: int
    ) -> tuple[dict[str, pa.Array], Failure | None]:
        """The wanted columns of the first ``rows`` records, or the failure of a record.

        All columns are checked, wanted or not.
        """
        spans = batch.spans
        first = self._first_word
        start = address_of(spans) + 8 * first
        size = scan.span_bytes(start, rows)
        chosen = [at for at, name in enumerate(self.names) if name in wanted]
        output = OutputColumns(
            self._layouts, chosen, self._columns, rows, size, self._densities, self._allocator
        )
        status = self._status
        bound = self._program.bind(output.table)
        row = 0
        while True:
            row = self._decode(
                address_of(bound),
                start,
                scan.SPAN_BYTES,
                row,
                rows,
                batch.source.end,
                address_of(status),
            )
            if row == rows:
                break
            if status[0] == i.NEED_SPACE:
                output.grow(int(status[2]), int(status[3]))
                bound = self._program.bind(output.table)
            elif status[0] == i.UNREADABLE and self._nulls is not None:
                nulls = self._nulls.bind(output.table)
                row = self._decode(
                    address_of(nulls),
                    start,
                    scan.SPAN_BYTES,
                    row,
                    row + 1,
                    batch.source.end,
                    address_of(status),
                )
            else:
                return {}, Failure(row, int(status[0]), int(status[1]))
        return {self.names[at]: output.finish(self._layouts[at]) for at in chosen}, None


def _keeps_bytes(layout: Layout) -> bool:
    return isinstance(layout, Opaque) or any(map(_keeps_bytes, layout.parts))


def _null_program(layouts: Sequence[Layout]) -> Program:
    """A program that appends a null to the same columns, whatever the bytes are."""
    code = Code()
    for layout in layouts:
        layout.emit_null(code)
    code.emit(i.SKIP_REST)
    code.emit(i.END)
    return code.finish()


def emit_root(code: Code, layout: Layout, with_length: bool) -> None:
    """Adds the instructions of a value and, if ``with_length``, of its number of bytes."""
    if not with_length:
        layout.emit(code)
        return
    digits = Label()
    code.emit(i.MARK, digits)
    layout.emit(code)
    code.place(digits)
    code.emit(i.LENGTH_DIGITS)


class StateDecoder:
    """Decodes the records of one state into columns.

    Column names: ``key``, ``namespace`` (unless it is void), ``user_key`` (map state),
    ``timestamp`` (timers), ``value``.

    Raises:
        NotInColumnsError: A type has no columnar form.
    """

    def __init__(
        self,
        record_format: RecordFormat,
        prefix_bytes: int,
        options: ColumnOptions = DEFAULT_OPTIONS,
        allocator: Allocator | None = None,
    ) -> None:
        self._format = record_format
        self._prefix_bytes = prefix_bytes
        self._options = options
        allocator = allocator or ArrowAllocator()
        ambiguous = {KEY, NAMESPACE} if record_format.is_ambiguous else frozenset[str]()
        self._keys = SpanProgram(
            key_roots(record_format, options), scan.KEY_START, allocator, ambiguous
        )
        value = value_layout(record_format, options)
        self._values = SpanProgram(
            [] if value is None else [(VALUE, value)],
            scan.VALUE_START,
            allocator,
            null_unreadable=options.unreadable == "null",
        )
        self._programs = (self._keys, self._values)
        self._scopes = SpanProgram(
            with_ends(key_roots(record_format, options), KEY, NAMESPACE),
            scan.KEY_START,
            allocator,
            ambiguous,
        )

    @property
    def columns(self) -> dict[str, pa.DataType]:
        return {
            name: program.arrow_type(name)
            for program in self._programs
            for name in program.names
            if not pa.types.is_null(program.arrow_type(name))
        }

    @property
    def keeps_bytes(self) -> bool:
        """Whether a column has values as bytes, because their type has no columnar form."""
        return any(program.keeps_bytes for program in self._programs)

    @property
    def is_grouped(self) -> bool:
        """Whether a key and namespace can have several records: true for map state and timers."""
        return self._format.is_queue or self._format.kind is KeyedStateType.MAP

    @property
    def joined_type(self) -> pa.DataType:
        """The type of the state as one column in a table with one row per key."""
        columns = self.columns
        if self._format.is_queue:
            return pa.list_(pa.int64())
        if USER_KEY not in columns:
            return columns[VALUE]
        if self._options.maps == "map":
            return pa.map_(columns[USER_KEY], columns[VALUE])
        return pa.list_(pa.struct([("key", columns[USER_KEY]), ("value", columns[VALUE])]))

    def decode(
        self, batch: SpanBatch, wanted: Set[str], *, check_all: bool = False
    ) -> dict[str, pa.Array]:
        """Decodes the wanted columns of a batch.

        Args:
            batch: Records of this state only.
            wanted: Names of columns.
            check_all: Whether to check the bytes of unwanted columns as well.

        Raises:
            FormatError: The error of the record-wise decoder for the first damaged record.
            ColumnValueError: A column cannot hold a value with these options.
        """
        columns: dict[str, pa.Array] = {}
        failure: Failure | None = None
        rows = len(batch)
        for program in self._programs:
            if not check_all and wanted.isdisjoint(program.names):
                continue
            got, failed = program.run(batch, wanted, rows)
            columns |= got
            if failed is not None:
                failure, rows = failed, failed.row
        if failure is not None:
            self._explain(batch, failure)
        return columns

    def key_ranges(self, batch: SpanBatch) -> Ranges:
        """The bytes of the key in each record. The whole stored keys are checked.

        Raises:
            FormatError: As ``decode``.
        """
        return self._ranges(batch, KEY)

    def scope_ranges(self, batch: SpanBatch) -> Ranges:
        """Like ``key_ranges``, for key and namespace together."""
        return self._ranges(batch, NAMESPACE)

    def _ranges(self, batch: SpanBatch, last: str) -> Ranges:
        columns, failure = self._scopes.run(batch, {END_OF[last]}, len(batch))
        if failure is not None:
            self._explain(batch, failure)
        starts = batch.spans[:, scan.KEY_START]
        ends = columns[END_OF[last]].to_numpy(zero_copy_only=False)
        return Ranges(starts + TIMESTAMP_BYTES if self._format.is_queue else starts, ends)

    def _explain(self, batch: SpanBatch, failure: Failure) -> None:
        """Raises the record-wise decoder's error for a record."""
        span = batch.spans[failure.row]
        record = batch.source.record_of(span, failure.address, self._prefix_bytes)
        section = record.section
        offset = record.position + section.origin
        refusal = Refusal(failure.code, offset)
        try:
            framed = read_framed_record(record.data, self._prefix_bytes, section.key_group)
            self._format.decode(framed)
        except FormatError as error:
            raise error.moved(section.origin) from refusal
        problem = OPTION_ERRORS.get(failure.code)
        if problem is None:
            raise InvariantViolation("a kernel refused bytes that the decoder accepts") from refusal
        raise ColumnValueError(
            f"State {self._format.meta.name!r} {problem} (key group {section.key_group}, at byte "
            f"{offset}).",
            key_group=section.key_group,
            offset=offset,
        ) from refusal


def with_ends(roots: list[tuple[str, Layout]], *names: str) -> list[tuple[str, Layout]]:
    """The roots; after each of ``names`` comes the position behind it."""
    with_ends = []
    for name, layout in roots:
        with_ends.append((name, layout))
        if name in names:
            with_ends.append((END_OF[name], AddressLayout()))
    return with_ends


def key_roots(record_format: RecordFormat, options: ColumnOptions) -> list[tuple[str, Layout]]:
    """The parts of a stored key, after the key group."""
    if record_format.is_queue:
        timer: TimerSerializer = part_of(record_format.meta, TimerSerializer)
        return [
            (TIMESTAMP, Fixed(pa.int64(), i.FLIP8, 8)),
            (KEY, layout_of(timer.key, options)),
            (NAMESPACE, layout_of(timer.namespace, options)),
        ]
    roots = [
        (KEY, layout_of(record_format.key_serializer, options)),
        (NAMESPACE, layout_of(record_format.namespace_serializer, options)),
    ]
    if record_format.kind is KeyedStateType.MAP:
        serializer: MapSerializer = part_of(record_format.meta, MapSerializer)
        roots.append((USER_KEY, bounded_layout(serializer.key, options)))
    return roots


_KEEP_ROW_KINDS = frozenset(["deduplicate-state"])
"""States of SQL whose rows keep the kind of their last change: +I, or +U for a replaced row.

Source: ``DeduplicateFunctionHelper`` of Flink 2.2.1, for deduplicate and changelog-normalize.
"""


def state_options(record_format: RecordFormat, options: ColumnOptions) -> ColumnOptions:
    """The options for the values of a state: rows that keep their kind have a column for it."""
    if record_format.meta.name in _KEEP_ROW_KINDS:
        return replace(options, row_kinds="column")
    return options


def value_layout(record_format: RecordFormat, options: ColumnOptions) -> Layout | None:
    """The layout of a stored value; None for a queue, which has no values."""
    meta = record_format.meta
    options = state_options(record_format, options)
    match record_format.kind:
        case None:
            return None
        case KeyedStateType.LIST:
            element = part_of(meta, ListSerializer).element
            try:
                return list_state_layout(element, options)
            except NotInColumnsError:
                return Opaque(element.opaque_class)
        case KeyedStateType.MAP:
            value = bounded_layout(part_of(meta, MapSerializer).value, options)
            return Nullable(value, skip_rest=True)
        case _:
            return bounded_layout(meta.value_serializer, options)
