"""Checks whether the job in a jar restores a snapshot. No class is loaded or run, unless asked.

The uids, functions and descriptors come from the bytecode of the job, the types from its classes.
What the jar does not show for certain is unknown, never compatible. With a Flink to ask, it opens
the job's functions, compares its own serializers with the stored ones, and reads values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dstl_core.codec.classfile.class_file import OBJECT
from dstl_core.codec.classfile.generic_types import JavaType
from dstl_core.codec.classfile.job_code import Descriptor, read_job_code
from dstl_core.codec.kryo.class_layouts import ClassLayouts
from dstl_core.codec.kryo.declared_types import DescriptorTypes
from dstl_core.codec.kryo.flink_types import FlinkTypes
from dstl_core.codec.kryo.kryo_objects import Dialect
from dstl_core.codec.kryo.kryo_serializer import KryoClasses
from dstl_core.codec.serializers import AnySerializer, ListSerializer, MapSerializer, TtlSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.state_meta import NAMESPACE_SERIALIZER, BackendStateType
from dstl_core.display import option_text
from dstl_core.errors import ConfigError, UnreadableValueError
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.savepoint.read.job_classes import open_job_classes
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.snapshot_names import SnapshotNames
from dstl_core.savepoint.restores.flink_answers import FlinkInstallation
from dstl_core.savepoint.restores.flink_verdicts import VOID_NAMESPACE, StateOfJob, by_flink
from dstl_core.savepoint.restores.hidden_changes import (
    holds,
    values_of_subclasses,
    verdict_on_removed_fields,
)
from dstl_core.savepoint.restores.job_match import (
    JobOperator,
    OperatorFate,
    line_of,
    mixed_numbers,
)
from dstl_core.savepoint.restores.restore_result import (
    DroppedState,
    RestoreLine,
    RestoreResult,
    metadata_lines,
    misplaced_lines,
)
from dstl_core.state.tables.compatibility import (
    FLINK_VERSIONS,
    Compatibility,
    Rules,
    Verdict,
    compatibility_of,
    compatibility_of_state,
    parse_flink_version,
)
from dstl_core.state.tables.convertible import parts_of

_TIMERS = ("event-timer", "proc-timer")
_USER_TIMERS = "_user-timers"
_FUNCTIONS = "org.apache.flink.streaming.api.functions."
_KEYED_FUNCTIONS = (
    f"{_FUNCTIONS}KeyedProcessFunction",
    f"{_FUNCTIONS}co.KeyedCoProcessFunction",
    f"{_FUNCTIONS}co.KeyedBroadcastProcessFunction",
)
"""Their first type argument is the key; their timers are ``user-timers``."""
_ADVICE = "compare with a savepoint of the new job (--expect), or say that it did not change"


class JarCheck:
    """Checks the job in a jar."""

    def __init__(
        self,
        snapshot: Snapshot,
        jars: Sequence[str | os.PathLike[str]],
        to: str | None,
        drop: Sequence[str],
        unchanged: Sequence[str],
        main: str | None,
    ) -> None:
        self._main = main
        self._snapshot, self._jars = snapshot, jars
        flink = FLINK_VERSIONS[-1] if to is None else parse_flink_version(to)
        self._rules = Rules(flink, line_of(snapshot))
        self._classes = open_job_classes(jars)
        dialect = Dialect.KRYO_5 if flink >= (2, 0) else Dialect.KRYO_2
        kryo = KryoClasses(dialect, ClassLayouts(self._classes))
        self._types = FlinkTypes(kryo)
        self._declared = DescriptorTypes(self._types)
        self._code = read_job_code(self._classes, main)
        self._functions = {
            OperatorID.for_uid(uid): function for uid, function in self._code.uids.items() if uid
        }
        self._drop = DroppedState(snapshot, drop)
        self._unchanged = _Names(snapshot, unchanged)
        self._states: dict[tuple[str, str | None], StateOfJob] = {}

    def run(self, asked: FlinkInstallation | None = None) -> RestoreResult:
        flink = self._rules.version
        lines = metadata_lines(self._snapshot, flink)
        lines += misplaced_lines(self._snapshot, flink, self._drop)
        if self._main is None and len(self._code.mains) > 1:
            names = ", ".join(self._code.mains[:5])
            reason = f"the jar has several jobs; name the main class (--class): {names}"
            lines.append(RestoreLine("job", Verdict.UNKNOWN, reason))
        if self._code.sets_max_parallelism:
            reason = (
                "the job may set its max parallelism: Flink refuses another than that of the "
                f"savepoint; {_ADVICE.partition(',')[0]}"
            )
            lines.append(RestoreLine("job", Verdict.UNKNOWN, reason))
        else:
            lines += self._mixed_numbers()
        for operator in self._snapshot.operators:
            if operator.state.state_size:
                lines += self._operator(operator)
        self._drop.check_used()
        if asked is not None:
            lines = by_flink(lines, self._states, asked, self._jars, self._rules, self._classes)
        notes = ["settings outside the jar are not checked, such as those of Kryo and parallelism"]
        is_refused = any(each.verdict is Verdict.INCOMPATIBLE for each in lines)
        if is_refused and self._rules.stored_line == 1 and flink >= (2, 0):
            notes.append("Flink 1 wrote the savepoint: convert it first (dstl upgrade)")
        return RestoreResult(
            str(self._snapshot.folder),
            os.fspath(self._jars[0]),
            flink,
            lines,
            notes,
            [
                OperatorFate(operator.label, "matched", operator.state.state_size)
                for operator in self._snapshot.operators
                if operator.operator_id in self._functions
            ],
        )

    # -------------------------------------------------------------------------- operators

    def _mixed_numbers(self) -> Iterator[RestoreLine]:
        """Lines of a savepoint whose operators cannot share the vertices that they may share."""
        every = self._snapshot.operators
        job = {
            state.operator_id: JobOperator(OperatorIdentifier(state.operator_id)) for state in every
        }
        mixed = mixed_numbers(self._snapshot, job)
        for operator in every:
            if operator.operator_id in mixed:
                reason = mixed[operator.operator_id]
                yield RestoreLine(operator.label, Verdict.UNKNOWN, reason)

    def _operator(self, operator: OperatorSnapshot) -> Iterator[RestoreLine]:
        label = operator.label
        if self._drop.takes(label):
            reason = "dropped as asked: start the job with --allowNonRestoredState"
            yield RestoreLine(label, Verdict.COMPATIBLE_AS_IS, reason, fate="dropped")
            return
        is_same = self._unchanged.has(label)
        if operator.operator_id not in self._functions and not is_same:
            yield RestoreLine(
                label,
                Verdict.UNKNOWN,
                "no class of the jar gives an operator this uid as a constant: if the job has no "
                "such operator, Flink refuses the restore, or drops the state with "
                f"--allowNonRestoredState; {self._advice(operator)}",
                fate="unknown",
            )
            return
        function = self._functions.get(operator.operator_id)
        yield from self._key(operator, function)
        for info in operator.states + operator.operator_states:
            yield self._state(operator, info, function)

    def _advice(self, operator: OperatorSnapshot, state: str | None = None) -> str:
        name = SnapshotNames(self._snapshot).text_of(operator, state)
        return f"{_ADVICE} ({option_text('--unchanged', name)})"

    def _key(self, operator: OperatorSnapshot, function: str | None) -> Iterator[RestoreLine]:
        if operator.key_type is None:
            return
        stored = operator.key_type.serializer
        try:
            if self._unchanged.has(operator.label):
                wanted = self._declared.unchanged(stored)
            else:
                wanted = self._declared.of_java(self._key_of(function))
            self._check_settings(stored)
            compatibility = compatibility_of(stored, wanted, self._rules)
        except UnreadableValueError as error:
            compatibility = Compatibility(
                Verdict.UNKNOWN,
                f"{error.what}; {self._advice(operator)}",
            )
        if compatibility.verdict is Verdict.COMPATIBLE_AS_IS:
            return
        # Flink refuses to migrate keys: their key groups would change.
        is_unknown = compatibility.verdict is Verdict.UNKNOWN
        verdict = Verdict.UNKNOWN if is_unknown else Verdict.INCOMPATIBLE
        yield RestoreLine(operator.label, verdict, f"key: {compatibility.reason}")

    def _key_of(self, function: str | None) -> JavaType:
        """The type argument of the keyed function that a function extends, directly or not."""
        class_file_of_function = None if function is None else self._classes.get(function)
        known: dict[str, JavaType | None] = {}
        arguments: list[JavaType | None] = []
        for class_file in (
            []
            if class_file_of_function is None
            else [class_file_of_function, *self._classes.parents(class_file_of_function)]
        ):
            names = class_file.generic.parameters
            known = dict(zip(names, arguments, strict=True)) if len(names) == len(arguments) else {}
            parent = class_file.generic.superclass or JavaType(class_file.superclass or OBJECT)
            arguments = [_bound(argument, known) for argument in parent.arguments]
            if parent.name in _KEYED_FUNCTIONS and arguments and arguments[0] is not None:
                return arguments[0]
        raise UnreadableValueError("the jar does not show the type of the key")

    # ----------------------------------------------------------------------------- states

    def _state(
        self, operator: OperatorSnapshot, info: StateInfo, function: str | None
    ) -> RestoreLine:
        label = operator.label
        line = RestoreLine(label, Verdict.COMPATIBLE_AS_IS, "", info.name, info.kind)
        if self._drop.takes(label, info.name):
            return replace(line, reason="dropped as asked")
        is_same = self._unchanged.has(label, info.name)
        try:
            if info.meta.is_queue:
                if not is_same:
                    self._check_timers(info, function)
                return line
            compatibility = self._fits(operator, info, None if is_same else function, is_same)
            if compatibility.verdict <= Verdict.AFTER_MIGRATION:
                hidden = values_of_subclasses(operator, info)
                compatibility = max(compatibility, hidden, key=lambda candidate: candidate.verdict)
        except UnreadableValueError as error:
            advice = "" if is_same else f"; {self._advice(operator, info.name)}"
            compatibility = self._at_best(
                info, Compatibility(Verdict.UNKNOWN, f"{error.what}{advice}")
            )
        return replace(line, verdict=compatibility.verdict, reason=compatibility.reason)

    def _at_best(self, info: StateInfo, unknown: Compatibility) -> Compatibility:
        """Values of another Kryo do not restore, whatever the job declares."""
        for _, serializer in info.meta.serializers:
            compatibility = compatibility_of(serializer, serializer, self._rules)
            if compatibility.verdict is Verdict.INCOMPATIBLE:
                return compatibility
        return unknown

    def _check_timers(self, info: StateInfo, function: str | None) -> None:
        if info.kind in _TIMERS and info.name.endswith(_USER_TIMERS):
            self._key_of(function)
        else:
            raise UnreadableValueError("it is state of Flink's own, which no jar declares")

    def _know(
        self, operator: OperatorSnapshot, info: StateInfo, function: str | None, is_derivable: bool
    ) -> None:
        state_of_job = StateOfJob(operator, info, function, is_derivable)
        self._states[operator.label, info.name] = state_of_job

    def _fits(
        self, operator: OperatorSnapshot, info: StateInfo, function: str | None, is_same: bool
    ) -> Compatibility:
        meta = info.meta.as_key_value()
        stored = meta.value_serializer
        classes = set().union(*(self._declared.classes_of(each) for _, each in meta.serializers))
        gone = sorted(each for each in classes if self._classes.get(each) is None)
        if gone:
            return Compatibility(
                Verdict.INCOMPATIBLE,
                f"class {gone[0]} is not in the jar, so Flink cannot read the state's header; give "
                f"the jar that has it (--jar), or rename the class in the savepoint",
            )
        for _, serializer in meta.serializers:
            self._check_settings(serializer)
        self._know(operator, info, function, is_derivable=True)
        descriptor = None
        if not is_same:
            descriptor = self._descriptor(info, function)
            kind = self._kind(info, descriptor)
            if kind != info.kind:
                reason = f"the kind changed from {info.kind} to {kind}"
                return Compatibility(Verdict.INCOMPATIBLE, reason)
        if descriptor is None:
            wanted = self._declared.unchanged(stored)
        else:
            wanted = self._wanted(info, stored, descriptor)
        self._know(operator, info, function, is_derivable=False)
        worst = compatibility_of_state(stored, wanted, is_map=info.kind == "map", rules=self._rules)
        verdicts = [
            worst,
            verdict_on_removed_fields(stored, wanted, self._classes),
            *self._subclasses(stored),
        ]
        return max(verdicts, key=lambda compatibility: compatibility.verdict)

    def _descriptor(self, info: StateInfo, function: str | None) -> Descriptor:
        """The only descriptor of this name in the operator's function."""
        class_file = None if function is None else self._classes.get(function)
        if class_file is None:
            raise UnreadableValueError("the jar does not show the function of the operator")
        names = [class_file.name, *(each.name for each in self._classes.parents(class_file))]
        descriptors = [
            descriptor
            for name in names
            for descriptor in self._code.descriptors.get(name, {}).get(info.name, ())
        ]
        if len(descriptors) != 1:
            raise UnreadableValueError(
                f"{class_file.name} has {len(descriptors) or 'no'} descriptors of this name as a "
                f"constant: if the job does not ask for the state, Flink ignores its values "
                f"without an error"
            )
        return descriptors[0]

    def _wanted(
        self, info: StateInfo, stored: AnySerializer, descriptor: Descriptor
    ) -> AnySerializer:
        """The type of the whole value that a descriptor declares."""
        types = descriptor.arguments[1:]
        count = {"map": 2, "reducing": 2, "aggregating": 2}.get(descriptor.kind, 1)
        if len(types) != count:
            raise UnreadableValueError("the descriptor has other arguments than dstl knows")
        last = self._declared.of(types[-1])
        wanted = last
        if descriptor.kind == "map":
            wanted = MapSerializer(self._declared.of(types[0]), last)
        elif info.kind == "list":
            inner = stored.value if isinstance(stored, TtlSerializer) else stored
            kind = type(inner) if isinstance(inner, ListSerializer) else ListSerializer
            wanted = kind(last)
        if descriptor.has_ttl is None:
            raise UnreadableValueError("the jar does not show whether it has a time to live")
        if not descriptor.has_ttl:
            return wanted
        if info.kind in ("list", "map"):
            raise UnreadableValueError("the time to live of its entries is not derived")
        return TtlSerializer(wanted)

    def _kind(self, info: StateInfo, descriptor: Descriptor) -> str:
        mentions = self._code.mentions
        is_of_operator = info.kind.startswith("op-")
        namespace = dict(info.meta.serializers).get(NAMESPACE_SERIALIZER)
        if namespace is not None and namespace.type_name != VOID_NAMESPACE:
            raise UnreadableValueError("it is state of windows, whose type the jar does not show")
        if mentions(descriptor.owner, "getOperatorStateStore") and (
            not is_of_operator or mentions(descriptor.owner, "getKeyedStateStore")
        ):
            raise UnreadableValueError("the jar does not show whether it is state of keys")
        if is_of_operator:
            is_union = mentions(descriptor.owner, "getUnionListState")
            if is_union and mentions(descriptor.owner, "getListState"):
                raise UnreadableValueError("the jar does not show whether it is a union list")
            kind = {"list": "op-union" if is_union else "op-list", "map": "op-broadcast"}.get(
                descriptor.kind, descriptor.kind
            )
        else:
            kind = descriptor.kind
        is_new = ".v2." in descriptor.flink_class
        if is_new != (info.meta.backend_state_type is BackendStateType.KEY_VALUE_V2):
            raise UnreadableValueError("one of the jobs has asynchronous state, the other not")
        return kind

    # ---------------------------------------------------------------- what headers hide

    def _check_settings(self, stored: AnySerializer) -> None:
        setting = self._code.other_types
        if setting is not None and holds(stored, PojoSerializer, KryoSerializer):
            raise UnreadableValueError(f"the job calls or sets {setting}, which changes types")

    def _subclasses(self, stored: AnySerializer) -> Iterator[Compatibility]:
        """The verdicts on the subclasses that a header lists. The job learns of them late."""
        for part in parts_of(stored):
            if not isinstance(part, PojoSerializer):
                continue
            for name, _, was in part.registered + part.others:
                now = self._declared.of_java(JavaType(name))
                if was is None:
                    raise UnreadableValueError(f"the savepoint does not describe {name}")
                compatibility = compatibility_of(was, now, self._rules)
                if compatibility.verdict is Verdict.AFTER_MIGRATION:
                    raise UnreadableValueError(f"subclass {name} changed: {compatibility.reason}")
                yield compatibility


def _bound(argument: JavaType | None, known: dict[str, JavaType | None]) -> JavaType | None:
    """A type argument with its variable replaced; None if that is not known."""
    if argument is None or argument.variable is None:
        return argument
    return None if argument.name.startswith("[") else known.get(argument.variable)


class _Names:
    """Operators and states that did not change."""

    def __init__(self, snapshot: Snapshot, names: Sequence[str]) -> None:
        self._places: set[tuple[str, str | None]] = set()
        for name in names:
            place = SnapshotNames(snapshot).operator_or_state("unchanged", name)
            operator, state = place.operator, place.state
            if state is not None and not operator.has_state(state):
                raise ConfigError(
                    f"State {state!r} of {operator.label!r} is not in the snapshot; name a "
                    f"state that it has (unchanged, --unchanged)."
                )
            self._places.add((operator.label, state))

    def has(self, operator: str, state: str | None = None) -> bool:
        return (operator, None) in self._places or (operator, state) in self._places
