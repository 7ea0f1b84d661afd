"""Defines the fields by which a commit record describes its epoch.

The payload of the record and the sidecar of the checkpoint contain them under ``facts``.
``docs/formats/commit.schema.json`` describes them for other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, get_args

from dstl_core.errors import FormatError, UnsupportedVersionError

Kind = Literal[
    "start",
    "epoch",
    "drain",
    "materialization",
    "migration",
    "erasure",
    "savepoint",
    "stop",
    "resume",
]
"""Why something is committed."""

_Part = TypeVar("_Part")
_Reader = Callable[[Any, str], Any]
"""Checks and converts a JSON value; the text is its path, for messages."""
_SHOWN = 60
"""Characters of a wrong value that a message shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputFacts:
    """The input of an epoch.

    Args:
        id: The caller's name of the input.
        rows: Number of rows.
        hash_sum: Sum of the hashes of all rows, modulo 2^64, as 16 hexadecimal digits.
        fingerprint_version: Number of the rule that hashes rows; 1 if the record has none.
        columns: The columns that are hashed, with their types in Spark; None in records of earlier
            releases, which hash every column of the batch.
    """

    id: str | int
    rows: int
    hash_sum: str
    fingerprint_version: int = 1
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceFacts:
    """The snapshot that a pipeline started from.

    Args:
        savepoint: Its folder.
        sha256: The sha256 of its ``_metadata``, in hexadecimal digits.
    """

    savepoint: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyFacts:
    """How many keys an operator has after a commit.

    Args:
        count: Number of keys with a value in at least one state.
        states: Names of the states that were looked at.
    """

    count: int
    states: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkFacts:
    """Counts and times of one subtask in an epoch, or of all subtasks of an operator.

    Args:
        rows: Rows that it read.
        changes: Changes that it logged.
        changed_keys: Keys whose state changed.
        keys_gained: Keys that got their first value, less those that lost their last one. Functions
            on columns count them; it is 0 of others.
        output_rows: Rows that it emitted.
        output_files: Names of the files with these rows.
        late_rows: Rows that came after all of their windows had ended.
        late_files: Names of the files with late rows.
        restore_ms: Time to restore the state, in milliseconds.
        apply_ms: Time to apply the rows, in milliseconds.
        persist_ms: Time to make the state durable, in milliseconds.
        back_pressure_ms: Time that a subtask waited until uploads were accepted, in milliseconds.
        failed_uploads: Number of upload attempts that failed.
    """

    rows: int = 0
    changes: int = 0
    changed_keys: int = 0
    keys_gained: int = 0
    output_rows: int = 0
    output_files: tuple[str, ...] = ()
    late_rows: int = 0
    late_files: tuple[str, ...] = ()
    restore_ms: int = 0
    apply_ms: int = 0
    persist_ms: int = 0
    back_pressure_ms: int = 0
    failed_uploads: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorFacts(WorkFacts):
    """Counts and times of one operator in an epoch. Times are those of its slowest subtask.

    Args:
        log_bytes: Bytes that the checkpoint added.
        warmth: Number of subtasks by how they got their state: ``warm``, ``caught up``, ``cold`` or
            ``idle``.
        retries: Number of task attempts that failed.

    The other arguments are those of ``WorkFacts``.
    """

    log_bytes: int = 0
    warmth: Mapping[str, int] = field(default_factory=dict)
    retries: int = 0


LATE_SUFFIX = ".late"
"""Ends the name of the output with the late rows of an operator."""
_WORK = (
    "seconds",
    "restored_from",
    "watermarks",
    "changes",
    "changed_keys",
    "log_bytes",
    "output_rows",
    "output_files",
    "operators",
)
_ALWAYS: Mapping[str | None, tuple[str, ...]] = {
    "start": ("source", "materialization_id", "materialized_bytes"),
    "epoch": ("input", *_WORK),
    "drain": _WORK,
    "materialization": (
        "restored_from",
        "watermarks",
        "log_bytes_before",
        "materialized_bytes",
    ),
    "migration": ("restored_from", "watermarks", "materialized_bytes"),
    "erasure": ("restored_from", "watermarks"),
    "stop": ("restored_from", "watermarks", "savepoint"),
    "resume": ("restored_from", "watermarks"),
}
"""Fields that a record of a kind always has. Other fields are written only if they are set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochFacts:
    """The description of an epoch in its commit record.

    Args:
        kind: Why a job committed it; None if no job did.
        attempt: Random text that identifies one attempt of an epoch.
        metadata_bytes: Size of the ``_metadata`` file; the store fills it in.
        input: The input that was applied, if there was one.
        seconds: Time from the call of the job to the commit.
        restored_from: Id of the checkpoint that the state was restored from.
        watermarks: Event time that operators have reached, in milliseconds, by uid.
        changes: Changes that were logged.
        changed_keys: Keys whose state changed, summed over operators.
        log_bytes: Bytes that the checkpoint added.
        output_rows: Rows that operators emitted.
        output_files: Names of all files below the output folder of the checkpoint.
        operators: Counts and times of each operator, by uid.
        source: The snapshot that the pipeline started from, if there was one.
        materialization_id: Highest id of a base that a full checkpoint wrote.
        materialized_bytes: Size of the full state that was written.
        log_bytes_before: Size of the log before the state was written in full.
        of_checkpoint: Id of the checkpoint whose full state was written while epochs went on.
        savepoint: Folder of the savepoint that the pipeline stopped with; an erasure after that
            has it, too.
        implied: Whether this start was made for a first input that is not committed yet. Until
            then, another start may replace it.
        notes: Values that the caller of the job stores with the commit.
        keys: The keys of each operator after the commit, by uid, where they are known: those of
            functions on columns, unless the pipeline started from a savepoint or with an earlier
            release.
        definitions: What the aggregates of the state are, by uid of the operator and name of the
            aggregate; under the empty name, how a row selects its state.
        outputs: The columns of each output that the epoch stored, by the name of the output, also
            if it has no rows; None if an earlier release wrote the record.
    """

    kind: Kind | None = None
    attempt: str | None = None
    metadata_bytes: int | None = None
    input: InputFacts | None = None
    seconds: float = 0.0
    restored_from: int | None = None
    watermarks: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0
    changed_keys: int = 0
    log_bytes: int = 0
    output_rows: int = 0
    output_files: tuple[str, ...] = ()
    operators: Mapping[str, OperatorFacts] = field(default_factory=dict)
    source: SourceFacts | None = None
    materialization_id: int | None = None
    materialized_bytes: int | None = None
    log_bytes_before: int | None = None
    of_checkpoint: int | None = None
    savepoint: str | None = None
    implied: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, KeyFacts] = field(default_factory=dict)
    definitions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[str, ...]] | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the pipeline is stopped from this commit on."""
        return self.kind == "stop" or (self.kind == "erasure" and self.savepoint is not None)

    def stores(self, name: str) -> bool:
        """Whether the epoch stored an output, also if it gave no rows."""
        return self.outputs is None or name in self.outputs

    def output_of(self, name: str) -> tuple[int, tuple[str, ...]]:
        """Number of rows and names of the files of an output: the uid of an operator, or
        ``<uid>.late`` for the late rows of its windows.
        """
        facts = self.operators.get(name)
        if facts is not None:
            return facts.output_rows, facts.output_files
        late = self.operators.get(name.removesuffix(LATE_SUFFIX))
        return (0, ()) if late is None else (late.late_rows, late.late_files)

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the record."""
        return _plain(self, _ALWAYS.get(self.kind, ()))

    @classmethod
    def from_json(cls, body: object, what: str = "A commit record") -> EpochFacts:
        """Reads the facts of a record, also if an earlier release wrote it.

        Args:
            body: The JSON object.
            what: Name of the record, as the first words of a message.

        Raises:
            FormatError: A field has a value of another type, or a required field is missing.
            UnsupportedVersionError: A field is unknown.
        """
        try:
            return _read_part(cls, body, "facts")
        except FormatError as error:
            raise type(error)(f"{what} {error.what}", **error.context) from None  # type: ignore[arg-type]


NO_FACTS = EpochFacts()
"""The facts of a checkpoint that no job took."""


def _plain(part: Any, always: tuple[str, ...] = ()) -> dict[str, Any]:
    """The JSON object of a part: the fields in ``always``, and those that differ from defaults."""
    document = {}
    for part_field in fields(part):
        value = getattr(part, part_field.name)
        if part_field.name in always or value != _default(part_field):
            document[part_field.name] = _json(value)
    return document


def _json(value: Any) -> Any:
    if isinstance(value, OperatorFacts):
        always = tuple(each.name for each in fields(value) if each.name != "keys_gained")
        return _plain(value, always)
    if is_dataclass(value):
        return _plain(value)
    if isinstance(value, Mapping):
        return {name: _json(each) for name, each in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _default(part_field: Field[Any]) -> Any:
    return (
        part_field.default
        if part_field.default_factory is MISSING
        else part_field.default_factory()
    )


# ---------------------------------------------------------------------------------- reading


def _read_part(part: type[_Part], body: object, path: str) -> _Part:
    """Reads a part of the facts from its JSON object."""
    if not isinstance(body, dict):
        raise _wrong(path, "an object", body)
    readers, required = _fields_of(part)  # type: ignore[arg-type]  # a class can be hashed
    values = {}
    for name, value in body.items():
        if name not in readers:
            raise UnsupportedVersionError(
                f"has an unknown field {path}.{name}; use the release of dstl that wrote it"
            )
        values[name] = readers[name](value, f"{path}.{name}")
    for name in required:
        if name not in values:
            raise FormatError("lacks a field", field=f"{path}.{name}")
    return part(**values)


@cache
def _fields_of(part: Any) -> tuple[Mapping[str, _Reader], Sequence[str]]:
    """The reader of each field, by its annotation, and the fields without a default."""
    required = [each.name for each in fields(part) if _default(each) is MISSING]
    return {each.name: _READERS[str(each.type)] for each in fields(part)}, required


def _scalar(*types: type, expected: str) -> _Reader:
    def read(value: Any, path: str) -> Any:
        if type(value) not in types:  # bool is a subclass of int, but not a number here
            raise _wrong(path, expected, value)
        return value

    return read


def _optional(reader: _Reader) -> _Reader:
    return lambda value, path: None if value is None else reader(value, path)


def _each(reader: _Reader) -> _Reader:
    def read(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        return {name: reader(each, f"{path}.{name}") for name, each in value.items()}

    return read


def _kind(value: Any, path: str) -> Any:
    if value not in get_args(Kind):
        raise _wrong(path, f"one of {', '.join(get_args(Kind))}", value)
    return value


def _names(value: Any, path: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _wrong(path, "a list of names", value)
    return tuple(value)


def _part(part: type) -> _Reader:
    return lambda value, path: _read_part(part, value, path)


_TEXT = _scalar(str, expected="text")
_WHOLE = _scalar(int, expected="a whole number")
_READERS: Mapping[str, _Reader] = {
    "str": _TEXT,
    "int": _WHOLE,
    "float": _scalar(float, int, expected="a number"),
    "bool": _scalar(bool, expected="true or false"),
    "str | int": _scalar(str, int, expected="text or a whole number"),
    "str | None": _optional(_TEXT),
    "int | None": _optional(_WHOLE),
    "tuple[str, ...]": _names,
    "Mapping[str, Any]": _each(lambda value, path: value),
    "Mapping[str, int]": _each(_WHOLE),
    "Mapping[str, str] | None": _optional(_each(_TEXT)),
    "Mapping[str, Mapping[str, str]]": _each(_each(_TEXT)),
    "Mapping[str, tuple[str, ...]] | None": _optional(_each(_names)),
    "Mapping[str, OperatorFacts]": _each(_part(OperatorFacts)),
    "Mapping[str, KeyFacts]": _each(_part(KeyFacts)),
    "Kind | None": _optional(_kind),
    "InputFacts | None": _optional(_part(InputFacts)),
    "SourceFacts | None": _optional(_part(SourceFacts)),
}
"""The reader of a field, by its annotation."""


def _wrong(path: str, expected: str, value: object) -> FormatError:
    got = repr(value)
    shown = got if len(got) <= _SHOWN else f"{got[:_SHOWN]}..."
    return FormatError("is damaged", field=path, expected=expected, got=shown)
