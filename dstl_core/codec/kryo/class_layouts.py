"""Finds out how Kryo stores a class: from what is known of the JDK and Flink, or from the jars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dstl_core.codec.classfile.class_file import OBJECT, ClassFile, Flag
from dstl_core.codec.classfile.generic_types import (
    PRIMITIVE_NAMES,
    JavaType,
    class_name_of,
    component_name,
)
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.codec.kryo.generics import (
    GenericType,
    Hierarchy,
    generic_type,
    parameters_of,
)
from dstl_core.codec.kryo.jdk_bodies import (
    SCALARS,
    THROWABLES,
    AsListBody,
    EnumSetBody,
    FixedSizeBody,
    OptionalBody,
)
from dstl_core.codec.kryo.kryo_objects import WRAPPERS
from dstl_core.codec.kryo.kryo_reader import Body
from dstl_core.codec.kryo.message_body import MESSAGE_SERIALIZER, MESSAGE_TYPES, MessageBody
from dstl_core.codec.kryo.object_bodies import (
    CollectionBody,
    EnumBody,
    FieldsBody,
    FieldSlot,
    MapBody,
    ObjectArrayBody,
    PrimitiveArrayBody,
    slot,
)
from dstl_core.codec.kryo.scala_bodies import (
    FINAL_SCALA,
    MATH_CONTEXT,
    MODULE,
    PREFIX,
    SCALA_BODIES,
    SingletonBody,
    is_singleton,
    not_in_flink_2,
)
from dstl_core.codec.protobuf.descriptors import Messages
from dstl_core.errors import UnreadableValueError

_COLLECTION = CollectionBody()
_MAP = MapBody()


def _named(package: str, names: str, body: Any) -> dict[str, Any]:
    """The same body for several classes; ``package`` may be a class around them."""
    sign = "$" if package[-1] == "s" else "."
    return {f"{package}{sign}{name}": body for name in names.split()}


_COLLECTIONS: dict[str, Any] = (
    _named(
        "java.util",
        "Collection List Set Queue Deque AbstractCollection AbstractList AbstractSet AbstractQueue "
        "AbstractSequentialList ArrayList LinkedList HashSet LinkedHashSet ArrayDeque Vector Stack "
        "Collections$UnmodifiableCollection Collections$UnmodifiableList "
        "Collections$UnmodifiableRandomAccessList Collections$UnmodifiableSet "
        "Collections$SynchronizedCollection Collections$SynchronizedList "
        "Collections$SynchronizedRandomAccessList Collections$SynchronizedSet",
        _COLLECTION,
    )
    | _named(
        "java.util.concurrent",
        "CopyOnWriteArrayList CopyOnWriteArraySet ConcurrentLinkedQueue ConcurrentLinkedDeque "
        "LinkedBlockingQueue LinkedBlockingDeque ConcurrentSkipListSet",
        _COLLECTION,
    )
    | _named(
        "java.util.ImmutableCollections",
        "List12 ListN Set12 SetN SubList",
        CollectionBody(has_nulls=False),
    )
    | {
        "java.util.TreeSet": CollectionBody(has_comparator=True),
        "java.util.PriorityQueue": CollectionBody(has_comparator=True, is_typed=False),
        "java.util.Arrays$ArrayList": AsListBody(_COLLECTION),
        "java.util.RegularEnumSet": EnumSetBody(),
        "java.util.JumboEnumSet": EnumSetBody(),
        "java.util.EnumSet": EnumSetBody(),
        "java.util.Collections$EmptyList": FixedSizeBody(0),
        "java.util.Collections$EmptySet": FixedSizeBody(0),
        "java.util.Collections$SingletonList": FixedSizeBody(1),
        "java.util.Collections$SingletonSet": FixedSizeBody(1),
    }
)
_MAPS: dict[str, Any] = (
    _named(
        "java.util",
        "Map AbstractMap HashMap LinkedHashMap Hashtable Properties IdentityHashMap WeakHashMap "
        "EnumMap Collections$UnmodifiableMap Collections$SynchronizedMap",
        _MAP,
    )
    | _named("java.util.ImmutableCollections", "Map1 MapN", MapBody(has_nulls=False))
    | {
        "java.util.concurrent.ConcurrentHashMap": _MAP,
        "java.util.TreeMap": MapBody(has_comparator=True, has_new_comparator=True),
        "java.util.concurrent.ConcurrentSkipListMap": MapBody(has_new_comparator=True),
        "java.util.Collections$EmptyMap": FixedSizeBody(0, is_map=True),
        "java.util.Collections$SingletonMap": FixedSizeBody(2, is_map=True),
    }
)
KAFKA_PARTITION = "org.apache.flink.streaming.connectors.kafka.internals.KafkaTopicPartition"
_KINESIS_NUMBERS = (
    "org.apache.flink.streaming.connectors.kinesis.model.SequenceNumber",
    "software.amazon.kinesis.connectors.flink.model.SequenceNumber",
)
"""The connector of Flink, and Amazon's own."""
_AGENTS_MEMORY = "org.apache.flink.agents.runtime.memory.MemoryObjectImpl$"
MEMORY_ITEM, _MEMORY_KIND = f"{_AGENTS_MEMORY}MemoryItem", f"{_AGENTS_MEMORY}ItemType"
_ENUMS = {
    "java.time.DayOfWeek": "MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    "java.time.Month": "JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER "
    "NOVEMBER DECEMBER",
    "java.time.temporal.ChronoUnit": "NANOS MICROS MILLIS SECONDS MINUTES HOURS HALF_DAYS DAYS "
    "WEEKS MONTHS YEARS DECADES CENTURIES MILLENNIA ERAS FOREVER",
    "java.util.Comparators$NaturalOrderComparator": "INSTANCE",
    "java.util.concurrent.TimeUnit": "NANOSECONDS MICROSECONDS MILLISECONDS SECONDS MINUTES HOURS "
    "DAYS",
    "java.math.RoundingMode": "UP DOWN CEILING FLOOR HALF_UP HALF_DOWN HALF_EVEN UNNECESSARY",
    "org.apache.flink.types.RowKind": "INSERT UPDATE_BEFORE UPDATE_AFTER DELETE",
    _MEMORY_KIND: "OBJECT VALUE",
}
_FINAL_CLASSES = frozenset(
    {
        "java.lang.String",
        "java.lang.StringBuilder",
        "java.lang.StringBuffer",
        "java.lang.Class",
        "java.lang.Void",
        "java.util.UUID",
        "java.util.Locale",
        "java.util.Currency",
        "java.util.Optional",
        "java.util.OptionalInt",
        "java.util.OptionalLong",
        "java.util.OptionalDouble",
        "java.util.regex.Pattern",
        "java.net.URI",
        "java.net.URL",
        "java.time.LocalDate",
        "java.time.LocalTime",
        "java.time.LocalDateTime",
        "java.time.Instant",
        "java.time.Duration",
        "java.time.Period",
        "java.time.Year",
        "java.time.YearMonth",
        "java.time.MonthDay",
        "java.time.ZoneOffset",
        "java.time.ZonedDateTime",
        "java.time.OffsetDateTime",
        "java.time.OffsetTime",
        "java.math.MathContext",
        KAFKA_PARTITION,
        MEMORY_ITEM,
        *_ENUMS,
        *WRAPPERS,
    }
)
_JDK = ("java.", "javax.", "jdk.", "sun.", "com.sun.")
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_MAX_TUPLE = 25
_ROW = "org.apache.flink.types.Row"
_DEFAULT_SERIALIZER = "com.esotericsoftware.kryo.DefaultSerializer"
_OF_KRYO = "com.esotericsoftware.kryo."
_HARMLESS_ANNOTATIONS = ("Tag", "Since", "Deprecated")
"""Only serializers that are named by an annotation of the class look at these."""
_SERIALIZES_ITSELF = "com.esotericsoftware.kryo.KryoSerializable"


def _tuple_body(count: int) -> FieldsBody:
    tuple_class = f"{_TUPLE}{count}"
    variables = [(tuple_class, f"T{at}") for at in range(count)]
    slots = [
        FieldSlot(f"f{at}", f"f{at}", JavaType(OBJECT, (), name), GenericType((declaring, name)))
        for at, (declaring, name) in enumerate(variables)
    ]
    return FieldsBody(
        tuple_class,
        tuple(sorted(slots, key=lambda field_slot: field_slot.name)),
        Hierarchy(count, tuple((each,) for each in variables)),
    )


def _row_body() -> FieldsBody:
    text, anything = JavaType("java.lang.String"), JavaType(OBJECT)
    types = {
        "fieldByName": JavaType("java.util.Map", (text, anything)),
        "fieldByPosition": JavaType("[Ljava.lang.Object;"),
        "kind": JavaType("org.apache.flink.types.RowKind"),
        "positionByName": JavaType(
            "java.util.LinkedHashMap", (text, JavaType("java.lang.Integer"))
        ),
    }
    return FieldsBody(_ROW, tuple(slot(name, declared) for name, declared in types.items()))


def _kafka_partition() -> FieldsBody:
    """An element of the state of ``FlinkKafkaConsumer``, the same in all its releases."""
    types = {"cachedHash": "int", "partition": "int", "topic": "java.lang.String"}
    return FieldsBody(
        KAFKA_PARTITION, tuple(slot(name, JavaType(each)) for name, each in types.items())
    )


def _memory_item() -> FieldsBody:
    """A place in the memory of Flink Agents: a value, or the names of the places below it."""
    types = {
        "subKeys": JavaType("java.util.Set", (JavaType("java.lang.String"),)),
        "type": JavaType(_MEMORY_KIND),
        "value": JavaType(OBJECT),
    }
    return FieldsBody(MEMORY_ITEM, tuple(slot(name, declared) for name, declared in types.items()))


def _kinesis_number(name: str) -> FieldsBody:
    """The position of a shard in the state of ``FlinkKinesisConsumer``."""
    types = {"cachedHash": "int", "sequenceNumber": "java.lang.String", "subSequenceNumber": "long"}
    return FieldsBody(name, tuple(slot(field, JavaType(each)) for field, each in types.items()))


def _comparators() -> dict[str, FieldsBody]:
    """Comparators of the JDK, which sorted collections store."""
    other = "java.util.Collections$ReverseComparator2"
    plain = (
        "java.util.Collections$ReverseComparator",
        "java.lang.String$CaseInsensitiveComparator",
    )
    inner = slot("cmp", JavaType("java.util.Comparator"))
    return {name: FieldsBody(name, ()) for name in plain} | {other: FieldsBody(other, (inner,))}


_KNOWN: dict[str, Any] = (
    SCALARS
    | _comparators()
    | _COLLECTIONS
    | _MAPS
    | {name: EnumBody(name, tuple(constants.split())) for name, constants in _ENUMS.items()}
    | {name: _kinesis_number(name) for name in _KINESIS_NUMBERS}
    | {f"{_TUPLE}{count}": _tuple_body(count) for count in range(1, _MAX_TUPLE + 1)}
    | {
        "java.util.Optional": OptionalBody(),
        _ROW: _row_body(),
        MATH_CONTEXT.class_name: MATH_CONTEXT,
        KAFKA_PARTITION: _kafka_partition(),
        MEMORY_ITEM: _memory_item(),
    }
)


class ClassLayouts:
    """How classes are stored; they are looked up once. Not thread-safe.

    Args:
        classes: Of the job.
        custom: Classes with a Kryo serializer of their own, by name, and that serializer's class.
        messages: Of Protocol Buffers, whose classes a serializer of chill stores.
    """

    def __init__(
        self,
        classes: JobClasses,
        custom: Mapping[str, str] | None = None,
        messages: Messages | None = None,
    ) -> None:
        self.classes = classes
        self.messages = messages
        self._custom = dict(custom or {})
        self._bodies: dict[str, Body] = {}
        self._finals: dict[str, bool] = {}

    def with_custom(self, custom: Mapping[str, str]) -> ClassLayouts:
        """The same, for a state that stores some classes in forms of their own."""
        return ClassLayouts(self.classes, custom, self.messages) if custom else self

    def is_final(self, class_name: str) -> bool:
        """Whether objects of this declared type are all of this class.

        Raises:
            UnreadableValueError: The class is not in the jars.
        """
        known = self._finals.get(class_name)
        if known is None:
            self._finals[class_name] = known = self._is_final(class_name)
        return known

    def _is_final(self, name: str) -> bool:
        if name.startswith("["):
            component = component_name(name)
            return component in PRIMITIVE_NAMES.values() or self.is_final(component)
        if name in _KNOWN or name.startswith(_JDK):
            return name in _FINAL_CLASSES
        if name.startswith(PREFIX) and self.classes.get(name) is None:
            return name in FINAL_SCALA
        if self.message(name) is not None:
            return True  # protoc makes final classes
        if self.classes.get(name) is None:
            raise _unknown(name)
        return self.classes.is_final(name)

    def body(self, class_name: str) -> Body:
        """How objects of a class are stored.

        Raises:
            UnreadableValueError: The class is neither known nor in the jars, or it has a serializer
                of its own.
        """
        body = self._bodies.get(class_name)
        if body is None:
            body = self._bodies[class_name] = self._find(class_name)
        return body

    def expect_fields(self, class_name: str) -> None:
        """Refuses a class whose objects have fields that cannot be read.

        It follows declared types as far as they are certain: what a value has in a field of a type
        that is not final may be of another class, but never of one with less fields.

        Raises:
            UnreadableValueError: Says which field, and why.
        """
        waiting, seen = [class_name], {class_name}
        while waiting:
            owner = waiting.pop()
            if owner.startswith(PREFIX):
                raise not_in_flink_2(owner)
            body = self.body(owner)
            for field in body.slots if isinstance(body, FieldsBody) else ():
                inside = set(classes_in(field.type)) - seen
                try:
                    if not field.type.is_primitive:
                        self.is_final(field.type.name)  # each value of the field asks that
                    known = [name for name in sorted(inside) if self._is_of_job(name)]
                    for name in inside:
                        if name.startswith(PREFIX):
                            raise not_in_flink_2(name)
                    for name in known:
                        self.body(name)
                except UnreadableValueError as error:
                    raise UnreadableValueError(
                        f"Field {field.name} of class {owner} cannot be read: {error.what}"
                    ) from None
                waiting += known
                seen |= inside

    def reaches(self, class_name: str, wanted: str) -> bool:
        """Whether objects of a class may hold one of another class, by the declared types of their
        fields. What a field of an open type holds, such as ``Object``, no class says.
        """
        waiting, seen = [class_name], {class_name}
        while waiting:
            owner = waiting.pop()
            if owner == wanted:
                return True
            try:
                body = self.body(owner)
            except UnreadableValueError:
                continue  # the class is named where its values are read
            for field in body.slots if isinstance(body, FieldsBody) else ():
                inside = set(classes_in(field.type)) - seen
                waiting += [name for name in inside if name == wanted or self._is_of_job(name)]
                seen |= inside
        return False

    def _is_of_job(self, name: str) -> bool:
        return name in self._custom or self.classes.get(name) is not None

    def constant(self, class_name: str, ordinal: int) -> str:
        body = self.body(class_name)
        if isinstance(body, EnumBody) and 0 <= ordinal < len(body.constants):
            return body.constants[ordinal]
        return str(ordinal)

    def _find(self, name: str) -> Body:
        message = self.message(name)
        if message is not None:
            return message
        supertypes = self.classes.supertypes(name)
        for above in (name, *sorted(supertypes)):
            if above in self._custom:
                what = f"Class {name} has a Kryo serializer of its own ({self._custom[above]})"
                if self.holds_message(name):
                    raise UnreadableValueError(f"{what}, whose messages a descriptor set explains")
                raise UnreadableValueError(f"{what}, which only Java can run")
        known: Body | None = _KNOWN.get(name)
        if known is not None:
            return known
        if name.startswith("["):
            if component_name(name) in PRIMITIVE_NAMES.values():
                return PrimitiveArrayBody(name)
            return ObjectArrayBody(name)
        if name in SCALA_BODIES:
            of_scala: Body = SCALA_BODIES[name]
            return of_scala
        class_file = self.classes.get(name)
        if is_singleton(name) or (class_file is not None and _is_object_of_scala(class_file)):
            return SingletonBody(name)
        if class_file is None and _is_throwable(name):
            return THROWABLES
        if class_file is None:
            raise _unknown(name)
        self._check_annotations(name, supertypes)
        if _SERIALIZES_ITSELF in supertypes:
            raise UnreadableValueError(f"Class {name} writes its own Kryo form")
        return self._of_class(class_file, supertypes)

    def message(self, name: str) -> MessageBody | None:
        """How chill's serializer of messages stores a class, if the message is known."""
        message = None if self.messages is None else self.messages.of_java_class(name)
        if self.messages is None or message is None or not self.holds_message(name):
            return None
        return MessageBody(name, self.messages, message)

    def holds_message(self, name: str) -> bool:
        """Whether chill's serializer of messages stores a class, if it is one of messages."""
        owners = (name, *MESSAGE_TYPES)
        stored_by = next((self._custom[owner] for owner in owners if owner in self._custom), "")
        return stored_by.replace("$", ".").rpartition(".")[2] == MESSAGE_SERIALIZER

    def _check_annotations(self, name: str, supertypes: set[str]) -> None:
        """Raises UnreadableValueError if annotations of Kryo decide the form of a class."""
        for class_name in (name, *sorted(supertypes - {name})):
            class_file = self.classes.get(class_name)
            for annotation in () if class_file is None else class_file.annotations:
                if annotation.name == _DEFAULT_SERIALIZER:
                    raise UnreadableValueError(
                        f"Class {name} has a Kryo serializer of its own ({annotation.value}, by "
                        f"the annotation DefaultSerializer), which only Java can run"
                    )
            for member in () if class_file is None else class_file.fields:
                for annotation in member.annotations:
                    if _decides_form(annotation.name, member.descriptor):
                        raise UnreadableValueError(
                            f"Class {name} is stored in a form of its own, by the annotation "
                            f"{annotation.name.rpartition('.')[2]} of its field {member.name}, "
                            f"which only Java knows"
                        )

    def _of_class(self, class_file: ClassFile, supertypes: set[str]) -> Body:
        if class_file.is_enum:
            return EnumBody(class_file.name, class_file.constants)
        parents = self.classes.parents(class_file)
        if parents and parents[0].is_enum:
            return EnumBody(parents[0].name, parents[0].constants)
        if any(_is_throwable(each) for each in supertypes):
            return THROWABLES
        for table in (_MAPS, _COLLECTIONS):
            for supertype in sorted(supertypes & table.keys(), key=_specific_first):
                body: Body = table[supertype]
                return body
        return self._fields(class_file, parents)

    def _fields(self, lowest: ClassFile, parents: list[ClassFile]) -> FieldsBody:
        chain = [lowest, *parents]
        top = chain[-1].superclass
        if top not in (None, OBJECT, "java.lang.Record"):
            raise _unknown(str(top), f", a superclass of {lowest.name},")
        slots: list[FieldSlot] = []
        taken: set[str] = set()
        for owner, class_file in enumerate(chain):
            for member in class_file.fields:
                if member.has(Flag.STATIC) or member.has(Flag.TRANSIENT):
                    continue
                key = f"{class_file.name}.{member.name}" if member.name in taken else member.name
                taken.add(member.name)
                declared = class_file.type_of(member)
                generic = generic_type(chain, owner, declared)
                slots.append(
                    FieldSlot(key, member.name, declared, generic, member.has(Flag.SYNTHETIC))
                )
        slots.sort(key=lambda slot: slot.name.encode("utf-16-be"))
        return FieldsBody(
            lowest.name, tuple(slots), parameters_of(chain), is_record=lowest.is_record
        )


def classes_in(declared: JavaType) -> Iterator[str]:
    """The class of a type, or of its components, and those of its arguments."""
    name = declared.name
    while name.startswith("["):
        name = component_name(name)
    yield name
    for argument in declared.arguments:
        if argument is not None and not argument.is_lower:
            yield from classes_in(argument)


def _is_object_of_scala(class_file: ClassFile) -> bool:
    """Whether a class has one instance, which is its static field."""
    return class_file.name.endswith("$") and any(
        field.name == MODULE and field.has(Flag.STATIC) for field in class_file.fields
    )


def _decides_form(annotation: str, descriptor: str) -> bool:
    """Whether an annotation of a field changes how Kryo stores it."""
    if not annotation.startswith(_OF_KRYO):
        return False
    simple = annotation.replace("$", ".").rpartition(".")[2]
    if simple == "NotNull":  # numbers and booleans have a flag for null, others have references
        return descriptor.startswith("Ljava/lang/") and class_name_of(descriptor) in WRAPPERS
    return simple not in _HARMLESS_ANNOTATIONS


def _specific_first(name: str) -> tuple[bool, str]:
    """Sorted ones first: their comparator is stored."""
    return name not in ("java.util.TreeMap", "java.util.TreeSet", "java.util.PriorityQueue"), name


def _is_throwable(name: str) -> bool:
    if name == "java.lang.Throwable":
        return True
    return name.startswith(_JDK) and name.endswith(("Exception", "Error"))


def _unknown(name: str, role: str = "") -> UnreadableValueError:
    if name.startswith(_JDK):
        return UnreadableValueError(
            f"Class {name}{role} of the JDK is stored by Kryo in a form that dstl does not know"
        )
    return UnreadableValueError(
        f"Class {name}{role} of the job is needed to read a Kryo value; give the job's jar "
        f"(jars, --jar)"
    )
