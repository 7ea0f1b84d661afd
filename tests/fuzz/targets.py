"""What is fuzzed: each target takes any bytes, and may raise nothing but ``FormatError``, or
``ConfigError`` for what a person writes.

Seeds come from the golden files; ``corpus`` keeps what fuzzing found since.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

from dstl_core import Snapshot
from dstl_core.checkpoint.store.metadata_file import MetadataFile
from dstl_core.codec.classfile.case_classes import case_class_fields
from dstl_core.codec.classfile.class_file import methods_with_code, parse_class_file
from dstl_core.codec.classfile.expressions import calls
from dstl_core.codec.classfile.job_jar import JarFile, JobClasses
from dstl_core.codec.data_io import DataInput
from dstl_core.codec.java_stream import read_java_object
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import (
    KryoClasses,
    ReadableKryoSerializer,
    registered_classes,
)
from dstl_core.codec.metadata.checkpoint_kind import checkpoint_kind
from dstl_core.codec.metadata.metadata_format import read_metadata, write_metadata
from dstl_core.codec.protobuf.descriptors import read_descriptor_sets
from dstl_core.codec.protobuf.message_text import message_text
from dstl_core.codec.pyflink.coders import pickled
from dstl_core.codec.serializers import BUILT_IN
from dstl_core.codec.sst.file import SstFile
from dstl_core.codec.sst.merge import merged_rows
from dstl_core.errors import ConfigError, FormatError, UnreadableValueError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.storage.handle_resolver import HandleResolver
from dstl_core.storage.location import Location
from dstl_core.testing import MemoryFileIO
from tests.golden_files import GOLDEN, SNAPSHOTS, Fixture
from tests.texts import PARSERS, SAMPLES, check_text, declarations, load_declaration

VECTORS = GOLDEN / "kryo-vectors"
PROTO_JOBS = GOLDEN / "proto-jobs"
CORPUS = Path(__file__).parent / "corpus"
FOLDER = Location.parse("/nowhere/savepoint")
MAX_PARALLELISM = 128
SEED_KEY_GROUPS = 3
MESSAGE_TYPES = 8
MOST_FIELDS = 24
"""Of a class whose names are asked for: Scala's tuples have 22 fields at most."""
MAX_SEED_BYTES = 16_384
MAX_KEYED_SEED_BYTES = 6_144
"""Less, since all of it is decoded for each input."""


def metadata(raw: bytes) -> None:
    """A ``_metadata`` file; what is read is written back with the same meaning."""
    read = read_metadata(raw)
    checkpoint_kind(read.properties)
    if read.version > 2:
        assert read_metadata(write_metadata(read)) == read


def keyed(raw: bytes) -> None:
    """A keyed stream in both forms: u8 form, u8 first key group, u8 n, n u32 offsets, stream."""
    if len(raw) < 3 or len(raw) < 3 + 4 * raw[2] or not raw[2]:
        return
    first, count = raw[1] % MAX_PARALLELISM, raw[2]
    key_groups = KeyGroupRange(first, min(first + count, MAX_PARALLELISM) - 1)
    offsets = struct.unpack_from(f">{len(key_groups)}I", raw, 3)
    stream = ByteStreamStateHandle("h", raw[3 + 4 * count :])
    at = KeyGroupRangeOffsets(key_groups, offsets)
    handle = (
        KeyGroupsSavepointStateHandle(at, stream)
        if raw[0] % 2 == 0
        else KeyGroupsStateHandle(at, stream, "id")
    )
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    operator = OperatorState(OperatorID(bytes(16)), 1, MAX_PARALLELISM, (subtask,))
    file = MetadataFile(FOLDER, CheckpointMetadata(3, 1, (operator,)), "", 0, None)
    files = MemoryFileIO()
    snapshot = Snapshot(file, files, HandleResolver(files, FOLDER), BUILT_IN)
    for line in snapshot.operators[0].dump():
        json.dumps(line)


def table_file(raw: bytes) -> None:
    """A table file of RocksDB; its checksums are switched off, else nothing passes them."""
    list(merged_rows([SstFile(lambda start, end: raw[start:end], len(raw))], b"", None))


def java_stream(raw: bytes) -> None:
    """An object in Java's serialization format."""
    read_java_object(DataInput(raw))


def kryo_value(raw: bytes) -> None:
    """A value of Kryo: u8 version, value."""
    if raw:
        dialect = Dialect.KRYO_5 if raw[0] % 2 else Dialect.KRYO_2
        classes = KryoClasses(dialect, _layouts())
        names = ["java.lang.Object"]
        own = ReadableKryoSerializer(names[0], ((), (), ()), classes, registered_classes(names))
        value = own.deserialize(DataInput(raw[1:]))
        json.dumps(own.to_text(value))
        with contextlib.suppress(UnreadableValueError):  # an EnumMap is read, not written
            own.write_new(value)


@cache
def _layouts() -> ClassLayouts:
    jar = JarFile("vec.jar", io.BytesIO((VECTORS / "vec.jar").read_bytes()))
    return ClassLayouts(JobClasses([jar]))


def python_pickle(raw: bytes) -> None:
    """A pickle of PyFlink."""
    json.dumps(pickled(raw))


def message(raw: bytes) -> None:
    """A message, read as each of the first types of a set: u16 size, descriptor set, message."""
    size = int.from_bytes(raw[:2], "big")
    known = read_descriptor_sets({"fuzz.desc": raw[2 : 2 + size]})
    for declared in islice(known.messages.values(), MESSAGE_TYPES):
        with contextlib.suppress(FormatError):  # the next type may read it
            json.dumps(message_text(known, declared, raw[2 + size :]))


def class_file(raw: bytes) -> None:
    """A class file, with its types, the code of its methods, and the fields of a case class."""
    read = parse_class_file(raw)
    _ = read.generic, [read.type_of(each) for each in read.fields]
    for count in range(MOST_FIELDS):
        case_class_fields(read, count)
    for code in methods_with_code(raw):
        for _ in calls(code):
            pass


def declaration(raw: bytes) -> None:
    """A declaration of a migration."""
    load_declaration(raw.decode(errors="surrogateescape"))


def expression(raw: bytes) -> None:
    """Text for one of the other parsers: u8 parser, text."""
    if raw:
        parsers = list(PARSERS.values())
        check_text(parsers[raw[0] % len(parsers)], raw[1:].decode(errors="surrogateescape"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    "metadata": metadata,
    "keyed": keyed,
    "table_file": table_file,
    "java_stream": java_stream,
    "kryo_value": kryo_value,
    "python_pickle": python_pickle,
    "message": message,
    "class_file": class_file,
    "declaration": declaration,
    "expression": expression,
}


def check(target: str, raw: bytes) -> None:
    """Runs a target. What it raises is a finding."""
    try:
        TARGETS[target](raw)
    except (FormatError, ConfigError):
        pass


# ----------------------------------------------------------------------------------- seeds


def seeds(target: str) -> Iterator[bytes]:
    """Real bytes to start from."""
    match target:
        case "metadata":
            files = (path.read_bytes() for each in SNAPSHOTS for path in each.metadata_files)
            yield from (raw for raw in files if len(raw) <= MAX_SEED_BYTES)
        case "keyed":
            for fixture in SNAPSHOTS:
                yield from _keyed_seeds(fixture)
        case "table_file":
            for path in sorted(GOLDEN.rglob("*")):
                if path.is_file() and path.stat().st_size <= MAX_SEED_BYTES:
                    yield from _without_checksums(path.read_bytes())
        case "kryo_value":
            for version, name in enumerate(("flink-1.20.5.jsonl", "flink-2.2.1.jsonl")):
                for line in map(json.loads, (VECTORS / name).read_text().splitlines()):
                    if "hex" in line and line["serializer"] == "java.lang.Object":
                        yield bytes((version,)) + bytes.fromhex(line["hex"])
            for text in (GOLDEN / "chill-vectors" / "values.tsv").read_text().splitlines():
                yield b"\0" + bytes.fromhex(text.split("\t")[2])
        case "python_pickle":
            [path] = (GOLDEN / "pyflink-jobs" / "thread").glob("savepoint-*")
            for entry in Snapshot.load(path)["py"].keyed_entries():
                if isinstance(entry.value, bytes):
                    yield entry.value
                elif entry.state == "seen":
                    yield from (part for pair in entry.value for part in pair)
        case "message":
            shop = (PROTO_JOBS / "shop.desc").read_bytes()
            [path] = PROTO_JOBS.glob("savepoint-*")
            operators = [each for each in Snapshot.load(path).operators if each.keyed_handles]
            for entry in (each for operator in operators for each in operator.keyed_entries()):
                if entry.state in ("raw", "raws"):
                    values = entry.value if isinstance(entry.value, list) else [entry.value]
                    yield from (struct.pack(">H", len(shop)) + shop + raw for raw in values)
        case "class_file":
            for path in (VECTORS / "vec.jar", GOLDEN / "scala-jobs" / "orders" / "job.jar"):
                with zipfile.ZipFile(path) as jar:
                    classes = [name for name in jar.namelist() if name.endswith(".class")]
                    yield from map(jar.read, classes)
        case "declaration":
            yield from (text.encode(errors="surrogateescape") for text in declarations())
        case "expression":
            for number, parse in enumerate(PARSERS.values()):
                read = (text for text in SAMPLES if check_text(parse, text))
                yield from (bytes([number]) + text.encode() for text in read)
        case _:
            for fixture in SNAPSHOTS:
                properties = read_metadata(fixture.metadata_files[0].read_bytes()).properties
                if properties is not None:
                    yield properties


def corpus(target: str) -> list[Path]:
    return sorted((CORPUS / target).glob("*"))


def _keyed_seeds(fixture: Fixture) -> Iterator[bytes]:
    snapshot = Snapshot.load(fixture.snapshot)
    for operator in snapshot.operators:
        for handle in operator.keyed_handles[:1]:
            if not isinstance(handle, KeyGroupsSavepointStateHandle | KeyGroupsStateHandle):
                continue
            stream = snapshot.resolver.read(handle.stream)
            offsets = handle.offsets.offsets
            used = [at for at in offsets if at]
            stop = (used + [len(stream)] * (SEED_KEY_GROUPS + 1))[SEED_KEY_GROUPS]
            count = next((i for i, at in enumerate(offsets) if at >= stop), len(offsets))
            first = handle.key_group_range.start_key_group
            fits = 0 < count < 256 and stop <= MAX_KEYED_SEED_BYTES
            if first < MAX_PARALLELISM and fits:
                form = 0 if isinstance(handle, KeyGroupsSavepointStateHandle) else 1
                head = bytes((form, first, count)) + struct.pack(f">{count}I", *offsets[:count])
                yield head + stream[:stop]


def _without_checksums(raw: bytes) -> Iterator[bytes]:
    try:
        SstFile(lambda start, end: raw[start:end], len(raw))
    except FormatError:
        return
    footer = len(raw) - 53
    yield raw[:footer] + b"\0" + raw[footer + 1 :]
