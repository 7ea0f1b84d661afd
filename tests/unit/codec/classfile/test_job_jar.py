"""Classes of a job, read from its jar without Java."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dstl_core.codec.classfile.class_file import (
    Annotation,
    Flag,
    methods_with_code,
    parse_class_file,
)
from dstl_core.codec.classfile.generic_types import (
    JavaType,
    parse_class_signature,
    parse_field_type,
)
from dstl_core.codec.classfile.job_jar import (
    MAX_CLASS_BYTES,
    MAX_NESTED_BYTES,
    MAX_NESTED_JAR_BYTES,
    MAX_NESTED_JARS,
    MAX_PARSED_BYTES,
    JarFile,
    JobClasses,
)
from dstl_core.errors import ConfigError, FormatError
from dstl_core.savepoint.read.job_classes import MAX_JAR_BYTES, open_job_classes
from tests.examples import places
from tests.golden_files import GOLDEN

VEC = (GOLDEN / "kryo-vectors" / "vec.jar").read_bytes()
LEAF = "vec/V$Leaf.class"


def jar(entries: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, raw in entries.items():
            packed.writestr(name, raw)
    return out.getvalue()


def classes(*jars: bytes) -> JobClasses:
    return JobClasses([JarFile(f"job{at}.jar", io.BytesIO(raw)) for at, raw in enumerate(jars)])


def entry(name: str) -> bytes:
    return zipfile.ZipFile(io.BytesIO(VEC)).read(name)


def test_a_class_has_its_fields_with_their_types() -> None:
    class_file = classes(VEC).get("vec.V$HoldTwo")
    assert class_file is not None
    leaf, text = JavaType("vec.V$Leaf"), JavaType("java.lang.String")
    two = JavaType("vec.V$Two", (leaf, text))
    assert [(each.name, class_file.type_of(each)) for each in class_file.fields] == [
        ("t", two),
        ("u", JavaType("vec.V$Two", (JavaType("java.lang.Integer"), JavaType("vec.V$Color")))),
        ("lt", JavaType("java.util.List", (two,))),
    ]


def test_superclasses_enums_records_and_nested_flags() -> None:
    own = classes(VEC)
    sub, color, record = (own.get(f"vec.V${name}") for name in ("GenSub", "Color", "Rec"))
    assert sub is not None and color is not None and record is not None
    assert [each.name for each in own.parents(sub)] == ["vec.V$Gen"]
    assert sub.generic.superclass == JavaType("vec.V$Gen", (JavaType("vec.V$Leaf"),))
    assert color.is_enum and color.constants == ("RED", "GREEN", "BLUE")
    assert not color.has(Flag.FINAL)  # GREEN has a body, so a subclass
    assert record.is_record and own.is_final("vec.V$Leaf") and not own.is_final("vec.V$Open")
    assert own.get("vec.Missing") is None
    assert own.supertypes("vec.V$Rev") >= {"vec.V$Rev", "java.util.Comparator"}


def test_signatures() -> None:
    assert parse_field_type("I", None) == JavaType("int")
    assert parse_field_type("[[Ljava/lang/String;", None) == JavaType("[[Ljava.lang.String;")
    assert parse_field_type("Ljava/util/List;", "Ljava/util/List<*>;").arguments == (None,)
    [lower] = parse_field_type("Ljava/util/List;", "Ljava/util/List<-TT;>;").arguments
    assert lower == JavaType("java.lang.Object", (), "T", is_bound=True, is_lower=True)
    assert parse_field_type("Ljava/util/List;", "Ljava/util/List<+La/B;>;").arguments == (
        JavaType("a.B", (), None, True),
    )
    assert parse_field_type("La/O$I;", "La/O<TT;>.I<[J>;") == JavaType("a.O$I", (JavaType("[J"),))
    assert parse_field_type("Ljava/lang/Number;", "TT;") == JavaType("java.lang.Number", (), "T")
    signature = parse_class_signature("<T:Ljava/lang/Object;U::La/I<TT;>;>La/B<TT;>;La/I<TU;>;")
    assert signature.parameters == ("T", "U")


@pytest.mark.parametrize("text", ["", "L", "La", "La<", "La<*", "T", "[", "X", "La;x", "L<" * 40])
def test_a_malformed_signature_is_one_sentence(text: str) -> None:
    with pytest.raises(FormatError, match="A type in a class file is malformed"):
        parse_field_type("La/B;", text)


def test_the_first_jar_wins_and_libraries_come_last() -> None:
    other = entry("vec/V$Open.class")
    nested = jar({"lib/more.jar": jar({LEAF: entry(LEAF), "x": b""}), "vec/V$Open.class": other})
    own = classes(nested, VEC)
    assert own.get("vec.V$Leaf") is not None and own.get("vec.V$Open") is not None
    assert classes(nested).get("vec.V$Leaf") is not None
    assert classes(nested).get("vec.V$Prims") is None


def bomb() -> bytes:
    return jar({LEAF: b"\0" * (MAX_CLASS_BYTES + 1)})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: b"no zip", r"job0.jar is not a jar: expected a zip file"),
        (lambda: jar({"../../etc/passwd": b""}), r"has a name that leaves the jar"),
        (lambda: jar({"/etc/passwd": b""}), r"has a name that leaves the jar"),
        (bomb, r"V\$Leaf.class in job0.jar is too large: expected <= 8388608 bytes"),
        (lambda: jar({LEAF: b""}), r"ends too early"),
        (lambda: jar({LEAF: b"\0" * 64}), r"starts with the wrong bytes"),
        (lambda: jar({LEAF: entry("vec/V$Open.class")}), r"name of another class"),
        (lambda: VEC[: len(VEC) // 2], r"is not a jar"),
    ],
)
def test_a_bad_jar_is_one_sentence(made: Callable[[], bytes], message: str) -> None:
    with pytest.raises(FormatError, match=message):
        classes(made()).get("vec.V$Leaf")


@pytest.mark.slow
def test_many_jars_just_below_the_limit_of_one_have_a_limit_together() -> None:
    """What counts is what they unpack to; they hold zeros, and the jar around them is small."""
    library = jar({"zeros": bytes(MAX_NESTED_JAR_BYTES - 1024)}, zipfile.ZIP_STORED)
    assert len(library) <= MAX_NESTED_JAR_BYTES
    parts = [jar({f"lib/{at}-{part}.jar": library for part in range(3)}) for at in range(2)]
    assert len(b"".join(parts)) < 2 << 20
    del library
    job = classes(*parts)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=r"jars in lib/ are too large together, at job1.jar"):
            job.get("a.Missing")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_NESTED_BYTES + 3 * MAX_NESTED_JAR_BYTES


def test_the_number_of_jars_within_jars_is_counted_over_all() -> None:
    half = jar({f"lib/{at}.jar": jar({}) for at in range(MAX_NESTED_JARS // 2 + 1)})
    assert classes(half).get("a.Missing") is None
    with pytest.raises(FormatError, match=r"job1.jar has too many jars in lib/"):
        classes(half, half).get("a.Missing")


def class_of(name: str, members: int, padding: int) -> bytes:
    """A class of so many fields and methods, 8 bytes each, and of an attribute that is skipped."""
    names = (name, "java/lang/Object", "f", "I")
    texts = [b"\1" + struct.pack(">H", len(text)) + text.encode() for text in names]
    fields = struct.pack(">H", members) + struct.pack(">HHHH", 1, 3, 4, 0) * members
    return b"".join(
        [
            struct.pack(">IHHH", 0xCAFEBABE, 0, 52, 7),
            *texts,
            struct.pack(">BHBH", 7, 1, 7, 2),
            struct.pack(">HHHH", 1, 5, 6, 0),
            fields,
            fields,
            struct.pack(">HHI", 1, 3, padding),
            bytes(padding),
        ]
    )


def test_many_classes_just_below_the_limit_of_one_have_a_limit_together() -> None:
    raw = class_of("a/C0", 1, MAX_CLASS_BYTES - 1024)
    count = MAX_PARSED_BYTES // len(raw) + 1
    job = classes(jar({f"a/C{at}.class": raw.replace(b"C0", b"C%d" % at) for at in range(count)}))
    for at in range(count - 1):
        assert job.get(f"a.C{at}") is not None
        assert job.get(f"a.C{at}") is not None  # The second time it is held, and not counted.
    with pytest.raises(FormatError, match=r"classes of the jars are too large together, at a\.C4"):
        job.get(f"a.C{count - 1}")


@pytest.mark.slow
def test_a_class_takes_a_bounded_multiple_of_its_bytes_in_memory() -> None:
    """So a limit of bytes is one of memory, too. No member is smaller than these."""
    raw = class_of("a/C", 0x4000, 0)
    packed = jar({"a/C.class": raw})
    tracemalloc.start()
    try:
        assert classes(packed).get("a.C") is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * len(raw)


def test_many_jars_are_measured_together_before_one_is_read(tmp_path: Path) -> None:
    jars = [tmp_path / f"{at}.jar" for at in range(2)]
    for path in jars:
        path.touch()
        os.truncate(path, MAX_JAR_BYTES - 1)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match=r"jars are too large together.*got 2147483646 up to"):
            open_job_classes(jars)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_damaged_contents_of_a_jar_are_one_sentence() -> None:
    raw = bytearray(jar({LEAF: entry(LEAF)}))
    raw[raw.index(b"V$Leaf.class") + 20] ^= 0xFF
    with pytest.raises(FormatError):
        classes(bytes(raw)).get("vec.V$Leaf")


def test_a_class_file_cut_at_any_byte_raises_format_errors() -> None:
    raw = entry("vec/V$Gen.class")
    for end in range(len(raw)):
        with pytest.raises(FormatError):
            parse_class_file(raw[:end])


def test_a_class_file_with_any_byte_changed_raises_format_errors_only() -> None:
    raw = entry("vec/V$Color.class")
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x41
        try:
            class_file = parse_class_file(bytes(damaged))
            _ = class_file.generic, [class_file.type_of(each) for each in class_file.fields]
        except FormatError:
            continue


def annotated_classes() -> list[bytes]:
    """Class files with annotations, generics, nested classes and code."""
    path = GOLDEN / "kryo-own-serializers" / "flink-2.2.1" / "job.jar"
    with zipfile.ZipFile(path) as packed:
        names = [each for each in packed.namelist() if each.endswith(".class")]
        return [packed.read(each) for each in sorted(names)]


def test_annotations() -> None:
    class_files = {each.name: each for each in map(parse_class_file, annotated_classes())}
    assert class_files["kt.Types5$RInts"].annotations == (
        Annotation("com.esotericsoftware.kryo.DefaultSerializer", "kt.Types5$Rev"),
    )
    fields = {each.name: each for each in class_files["kt.Types5$Opt"].fields}
    of_kryo = "com.esotericsoftware.kryo.serializers.FieldSerializer"
    assert fields["n"].annotations == (Annotation(f"{of_kryo}$Optional"),)
    assert fields["name"].annotations == ()


@pytest.mark.slow
def test_class_files_with_any_bit_flipped_raise_format_errors_only() -> None:
    flipped = refused = 0
    for raw in annotated_classes():
        for at in places(len(raw), 7):  # each of the eight bits, since 7 and 8 have no divisor
            damaged = bytearray(raw)
            damaged[at] ^= 1 << at % 8
            flipped += 1
            try:
                class_file = parse_class_file(bytes(damaged))
                assert class_file.generic is not None
                for member in class_file.fields:
                    class_file.type_of(member)
                methods_with_code(bytes(damaged))
            except FormatError:
                refused += 1
    assert flipped > 1_500
    assert refused > flipped // 10
