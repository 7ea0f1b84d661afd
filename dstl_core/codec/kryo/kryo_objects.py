"""Objects of Java as Kryo stores them, and what the two versions of Kryo share."""

from __future__ import annotations

from enum import Enum
from typing import Any

from dstl_core.errors import UnreadableValueError


class Dialect(Enum):
    """A version of Kryo."""

    KRYO_2 = "2.24"
    KRYO_5 = "5"


class KryoObject:
    """An object: its class, and a value whose form depends on the class.

    Numbers, booleans and texts are Python's; a character is a text of length 1. Collections and
    arrays are lists of objects or None, maps lists of pairs, enums their ordinal, and objects with
    fields dicts of their fields, where primitive fields are plain values. Two objects are the same
    only if they are one: values refer to objects more than once, and to themselves.
    """

    __slots__ = ("class_name", "value")

    def __init__(self, class_name: str, value: Any = None) -> None:
        self.class_name = class_name
        self.value = value

    def __repr__(self) -> str:
        return f"KryoObject({self.class_name})"


PRIMITIVE_OF = {
    "java.lang.Integer": "int",
    "java.lang.String": "java.lang.String",
    "java.lang.Float": "float",
    "java.lang.Boolean": "boolean",
    "java.lang.Byte": "byte",
    "java.lang.Character": "char",
    "java.lang.Short": "short",
    "java.lang.Long": "long",
    "java.lang.Double": "double",
    "java.lang.Void": "void",
}
"""The classes of ids 0 to 9, in this order, with their primitive types."""
WRAPPERS = frozenset(PRIMITIVE_OF) - {"java.lang.String"}

_FIRST_JDK_ID = 73
_JDK_CLASSES = (
    "java.util.Arrays$ArrayList",
    "java.util.BitSet",
    "java.util.PriorityQueue",
    "java.util.regex.Pattern",
    "java.sql.Date",
    "java.sql.Time",
    "java.sql.Timestamp",
    "java.net.URI",
    "java.net.InetSocketAddress",
    "java.util.UUID",
    "java.util.Locale",
    "java.text.SimpleDateFormat",
)
FIRST_OWN_ID = 85
"""The declared class of a state, then the types that the job registered."""

REGISTERED = dict(enumerate(PRIMITIVE_OF)) | {
    _FIRST_JDK_ID + at: name for at, name in enumerate(_JDK_CLASSES)
}
"""Class names by id, the same in both versions. The ids between are Scala's: ``SCALA_IDS``."""

_IMMUTABLE, _MUTABLE = "scala.collection.immutable.", "scala.collection.mutable."
SCALA_IDS = {
    15: "scala.Some",
    16: "scala.util.Left",
    17: "scala.util.Right",
    18: _IMMUTABLE + "Vector",
    23: _IMMUTABLE + "HashSet$HashTrieSet",
    28: _IMMUTABLE + "HashMap$HashTrieMap",
    29: _IMMUTABLE + "Range$Inclusive",
    33: _MUTABLE + "HashMap",
    34: _MUTABLE + "HashSet",
    10: "scala.collection.convert.Wrappers$SeqWrapper",
    12: "scala.collection.convert.Wrappers$MapWrapper",
    13: "scala.collection.convert.Wrappers$JListWrapper",
    14: "scala.collection.convert.Wrappers$JMapWrapper",
    32: _MUTABLE + "BitSet",
    70: "scala.Symbol",
    72: "scala.runtime.BoxedUnit",
    **{18 + count: f"{_IMMUTABLE}Set$Set{count}" for count in range(1, 5)},
    **{23 + count: f"{_IMMUTABLE}Map$Map{count}" for count in range(1, 5)},
    **{35 + count: f"scala.Tuple{count}" for count in range(1, 23)},
    **{58 + at: f"scala.Tuple1$mc{kind}$sp" for at, kind in enumerate("JID")},
    **{
        61 + at: f"scala.Tuple2$mc{kinds}$sp"
        for at, kinds in enumerate(["JJ", "JI", "JD", "IJ", "II", "ID", "DJ", "DI", "DD"])
    },
}
"""Class names by id in Kryo of Flink 1.x, where Flink's jar of Scala is on the class path."""

READABLE_IN_KRYO_5 = {
    f"java.util.Collections${view}{kind}": f"java.util.{plain}"
    for view in ("Unmodifiable", "Synchronized")
    for kind, plain in {
        "Collection": "ArrayList",
        "List": "ArrayList",
        "RandomAccessList": "ArrayList",
        "Set": "LinkedHashSet",
        "Map": "LinkedHashMap",
    }.items()
}
"""Views that Kryo writes and cannot read, in both versions, with classes that hold the same."""
UNREADABLE_IN_KRYO_5 = frozenset({"java.util.EnumMap"})
"""Classes that Kryo of Flink writes and cannot read, and that no other class can stand for."""


def expect_readable(class_name: str) -> None:
    """Raises UnreadableValueError for a class of ``UNREADABLE_IN_KRYO_5``."""
    if class_name in UNREADABLE_IN_KRYO_5:
        raise UnreadableValueError(
            f"Flink cannot read values of class {class_name} that Kryo wrote; leave the state out"
        )
