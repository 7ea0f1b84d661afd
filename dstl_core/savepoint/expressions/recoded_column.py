"""Bytes of PyFlink in another one of its types, and messages in another version of theirs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import ReadableKryoSerializer
from dstl_core.codec.kryo.message_body import with_messages
from dstl_core.codec.protobuf.descriptors import Messages
from dstl_core.codec.protobuf.message_versions import message_recoder
from dstl_core.codec.pyflink.declared import PythonStateType, parse_python_type
from dstl_core.codec.pyflink.recoding import recoder
from dstl_core.errors import ColumnValueError, ConfigError, FormatError
from dstl_core.savepoint.expressions.expression import Recode

Versions = tuple[Messages | None, Messages | None]
"""The messages of the old job, and of the new one."""
_MESSAGE_NAME = re.compile(r"\w+(\.\w+)+")
"""A message in a package: no type of PyFlink has a dot."""


def recoded_column(
    recode: Recode,
    column: pa.Array,
    where: str,
    messages: Versions = (None, None),
    stored: object = None,
) -> pa.Array:
    """The column with its values in the new type.

    Args:
        recode: The types.
        column: The values.
        where: The place in the declaration, for messages.
        messages: Of Protocol Buffers.
        stored: The type of the values in the savepoint, which may be Kryo of messages.

    Raises:
        ConfigError: The column has no bytes, or the types do not go together.
        ColumnValueError: A value does not fit.
    """
    if not pa.types.is_binary(column.type):
        raise ConfigError(
            f"{where} is wrong: recode takes the bytes of a state of PyFlink, or of messages, got "
            f"{column.type}."
        )
    try:
        recoded = _recoder(recode, messages)
        if isinstance(stored, ReadableKryoSerializer) and holds_messages(stored):
            _expect_class(recode, messages, stored.java_class)
            recoded = partial(with_messages, change=recoded)
    except ConfigError as error:
        raise ConfigError(f"{where} is wrong: {error.message}") from error
    try:
        values = [None if raw is None else recoded(raw) for raw in column.to_pylist()]
    except FormatError as error:
        raise ColumnValueError(f"{where} fails: {error.message}") from error
    return pa.array(values, pa.binary())


def holds_messages(stored: object) -> bool:
    """Whether values of a type are messages behind the head that Kryo of Flink 1.x puts in front.
    In columns they are bytes.
    """
    if not isinstance(stored, ReadableKryoSerializer):
        return False
    classes = stored.classes
    return classes.dialect is Dialect.KRYO_2 and classes.layouts.holds_message(stored.java_class)


def _recoder(recode: Recode, messages: Versions) -> Callable[[bytes], bytes]:
    before, after = messages
    if before is not None and after is not None:
        old, new = before.messages.get(recode.old), after.messages.get(recode.new)
        if old is not None and new is not None:
            return message_recoder((before, old), (after, new))
        if old is not None or new is not None:
            name, whose = (recode.new, "new") if new is None else (recode.old, "old")
            raise ConfigError(f"{name!r} is no message of protos.{whose}")
    try:
        one, other = (_value_type(text) for text in (recode.old, recode.new))
    except ConfigError as error:
        if _MESSAGE_NAME.fullmatch(recode.old) is None:
            raise
        has_none = f"{recode.old!r} is no message of protos.old"
        needs = f"A message such as {recode.old!r} needs protos, the descriptor sets of both jobs"
        raise ConfigError(needs if before is None else has_none) from error
    return recoder(one.value, other.value)


def _expect_class(recode: Recode, messages: Versions, java_class: str) -> None:
    """Raises ConfigError if Kryo's head names the class of another message than the rule."""
    for known, named in zip(messages, (recode.old, recode.new), strict=True):
        message = None if known is None else known.of_java_class(java_class)
        if message is not None and message.name != named:
            raise ConfigError(
                f"the state has messages of class {java_class}, which is {message.name}, got "
                f"{named!r}"
            )


def _value_type(text: str) -> PythonStateType:
    """The type of a value; the rule of a state says its kind."""
    declared = parse_python_type(text)
    if declared.kind is not None:
        raise ConfigError(
            f"recode takes the type of a value, got {text!r}; an element of a list, and a key and "
            f"a value of a map, have rules of their own."
        )
    return declared
