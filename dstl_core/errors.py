"""Every error that dstl raises, as one tree.

    DstlError
    ├─ ConfigError(ValueError)
    │   └─ MissingPackageError(ImportError)
    ├─ FormatError(ValueError)
    │   ├─ TruncatedDataError(EOFError)
    │   ├─ UnsupportedVersionError
    │   ├─ UnknownSerializerError
    │   └─ UnreadableValueError
    ├─ StorageError(OSError)
    │   ├─ StateFileNotFoundError(FileNotFoundError)
    │   ├─ PathNotAllowedError
    │   ├─ CommitUncertainError
    │   └─ UploadTimeoutError(TimeoutError)
    ├─ ChangelogError
    │   ├─ WriterClosedError
    │   ├─ ChangesTruncatedError
    │   ├─ UploadFailedError
    │   └─ BackpressureTimeoutError(TimeoutError)
    ├─ SchedulerClosedError
    ├─ CheckpointError
    │   ├─ FencedError
    │   └─ JobBusyError
    ├─ RestoreError
    │   ├─ MaxParallelismMismatchError
    │   ├─ NonRestoredStateError
    │   └─ StateMigrationError
    ├─ SavepointError
    │   ├─ SnapshotExistsError
    │   ├─ NoSuchOperatorError(KeyError)
    │   ├─ NoSuchStateError(KeyError)
    │   └─ DuplicateKeyError
    ├─ ColumnValueError(ValueError)
    ├─ NotInColumnsError
    ├─ InputChangedError
    └─ UserFunctionError
    InvariantViolation(AssertionError)

``InvariantViolation`` is not a ``DstlError``: it reports a bug of dstl itself and must not be
swallowed by code that handles bad input.

A message is one sentence: what failed, expected and got, where, what to do. ``context`` carries
the same facts as values; ``location`` (a file) is added once, at the boundary that knows it. Of a
message above 2,000 characters the middle is left out: it quotes what a user or a file gave. A
message gives an option both names, ``(key_types, --key-type)``, of which the reader sees their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OPTION = re.compile(r"\((\w+), (--[a-z][a-z-]*)\)")
"""An option in a message: its name in Python, and its flag on the command line."""
_LONGEST_MESSAGE = 2000
_SHOWN_END = 400
"""Characters of the end of a longer message, which says what to do."""
_names_flags: ContextVar[bool] = ContextVar("names_flags", default=False)


@contextmanager
def flags_in_messages() -> Iterator[None]:
    """Messages name an option by its flag while the block runs. Otherwise they name it as the
    argument in Python.
    """
    token = _names_flags.set(True)
    try:
        yield
    finally:
        _names_flags.reset(token)


def _for_reader(message: str) -> str:
    return _OPTION.sub(r"(\2)" if _names_flags.get() else r"(\1)", message)


def _shortened(message: str) -> str:
    if len(message) <= _LONGEST_MESSAGE:
        return message
    start = message[: _LONGEST_MESSAGE - _SHOWN_END]
    return f"{start} [.. {len(message) - _LONGEST_MESSAGE:,} more ..] {message[-_SHOWN_END:]}"


def in_one_line(error: BaseException) -> str:
    """What an error says, as a part of a sentence."""
    return " ".join(str(error).split())


class DstlError(Exception):
    """Root of the tree. ``context`` maps names to the values in the message."""

    def __init__(self, message: str, /, **context: object) -> None:
        message = _shortened(message)
        super().__init__(message)
        self._message = message
        self.context: dict[str, object] = {k: v for k, v in context.items() if v is not None}

    @property
    def message(self) -> str:
        """The sentence without ``location``. It names options as the reader does."""
        return _for_reader(self._message)

    def __str__(self) -> str:
        location = self.context.get("location")
        return f"{self.message} [{location}]" if location is not None else self.message

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross the border of a Spark worker, so the context has to survive pickling.
        return _rebuild, (type(self), self._message, self.context)


def _rebuild(cls: type[DstlError], message: str, context: dict[str, object]) -> DstlError:
    error = cls.__new__(cls)
    DstlError.__init__(error, message, **context)
    return error


class ConfigError(DstlError, ValueError):
    """An option or an argument is invalid."""


class MissingPackageError(ConfigError, ImportError):
    """A package that is not installed is needed. The sentence names the extra that brings it."""


class FormatError(DstlError, ValueError):
    """Bytes do not follow their format.

    Args:
        what: What could not be read.
        offset: Position in bytes from the start of the file or stream.
        field: Name of the field.
        expected: What the format requires.
        got: What the bytes hold.
    """

    def __init__(
        self,
        what: str,
        /,
        *,
        offset: int | None = None,
        field: str | None = None,
        expected: object = None,
        got: object = None,
        **context: object,
    ) -> None:
        self._what = what
        parts = [
            f"{name} {value}"
            for name, value in (("expected", expected), ("got", got))
            if value is not None
        ]
        message = f"{what}: {', '.join(parts)}" if parts else what
        if field is not None:
            message += f", field {field}"
        if offset is not None:
            message += f", at byte {offset}"
        super().__init__(message, offset=offset, field=field, expected=expected, got=got, **context)

    @property
    def what(self) -> str:
        """What could not be read, without expected, got and offset."""
        return _for_reader(self._what)

    def moved(self, by: int) -> FormatError:
        """The same error for a buffer that starts ``by`` bytes into its file."""
        context = dict(self.context)
        offset = context.pop("offset", None)
        moved = None if not isinstance(offset, int) else offset + by
        return type(self)(self._what, **context, offset=moved)  # type: ignore[arg-type]  # as given


class TruncatedDataError(FormatError, EOFError):
    """The bytes end inside a field."""


class UnsupportedVersionError(FormatError):
    """This release does not read this version of a format."""


class UnknownSerializerError(FormatError):
    """No reader is registered for a serializer snapshot class. Nothing after it can be parsed."""


class UnreadableValueError(FormatError):
    """Only a Java class of the job can read the bytes. They are not damaged."""


class StorageError(DstlError, OSError):
    """A file system operation failed."""


class StateFileNotFoundError(StorageError, FileNotFoundError):
    """A file or folder is missing."""


class PathNotAllowedError(StorageError):
    """A handle names a path outside the allowed roots."""


class CommitUncertainError(StorageError):
    """The answer to a commit was lost, so its outcome is unknown. Nothing was deleted. The commit
    log shows the outcome once it can be read.
    """


class UploadTimeoutError(StorageError, TimeoutError):
    """One attempt of an upload timed out. It may still run; its result is discarded."""


class ChangelogError(DstlError):
    """A changelog writer was misused, or its changes are gone."""


class WriterClosedError(ChangelogError):
    """The writer, or the scheduler behind it, is closed."""


class UploadFailedError(ChangelogError):
    """All attempts of an upload failed. The changes are kept for the next persist."""


class ChangesTruncatedError(ChangelogError):
    """The changes were truncated. Persist from a later sequence number."""


class BackpressureTimeoutError(ChangelogError, TimeoutError):
    """Uploads did not catch up in time. The change was not appended, and nothing was dropped. Try
    again later, or raise the limit of bytes in flight.
    """


class SchedulerClosedError(DstlError):
    """A task was given to a scheduler that is shut down."""


class CheckpointError(DstlError):
    """A checkpoint could not be taken. ``context['reason']`` holds the failure reason."""


class FencedError(CheckpointError):
    """Another owner has claimed the pipeline; nothing was committed."""


class JobBusyError(CheckpointError):
    """Another thread uses the same job. Nothing ran; call again later."""


class RestoreError(DstlError):
    """The job cannot restore the state."""


class MaxParallelismMismatchError(RestoreError):
    """The snapshot and the job have different numbers of key groups."""


class NonRestoredStateError(RestoreError):
    """The snapshot holds state of an operator that the job does not have."""


class StateMigrationError(RestoreError):
    """The type of a state is not compatible with that of its restored values."""


class SavepointError(DstlError):
    """A savepoint cannot be read or written as asked."""


class SnapshotExistsError(SavepointError):
    """The folder holds a snapshot already, or an unfinished one: ``context["found"]``."""


class NoSuchOperatorError(SavepointError, KeyError):
    """The snapshot has no such operator. The message lists its operators."""


class NoSuchStateError(SavepointError, KeyError):
    """The operator has no such state. The message lists its states."""


class DuplicateKeyError(SavepointError):
    """A key has two rows where only one is allowed."""


class ColumnValueError(DstlError, ValueError):
    """A valid value does not fit into a column of the chosen form. The message names the option."""


class NotInColumnsError(DstlError):
    """Columns cannot hold this state, or values of its type (``type_name``). Callers read it record
    by record instead.
    """

    def __init__(
        self, message: str = "Columns do not hold this state.", /, **context: object
    ) -> None:
        super().__init__(message, **context)

    @property
    def type_name(self) -> str:
        return str(self.context.get("type_name", "unknown"))


class InputChangedError(DstlError):
    """A committed input id was given again with other rows or columns, or a batch changed while an
    epoch read it.
    """


class UserFunctionError(DstlError):
    """A user's function raised an error, which is the cause of this one."""


class InvariantViolation(AssertionError):
    """A bug in dstl: an invariant of its own code does not hold."""


UNREADABLE = (FormatError, RestoreError, SavepointError, ColumnValueError, NotInColumnsError)
"""Errors whose cause is stored bytes or their types, so every attempt raises them again.

Code that has another way to read state, or goes on without it, catches these. An error of the
store, e.g. of its network, is not among them: it says nothing about the state.
"""

DAMAGED = (*UNREADABLE, StateFileNotFoundError, PathNotAllowedError)
"""Errors that say what is wrong with a snapshot: its bytes, or files that are not where
they belong.

Code that answers whether state is whole or can be read catches these. If the store cannot be asked,
there is no answer.
"""


_PERMANENT = (FencedError, InputChangedError, ConfigError, RestoreError, FormatError)
_RAISED = re.compile(r" raised (\w+): ")


def is_permanent(error: DstlError) -> bool:
    """Whether the same run fails in the same way each time: types, formats, configuration.

    A scheduler need not try such a run again. A function that uses state of the wrong type raises
    such an error, too. From a worker comes its text alone.
    """
    if isinstance(error, _PERMANENT):
        return True
    error_name = _RAISED.search(str(error)) if isinstance(error, UserFunctionError) else None
    kind = None if error_name is None else globals().get(error_name[1])
    return isinstance(kind, type) and issubclass(kind, _PERMANENT)


@contextmanager
def error_context(**context: object) -> Iterator[None]:
    """Adds values to the context of every ``DstlError`` that leaves the block; overwrites none."""
    try:
        yield
    except DstlError as error:
        for name, value in context.items():
            error.context.setdefault(name, value)
        raise
