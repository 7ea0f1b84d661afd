"""Values that Flink 1.x stores and Kryo 5 cannot: found before anything is written.

Types do not say it, so values are read; but only those of states whose classes have a field of such
a type. A value in a field of an open type, such as ``Object``, is found when it is converted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.kryo.class_layouts import ClassLayouts, classes_in
from dstl_core.codec.kryo.kryo_objects import KryoObject
from dstl_core.codec.kryo.kryo_serializer import KryoValue, ReadableKryoSerializer
from dstl_core.codec.kryo.locales import NO_LOCALE_FORM, Locale
from dstl_core.codec.serializers import AnySerializer
from dstl_core.codec.serializers.pojo import Pojo
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot

LOCALE = "java.util.Locale"


def unwritable_value(
    operator: OperatorSnapshot,
    info: StateInfo,
    declared: Iterable[JavaType | None],
    layouts: ClassLayouts,
) -> str | None:
    """Why a value of a state has no form in Kryo 5, with its key; None if each has one.

    Args:
        operator: The operator.
        info: One of its states.
        declared: The types of the state's descriptor.
        layouts: What is known of the job's classes.
    """
    types = [part for _, each in info.meta.serializers for part in _parts(each)]
    named = [name for each in declared if each is not None for name in classes_in(each)]
    named += [each.java_class for each in types if isinstance(each, ReadableKryoSerializer)]
    if not any(layouts.reaches(name, LOCALE) for name in named):
        return None
    for entry in operator.entries(info.name):
        for locale in _locales(getattr(entry, "value", None)):
            if locale.script or locale.extensions:
                key = entry.to_line().get("key")
                place = "one" if key is None else f"the value of key {json.dumps(key)}"
                return (
                    f"{NO_LOCALE_FORM}, and {place} has {locale.text}: let the job store language "
                    f"tags as text (toLanguageTag) before the upgrade, or drop the state"
                )
    return None


def _parts(serializer: AnySerializer) -> Iterator[AnySerializer]:
    yield serializer
    for inner in serializer.nested:
        yield from _parts(inner)


def _locales(value: Any) -> Iterator[Locale]:
    """The locales in a value, which may refer to itself."""
    waiting, seen = [value], set[int]()
    while waiting:
        content = waiting.pop()
        match content:
            case Locale():
                yield content
                continue
            case KryoValue(content=inside) | KryoObject(value=inside):
                parts = [inside]
            case Pojo(fields=fields):
                parts = list(fields.values())
            case dict():
                parts = [*content.keys(), *content.values()]
            case list() | tuple() | set() | frozenset():
                parts = list(content)
            case _:
                continue
        if id(content) not in seen:
            seen.add(id(content))
            waiting += parts
