"""How Kryo of Flink 1.x stores classes of Scala 2.12, with Twitter's chill.

Flink 2.x has no chill, so such values are read and not written. Flink's own serializers of Scala
are in ``codec.serializers.scala``. Source: ``FlinkScalaKryoInstantiator``, ``com.twitter.chill``
0.7.6, and savepoints of Flink 1.20.5.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

from dstl_core.codec.big_decimal import big_decimal_text
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.kryo.kryo_input import KryoInput
from dstl_core.codec.kryo.kryo_objects import KryoObject
from dstl_core.codec.kryo.kryo_reader import Arguments, Body, KryoValueReader, KryoValueWriter
from dstl_core.codec.kryo.object_bodies import FieldsBody, slot
from dstl_core.codec.serializers.base import JsonValue
from dstl_core.codec.serializers.collections import text_key
from dstl_core.codec.serializers.primitives import float_text
from dstl_core.errors import FormatError, UnreadableValueError

PREFIX = "scala."
MODULE = "MODULE$"
"""The static field of an ``object`` of Scala, which is the one instance of its class."""
_COLLECTION = "scala.collection."
_IMMUTABLE = _COLLECTION + "immutable."
_MUTABLE = _COLLECTION + "mutable."
TextOf = Callable[[KryoObject | None], JsonValue]


@dataclass(frozen=True)
class ScalaBody(Body):
    """A body that chill stores.

    Args:
        class_name: For messages.
    """

    class_name: str

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
class PrimitivesBody(ScalaBody):
    """A tuple of primitives, for which Scala has a class of its own.

    Args:
        kinds: Of each part: J long, I int, D double, C char, Z boolean.
        is_packed: Whether chill stores it. Others have the fields that the class for objects has,
            which are null, and numbers of variable length.
    """

    kinds: str
    is_packed: bool

    def get(self, reader: KryoValueReader) -> list[Any]:
        parts: list[Any] = []
        for kind in self.kinds:
            if self.is_packed:
                parts.append(reader.input.fixed(_CODES[kind], "number of a tuple"))
                continue
            reader.class_and_object()
            parts.append(_FIELDS[kind](reader.input))
        return parts

    def text(self, value: list[Any], of: TextOf) -> JsonValue:
        return [float_text(each) if isinstance(each, float) else each for each in value]


@dataclass(frozen=True)
class BitsBody(ScalaBody):
    """A bit set that does not change: a count, its last number, and the steps between numbers."""

    def get(self, reader: KryoValueReader) -> list[int]:
        count = reader.input.count("size of a bit set")
        if count:
            reader.input.varint("last number of a bit set")
        steps = (reader.input.varint("step of a bit set") for _ in range(count))
        return list(accumulate(steps))

    def text(self, value: list[int], of: TextOf) -> JsonValue:
        return sorted(value, key=text_key)


@dataclass(frozen=True)
class ConstantBody(ScalaBody):
    """A value of an ``Enumeration``: its object, and an id. Only code knows the id's name."""

    def get(self, reader: KryoValueReader) -> tuple[str, int]:
        name = reader.class_name()
        if name is None or reader.object_as(name, SingletonBody(name)) is None:
            raise FormatError("A constant of Kryo has no Enumeration")
        return name, int(reader.input.fixed("i", "id of a constant"))

    def text(self, value: tuple[str, int], of: TextOf) -> JsonValue:
        return {"enumeration": value[0], "id": value[1]}


@dataclass(frozen=True)
class ViewBody(ScalaBody):
    """A view of a collection: its last part."""

    parts: int

    def get(self, reader: KryoValueReader) -> KryoObject | None:
        return [reader.class_and_object() for _ in range(self.parts)][-1]

    def text(self, value: KryoObject | None, of: TextOf) -> JsonValue:
        return of(value)


@dataclass(frozen=True)
class ArrayBody(ScalaBody):
    """An array that is a sequence of Scala: the class of its elements, and the array."""

    def get(self, reader: KryoValueReader) -> KryoObject | None:
        reader.object("java.lang.Class")
        return reader.class_and_object()

    def text(self, value: KryoObject | None, of: TextOf) -> JsonValue:
        return of(value)


@dataclass(frozen=True)
class UnitBody(ScalaBody):
    """The one value of ``Unit``, which has no bytes."""

    def get(self, reader: KryoValueReader) -> None:
        return None

    def text(self, value: None, of: TextOf) -> JsonValue:
        return None


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
        items = [reader.class_and_object() for _ in range(count)]
        for item in items if self.is_map else ():
            if item is None or not item.class_name.startswith(_PAIR):
                got = "null" if item is None else item.class_name
                raise FormatError(f"A map of Scala holds no pair: expected {_PAIR}, got {got}")
        return items

    def text(self, value: list[KryoObject | None], of: TextOf) -> JsonValue:
        texts = [of(each) for each in value]
        if self.is_sorted:
            return texts
        if self.is_map:
            return sorted(texts, key=lambda pair: text_key(pair[0]))
        return sorted(texts, key=text_key) if self.is_set else texts


@dataclass(frozen=True)
class OneItemBody(ScalaBody):
    """A set of one element, behind its hash."""

    def get(self, reader: KryoValueReader) -> KryoObject | None:
        reader.input.zigzag("hash")
        return reader.class_and_object()

    def text(self, value: KryoObject | None, of: TextOf) -> JsonValue:
        return [of(value)]


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
class TextBody(ScalaBody):
    """The name of a symbol, or a regular expression."""

    mark: str = ""

    def get(self, reader: KryoValueReader) -> str:
        return reader.input.text("text")

    def text(self, value: str, of: TextOf) -> JsonValue:
        return self.mark + value


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


_PAIR = "scala.Tuple2"
_CODES = {"I": "i", "J": "q", "D": "d"}
_FIELDS: dict[str, Callable[[KryoInput], Any]] = {
    "I": KryoInput.zigzag,
    "J": KryoInput.zigzag_long,
    "D": lambda source: source.fixed("d"),
    "C": lambda source: chr(int(source.fixed("H"))),
    "Z": KryoInput.boolean,
}
_OF_PRIMITIVES = {
    name: PrimitivesBody(name, kinds, is_packed=set(kinds) <= set(_CODES))
    for kinds in (*"JID", *map("".join, product("JIDCZ", repeat=2)))
    for name in (f"scala.Tuple{len(kinds)}$mc{kinds}$sp",)
}
_VIEWS = {
    "scala.collection.convert.Wrappers$" + name: 2
    for name in ("SeqWrapper", "MapWrapper", "JListWrapper", "JMapWrapper")
} | {_IMMUTABLE + "Stack": 1}
_ARRAYS = ("Byte", "Short", "Int", "Long", "Float", "Double", "Boolean", "Char", "Ref")
_EMPTY = ("scala.None$", _IMMUTABLE + "Set$EmptySet$", _IMMUTABLE + "HashSet$EmptyHashSet$")
_SIDES = {
    "scala.util.Left": "left",
    "scala.util.Right": "right",
    "scala.util.Success": "success",
    "scala.util.Failure": "failure",
}
_TUPLES = {f"scala.Tuple{count}": PartsBody(f"scala.Tuple{count}", count) for count in range(1, 23)}
SCALA_BODIES: dict[str, Any] = (
    _parts("Some", 1)
    | _parts("util.Left", 1)
    | _parts("util.Right", 1)
    | _parts("util.Success", 1)
    | _parts("util.Failure", 1)
    | _TUPLES
    | _OF_PRIMITIVES
    | {name: ViewBody(name, parts) for name, parts in _VIEWS.items()}
    | {name: ArrayBody(name) for name in (f"{_MUTABLE}WrappedArray$of{kind}" for kind in _ARRAYS)}
    | {name: BitsBody(name) for name in (f"{_IMMUTABLE}BitSet$BitSet{size}" for size in "12N")}
    | {"scala.Enumeration$Val": ConstantBody("scala.Enumeration$Val")}
    | {"scala.runtime.BoxedUnit": UnitBody("scala.runtime.BoxedUnit")}
    | _classes(_IMMUTABLE, "$colon$colon Nil$ Vector Queue")
    | _classes(_MUTABLE, "ListBuffer ArrayBuffer Queue")
    | _classes(
        _IMMUTABLE,
        "Set$Set1 Set$Set2 Set$Set3 Set$Set4 HashSet$HashTrieSet ListSet$Node "
        "ListSet$EmptyListSet$",
        is_set=True,
    )
    | {_IMMUTABLE + "HashSet$HashSet1": OneItemBody(_IMMUTABLE + "HashSet$HashSet1")}
    | _classes(_MUTABLE, "HashSet LinkedHashSet TreeSet BitSet", is_set=True)
    | _classes(
        _IMMUTABLE,
        "Map$Map1 Map$Map2 Map$Map3 Map$Map4 HashMap$HashTrieMap ListMap$Node Map$EmptyMap$ "
        "HashMap$EmptyHashMap$ ListMap$EmptyListMap$ HashMap$HashMap1 HashMap$HashMapCollision1 "
        "IntMap$Tip IntMap$Bin IntMap$Nil$ LongMap$Tip LongMap$Bin LongMap$Nil$ "
        "Map$WithDefault MapLike$$anon$1 MapLike$$anon$2",
        is_map=True,
    )
    | _classes(
        _MUTABLE,
        "HashMap LinkedHashMap TreeMap ListMap OpenHashMap LongMap AnyRefMap Map$WithDefault",
        is_map=True,
    )
    | _classes(_COLLECTION + "concurrent.", "TrieMap", is_map=True)
    | _classes(_IMMUTABLE, "TreeMap TreeSet", is_sorted=True)
    | {
        _IMMUTABLE + "Range$Inclusive": ScalaFieldsBody(
            _IMMUTABLE + "Range$Inclusive", _RANGE, lambda fields: _range(fields, inclusive=True)
        ),
        _IMMUTABLE + "Range": ScalaFieldsBody(
            _IMMUTABLE + "Range", _RANGE, lambda fields: _range(fields, inclusive=False)
        ),
        "scala.Symbol": TextBody("scala.Symbol", "'"),
        "scala.util.matching.Regex": TextBody("scala.util.matching.Regex"),
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
