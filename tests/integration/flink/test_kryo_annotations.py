"""What decides the form of a class in Kryo beside its fields: annotations and interfaces.

Kryo 2.24 of Flink 1.20 writes values of the classes. Either the value is upgraded, and Kryo 5 of
Flink 2.2 reads the same one; or the plan of an upgrade says which class and what of it is in the
way, and a dump says the same of each value. No value is guessed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dstl_core.codec.serializers import deserialize_exactly
from dstl_core.errors import UnreadableValueError
from tests.integration.flink.checker import find_jars
from tests.integration.flink.kryo_classes import RandomClasses, compile_classes, exchange
from tests.integration.flink.releases import jars_of
from tests.kryo_upgrades import ValueUpgrade

pytestmark = pytest.mark.flink
OLD_RELEASE = "1.20.5"
VALUES = 12
"""Asked for, of each class. Kryo holds those whose optional fields are null, and others are not."""

_IMPORTS = """package g;
import com.esotericsoftware.kryo.*;
import com.esotericsoftware.kryo.io.*;
import com.esotericsoftware.kryo.serializers.*;
import java.io.*;
import java.util.*;
"""
_REV = """
/** Writes its fields in another order. */
public class Rev extends Serializer<Two> {
  @Override public void write(Kryo kryo, Output out, Two value) {
    out.writeInt(value.b); out.writeInt(value.a);
  }
  @Override public Two read(Kryo kryo, Input in, Class<Two> of) {
    Two found = new Two(); found.b = in.readInt(); found.a = in.readInt(); return found;
  }
}
"""
_TEXT = "DefaultSerializers.StringSerializer.class"
READ = {
    "Plain": "public class Plain { private int a; private String b; Plain() {} }",
    "External": "public class External implements Externalizable { private int a; private String b;"
    " public External() {} public void writeExternal(ObjectOutput out) { throw new Error(); }"
    " public void readExternal(ObjectInput in) { throw new Error(); } }",
    "Copied": "public class Copied implements KryoCopyable<Copied> { private int a; private String"
    " b; Copied() {} public Copied copy(Kryo kryo) { throw new Error(); } }",
    "Tagged": "public class Tagged { @TaggedFieldSerializer.Tag(7) private int a;"
    " @TaggedFieldSerializer.Tag(3) private String b; Tagged() {} }",
    "Filled": "public class Filled { @NotNull private String b; private int a; Filled() {} }",
    "HasExternal": "public class HasExternal { private External e; private List<Copied> c;"
    " private Tagged t; HasExternal() {} }",
    "MayHave": "public class MayHave { private int a; private Kit.Named any; MayHave() {} }",
}
"""Those that are upgraded: what they have does not change how Kryo stores them."""
TWO_FIELDS = "{ int a; int b; Two() {} }"
NAMED = {
    "Two": (f"@DefaultSerializer(Rev.class) public class Two {TWO_FIELDS}", "Two", "g.Rev"),
    "Below": ("public class Below extends Two { int c; Below() {} }", "Below", "g.Rev"),
    "Bind": (
        f"public class Bind {{ @FieldSerializer.Bind({_TEXT}) private String b; private int a;"
        " Bind() {} }",
        "Bind",
        "FieldSerializer$Bind of its field b",
    ),
    "BindList": (
        "public class BindList { @CollectionSerializer.BindCollection("
        f"elementSerializer = {_TEXT}, elementClass = String.class, elementsCanBeNull = false)"
        " private ArrayList<String> b; BindList() {} }",
        "BindList",
        "CollectionSerializer$BindCollection of its field b",
    ),
    "BindMap": (
        "public class BindMap { @MapSerializer.BindMap("
        f"keySerializer = {_TEXT}, keyClass = String.class, keysCanBeNull = false)"
        " private HashMap<String, Integer> b; BindMap() {} }",
        "BindMap",
        "MapSerializer$BindMap of its field b",
    ),
    "Optional": (
        'public class Optional { @FieldSerializer.Optional("never") private String a;'
        " private int b; Optional() {} }",
        "Optional",
        "FieldSerializer$Optional of its field a",
    ),
    "NotNullNumber": (
        "public class NotNullNumber { @NotNull private Integer a; private int b;"
        " NotNullNumber() {} }",
        "NotNullNumber",
        "NotNull of its field a",
    ),
    "ByJava": (
        "@DefaultSerializer(JavaSerializer.class) public class ByJava implements"
        " java.io.Serializable { int a; String b; ByJava() {} }",
        "ByJava",
        "JavaSerializer",
    ),
    "ByItself": (
        "public class ByItself implements KryoSerializable { int a; ByItself() {}"
        " public void write(Kryo kryo, Output out) { out.writeInt(a + 1); }"
        " public void read(Kryo kryo, Input in) { a = in.readInt() - 1; } }",
        "ByItself",
        "writes its own Kryo form",
    ),
    "HasTwo": ("public class HasTwo { private Two two; HasTwo() {} }", "Two", "g.Rev"),
    "HasLast": ("public class HasLast { private Last last; HasLast() {} }", "Last", "g.Rev2"),
    "HasList": ("public class HasList { private List<Two> all; HasList() {} }", "Two", "g.Rev"),
    "HasArray": ("public class HasArray { private Two[] all; HasArray() {} }", "Two", "g.Rev"),
    "HasMap": (
        "public class HasMap { private Map<String, List<Bind>> all; HasMap() {} }",
        "Bind",
        "FieldSerializer$Bind of its field b",
    ),
    "Deep": ("public class Deep { private HasTwo has; private Deep d; Deep() {} }", "Two", "g.Rev"),
}
"""Those that are named: the class, the class that is in the way, and what of it."""
_LAST = """
@DefaultSerializer(Rev2.class) public final class Last { int a; int b; Last() {} }
"""
_SOURCES = {
    **READ,
    **{name: source for name, (source, _, _) in NAMED.items()},
    "Rev": _REV,
    "Last": _LAST,
    "Rev2": _REV.replace("Two", "Last").replace("Rev", "Rev2"),
}


def sources() -> RandomClasses:
    """All classes, of which those are asked for that are listed."""
    return RandomClasses(
        tuple(f"g.{name}" for name in (*READ, *NAMED)),
        {name: _IMPORTS + text for name, text in _SOURCES.items()},
    )


def test_values_are_read_exactly_or_the_class_is_named(tmp_path: Path) -> None:
    old = jars_of(OLD_RELEASE)
    classes = sources()
    jar = compile_classes(classes, tmp_path, old)
    asked = [f"{name}\t{at}" for name in classes.names for at in range(VALUES)]
    upgrade, lines, named = ValueUpgrade(jar), [], set()
    for name, at, outcome, *parts in exchange("write", old, jar, asked):
        if outcome == "skipped":
            continue
        snapshot, stored, _ = (bytes.fromhex(part) for part in parts)
        simple = name.removeprefix("g.")
        if simple in READ:
            new = upgrade.upgraded(snapshot, stored)
            lines.append("\t".join((name, at, new[0].hex(), new[1].hex(), parts[2])))
            continue
        with pytest.raises(UnreadableValueError) as refused:
            upgrade.change(snapshot)
        assert_named(simple, str(refused.value))
        problem = problem_of_a_dump(upgrade, snapshot, stored)
        if problem is not None:
            assert_named(simple, problem)
            named.add(simple)
    assert named == NAMED.keys()
    answers = exchange("read", find_jars(), jar, lines)
    assert [(name, outcome) for name, _, outcome, *_ in answers if outcome != "equal"] == []
    assert {name.removeprefix("g.") for name, *_ in answers} == READ.keys()


def assert_named(name: str, problem: str) -> None:
    """The problem names the class that is in the way, and what of it."""
    _, in_the_way, what = NAMED[name]
    assert f"lass g.{in_the_way} " in problem, (name, problem)
    assert what in problem, (name, problem)


def problem_of_a_dump(upgrade: ValueUpgrade, snapshot: bytes, stored: bytes) -> str | None:
    """What a dump says in place of the value; None if it reads it."""
    old = upgrade.type_of(snapshot)
    try:
        deserialize_exactly(old, stored)
    except UnreadableValueError as error:
        return str(error)
    return None
