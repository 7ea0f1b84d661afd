"""What the bytecode of a job shows of its operators: uids, functions, descriptors. Nothing is run.

An operator is a chain of calls that ends in its uid:

    stream.keyBy(new ByUser()).process(new Count()).name("count").uid("count")

The function is an object made in this chain. Its class, or one of its superclasses, makes the
descriptors of its states. What is written in another way is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dstl_core.codec.classfile.class_file import (
    ClassFile,
    methods_with_code,
    parse_class_file,
)
from dstl_core.codec.classfile.expressions import Expression, calls
from dstl_core.codec.classfile.job_jar import JobClasses
from dstl_core.errors import ConfigError, error_context

_FLINK = "org.apache.flink."
_DESCRIPTOR = "StateDescriptor"
_TIME_TO_LIVE = "enableTimeToLive"
_SAME_OPERATOR = (
    "name",
    "returns",
    "slotSharingGroup",
    "setDescription",
    "disableChaining",
    "startNewChain",
    "setParallelism",
    "setBufferTimeout",
    "forceNonParallel",
    "uid",
)
"""Methods that return the operator that they are called on."""
_OTHER_TYPES = (
    b"enableForceKryo",
    b"enableForceAvro",
    b"force-kryo",
    b"force-avro",
    b"registerTypeWithKryoSerializer",
    b"addDefaultKryoSerializer",
    b"registerKryoType",
    b"registerPojoType",
    b"serialization-config",
    b"kryo-types",
    b"default-kryo-serializers",
)
"""Settings that change which types Flink takes for classes."""
_ENVIRONMENT, _ARGUMENTS = b"StreamExecutionEnvironment", b"([Ljava/lang/String;)V"
_SETS_MAX_PARALLELISM = (b"setMaxParallelism", b"max-parallelism")


@dataclass(frozen=True)
class Descriptor:
    """A descriptor that a class makes.

    Args:
        flink_class: The class of the descriptor.
        arguments: Of its constructor; the name of the state is the first.
        owner: The class that makes it.
        has_ttl: Whether it has a time to live; None if that is not known.
    """

    flink_class: str
    arguments: tuple[Expression | None, ...]
    owner: str
    has_ttl: bool | None

    @property
    def kind(self) -> str:
        """value, list, map, reducing or aggregating."""
        return self.flink_class.rpartition(".")[2].removesuffix(_DESCRIPTOR).lower()


@dataclass
class JobCode:
    """Facts of all classes of a job but those of Flink itself.

    Attributes:
        uids: Uid to the class of the operator's function; None if it is not known.
        descriptors: Class to the descriptors that it makes, by name of the state.
        other_types: A setting that changes which types Flink takes for classes.
        sets_max_parallelism: Whether the job may set its max parallelism.
        texts: Class that makes descriptors to all names among its constants.
        mains: The classes with a ``main`` method that build jobs.
    """

    uids: dict[str, str | None] = field(default_factory=dict)
    descriptors: dict[str, dict[str, list[Descriptor]]] = field(default_factory=dict)
    other_types: str | None = None
    sets_max_parallelism: bool = False
    texts: dict[str, frozenset[str]] = field(default_factory=dict)
    mains: list[str] = field(default_factory=list)

    def mentions(self, class_name: str, text: str) -> bool:
        """Whether a class has a name among its constants, as it has if it calls such a method."""
        return text in self.texts.get(class_name, ())


def read_job_code(classes: JobClasses, main: str | None = None) -> JobCode:
    """Reads the code of all classes of the jars, without those of their libraries.

    Args:
        classes: The classes of the job.
        main: The main class of the job. Only classes that it refers to count, and those that these
            refer to, and so on.

    Raises:
        ConfigError: There is no such main class.
        FormatError: A class file is damaged.
    """
    job_code = JobCode()
    reachable = None if main is None else _reachable(classes, main)
    ttl_elsewhere = False
    for place, raw in classes.class_files():
        wanted = b"uid" in raw or _DESCRIPTOR.encode() in raw
        settings = [each for each in _OTHER_TYPES if each in raw]
        sets = any(each in raw for each in _SETS_MAX_PARALLELISM)
        has_ttl = _TIME_TO_LIVE.encode() in raw
        is_main = _ENVIRONMENT in raw and _ARGUMENTS in raw
        if not (wanted or settings or sets or has_ttl or is_main):
            continue
        with error_context(location=place):
            class_file = parse_class_file(raw)
        if class_file.name.startswith(_FLINK) or (
            reachable is not None and class_file.name not in reachable
        ):
            continue
        if is_main and any(each.name == "main" for each in class_file.methods):
            job_code.mains.append(class_file.name)
        if settings:
            job_code.other_types = settings[0].decode()
        job_code.sets_max_parallelism = job_code.sets_max_parallelism or sets
        if wanted:
            with error_context(location=place):
                _read_class(raw, class_file, job_code)
        ttl_elsewhere = ttl_elsewhere or (has_ttl and class_file.name not in job_code.descriptors)
    if ttl_elsewhere:
        _forget_ttl(job_code)
    return job_code


def _reachable(classes: JobClasses, main: str) -> set[str]:
    if classes.get(main) is None:
        raise ConfigError(
            f"The main class is wrong: class {main} is not in the jar; give its full name "
            f"(main, --class)."
        )
    seen = {main}
    waiting = [main]
    while waiting:
        class_file = classes.get(waiting.pop())
        if class_file is not None:
            new = {each for each in class_file.refers_to if not each.startswith(_FLINK)} - seen
            seen |= new
            waiting += new
    return seen


def _read_class(raw: bytes, class_file: ClassFile, job_code: JobCode) -> None:
    made: list[tuple[str, Expression]] = []
    texts: frozenset[str] = frozenset()
    for code in methods_with_code(raw):
        texts = code.pool.all_texts
        for call in calls(code):
            if call.kind == "new" and _is_descriptor(call.owner) and call.arguments:
                first = call.arguments[0]
                name = first.owner if first is not None and first.kind == "text" else ""
                made.append((name, call))
            elif call.name == "uid" and call.owner.startswith(_FLINK) and len(call.arguments) == 2:
                _uid(call, job_code)
    if not made:
        return
    ttl = None if len(made) > 1 else True
    has_ttl = ttl if _TIME_TO_LIVE in texts else False
    by_name = job_code.descriptors.setdefault(class_file.name, {})
    for name, creation in made:
        by_name.setdefault(name, []).append(
            Descriptor(creation.owner, creation.arguments, class_file.name, has_ttl)
        )
    job_code.texts[class_file.name] = texts


def _forget_ttl(job_code: JobCode) -> None:
    """A class that makes no descriptor gives some of them a time to live."""
    for by_name in job_code.descriptors.values():
        for name, made in by_name.items():
            by_name[name] = [
                Descriptor(descriptor.flink_class, descriptor.arguments, descriptor.owner, None)
                for descriptor in made
            ]


def _is_descriptor(name: str) -> bool:
    return name.startswith(_FLINK) and name.endswith(_DESCRIPTOR)


def _uid(call: Expression, job_code: JobCode) -> None:
    text = call.arguments[1]
    if text is None or text.kind != "text":
        return
    functions = set(_functions(call.arguments[0]))
    function = functions.pop() if len(functions) == 1 else None
    # A uid that is given in two places may be of two functions.
    if text.owner in job_code.uids and job_code.uids[text.owner] != function:
        function = None
    job_code.uids[text.owner] = function


def _functions(stream: Expression | None) -> Iterator[str]:
    """The classes of the objects that make an operator of a stream."""
    while stream is not None and stream.kind == "call" and stream.name in _SAME_OPERATOR:
        stream = stream.arguments[0] if stream.arguments else None
    if stream is not None and stream.kind == "call":
        for argument in stream.arguments[1:]:
            if (
                argument is not None
                and argument.kind == "new"
                and not argument.owner.startswith(_FLINK)
            ):
                yield argument.owner
