"""Small jobs and their next versions: the sources of ``tests/golden/changed-classes``.

Each case is an operator of its own with one state. Version 1 of all cases runs as one job and takes
one savepoint. Version 2 of each case is a job of its own, which restores the state of its operator.

    python -m tests.integration.flink.changed_classes tests/golden/changed-classes
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dstl_core import Snapshot, check_restore, rewrite_savepoint
from dstl_core.codec.metadata.metadata_format import write_metadata
from dstl_core.savepoint.restores.flink_answers import FlinkInstallation
from dstl_core.savepoint.restores.restore_result import VERDICT_TEXTS
from tests.golden_files import CHANGED_CLASSES, snapshot
from tests.integration.flink.checker import FlinkChecker, FlinkRestoreError, Java, find_jars

FEED = """package common;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
/** Lets the first numbers pass, then holds. */
public class Feed implements FlatMapFunction<Long, Long> {
  public void flatMap(Long n, Collector<Long> out) throws Exception {
    if (n < 8) out.collect(n); else Thread.sleep(10);
  }
  public static DataStream<Long> of(StreamExecutionEnvironment env) {
    return env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid("source")
        .flatMap(new Feed()).returns(Types.LONG).setParallelism(1).uid("feed");
  }
}
"""
JOB = """package %(name)s;
import java.util.*;
import org.apache.flink.api.common.functions.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.*;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
public class Job {
  public static class ByKey implements KeySelector<Long, %(key)s> {
    public %(key)s getKey(Long n) { return %(key_of)s; }
  }
  public static class Update extends KeyedProcessFunction<%(key)s, Long, Long> {
    %(state)s state;
    @Override public void open(OpenContext c) throws Exception {
      %(descriptor)s
    }
    @Override public void processElement(Long n, Context c, Collector<Long> out) throws Exception {
      %(update)s
    }
  }
  public static void build(StreamExecutionEnvironment env) { add(common.Feed.of(env)); }
  public static void add(DataStream<Long> numbers) {
    numbers.keyBy(new ByKey()).process(new Update()).returns(Types.LONG).uid("%(uid)s")
        .sinkTo(new DiscardingSink<>());
  }
}
"""
ALL = """package all;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
public class Job {
  public static void build(StreamExecutionEnvironment env) {
    var numbers = common.Feed.of(env);
    %s
  }
}
"""
V = "public class V"
PLAIN = (
    "{ public int a; public String b; public V() {} "
    'public V(long n) { a = (int) n; b = "b" + n; } }'
)


@dataclass(frozen=True)
class Version:
    """A version of a case.

    Args:
        classes: Simple class name to its declaration without the package.
        value: The Java type of the state's values; it has a constructor of a long.
        types: The last arguments of the descriptor.
        kind: Value, List, Map (from String), Reducing.
    """

    classes: Mapping[str, str]
    value: str = "V"
    types: str = "V.class"
    kind: str = "Value"
    state: str = ""
    make: str = ""
    key: str = "Long"
    key_of: str = "n % 4"
    uid: str = ""
    map_key: str = "String"
    ttl: bool = False

    def sources(self, name: str) -> dict[str, str]:
        """File name to source."""
        imports = f"package {name};\nimport java.math.*; import java.time.*; import java.util.*;\n"
        texts = {f"{name}/{each}.java": imports + text for each, text in self.classes.items()}
        value = self.make or f"new {self.value}(n)"
        state_name = self.state or f"{name}-state"
        update, types = f"state.update({value});", self.types
        generic = self.value
        match self.kind:
            case "List":
                update = f"state.add({value});"
            case "Reducing":
                update, types = f"state.add({value});", f"new Last(), {types}"
                texts[f"{name}/Last.java"] = (
                    f"{imports}public class Last implements "
                    f"org.apache.flink.api.common.functions.ReduceFunction<{self.value}> {{ public "
                    f"{self.value} reduce({self.value} a, {self.value} b) {{ return b; }} }}"
                )
            case "Map":
                key = '"k" + n' if self.map_key == "String" else f"new {self.map_key}(n)"
                if self.map_key == "Long":
                    key = "n"
                update, types = f"state.put({key}, {value});", f"{self.map_key}.class, {types}"
                generic = f"{self.map_key}, {self.value}"
        descriptor = f'new {self.kind}StateDescriptor<>("{state_name}", {types})'
        get = "State" if self.kind == "Value" else f"{self.kind}State"
        open_ = f"state = getRuntimeContext().get{get}({descriptor});"
        if self.ttl:
            ttl = "StateTtlConfig.newBuilder(java.time.Duration.ofDays(9)).build()"
            open_ = (
                f"{self.kind}StateDescriptor<{generic}> d = {descriptor}; "
                f"d.enableTimeToLive({ttl}); state = getRuntimeContext().get{get}(d);"
            )
        texts[f"{name}/Job.java"] = JOB % {
            "name": name,
            "key": self.key,
            "key_of": self.key_of,
            "state": f"{self.kind}State<{generic}>",
            "descriptor": open_,
            "update": update,
            "uid": self.uid or name,
        }
        return texts


def pojo(fields: str, fill: str = "") -> Version:
    return Version({"V": f"{V} {{ {fields} public V() {{}} public V(long n) {{ {fill} }} }}"})


def with_part(part: str, holder: str = "public Part p;", fill: str = "p = new Part(n);") -> Version:
    plain = pojo(f"public int a; {holder}", f"a = (int) n; {fill}")
    return Version({**plain.classes, "Part": part})


def part(fields: str, fill: str, head: str = "public class Part") -> str:
    return f"{head} {{ {fields} public Part() {{}} public Part(long n) {{ {fill} }} }}"


PART_1 = part("public int x;", "x = (int) n;")
PART_2 = part("public int x; public long y;", "x = (int) n; y = n;")
LIST_OF_PARTS = ("public List<Part> p;", "p = new ArrayList<>(); p.add(new Part(n));")
LEVEL = "public enum Level { %s }"


def with_enum(constants: str) -> Version:
    of = (
        f"{V} {{ public int a; public Level l; public V() {{}} public V(long n) "
        f"{{ a = (int) n; l = Level.values()[(int) (n % 3)]; }} }}"
    )
    return Version({"V": of, "Level": LEVEL % constants})


def hidden(fields: str, fill: str) -> Version:
    """A class that is no POJO."""
    return Version({"V": f"{V} {{ {fields} V() {{}} public V(long n) {{ {fill} }} }}"})


def typed(value: str, types: str, make: str, classes: Mapping[str, str] | None = None) -> Version:
    return Version(classes or {}, value, types, make=make)


def hint(of: str) -> str:
    return f"TypeInformation.of(new TypeHint<{of}>() {{}})"


PLAIN_1 = Version({"V": f"{V} {PLAIN}"})
MORE = pojo("public int a; public String b; public double c;", 'a = (int) n; b = "b" + n; c = n;')


def of(version: Version, **changes: object) -> Version:
    return Version(**{**version.__dict__, **changes})


GETTERS = (
    "public int getA() { return a; } public void setA(int x) { a = x; } "
    "public String getB() { return b; } public %s setB(%s x) { b = x%s; %s }"
)
KEY_1 = (
    "public class K { public long id; public K() {} public K(long n) { id = n %% 4; } "
    "public boolean equals(Object o) { return ((K) o).id == id; } "
    "public int hashCode() { return (int) id; } %s }"
)
GEN = (
    "public class G<T> { public T t; public int a; public G() {} public G(long n, T x) "
    "{ a = (int) n; t = x; } }"
)
BASE = "public class Base { %s public Base() {} }"
DERIVED = "public class V extends Base { %s public V() {} public V(long n) { %s } }"


def derived(base: str, own: str) -> Version:
    return Version({"Base": BASE % base, "V": DERIVED % (own, "a = (int) n;")})


SUB = "public class S extends V { public int s; public S() {} public S(long n) { a = (int) n; } }"
ABSTRACT = "public abstract class V { public int a; %s public V() {} }"
RECORD = "public record V(%s) { public V(long n) { this(%s); } }"
TUPLE = "Tuple2<Long, V>"

CASES: Mapping[str, tuple[Version, Version]] = {
    "same": (PLAIN_1, PLAIN_1),
    "fieldadded": (PLAIN_1, MORE),
    "fieldremoved": (MORE, PLAIN_1),
    "fieldrenamed": (
        PLAIN_1,
        pojo("public int a; public String bb;", "a = (int) n; bb = null;"),
    ),
    "fieldwidened": (PLAIN_1, pojo("public long a; public String b;", "a = n;")),
    "fieldboxed": (PLAIN_1, pojo("public Integer a; public String b;", "a = (int) n;")),
    "fieldsswapped": (PLAIN_1, pojo("public String a; public int b;", "b = (int) n;")),
    "fieldsreordered": (PLAIN_1, pojo("public String b; public int a;", "a = (int) n;")),
    "fieldtransient": (PLAIN_1, pojo("public int a; public transient String b;", "")),
    "fieldprivate": (
        PLAIN_1,
        pojo(f"private int a; private String b; {GETTERS % ('void', 'String', '', '')}"),
    ),
    "setterfluent": (
        PLAIN_1,
        pojo(f"private int a; private String b; {GETTERS % ('V', 'String', '', 'return this;')}"),
    ),
    "setterother": (
        PLAIN_1,
        pojo(
            f"private int a; private String b; "
            f"{GETTERS % ('boolean', 'String', '', 'return true;')}"
        ),
    ),
    "setterobject": (
        PLAIN_1,
        pojo(f"private int a; private String b; {GETTERS % ('void', 'Object', '.toString()', '')}"),
    ),
    "accessorsgone": (PLAIN_1, pojo("public int a; private String b;", "")),
    "constructorgone": (
        PLAIN_1,
        Version({"V": f"{V} {{ public int a; public String b; public V(long n) {{}} }}"}),
    ),
    "constructorprivate": (
        PLAIN_1,
        Version({"V": f"{V} {{ public int a; public String b; private V() {{}} V(long n) {{}} }}"}),
    ),
    "classnotpublic": (PLAIN_1, Version({"V": f"class V {PLAIN}"})),
    "classrenamed": (
        PLAIN_1,
        Version({"W": f"public class W {PLAIN.replace('V(', 'W(')}"}, "W", "W.class"),
    ),
    "readobject": (
        PLAIN_1,
        pojo(
            "public int a; public String b; "
            "private void readObject(java.io.ObjectInputStream in) {}"
        ),
    ),
    "becamepojo": (
        hidden("private int a;", "a = (int) n;"),
        pojo("public int a;", "a = (int) n;"),
    ),
    "partadded": (with_part(PART_1), with_part(PART_2)),
    "partlistadded": (with_part(PART_1, *LIST_OF_PARTS), with_part(PART_2, *LIST_OF_PARTS)),
    "partwidened": (
        with_part(PART_1, *LIST_OF_PARTS),
        with_part(part("public long x;", "x = n;"), *LIST_OF_PARTS),
    ),
    "elementtype": (
        pojo("public List<Integer> l;", "l = new ArrayList<>(); l.add((int) n);"),
        pojo("public List<Long> l;", ""),
    ),
    "listtoarraylist": (
        pojo("public List<String> l;", 'l = new ArrayList<>(); l.add("x"); l.add("y");'),
        pojo("public ArrayList<String> l;", ""),
    ),
    "mapvalue": (
        pojo("public Map<String, Integer> m;", 'm = new HashMap<>(); m.put("x", (int) n);'),
        pojo("public Map<String, Long> m;", ""),
    ),
    "optional": (
        pojo("public Optional<String> o;", 'o = Optional.of("o" + n);'),
        pojo("public Optional<Long> o;", ""),
    ),
    "constantadded": (with_enum("LOW, MID, HIGH"), with_enum("LOW, MID, HIGH, TOP")),
    "constantsreordered": (with_enum("LOW, MID, HIGH"), with_enum("HIGH, LOW, MID")),
    "constantremoved": (with_enum("LOW, MID, HIGH"), with_enum("LOW, MID")),
    "movedup": (
        Version(
            {"Base": BASE % "", "V": DERIVED % ("public int a; public int b;", "a = (int) n;")}
        ),
        derived("public int a;", "public int b;"),
    ),
    "superclassadded": (
        PLAIN_1,
        derived("public int c;", "public int a; public String b;"),
    ),
    "fieldhidden": (
        Version({"Base": BASE % "public int c;", "V": DERIVED % ("public int a;", "a = (int) n;")}),
        Version(
            {"Base": BASE % "public int c;", "V": DERIVED % ("public int a; public int c;", "")}
        ),
    ),
    "abstractsame": (
        Version({"V": ABSTRACT % "", "S": SUB}, make="new S(n)"),
        Version({"V": ABSTRACT % "", "S": SUB}, make="new S(n)"),
    ),
    "abstractadded": (
        Version({"V": ABSTRACT % "", "S": SUB}, make="new S(n)"),
        Version({"V": ABSTRACT % "public long z;", "S": SUB}, make="new S(n)"),
    ),
    "subclassgone": (
        Version({"V": f"{V} {PLAIN}", "S": SUB}, make="new S(n)"),
        Version({"V": f"{V} {PLAIN}"}),
    ),
    "subclassadded": (
        Version({"V": f"{V} {PLAIN}", "S": SUB}, make="new S(n)"),
        Version({"V": f"{V} {PLAIN}", "S": SUB.replace("int s;", "int s; public long t;")}),
    ),
    "generic": (
        Version({"G": GEN}, "G<String>", hint("G<String>"), make='new G<>(n, "t" + n)'),
        Version({"G": GEN}, "G<Long>", hint("G<Long>"), make="new G<>(n, n)"),
    ),
    "genericsame": (
        Version({"G": GEN}, "G<String>", hint("G<String>"), make='new G<>(n, "t" + n)'),
        Version({"G": GEN}, "G<String>", hint("G<String>"), make='new G<>(n, "t" + n)'),
    ),
    "hintlist": (
        typed("List<String>", hint("List<String>"), 'new ArrayList<>(List.of("l" + n))'),
        typed("List<Long>", hint("List<Long>"), "new ArrayList<>(List.of(n))"),
    ),
    "hinttotypes": (
        typed("List<String>", hint("List<String>"), 'new ArrayList<>(List.of("l" + n))'),
        typed("List<String>", "Types.LIST(Types.STRING)", "new ArrayList<>()"),
    ),
    "widened": (
        typed("Integer", "Integer.class", "n.intValue()"),
        typed("Long", "Types.LONG", "n"),
    ),
    "basicsame": (
        typed("Long", "Long.class", "n"),
        typed("Long", "Types.LONG", "n"),
    ),
    "tuplearity": (
        typed("Tuple2<Long, Long>", hint("Tuple2<Long, Long>"), "Tuple2.of(n, n)"),
        typed("Tuple3<Long, Long, Long>", hint("Tuple3<Long, Long, Long>"), "Tuple3.of(n, n, n)"),
    ),
    "tuplepart": (
        of(PLAIN_1, value=TUPLE, types=hint(TUPLE), make="Tuple2.of(n, new V(n))"),
        of(MORE, value=TUPLE, types=hint(TUPLE), make="Tuple2.of(n, new V(n))"),
    ),
    "arraypart": (
        of(PLAIN_1, value="V[]", types="V[].class", make="new V[] {new V(n)}"),
        of(MORE, value="V[]", types="V[].class", make="new V[] {new V(n)}"),
    ),
    "recordadded": (
        Version({"V": RECORD % ("int a, String b", '(int) n, "b" + n')}),
        Version({"V": RECORD % ("int a, String b, long c", '(int) n, "b", n')}),
    ),
    "recordwidened": (
        Version({"V": RECORD % ("int a, String b", '(int) n, "b" + n')}),
        Version({"V": RECORD % ("long a, String b", 'n, "b" + n')}),
    ),
    "liststate": (of(PLAIN_1, kind="List"), of(MORE, kind="List")),
    "mapstate": (of(PLAIN_1, kind="Map"), of(MORE, kind="Map")),
    "mapkey": (of(PLAIN_1, kind="Map"), of(PLAIN_1, kind="Map", map_key="Long")),
    "mapkeyadded": (
        of(PLAIN_1, kind="Map", map_key="K", classes={**PLAIN_1.classes, "K": KEY_1 % ""}),
        of(
            PLAIN_1,
            kind="Map",
            map_key="K",
            classes={**PLAIN_1.classes, "K": KEY_1 % "public int z;"},
        ),
    ),
    "reducing": (of(PLAIN_1, kind="Reducing"), of(MORE, kind="Reducing")),
    "staterenamed": (of(PLAIN_1, state="total"), of(PLAIN_1, state="sum")),
    "valuetolist": (PLAIN_1, of(PLAIN_1, kind="List")),
    "keytype": (PLAIN_1, of(PLAIN_1, key="String", key_of='"" + n % 4')),
    "keypojoadded": (
        of(PLAIN_1, key="K", key_of="new K(n)", classes={**PLAIN_1.classes, "K": KEY_1 % ""}),
        of(
            PLAIN_1,
            key="K",
            key_of="new K(n)",
            classes={**PLAIN_1.classes, "K": KEY_1 % "public int z;"},
        ),
    ),
    "uidchanged": (PLAIN_1, of(PLAIN_1, uid="renamed")),
    "ttladded": (PLAIN_1, of(PLAIN_1, ttl=True)),
    "ttlremoved": (of(PLAIN_1, ttl=True), PLAIN_1),
    "ttlkept": (of(PLAIN_1, ttl=True), of(MORE, ttl=True)),
    "kryosame": (hidden("private int a;", "a = (int) n;"), hidden("private int a;", "")),
    "kryoadded": (
        hidden("private int a;", "a = (int) n;"),
        hidden("private int a; private int b;", ""),
    ),
    "kryotype": (
        hidden("private int a; private int b;", "a = (int) n; b = 1;"),
        hidden("private short a; private byte b;", ""),
    ),
    "kryotopojo": (
        pojo("public LocalDate d;", "d = LocalDate.of(2024, 2, 1 + (int) n);"),
        pojo("public Instant d;", ""),
    ),
    "localdate": (
        pojo("public LocalDate d; public int a;", "d = LocalDate.of(2024, 2, 1 + (int) n);"),
        pojo("public LocalDate d; public int a; public int b;", ""),
    ),
    "factory": (
        PLAIN_1,
        Version(
            {
                "V": "@org.apache.flink.api.common.typeinfo.TypeInfo(F.class) " + f"{V} {PLAIN}",
                "F": "public class F extends "
                "org.apache.flink.api.common.typeinfo.TypeInfoFactory<V> { public "
                "org.apache.flink.api.common.typeinfo.TypeInformation<V> createTypeInfo("
                "java.lang.reflect.Type t, Map<String, "
                "org.apache.flink.api.common.typeinfo.TypeInformation<?>> g) { return new "
                "org.apache.flink.api.java.typeutils.GenericTypeInfo<>(V.class); } }",
            }
        ),
    ),
}

WHAT: Mapping[str, str] = {
    "same": "POJO: nothing changed",
    "fieldadded": "POJO: a field is new",
    "fieldremoved": "POJO: a field is gone",
    "fieldrenamed": "POJO: a field has another name",
    "fieldwidened": "POJO: `int` became `long`",
    "fieldboxed": "POJO: `int` became `Integer`",
    "fieldsswapped": "POJO: two fields swapped their types",
    "fieldsreordered": "POJO: fields in another order",
    "fieldtransient": "POJO: a field became `transient`",
    "fieldprivate": "POJO: public fields became private, with accessors",
    "setterfluent": "the same, setters return the object",
    "setterother": "the same, a setter returns `boolean`",
    "setterobject": "the same, a setter takes `Object`",
    "accessorsgone": "POJO: a private field without accessors",
    "constructorgone": "POJO: no constructor without arguments",
    "constructorprivate": "POJO: this constructor is private",
    "classnotpublic": "POJO: the class is not public",
    "classrenamed": "POJO: the class has another name",
    "readobject": "POJO: a method `readObject` is new",
    "becamepojo": "a class that Kryo stored became a POJO",
    "partadded": "POJO in a POJO: a field is new",
    "partlistadded": "POJO in a `List` of a POJO: a field is new",
    "partwidened": "POJO in a `List` of a POJO: `int` became `long`",
    "elementtype": "POJO: `List<Integer>` became `List<Long>`",
    "listtoarraylist": "POJO: `List` became `ArrayList`",
    "mapvalue": "POJO: `Map<String, Integer>` became `Map<String, Long>`",
    "optional": "POJO: `Optional<String>` became `Optional<Long>`",
    "constantadded": "enum: a constant is new",
    "constantsreordered": "enum: constants in another order",
    "constantremoved": "enum: a constant is gone",
    "movedup": "POJO: a field moved to the superclass",
    "superclassadded": "POJO: a superclass with a field is new",
    "fieldhidden": "POJO: a field with the name of one of the superclass",
    "abstractsame": "abstract POJO with values of a subclass: nothing changed",
    "abstractadded": "the same, a field is new",
    "subclassgone": "POJO with values of a subclass: the subclass is gone",
    "subclassadded": "the same, the subclass has a new field",
    "generic": "`G<String>` became `G<Long>`, a generic POJO",
    "genericsame": "`G<String>`, a generic POJO: nothing changed",
    "hintlist": "`TypeHint<List<String>>` became `TypeHint<List<Long>>`",
    "hinttotypes": "`TypeHint<List<String>>` became `Types.LIST(Types.STRING)`",
    "widened": "`Integer.class` became `Types.LONG`",
    "basicsame": "`Long.class` became `Types.LONG`",
    "tuplearity": "`Tuple2` became `Tuple3`",
    "tuplepart": "POJO in a tuple: a field is new",
    "arraypart": "POJO in an array: a field is new",
    "recordadded": "record: a component is new",
    "recordwidened": "record: `int` became `long`",
    "liststate": "list state of a POJO: a field is new",
    "mapstate": "map state, values of a POJO: a field is new",
    "mapkey": "map state: keys `String` became `Long`",
    "mapkeyadded": "map state, keys of a POJO: a field is new",
    "reducing": "reducing state of a POJO: a field is new",
    "staterenamed": "the state has another name",
    "valuetolist": "value state became list state",
    "keytype": "keys `Long` became `String`",
    "keypojoadded": "keys of a POJO: a field is new",
    "uidchanged": "the operator has another uid",
    "ttladded": "value state has a time to live now",
    "ttlremoved": "value state has no time to live any more",
    "ttlkept": "value state with a time to live, of a POJO: a field is new",
    "kryosame": "a class that Kryo stores: nothing changed",
    "kryoadded": "a class that Kryo stores: a field is new",
    "kryotype": "a class that Kryo stores: fields have other types",
    "kryotopojo": "POJO: `LocalDate` became `Instant`",
    "localdate": "POJO with a `LocalDate`: a field is new",
    "factory": "POJO: the class has a `TypeInfoFactory` now",
}
"""What changes in each case."""


def compile_versions(javac: str | Path, jars: Sequence[Path], folder: Path) -> list[Path]:
    """The folders of classes of both versions. ``all.Job`` has the operators of all cases."""
    compiled = []
    adds = " ".join(f"{name}.Job.add(numbers);" for name in CASES)
    for at in (0, 1):
        # Version 2 gets no input.
        feed = FEED if at == 0 else FEED.replace("n < 8", "n < 0")
        sources = {"common/Feed.java": feed, "all/Job.java": ALL % adds}
        for name, versions in CASES.items():
            sources |= versions[at].sources(name)
        root = folder / f"v{at + 1}"
        for path, text in sources.items():
            (root / "src" / path).parent.mkdir(parents=True, exist_ok=True)
            (root / "src" / path).write_text(text)
        classpath = os.pathsep.join(map(str, jars))
        files = [str(root / "src" / path) for path in sources]
        command = [str(javac), "-nowarn", "-proc:none", "--release", "17"]
        classes = root / "classes"
        subprocess.run([*command, "-d", str(classes), "-cp", classpath, *files], check=True)
        compiled.append(classes)
    return compiled


def jar_of(classes: Path, out: Path) -> Path:
    """A jar of a folder of classes. The same classes give the same bytes."""
    with zipfile.ZipFile(out, "w") as jar:
        for path in sorted(classes.rglob("*.class")):
            entry = zipfile.ZipInfo(path.relative_to(classes).as_posix())
            entry.compress_type = zipfile.ZIP_DEFLATED
            jar.writestr(entry, path.read_bytes())
    return out


def empty_savepoint(folder: Path) -> Path:
    """A savepoint without operators, with which a job starts empty."""
    folder.mkdir(parents=True)
    other = Snapshot.load(snapshot("a-hashmap-canonical"))
    (folder / "_metadata").write_bytes(write_metadata(replace(other.metadata, operators=())))
    return folder


def restored(checker: FlinkChecker, name: str, old: Snapshot, backend: str, work: Path) -> str:
    """What the new version of a case does with its state: restored, or the error."""
    others = [
        operator.label
        for operator in old.operators
        if operator.label not in (name, "source") and operator.state.state_size
    ]
    own = rewrite_savepoint(old, work / "old", remove=others)
    try:
        checker.run_job(own, f"{name}.Job", savepoint_to=work / "new", backend=backend)
    except FlinkRestoreError as error:
        cause = str(error).rpartition("caused by ")[2]
        return re.sub(r"@[0-9a-f]+|savepoint file:\S+", "", cause)[:300]
    return "restored"


def verdicts_by_flink(flink: FlinkInstallation) -> dict[str, str]:
    """The verdict of ``dstl check --run`` for each case."""
    old = Snapshot.load(CHANGED_CLASSES / "old")
    jar = CHANGED_CLASSES / "new.jar"
    lines = check_restore(old, jar, unchanged=["source"], flink=flink).lines
    verdicts = {
        name: max(each.verdict for each in lines if each.operator == name) for name in CASES
    }
    return {name: VERDICT_TEXTS[each] for name, each in verdicts.items()}


def main(folder: Path) -> None:
    """Makes the golden folder anew with real Flink."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        versions = compile_versions(Java.find().javac, find_jars(), work / "versions")
        empty = empty_savepoint(work / "empty")
        for name, classes in zip(("old", "new"), versions, strict=True):
            (work / name).mkdir()
            checker = FlinkChecker(work / name, job_jars=[classes])
            # The state of the first savepoint may be that of a part of the input.
            first = checker.run_job(empty, "all.Job", savepoint_to=work / name / "first")
            taken = checker.run_job(first.savepoint, "all.Job", savepoint_to=work / name / "taken")
            checker.close()
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "_metadata").write_bytes(
                (Path(taken.savepoint) / "_metadata").read_bytes()
            )
            jar_of(classes, folder / f"{name}.jar")
        outcomes: dict[str, dict[str, str]] = {name: {} for name in CASES}
        for backend in ("hashmap", "rocksdb"):
            (work / backend).mkdir()
            checker = FlinkChecker(work / backend, job_jars=[folder / "new.jar"])
            old = Snapshot.load(folder / "old")
            for name in CASES:
                at = work / backend / name
                outcomes[name][backend] = restored(checker, name, old, backend, at)
            checker.close()
        (folder / "outcomes.json").write_text(json.dumps(outcomes, indent=1) + "\n")
        verdicts = verdicts_by_flink(FlinkInstallation.find(find_jars()[0].parent))
        (folder / "run.json").write_text(json.dumps(verdicts, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
