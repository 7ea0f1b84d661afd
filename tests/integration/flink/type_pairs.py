"""Pairs of types of an old and of a new job, and what real Flink does with them.

A family is a package of classes in two versions: a POJO, its subclasses, an inner POJO and an enum.
Pairs are random types over them, all from one seed.

    python -m tests.integration.flink.type_pairs tests/golden/type-pairs
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.flink.checker import Java, find_jars

SOURCES = Path(__file__).with_name("java-types")
SEED = 20_26
FAMILIES = 160
PAIRS_A_FAMILY = 5

Type = Any
"""The name of a plain type, or a list of a kind and its parts."""
PLAIN = ("string", "long", "int", "short", "byte", "char", "float", "double", "boolean", "instant")
BOXES = {
    "int": "Integer",
    "long": "Long",
    "short": "Short",
    "byte": "Byte",
    "char": "Character",
    "float": "Float",
    "double": "Double",
    "boolean": "Boolean",
}
FIELD_TYPES = (*BOXES, *BOXES.values(), "String", "Color", "Inner")
LISTS = ("java.util.List<String>", "java.util.List<Inner>", "Inner[]")
KINDS = (
    *("list", "set", "map", "array", "nullable", "padded"),
    *("either", "tuple", "row", "ttl", "rowdata"),
)
CHANGES = ("none", "add", "remove", "rename", "retype", "box", "inner", "enum", "subclasses")


@dataclass
class Version:
    """The classes of a family in one job.

    Attributes:
        fields: Name to Java type of the fields of the POJO.
        inner: Those of the inner POJO.
        sub: Those that the subclass adds.
        constants: Of the enum.
        registered: The subclasses that the job registers.
    """

    fields: dict[str, str]
    inner: dict[str, str]
    sub: dict[str, str]
    constants: list[str]
    registered: list[str]

    def sources(self, package: str) -> dict[str, str]:
        head = f"package {package};\n"
        classes = {
            "User": f"public class User {{ {_members(self.fields)} }}",
            "Inner": f"public class Inner {{ {_members(self.inner)} }}",
            "Sub": f"public class Sub extends User {{ {_members(self.sub)} }}",
            "Other": "public class Other extends User { public long other; }",
            "Color": f"public enum Color {{ {', '.join(self.constants)} }}",
        }
        return {f"{package}/{name}.java": head + text for name, text in classes.items()}


def _members(fields: dict[str, str]) -> str:
    return " ".join(f"public {java} {name};" for name, java in fields.items())


@dataclass
class Pairs:
    """The question to Flink."""

    old_classes: dict[str, str] = field(default_factory=dict)
    new_classes: dict[str, str] = field(default_factory=dict)
    pairs: list[dict[str, Any]] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    """Bytes of POJOs of the new job: ``type`` and ``hex``."""


def make_pairs(seed: int = SEED, families: int = FAMILIES) -> Pairs:
    """Random pairs, the same for the same seed."""
    rng = random.Random(seed)
    made = Pairs()
    for number in range(families):
        package = f"p{number}"
        old = _first_version(rng)
        new = old
        for _ in range(rng.choice((1, 1, 1, 2))):
            new = _changed(new, rng.choice(CHANGES), rng)
        made.old_classes |= old.sources(package)
        made.new_classes |= new.sources(package)
        for _ in range(PAIRS_A_FAMILY):
            before = _type(package, rng, depth=2)
            after = _other(before, package, rng) if rng.random() < 0.2 else before
            made.pairs.append(
                {
                    "old": before,
                    "new": after,
                    "old_registered": [f"{package}.{name}" for name in old.registered],
                    "new_registered": [f"{package}.{name}" for name in new.registered],
                }
            )
    return made


def _first_version(rng: random.Random) -> Version:
    fields = {f"f{at}": rng.choice(FIELD_TYPES) for at in range(rng.randint(1, 4))}
    if rng.random() < 0.3:
        fields["many"] = rng.choice(LISTS)
    inner = [name for name in FIELD_TYPES if name != "Inner"]
    return Version(
        fields,
        {f"i{at}": rng.choice(inner) for at in range(rng.randint(1, 2))},
        {"s0": rng.choice(inner)},
        ["RED", "GREEN", "BLUE"][: rng.randint(1, 3)],
        rng.choice(([], [], ["Sub"], ["Sub", "Other"])),
    )


def _changed(version: Version, change: str, rng: random.Random) -> Version:
    fields, inner, sub = dict(version.fields), dict(version.inner), dict(version.sub)
    constants, registered = list(version.constants), list(version.registered)
    name = rng.choice(sorted(fields))
    match change:
        case "add":
            fields[rng.choice(("a", "g", "z"))] = rng.choice((*FIELD_TYPES, *LISTS))
        case "remove" if len(fields) > 1:
            del fields[name]
        case "rename":
            fields["renamed"] = fields.pop(name)
        case "retype":
            fields[name] = rng.choice(FIELD_TYPES)
        case "box":
            boxes = BOXES | {box: plain for plain, box in BOXES.items()}
            fields[name] = boxes.get(fields[name], fields[name])
        case "inner":
            inner["j"] = rng.choice(("int", "Integer", "String", "Color"))
        case "enum":
            constants = rng.choice(
                (
                    [*constants, "PINK"],
                    ["PINK", *constants],
                    constants[1:] or ["PINK"],
                    constants[::-1],
                )
            )
        case "subclasses":
            registered = rng.choice(([], ["Sub"], ["Sub", "Other"], ["Other", "Sub"]))
            if rng.random() < 0.4:
                sub["s1"] = rng.choice(("int", "String"))
    return Version(fields, inner, sub, constants, registered)


def _leaf(package: str, rng: random.Random) -> Type:
    kind = rng.choice(("pojo", "pojo", "pojo", "enum", "inner", "plain"))
    if kind == "plain":
        return rng.choice(PLAIN)
    if kind == "inner":
        return ["pojo", f"{package}.Inner"]
    return [kind, f"{package}.{'User' if kind == 'pojo' else 'Color'}"]


def _type(package: str, rng: random.Random, depth: int) -> Type:
    if depth == 0 or rng.random() < 0.25:
        return _leaf(package, rng)
    parts = [_type(package, rng, depth - 1) for _ in range(2)]
    kind = rng.choice(
        [
            "list",
            "set",
            "map",
            "array",
            "nullable",
            "padded",
            "either",
            "tuple",
            "row",
            "ttl",
            "rowdata",
        ]
    )
    match kind:
        case "list" | "set" | "array" | "nullable":
            return [kind, parts[0]]
        case "padded":
            return [kind, rng.choice(("long", "int"))]
        case "map":
            return [kind, rng.choice(("string", parts[0])), parts[1]]
        case "ttl" if depth == 2:
            return [kind, parts[0]]
        case "rowdata":
            return [kind, *rng.sample(("BIGINT", "INT NOT NULL", "DECIMAL(10, 2)", "BOOLEAN"), 2)]
        case "either" | "tuple" | "row":
            return [kind, *parts]
    return _leaf(package, rng)


def _other(before: Type, package: str, rng: random.Random) -> Type:
    """Another type, most often one that is near."""
    choice = rng.choice((0, 1, 1, 2, 3, 4))
    if choice == 0:
        return _type(package, rng, depth=2)
    if choice == 1 and isinstance(before, list) and before[0] == "ttl":
        return before[1]
    if choice == 1:
        return ["ttl", before]
    if isinstance(before, list) and before[0] in ("tuple", "row", "rowdata"):
        return (
            before[:-1] if choice == 2 else [*before, "BIGINT" if "rowdata" in before else "long"]
        )
    if isinstance(before, list) and before[0] == "padded":
        return ["nullable", before[1]]
    if isinstance(before, list) and before[0] in ("list", "set", "array", "nullable"):
        return [rng.choice(("list", "set", "array", "nullable")), before[1]]
    return rng.choice(PLAIN)


def ask_flink(question: Pairs, work: Path) -> list[dict[str, Any]]:
    """What Flink answers: the two snapshots, its verdict, and values before and after.

    After the pairs come the fields of the values, as text.
    """
    java, jars = Java.find(), find_jars()
    classes = work / "classes"
    classpath = os.pathsep.join(map(str, [classes, *jars]))
    sources = map(str, SOURCES.rglob("*.java"))
    options = ["-proc:none", "-nowarn", "-d", str(classes), "-cp", classpath]
    subprocess.run([java.javac, *options, *sources], check=True, timeout=300)
    asked, answered = work / "question.json", work / "answers.jsonl"
    asked.write_text(json.dumps(vars(question)))
    opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
    command = [java.java, "-Xmx1g", "-XX:+UseSerialGC", *opened, "-cp", classpath]
    subprocess.run(
        [*command, "dstl.types.TypePairs", str(work), str(asked), str(answered)],
        check=True,
        timeout=600,
    )
    answers = [json.loads(line) for line in answered.read_text().splitlines()]
    pairs = [
        {"pair": [asked["old"], asked["new"]], **answer}
        for asked, answer in zip(question.pairs, answers, strict=False)
    ]
    return pairs + answers[len(pairs) :]


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        answers = ask_flink(make_pairs(), Path(work))
    lines = "".join(json.dumps(each, sort_keys=True) + "\n" for each in answers)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pairs.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
