"""How Kryo of Flink 1.x stores classes of Scala 2.12, with Twitter's chill.

Flink 2.x has no chill, so such values are read and not written. Flink's own serializers of Scala
are in ``codec.serializers.scala``. Source: ``FlinkScalaKryoInstantiator``, ``com.twitter.chill``
0.7.6, and savepoints of Flink 1.20.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from dstl_core.codec.big_decimal import big_decimal_text
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.kryo.kryo_objects import KryoObject
from dstl_core.codec.kryo.kryo_reader import Arguments, KryoValueReader, KryoValueWriter
from dstl_core.codec.kryo.object_bodies import FieldsBody, slot
from dstl_core.codec.serializers.base import JsonValue
from dstl_core.codec.serializers.collections import text_key
from dstl_core.errors import FormatError, UnreadableValueError

PREFIX = "scala."
MODULE = "MODULE$"
"""The static field of an ``object`` of Scala, which is the one instance of its class."""
_COLLECTION = "scala.collection."
_IMMUTABLE = _COLLECTION + "immutable."
_MUTABLE = _COLLECTION + "mutable."
TextOf = Callable[[KryoObject | None], JsonValue]


@dataclass(frozen=True)
class ScalaBody(ABC):
    """A body that chill stores.

    Args:
        class_name: For messages.
    """

    class_name: str
    is_plain: ClassVar[bool] = False
    is_enum: ClassVar[bool] = False

    def read(self, reader: KryoValueReader, arguments: Arguments) -> Any:
        if not reader.is_old:
            raise not_in_flink_2(self.class_name)
        return self.get(reader)

    @abstractmethod
    def get(self, reader: KryoValueReader) -> Any:
        """The value of an object."""

    def write(self, writer: KryoValueWriter, value: Any) -> None:
        raise not_in_flink_2(self.class_name)

    @abstractmethod
    def text(self, value: Any, of: TextOf) -> JsonValue:
        """The text form; ``of`` gives that of a part."""


@dataclass(frozen=True)
class SingletonBody(ScalaBody):
    """An ``object`` of Scala, which has no bytes. Empty lists and maps are no such object: they
    have a count as others do.
    """

    def get(self, reader: KryoValueReader) -> None:
        return None

    def text(self, value: None, of: TextOf) -> JsonValue:
        return [] if self.class_name in _EMPTY else self.class_name


@dataclass(frozen=True)
class PartsBody(ScalaBody):
    """A fixed number of parts: a tuple, ``Some``, ``Left``, ``Right``."""

    count: int

    def get(self, reader: KryoValueReader) -> list[KryoObject | None]:
        return [reader.class_and_object() for _ in range(self.count)]

    def text(self, value: list[KryoObject | None], of: TextOf) -> JsonValue:
        texts = [of(each) for each in value]
        side = _SIDES.get(self.class_name)
        return texts if side is None else {side: texts[0]}


@dataclass(frozen=True)
class ItemsBody(ScalaBody):
    """A count and the elements, behind the ordering of a sorted collection. Those of a map are
    tuples.
    """

    is_set: bool = False
    is_map: bool = False
    is_sorted: bool = False

    def get(self, reader: KryoValueReader) -> list[KryoObject | None]:
        count = reader.input.count("collection size")
        if self.is_sorted:
            reader.class_and_object()  # the ordering
        return [reader.class_and_object() for _ in range(count)]

    def text(self, value: list[KryoObject | None], of: TextOf) -> JsonValue:
        texts = [of(each) for each in value]
        if self.is_sorted:
            return texts
        if self.is_map:
            return sorted(texts, key=lambda pair: text_key(pair[0] if pair else pair))
        return sorted(texts, key=text_key) if self.is_set else texts


@dataclass(frozen=True)
class ScalaFieldsBody(ScalaBody):
    """The fields of a class whose text is not an object of its fields.

    Args:
        fields: Their types, by name.
        shown: The text form of the fields.
    """

    fields: tuple[tuple[str, str], ...]
    shown: Callable[[dict[str, Any]], JsonValue]

    def get(self, reader: KryoValueReader) -> dict[str, Any]:
        slots = tuple(slot(name, JavaType(declared)) for name, declared in sorted(self.fields))
        values = FieldsBody(self.class_name, slots).read(reader, ())
        try:
            text = self.shown(values)
        except (AttributeError, TypeError, ValueError) as error:
            raise FormatError(f"A {self.class_name} of Kryo has fields of other types") from error
        if isinstance(text, range):
            reader.repeat(len(text))
            text = list(text)
        return {"text": text}

    def text(self, value: dict[str, Any], of: TextOf) -> JsonValue:
        return value["text"]


@dataclass(frozen=True)
class SymbolBody(ScalaBody):
    """The name of a symbol."""

    def get(self, reader: KryoValueReader) -> str:
        return reader.input.text("symbol")

    def text(self, value: str, of: TextOf) -> JsonValue:
        return f"'{value}"


def not_in_flink_2(name: str) -> UnreadableValueError:
    """The error for a value that no Kryo of Flink 2.x can hold."""
    return UnreadableValueError(
        f"Class {name} is of Scala, and Kryo of Flink 2.x has no serializer for it; leave the "
        f"state out"
    )


def is_singleton(name: str) -> bool:
    """Whether a class of Scala's library is that of an ``object``, such as ``scala.None$``."""
    return name.startswith(PREFIX) and name.endswith("$")


def _range(fields: dict[str, Any], *, inclusive: bool) -> range:
    start, end, step = fields["start"], fields["end"], fields["step"]
    return range(start, end + (1 if step > 0 else -1) if inclusive else end, step)


_RANGE = (
    ("end", "int"),
    ("isEmpty", "boolean"),
    ("lastElement", "int"),
    ("numRangeElements", "int"),
    ("start", "int"),
    ("step", "int"),
)
_BIG_DECIMAL = (
    ("bigDecimal", "java.math.BigDecimal"),
    ("computedHashCode", "int"),
    ("mc", "java.math.MathContext"),
)


def _classes(package: str, names: str, **options: bool) -> dict[str, ItemsBody]:
    return {package + name: ItemsBody(package + name, **options) for name in names.split()}


def _parts(name: str, count: int) -> dict[str, PartsBody]:
    return {PREFIX + name: PartsBody(PREFIX + name, count)}


_EMPTY = ("scala.None$", _IMMUTABLE + "Set$EmptySet$", _IMMUTABLE + "HashSet$EmptyHashSet$")
_SIDES = {"scala.util.Left": "left", "scala.util.Right": "right"}
_TUPLES = {f"scala.Tuple{count}": PartsBody(f"scala.Tuple{count}", count) for count in range(1, 23)}
SCALA_BODIES: dict[str, Any] = (
    _parts("Some", 1)
    | _parts("util.Left", 1)
    | _parts("util.Right", 1)
    | _TUPLES
    | _classes(_IMMUTABLE, "$colon$colon Nil$ Vector Queue")
    | _classes(_MUTABLE, "ListBuffer ArrayBuffer Queue")
    | _classes(
        _IMMUTABLE,
        "Set$Set1 Set$Set2 Set$Set3 Set$Set4 HashSet$HashTrieSet ListSet$Node "
        "ListSet$EmptyListSet$",
        is_set=True,
    )
    | _classes(_MUTABLE, "HashSet LinkedHashSet", is_set=True)
    | _classes(
        _IMMUTABLE,
        "Map$Map1 Map$Map2 Map$Map3 Map$Map4 HashMap$HashTrieMap ListMap$Node Map$EmptyMap$ "
        "HashMap$EmptyHashMap$ ListMap$EmptyListMap$",
        is_map=True,
    )
    | _classes(_MUTABLE, "HashMap LinkedHashMap", is_map=True)
    | _classes(_IMMUTABLE, "TreeMap TreeSet", is_sorted=True)
    | {
        _IMMUTABLE + "Range$Inclusive": ScalaFieldsBody(
            _IMMUTABLE + "Range$Inclusive", _RANGE, lambda fields: _range(fields, inclusive=True)
        ),
        _IMMUTABLE + "Range": ScalaFieldsBody(
            _IMMUTABLE + "Range", _RANGE, lambda fields: _range(fields, inclusive=False)
        ),
        "scala.Symbol": SymbolBody("scala.Symbol"),
        "scala.math.BigDecimal": ScalaFieldsBody(
            "scala.math.BigDecimal",
            _BIG_DECIMAL,
            lambda fields: big_decimal_text(*fields["bigDecimal"].value),
        ),
        "scala.math.BigInt": ScalaFieldsBody(
            "scala.math.BigInt",
            (("bigInteger", "java.math.BigInteger"),),
            lambda fields: str(fields["bigInteger"].value),
        ),
    }
)
MATH_CONTEXT = FieldsBody(
    "java.math.MathContext",
    (slot("precision", JavaType("int")), slot("roundingMode", JavaType("java.math.RoundingMode"))),
)
FINAL_SCALA = frozenset(
    {
        *_SIDES,
        "scala.Some",
        "scala.Symbol",
        "scala.math.BigDecimal",
        "scala.math.BigInt",
        _IMMUTABLE + "$colon$colon",
        _IMMUTABLE + "Vector",
    }
)
"""Classes of Scala whose fields have no class in front of a value."""
