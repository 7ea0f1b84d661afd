"""Moves the state of a job of Flink 1.x to Flink 2.x: a plan first, then a converted savepoint.

Flink 2.x reads Kryo values with another version of Kryo, and has types of its own for lists, maps
and sets. So it refuses such state of 1.x, fails later, or reads other values without a word. The
upgrade gives each state the type that the same job has in 2.x. All other bytes stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dstl_core.cached_property import cached_property
from dstl_core.codec.classfile.declared_states import DeclaredState, declared_states
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.source_types import parse_source_type
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.kryo.type_changes import TypeChange, TypeChanges, UndeclaredError
from dstl_core.codec.metadata.savepoint_properties import savepoint_properties
from dstl_core.codec.serializers import AnySerializer, ListSerializer, MapSerializer
from dstl_core.codec.serializers.base import UnknownSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer, holds_kryo
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.state_meta import (
    KEY_SERIALIZER,
    BackendStateType,
    StateMetaInfoSnapshot,
)
from dstl_core.errors import ConfigError, FormatError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.edit.converted_state import (
    Place,
    StateConversion,
    convert_operator,
    place_of,
)
from dstl_core.savepoint.edit.kept_state import (
    Files,
    can_be_kept,
    checked_files,
    files_by_default,
    folders_of,
    has_heap_timers,
    has_log,
    is_beside_heap_timers,
)
from dstl_core.savepoint.edit.named_types import NamedTypes
from dstl_core.savepoint.edit.operator_copy import check_writable, rewrite_operator
from dstl_core.savepoint.edit.rekeyed_state import rekeyed_state
from dstl_core.savepoint.edit.rewriting import (
    OperatorStep,
    Output,
    RewritingPlan,
    SavepointRewriter,
)
from dstl_core.savepoint.edit.tables.converted_tables import convert_tables, converted_states
from dstl_core.savepoint.edit.types_of_new_job import TypesOfNewJob, has_scala, has_scala_keys
from dstl_core.savepoint.edit.unwritable_values import unwritable_value
from dstl_core.savepoint.read.job_classes import open_job_classes
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.savepoint.verify.read_back import REFUSED
from dstl_core.savepoint.verify.verify import Report
from dstl_core.savepoint.write.folder import KeyedForm, SavepointFolder, checked_form
from dstl_core.savepoint.write.work_record import stable
from dstl_core.state.tables.compatibility import (
    Rules,
    Verdict,
    compatibility_of,
    parse_flink_version,
)

METADATA_VERSIONS = {"2.0": 5, "2.1": 6, "2.2": 6, "2.3": 6}
"""What each line of Flink 2 writes. It tells readers that Kryo values are those of Kryo 5."""
_KEYED = (
    BackendStateType.KEY_VALUE,
    BackendStateType.KEY_VALUE_V2,
    BackendStateType.PRIORITY_QUEUE,
)
KEEP, CONVERT, DROP, BLOCKED = "keep", "convert", "drop", "blocked"
_NEW_KEY = "A type of keys (new_keys, --new-key)"
OWN_PLACES = "each element gets a place of its own, where Flink finds it"
"""Of the elements of Flink 1.18 that share compressed chunks."""


@dataclass(frozen=True)
class UpgradeStep:
    """What happens to one state.

    Args:
        operator: Its label.
        state: Its name.
        kind: value, list, map, .. as in a dump.
        action: ``keep`` (byte for byte), ``convert``, ``drop`` or ``blocked``.
        old: The type in the savepoint.
        new: The type in the result.
        reason: Why it is blocked, or what changes beside the type.
    """

    operator: str
    state: str
    kind: str
    action: str
    old: str
    new: str = ""
    reason: str = ""


class SavepointUpgrade(SavepointRewriter):
    """An upgrade of one savepoint. ``plan`` says what ``write`` does.

    Args:
        source: A savepoint or checkpoint of Flink 1.x, loaded with the jars of its job.
        to: The version of Flink that restores the result.
        drop: States to leave out, as ``STATE`` or ``OP/STATE``; OP is a uid, hash or name.
        types: Declared types that the jars do not show, as Java writes them, by ``STATE``,
            ``OP/STATE``, or ``CLASS.FIELD`` of a POJO. They take the place of those in jars.
        files: What becomes of state with nothing to convert. ``canonical`` writes it in canonical
            form, for both state backends; ``copy`` and ``share`` keep operators in the form that
            they have, as ``SavepointEdit.with_files`` says. Of an operator in RocksDB's files only
            those of converted states are then read and written. None is ``canonical``; with native
            form, files of a checkpoint are shared, and files of a savepoint copied.
        format: The form of keyed state that is written: ``canonical``, or ``native`` for RocksDB.
        new_jars: Jars of the new job, for classes of ``types`` that take the place of types of
            Scala's API; by default they are looked up in the jars of the source.
        new_keys: Types of keys that take the place of types of Scala's API, by operator. Their
            records get other key groups.
        template: A savepoint of the new job, which has these types; a named type goes first.

    Raises:
        ConfigError: The version is unknown, the snapshot is of Flink 2.x, or a name is ambiguous,
            or in neither the snapshot nor the jars.
    """

    def __init__(
        self,
        source: Snapshot,
        to: str = "2.2",
        drop: Sequence[str] = (),
        types: Mapping[str, str] | None = None,
        *,
        files: Files | None = None,
        format: KeyedForm = "canonical",
        new_jars: Sequence[str | os.PathLike[str]] = (),
        new_keys: Mapping[str, str] | None = None,
        template: Snapshot | None = None,
    ) -> None:
        self.form = checked_form(format)
        if to not in METADATA_VERSIONS:
            raise ConfigError(
                f"The target is wrong: expected {', '.join(METADATA_VERSIONS)}, got {to!r}; give "
                f"the version of Flink that restores the result (to, --to)."
            )
        if source.kryo.dialect is not Dialect.KRYO_2:
            raise ConfigError(
                f"The snapshot is of Flink 2.x already: expected metadata version 4 or less, got "
                f"{source.metadata.version}; Flink {to} restores it as it is.",
                location=str(source.folder),
            )
        self._source = source
        self.files: Files = checked_files(files) or "canonical"
        if files is None and self.form == "native":
            self.files = files_by_default(source)
        self._version = METADATA_VERSIONS[to]
        self._rules = Rules(parse_flink_version(to), stored_line=2)
        self._names = SnapshotNames(source)
        self._named = NamedTypes(source, types or {})
        self._new_classes, self._new_job = open_job_classes(new_jars), template
        self._texts = stable([types or {}, new_keys or {}])
        self._new_keys = {
            _operator_with_scala_keys(source, name): parse_source_type(text, _NEW_KEY)
            for name, text in (new_keys or {}).items()
        }
        self.converted: dict[tuple[str, str], int] = {}
        """Entries that ``write`` has converted, by operator and state."""
        self._places: dict[OperatorID, frozenset[str]] = {}
        self._drop = {
            (place.operator.operator_id, place.state)
            for name in drop
            for place in self._names.states("A state to drop (drop, --drop)", name)
        }

    def _every_state(self) -> Iterator[tuple[OperatorSnapshot, StateInfo]]:
        for operator in self._source.operators:
            for info in operator.states + operator.operator_states:
                yield operator, info

    # -------------------------------------------------------------------------------- types

    @cached_property
    def _changes(self) -> TypeChanges:
        kryo = KryoClasses(Dialect.KRYO_5, self._source.kryo.layouts)
        return TypeChanges(FlinkTypes(kryo, self._template(), self._named.fields))

    @cached_property
    def _types_of_new_job(self) -> TypesOfNewJob:
        layouts = self._source.kryo.layouts
        if not self._new_classes.is_empty:
            layouts = ClassLayouts(self._new_classes)
        types = FlinkTypes(
            KryoClasses(Dialect.KRYO_5, layouts), self._template(), self._named.fields
        )
        return TypesOfNewJob(types, self._named.of_state, self._new_keys, self._new_job)

    def _template(self) -> KryoSerializer | None:
        """A Kryo type of the job that shows which classes it registers."""
        waiting = [
            serializer for _, info in self._every_state() for _, serializer in info.meta.serializers
        ]
        while waiting:
            nested = waiting.pop()
            if isinstance(nested, KryoSerializer):
                return nested
            waiting += nested.nested
        return None

    @cached_property
    def _declared(self) -> dict[str, DeclaredState]:
        names = {info.name for _, info in self._every_state() if _has_kryo(info.meta)}
        return declared_states(self._source.kryo.layouts.classes, names) if names else {}

    def _types_of(self, operator: OperatorSnapshot, name: str) -> tuple[JavaType | None, ...]:
        """The types of a state's descriptor, as far as they are known."""
        declared = self._declared.get(name)
        return self._named.of_state(operator, name) or (() if declared is None else declared.types)

    def _conversion(self, operator: OperatorSnapshot, info: StateInfo) -> StateConversion | None:
        """How a state changes; None if it stays as it is."""
        meta = info.meta
        if meta.is_queue:
            return None
        if has_scala(meta):
            return self._types_of_new_job.conversion(operator, info)
        if not _may_change(meta):
            return None
        types = self._types_of(operator, meta.name)
        value = meta.value_serializer
        if meta.backend_state_type is BackendStateType.BROADCAST:
            key, item = _last_two(types)
            return StateConversion.of(
                self._changes.of(value, item),
                self._changes.of(meta.serializer(KEY_SERIALIZER), key),
            )
        kind = None
        if meta.backend_state_type is BackendStateType.KEY_VALUE:
            kind = meta.keyed_state_type.name
        if kind == "MAP" and isinstance(value, MapSerializer):
            key, item = _last_two(types)
            return StateConversion.of(
                self._changes.of(value.value, item), self._changes.of(value.key, key)
            )
        last = types[-1] if types else None
        if kind == "LIST" and isinstance(value, ListSerializer):
            return StateConversion.of(self._changes.of(value.element, last))
        return StateConversion.of(self._changes.of(value, last))

    def _step(
        self, operator: OperatorSnapshot, info: StateInfo
    ) -> tuple[UpgradeStep, StateConversion | None]:
        step = UpgradeStep(operator.label, info.name, info.kind, KEEP, info.type, info.type)
        if (operator.operator_id, info.name) in self._drop:
            return replace(step, action=DROP, new=""), None
        try:
            _check_keys(operator, info)
            conversion = self._conversion(operator, info)
            is_keyed = info.meta.backend_state_type in _KEYED
            key = self._types_of_new_job.key(operator) if is_keyed else None
            is_misplaced = info.kind[:3] == "op-" and info.name in self._misplaced(operator)
        except UndeclaredError as error:
            selected = self._names.text_of(operator, info.name)
            complete = UndeclaredError(error.java_class, error.place, selected)
            return replace(step, action=BLOCKED, new="", reason=complete.what), None
        except FormatError as error:
            return replace(step, action=BLOCKED, new="", reason=error.what), None
        new = info.meta if conversion is None else conversion.meta(info.meta)
        if (reason := self._refused(operator, new, key)) is not None:
            return replace(step, action=BLOCKED, new="", reason=reason), None
        if is_misplaced:
            step = replace(step, action=CONVERT, reason=OWN_PLACES)
        if conversion is None:
            return step, None
        declared, layouts = self._types_of(operator, info.name), self._source.kryo.layouts
        if (reason := unwritable_value(operator, info, declared, layouts)) is not None:
            return replace(step, action=BLOCKED, new="", reason=reason), None
        shown = StateInfo.of(new).type if info.kind[:3] != "op-" else _operator_type(new)
        return replace(step, action=CONVERT, new=shown), conversion

    def _refused(
        self, operator: OperatorSnapshot, meta: StateMetaInfoSnapshot, key: TypeChange | None
    ) -> str | None:
        """Why the target refuses the result, by the rule that ``dstl check`` asks."""
        types = [serializer for _, serializer in meta.serializers]
        if key is not None and meta.backend_state_type in _KEYED:
            # Timers hold the key, too, and get its new type.
            types = [key.new] if meta.is_queue else [*types, key.new]
        elif operator.key_type is not None and meta.backend_state_type in _KEYED:
            types.append(operator.key_type.serializer)
        for stored_type in types:
            verdict = compatibility_of(stored_type, stored_type, self._rules)
            if verdict.verdict is Verdict.INCOMPATIBLE:
                return verdict.reason
        return None

    def _misplaced(self, operator: OperatorSnapshot) -> frozenset[str]:
        known = self._places.get(operator.operator_id)
        if known is None:
            known = self._places[operator.operator_id] = operator.misplaced_elements()
        return known

    def plan(self) -> list[UpgradeStep]:
        """What happens to each state. It reads headers and jars, and of the state only what may
        have elements that share chunks, and values of classes with a field that Kryo 5 may have no
        form for.
        """
        return [self._step(operator, info)[0] for operator, info in self._every_state()]

    # -------------------------------------------------------------------------------- write

    @property
    def source_size(self) -> int:
        """Bytes of state that ``write`` reads."""
        return sum(map(self._size_of, self._source.operators))

    def _size_of(self, operator: OperatorSnapshot) -> int:
        size = operator.state.state_size
        if self.files != "share":
            return size
        if self._stays(operator):
            return 0
        conversions = self._conversions(operator)
        if not self._keeps_tables(operator, conversions):
            return size
        part = converted_states(operator, conversions)
        keyed = part.keyed_size if part.states else 0
        changes_elements = self._changes_elements(operator, conversions)
        return keyed + (size - operator.keyed_size if changes_elements else 0)

    def _rewriting(self) -> RewritingPlan:
        steps = self.plan()
        blocked = [each for each in steps if each.action == BLOCKED]
        if blocked:
            first = blocked[0]
            raise SavepointError(
                f"State {first.state!r} of operator {first.operator!r} cannot be upgraded "
                f"({first.reason}); states blocked in all: {len(blocked)}; drop them by name "
                f"(drop, --drop) or give what is missing.",
                location=str(self._source.folder),
            )
        for operator in self._source.operators:
            check_writable(operator)
        self.converted.clear()
        return RewritingPlan(
            "upgraded savepoint",
            self._source,
            self.source_size,
            [
                OperatorStep(copied.label, partial(self._written, copied), has_heap_timers(copied))
                for copied in self._source.operators
            ],
            self._metadata,
            self.files,
            self.shares_files_in,
            self.converted,
            check=self._check_converted,
            form=self.form,
            plan=[self._version, stable(steps), *self._read_beside_source()],
        )

    def _check_converted(self, _: Snapshot, target: SavepointFolder, report: Report) -> None:
        """Checks that values which were read before they were converted are read after it, too.

        Raises:
            SavepointError: A value is not.
        """
        if not self._new_classes.is_empty:
            return  # they have classes of the new job, which the source does not know
        for operator, state in self.converted:
            text = report.unread.get((operator, f"state {state!r}"))
            if text is not None:
                raise SavepointError(f"{REFUSED}: {text}.", location=str(target.folder))

    def _read_beside_source(self) -> list[Any]:
        """What types and values are read with: names that a person gave, jars, and a template."""
        template = None if self._new_job is None else self._new_job.file.sha256
        jars = [self._source.kryo.layouts.classes.digest, self._new_classes.digest]
        return [self._texts, jars, template]

    def _metadata(self, states: tuple[OperatorState, ...]) -> CheckpointMetadata:
        old = self._source.metadata
        properties = old.properties or savepoint_properties()
        return replace(old, version=self._version, operators=states, properties=properties)

    @property
    def shares_files_in(self) -> list[str]:
        """The folders whose files the result needs; none unless it shares files."""
        if self.files != "share":
            return []
        kept = (operator for operator in self._source.operators if self._keeps_files(operator))
        return folders_of(kept, self._source.resolver)

    @property
    def timers_on_the_heap(self) -> list[str]:
        """As ``EditedSavepoint.timers_on_the_heap`` says."""
        return [operator.label for operator in filter(has_heap_timers, self._source.operators)]

    def _keeps_files(self, operator: OperatorSnapshot) -> bool:
        return self._stays(operator) or self._keeps_tables(operator, self._conversions(operator))

    def _conversions(self, operator: OperatorSnapshot) -> dict[Place, StateConversion | None]:
        """What becomes of the states of an operator that do not stay as they are."""
        conversions: dict[Place, StateConversion | None] = {}
        for info in operator.states + operator.operator_states:
            step, conversion = self._step(operator, info)
            if step.action == DROP or conversion is not None:
                conversions[place_of(info.meta)] = conversion
        return conversions

    def _written(self, operator: OperatorSnapshot, output: Output) -> OperatorState:
        conversions = self._conversions(operator)
        if output.kept is not None and self._stays(operator):
            return output.kept.of(operator, replace(operator.state, uid=operator.uid))
        count = self._counter(operator.label)
        if output.kept is not None and self._keeps_tables(operator, conversions):
            changes_elements = self._changes_elements(operator, conversions)
            return convert_tables(
                operator, conversions, output, output.kept, count, changes_elements
            )
        source, key = operator.with_timer_queues, None
        if _leaves_keyed_state(operator, conversions):
            key = self._types_of_new_job.key(operator)
        if not conversions and key is None:
            return rewrite_operator(source, replace(operator.state, uid=operator.uid), output)
        keyed = None
        if key is not None:
            keyed = rekeyed_state(source, key, conversions, output, count)
        return convert_operator(source, conversions, output, count, keyed)

    def _stays(self, operator: OperatorSnapshot) -> bool:
        """Whether an operator can keep its files: nothing is converted, elements that share chunks
        get places of their own, and a log of changes becomes part of the state.
        """
        is_same = not self._conversions(operator) and not has_scala_keys(operator)
        if has_log(operator) or (self.form == "native" and not is_beside_heap_timers(operator)):
            return False
        return is_same and can_be_kept(operator) and not self._misplaced(operator)

    def _keeps_tables(
        self, operator: OperatorSnapshot, conversions: Mapping[Place, StateConversion | None]
    ) -> bool:
        """Whether files of RocksDB stay, but for those of states that change."""
        if self.files == "canonical" or not (
            can_be_kept(operator) and is_beside_heap_timers(operator)
        ):
            return False
        return not (has_scala_keys(operator) and _leaves_keyed_state(operator, conversions))

    def _changes_elements(
        self, operator: OperatorSnapshot, conversions: Mapping[Place, StateConversion | None]
    ) -> bool:
        """Whether lists, union and broadcast states of an operator are written anew."""
        listed = (place_of(info.meta) for info in operator.operator_states)
        return any(place in conversions for place in listed) or bool(self._misplaced(operator))

    def _counter(self, operator: str) -> Callable[[str, int], None]:
        def count(state: str, entries: int) -> None:
            key = operator, state
            self.converted[key] = self.converted.get(key, 0) + entries

        return count


def _leaves_keyed_state(
    operator: OperatorSnapshot, conversions: Mapping[Place, StateConversion | None]
) -> bool:
    return any(conversions.get(place_of(i.meta), True) is not None for i in operator.states)


def _operator_with_scala_keys(source: Snapshot, name: str) -> OperatorID:
    operator = source[name]
    if not has_scala_keys(operator):
        keys = "no keys" if operator.key_type is None else operator.key_type.serializer.type_name
        raise ConfigError(
            f"{_NEW_KEY} is wrong: expected an operator whose keys have "
            f"a type of Scala's API, got {name!r}, which has {keys}."
        )
    return operator.operator_id


def _operator_type(meta: StateMetaInfoSnapshot) -> str:
    if meta.backend_state_type is BackendStateType.BROADCAST:
        key = meta.serializer(KEY_SERIALIZER).type_name
        return f"Map<{key}, {meta.value_serializer.type_name}>"
    return meta.value_serializer.type_name


def _last_two(
    types: Sequence[JavaType | None],
) -> tuple[JavaType | None, JavaType | None]:
    """Of the key and the value of a map; a person names them as one type."""
    match types:
        case [*_, key, value]:
            return key, value
        case [JavaType(arguments=(key, value))]:
            return key, value
    return None, None


def _has_kryo(meta: StateMetaInfoSnapshot) -> bool:
    return any(holds_kryo(serializer) for _, serializer in meta.serializers)


def _may_change(meta: StateMetaInfoSnapshot) -> bool:
    """Whether the type holds Kryo, or POJOs whose subclasses may."""
    return any(_may_hold(serializer) for _, serializer in meta.serializers)


def _may_hold(serializer: AnySerializer) -> bool:
    if isinstance(serializer, KryoSerializer | PojoSerializer):
        return True
    return any(map(_may_hold, serializer.nested))


def _check_keys(operator: OperatorSnapshot, info: StateInfo) -> None:
    meta = info.meta
    if meta.backend_state_type in (BackendStateType.OPERATOR, BackendStateType.BROADCAST):
        return
    key_type = operator.key_type
    keys = [] if key_type is None else [key_type.serializer]
    if meta.backend_state_type is BackendStateType.KEY_VALUE:
        keys.append(meta.namespace_serializer)
    for key in keys:
        if holds_kryo(key):
            raise FormatError(f"Keys and namespaces of type {key.type_name} are not converted")
    if any(isinstance(each, UnknownSerializer) for _, each in meta.serializers):
        return
    if meta.backend_state_type is BackendStateType.KEY_VALUE_V2 and _has_kryo(meta):
        raise FormatError("Asynchronous state is not converted")
