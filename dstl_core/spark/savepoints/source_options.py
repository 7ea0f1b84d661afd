"""Parses the options of the source ``savepoint``. Credentials are never options."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dstl_core.codec.columnar.types.type_layouts import ColumnOptions
from dstl_core.codec.serializers import Types
from dstl_core.errors import ConfigError
from dstl_core.flink_text import whole_number
from dstl_core.savepoint.access.key_text import parse_key
from dstl_core.savepoint.read.keyed_reader import KEYED
from dstl_core.savepoint.read.snapshot_names import relocations
from dstl_core.savepoint.read.table_base import KINDS, SPLIT_BYTES, TableOptions
from dstl_core.spark.engine.table_frames import SnapshotPlace, TableSpec
from dstl_core.state.tables.named_objects import registry_from

_OPERATOR_OPTIONS = {"operator.uid": "uid", "operator.uid.hash": "hash", "operator.name": "name"}
_TYPE_OPTIONS = ("strings", "maps", "timestamps", "row_kinds", "unreadable", "decimals")
SOURCE_OPTIONS: Mapping[str, str] = {
    "path": "The snapshot; the argument of `load`.",
    "operator.uid": "The operator by its uid. Not needed if only one operator has keyed state.",
    "operator.uid.hash": "The operator by the hash of its uid.",
    "operator.name": "The operator by its name.",
    "kind": "`keyed`, `keyed-flat`, `windows`, `timers`, `list`, `union`, `broadcast`, "
    "`metadata` or `offsets`. Without it, `state` decides.",
    "state": "A state by its name; for `keyed-flat`, `list`, `union` and `broadcast`.",
    "columns": "Only these columns, comma-separated or as a JSON list (for names with commas). "
    "Spark does not tell Python sources which columns it needs.",
    "key": "One key: a string as it is, else JSON. Dates, times and decimals are text, fields of a "
    "row a list.",
    "key.in": "A JSON list of keys.",
    "timers": "`false`: no timer columns, and no rows for keys that have timers only.",
    "strings": "`utf16`: strings are binary, so that a lone surrogate is no error.",
    "maps": "`entries`: maps are lists of `key` and `value`, so that a null key is no error.",
    "timestamps": "`exact`: times are structs of `seconds` and `nanos`, so that a time between two "
    "microseconds is no error.",
    "decimals": "`exact`: a struct of unscaled bytes and scale, whatever type the job declared.",
    "row_kinds": "`column`: a row has a field `$row_kind`, so that any kind of row is no error.",
    "unreadable": "`null`: a value that only a Java class can read is null, and no error.",
    "split.bytes": "Bytes that a task reads (default 128 MiB).",
    "read.memory": "Bytes that a task may hold before it spills (default 512 MiB).",
    "jar": "Jars of the job, comma-separated, which every worker can read: values of Kryo, and of "
    "types that hold some, are JSON texts as `dstl dump` prints them, and not bytes.",
    "proto": "Descriptor sets of protoc, comma-separated, which every worker can read: messages of "
    "Protocol Buffers are structs.",
    "type": "Types that the files do not have: `STATE=MESSAGE` of `proto`; with commas between "
    "them, or a JSON object.",
    "serializers": "A registry of types with readers of your own serializers, as "
    "`package.module:name`, which every worker can import.",
    "relocate": "Where files went: `OLD=NEW`, comma-separated.",
    "allow.roots": "Further folders that the snapshot may refer to, comma-separated.",
    "changelog.base": "Where the changelog is.",
}
"""The options of the source with their meaning. The documentation has this table."""


def spec_of(options: Mapping[str, str]) -> TableSpec:
    """The table that the options select.

    Raises:
        ConfigError: An option is wrong. The message names it. It never shows the value of an
            unknown option, which may be a secret.
    """
    by_name = {name.lower(): value for name, value in options.items()}
    if "location" in by_name:  # Spark adds it for CREATE TABLE alone
        raise ConfigError(
            "A savepoint cannot be a table of a catalog; use CREATE TEMP VIEW name USING savepoint "
            "OPTIONS (path '..'), or register(spark, path), which makes a view for every state."
        )
    if "paths" in by_name:  # Spark makes it of a list
        raise ConfigError("The savepoint source reads one snapshot: expected load(path) of one.")
    unknown = sorted(set(by_name) - set(SOURCE_OPTIONS))
    if unknown:
        raise ConfigError(
            f"The savepoint source has no option {unknown[0]!r}; it has: "
            f"{', '.join(sorted(SOURCE_OPTIONS))}. Credentials belong into the environment of the "
            f"workers or into the file system's own configuration."
        )
    if "path" not in by_name:
        raise ConfigError(
            "The savepoint source needs a path: use load(path), or CREATE TEMP VIEW name USING "
            "savepoint OPTIONS (path '..'); a savepoint cannot be a table of a catalog."
        )
    named = [
        f"{form}:{by_name[option]}"
        for option, form in _OPERATOR_OPTIONS.items()
        if option in by_name
    ]
    if len(named) > 1:
        raise ConfigError(f"Give one of {', '.join(_OPERATOR_OPTIONS)}, not several.")
    state = by_name.get("state")
    kind = by_name.get("kind") or (KEYED if state == KEYED else None)
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind is wrong: expected one of {', '.join(KINDS)}, got {kind!r}.")
    named_types = by_name.get("serializers")
    place = SnapshotPlace(
        by_name["path"],
        _list(by_name.get("allow.roots")) or (),
        _moves(by_name.get("relocate")),
        by_name.get("changelog.base"),
        None if named_types is None else registry_from(named_types, "the savepoint source"),
        jars=_list(by_name.get("jar")) or (),
        protos=_list(by_name.get("proto")) or (),
        state_types=_state_types(by_name.get("type")),
    )
    spec = TableSpec(
        place,
        named[0] if named else None,
        kind,
        None if state == KEYED and kind == KEYED else state,
        TableOptions(
            columns=_columns(by_name.get("columns")),
            timers=_boolean("timers", by_name.get("timers", "true")),
            types=ColumnOptions(
                **{name: by_name[name] for name in _TYPE_OPTIONS if name in by_name}  # type: ignore[arg-type]  # checked there
            ),
            memory=_number("read.memory", by_name.get("read.memory", str(TableOptions().memory))),
        ),
        _number("split.bytes", by_name.get("split.bytes", str(SPLIT_BYTES))),
    )
    return _with_keys(spec, by_name)


def _with_keys(spec: TableSpec, options: Mapping[str, str]) -> TableSpec:
    texts = [options["key"]] if "key" in options else None
    if "key.in" in options:
        texts = [json.dumps(each) for each in _json_list(options["key.in"])]
    if texts is None:
        return spec
    key_type = spec.operator_of(spec.place.load()).key_type
    serializer = Types.STRING if key_type is None else key_type.serializer
    keys = tuple(parse_key(serializer, text, is_json="key.in" in options) for text in texts)
    return replace(spec, options=replace(spec.options, keys=keys))


def _json_list(text: str) -> list[Any]:
    decoded = _json_of(text)
    if not isinstance(decoded, list):
        raise ConfigError('key.in is wrong: expected a JSON list of keys, e.g. ["a", "b"].')
    return decoded


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _columns(text: str | None) -> tuple[str, ...] | None:
    """Parses names with commas between them, or a JSON list of names."""
    if text is None or not text.lstrip().startswith("["):
        return _list(text)
    names = _json_of(text)
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise ConfigError('columns is wrong: expected names, or a JSON list: ["a", "b, c"].')
    return tuple(names)


def _list(text: str | None) -> tuple[str, ...] | None:
    return tuple(each.strip() for each in text.split(",")) if text else None


def _state_types(text: str | None) -> dict[str, str]:
    """Parses ``STATE=MESSAGE`` with commas between them, or a JSON object of names and types."""
    if text is not None and text.lstrip().startswith("{"):
        types = _json_of(text)
        if isinstance(types, dict) and all(isinstance(each, str) for each in types.values()):
            return types
    pairs = [each.partition("=") for each in _list(text) or ()]
    if not all(name.strip() and sign and kind.strip() for name, sign, kind in pairs):
        raise ConfigError(
            'type is wrong: expected STATE=TYPE, comma-separated, or a JSON object: {"raw": "shop.'
            'Order"}.'
        )
    return {name.strip(): kind.strip() for name, _, kind in pairs}


def _moves(text: str | None) -> dict[str, str]:
    return relocations("relocate", _list(text))


def _number(name: str, text: str) -> int:
    number = whole_number(text)
    if number is None or not 0 < number < 1 << 63:
        raise ConfigError(f"{name} is wrong: expected a number of bytes, got {text!r}.")
    return number


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"{name} is wrong: expected true or false, got {text!r}.")
    return text.lower() == "true"
