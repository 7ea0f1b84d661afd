"""Plans a declared migration: finds where each operator and state of the new job comes from.

It reads headers, not state, and checks the whole declaration: names, types, casts, and that no
state of the old job goes without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from dstl_core.codec.serializers import (
    AnySerializer,
    ListSerializer,
    MapSerializer,
    TimerSerializer,
)
from dstl_core.codec.state_meta import KEY_SERIALIZER
from dstl_core.errors import ConfigError, NoSuchOperatorError, NotInColumnsError
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.expressions.expression import (
    Expression,
    ListAggregate,
    Literal,
    Recode,
)
from dstl_core.savepoint.expressions.typed_values import Values, arrow_of, kind_of
from dstl_core.savepoint.expressions.value_conversion import Conversion
from dstl_core.savepoint.migrate.colliding_rows import check_merge
from dstl_core.savepoint.migrate.declaration import Migration, OperatorRule, StateRule
from dstl_core.savepoint.migrate.migration_plan import (
    CONVERT,
    EMPTY,
    HEADER,
    OPERATOR_KINDS,
    SAME,
    OperatorMigration,
    Plan,
    StatePlan,
)
from dstl_core.savepoint.migrate.old_states import OldStates, missing_state, stored_at
from dstl_core.savepoint.read.job_classes import read_protos
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.state.columns.state_columns import namespace_type
from dstl_core.state.tables.same_bytes import pojo_classes, same_bytes

_SCALAR_KINDS = ("value", "reducing", "aggregating")


def has_state(operator: OperatorSnapshot) -> bool:
    """Whether an operator has anything that Flink would restore."""
    return operator.state.state_size > 0 or operator.state.coordinator_state is not None


def plan_of(migration: Migration, source: Snapshot, template: Snapshot | None) -> Plan:
    """Makes the plan.

    Raises:
        ConfigError: The declaration names what is not there.
        FormatError: A savepoint is damaged.
    """
    return _Planning(migration, source, template).run()


class _Planning:
    def __init__(self, migration: Migration, source: Snapshot, template: Snapshot | None) -> None:
        self._migration = migration
        self._source = source
        self._template = template
        self._plan = Plan(source, template, migration)
        self._used: set[OperatorID] = set()
        self._taken: dict[tuple[OperatorID, str], set[str]] = {}
        self._old_states = OldStates(source)
        protos = migration.protos
        self._messages = (
            read_protos([protos["old"]] if "old" in protos else []),
            read_protos([protos["new"]] if "new" in protos else []),
        )

    def run(self) -> Plan:
        plan, migration = self._plan, self._migration
        rules = self._rules()
        for target in self._targets(rules):
            self._operator(target, rules.get(target.operator_id, OperatorRule()))
        self._check_max_parallelism()
        self._left_over()
        self._check_names()
        for place in migration.undecided:
            if not any("???" in each and place in each for each in plan.problems):
                plan.problems.append(f"{place} is ???: a person has to decide")
        return plan

    # ------------------------------------------------------------------------------- operators

    def _rules(self) -> dict[OperatorID, OperatorRule]:
        by_id: dict[OperatorID, OperatorRule] = {}
        for name, rule in self._migration.operators.items():
            operator_id = self._new_id(name, rule)
            if operator_id in by_id:
                raise ConfigError(f"The declaration has two rules for operator {name!r}.")
            by_id[operator_id] = rule
        return by_id

    def _new_id(self, name: str, rule: OperatorRule) -> OperatorID:
        if self._template is not None:
            return self._find(self._template, name, "the new job").operator_id
        if name.startswith("hash:"):
            return OperatorID.from_hex(name.removeprefix("hash:"))
        if name.startswith("name:") or rule.from_ is None:
            return self._find(self._source, name, "the old job").operator_id
        return OperatorID.for_uid(name)

    def _find(self, snapshot: Snapshot, name: str, whose: str) -> OperatorSnapshot:
        try:
            return snapshot[name]
        except NoSuchOperatorError as error:
            known = ", ".join(each.label for each in snapshot.operators)
            raise ConfigError(
                f"Operator {name!r} is not in {whose}; its savepoint has: {known}."
            ) from error

    def _targets(self, rules: Mapping[OperatorID, OperatorRule]) -> Iterator[OperatorSnapshot]:
        if self._template is not None:
            yield from self._template.operators
            return
        stored = {each.operator_id: each for each in self._source.operators}
        names = {self._new_id(name, rule): name for name, rule in self._migration.operators.items()}
        moved = {
            self._find(self._source, reference, "the old job").operator_id
            for rule in rules.values()
            for reference in rule.from_ or ()
        }
        dropped = {
            self._find(self._source, reference, "the old job").operator_id
            for reference in self._migration.drop_operators
        }
        for operator_id, operator in stored.items():
            if operator_id in rules or operator_id not in moved | dropped:
                yield operator
        for operator_id, rule in rules.items():
            if operator_id in stored:
                continue
            first = self._find(self._source, (rule.from_ or ("",))[0], "the old job")
            name = names[operator_id]
            uid = "" if ":" in name else name
            state = replace(first.state, operator_id=operator_id, uid=uid)
            yield OperatorSnapshot(self._source, state, {})

    def _operator(self, target: OperatorSnapshot, rule: OperatorRule) -> None:
        label = target.label
        stored = {each.operator_id: each for each in self._source.operators}
        if rule.from_ is not None:
            sources = [self._find(self._source, each, "the old job") for each in rule.from_]
        elif label in self._migration.start_empty or target.operator_id not in stored:
            sources = []
        else:
            sources = [stored[target.operator_id]]
        sources = [each.with_timer_queues for each in sources]
        self._used |= {each.operator_id for each in sources}
        plan = OperatorMigration(label, target, sources, rule)
        if not sources:
            if not target.states and not target.operator_states:
                return
            if label not in self._migration.start_empty:
                self._plan.problems.append(
                    f"operator {label} of the new job has state and no source: add "
                    f"start_empty: [{label}], or from: OLD OPERATOR"
                )
        self._plan.operators.append(plan)
        self._check_classes(plan)
        self._key(plan)
        self._states(plan)

    def _check_max_parallelism(self) -> None:
        """Whether the template has the number that the declaration gives."""
        wanted = self._migration.max_parallelism
        if wanted is None or self._template is None:
            return
        for operator_id, number in self._plan.max_parallelisms.items():
            target = self._template[f"hash:{operator_id.hex}"]
            if target.max_parallelism != number:
                self._plan.problems.append(
                    f"operator {target.label} of the template has maxParallelism "
                    f"{target.max_parallelism}, and the declaration says {wanted}"
                )

    def _check_classes(self, plan: OperatorMigration) -> None:
        """Whether each POJO class that the declaration names is in a type of the operator."""
        rule, where = plan.rule, f"operators.{plan.label}"
        if rule.classes and self._template is None:
            raise ConfigError(f"{where}.classes needs to_template, which has the new classes.")
        old, new = _classes_of(plan.sources), _classes_of([plan.target])
        for option, names, known, job in (
            ("classes", rule.classes, old, "old"),
            ("classes", rule.classes.values(), new, "new"),
            ("fields", rule.fields, new, "new"),
        ):
            for name in names:
                if name not in known:
                    raise ConfigError(
                        f"{where}.{option} is wrong: no type of the {job} operator has POJO class "
                        f"{name}; it has: {', '.join(sorted(known)) or 'none'}."
                    )

    def _key(self, plan: OperatorMigration) -> None:
        old = [each.key_type.serializer for each in plan.sources if each.key_type is not None]
        rule = plan.rule.key
        new = None if plan.target.key_type is None else plan.target.key_type.serializer
        if self._template is None and old:
            new = old[0]
            if rule is not None:
                new = _declared_key(rule, plan.label)
        plan.key_type = new or (old[0] if old else None)
        if not old or plan.key_type is None:
            return
        first = old[0]
        if any(each != first for each in old):
            self._plan.problems.append(f"operator {plan.label}: its sources have keys of two types")
            return
        classes, fields = plan.rule.classes, plan.rule.fields
        kept = rule is None and not pojo_classes(plan.key_type) & fields.keys()
        if kept and same_bytes(first, plan.key_type, classes):
            return
        row, whole = _row_or_whole(rule)
        where = f"operators.{plan.label}.key"
        plan.key = Conversion(
            where, first, plan.key_type, row, whole, name="key", classes=classes, fields=fields
        )
        self._try(plan.key, first, {}, f"operator {plan.label}: its key")

    def _try(
        self, conversion: Conversion, old: AnySerializer, others: Mapping[str, Values], what: str
    ) -> None:
        """Runs a conversion over nothing, which finds what is wrong with it."""
        with self._noted(what):
            conversion.apply(_none(old), others)

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Lets an error of a conversion become a problem of the plan."""
        try:
            yield
        except ConfigError as error:
            self._plan.problems.append(error.message.rstrip("."))
        except NotInColumnsError as error:
            self._plan.problems.append(
                f"{what} would have to change, and values of type {error.type_name} are not "
                f"readable as columns"
            )

    # ---------------------------------------------------------------------------------- states

    def _states(self, plan: OperatorMigration) -> None:
        rules = dict(plan.rule.states)
        for new in self._new_states(plan):
            rule = rules.pop(new.name, None)
            self._state(plan, new, rule)
        for name, rule in rules.items():
            places = self._old_states.places(name, rule, plan.sources)
            if self._template is None and rule.from_ is not None and stored_at(places) is None:
                raise missing_state(plan, places, rule.from_)
            known = ", ".join(each.new.name for each in plan.states) or "none"
            raise ConfigError(
                f"State {name!r} is not in operator {plan.label!r} of the new job; it has: "
                f"{known}. If the job registers it late, give its type in the rule."
            )
        self._dropped(plan)

    def _new_states(self, plan: OperatorMigration) -> list[StateInfo]:
        declared = plan.target.states + plan.target.operator_states
        if self._template is not None:
            return declared + self._late_states(plan, {each.name for each in declared})
        states: dict[str, StateInfo] = {}
        places = {
            name: self._old_states.places(name, rule, plan.sources)
            for name, rule in plan.rule.states.items()
        }
        ids = {each.operator_id for each in plan.sources}
        named = [place for of_rule in places.values() for place in of_rule]
        taken = {each.state for each in named if each.operator.operator_id in ids}
        every = [(op, info) for op in plan.sources for info in op.states + op.operator_states]
        for _, info in every:
            untouched = info.name not in taken and info.name not in plan.rule.drop
            if untouched and not self._moves_elsewhere(plan, info):
                states.setdefault(info.name, self._without_template(plan, info, StateRule()))
        for name, rule in plan.rule.states.items():
            old = stored_at(places[name])
            if old is not None:
                renamed = replace(old, name=name, meta=replace(old.meta, name=name))
                states[name] = self._without_template(plan, renamed, rule)
        return list(states.values())

    def _late_states(self, plan: OperatorMigration, known: set[str]) -> list[StateInfo]:
        """States that the new job registers when it needs them; their rules give the types."""
        states = []
        for name, rule in plan.rule.states.items():
            if name in known or rule.type is None:
                continue
            old = stored_at(self._old_states.places(name, rule, plan.sources))
            if old is not None:
                named = replace(old, name=name, meta=replace(old.meta, name=name))
                states.append(self._without_template(plan, named, rule))
        return states

    def _moves_elsewhere(self, plan: OperatorMigration, info: StateInfo) -> bool:
        """Whether another operator takes the state by name."""
        source_ids = {each.operator_id for each in plan.sources}
        for rule in self._migration.operators.values():
            if rule is plan.rule or rule.from_ is None:
                continue
            sources = [
                self._find(self._source, name, "the old job").with_timer_queues
                for name in rule.from_
            ]
            if source_ids & {each.operator_id for each in sources} and any(
                place.operator.operator_id in source_ids and place.state == info.name
                for new, state in rule.states.items()
                for place in self._old_states.places(new, state, sources)
            ):
                return True
        return False

    def _without_template(
        self, plan: OperatorMigration, info: StateInfo, rule: StateRule
    ) -> StateInfo:
        from dstl_core.codec.declared_type import parse_type

        meta = info.meta
        if meta.is_queue and plan.key_type is not None:
            timer = meta.value_serializer
            if isinstance(timer, TimerSerializer):
                timer = replace(timer, key=plan.key_type)
            return StateInfo.of(meta.with_value_serializer(timer))
        new_keys = rule.map_key is not None and not isinstance(rule.map_key, Recode)
        if rule.kind not in (None, info.kind) or rule.columns or new_keys:
            raise ConfigError(
                f"State {info.name!r} of operator {plan.label!r} changes its columns or its kind: "
                f"give to_template, which has its new type."
            )
        if rule.type is not None:
            meta = meta.with_value_serializer(parse_type(rule.type))
            return replace(StateInfo.of(meta), kind=info.kind)
        return info

    def _state(self, plan: OperatorMigration, new: StateInfo, rule: StateRule | None) -> None:
        old_state = self._old_of(plan, new, rule)
        state_rule = rule or StateRule()
        if old_state is None:
            starts = f"{plan.label}/{new.name}" in self._migration.start_empty
            starts = starts or new.name in plan.rule.drop
            queue = new.kind.endswith("timer")
            if plan.sources and not starts and not queue:
                self._plan.problems.append(
                    f"state {new.name} of operator {plan.label} is new: add "
                    f"start_empty: [{plan.label}/{new.name}], or "
                    f"states: {{{new.name}: {{from: ..}}}}"
                )
            plan.states.append(StatePlan(new, None, None, state_rule, EMPTY))
            return
        operator, old = old_state
        takers = self._taken.setdefault((operator.operator_id, old.name), set())
        if takers and plan.label not in takers and not (rule is not None and rule.from_):
            queue = old.kind.endswith("timer")
            if not (queue and _is_empty(operator, old)):
                self._plan.problems.append(
                    f"state {old.name} of operator {operator.label} would go to {plan.label} and "
                    f"{', '.join(sorted(takers))}: add drop: [{old.name}] to one of them"
                )
        takers.add(plan.label)
        state = StatePlan(new, old, operator, state_rule, SAME)
        plan.states.append(state)
        self._conversion(plan, state)

    def _old_of(
        self, plan: OperatorMigration, new: StateInfo, rule: StateRule | None
    ) -> tuple[OperatorSnapshot, StateInfo] | None:
        explicit = rule is not None and rule.from_ is not None
        if not explicit and new.name in plan.rule.drop:
            return None
        places = self._old_states.places(new.name, rule, plan.sources)
        keyed = new.kind not in OPERATOR_KINDS
        for place in places:
            operator = place.operator.with_timer_queues
            for info in operator.states if keyed else operator.operator_states:
                if info.name == place.state:
                    self._used.add(operator.operator_id)
                    return operator, info
        if rule is not None and rule.from_ is not None:
            raise missing_state(plan, places, rule.from_)
        return None

    def _conversion(self, plan: OperatorMigration, state: StatePlan) -> None:
        old, new, rule = state.old, state.new, state.rule
        assert old is not None
        if old.kind.endswith("timer") or new.kind.endswith("timer"):
            state.action = CONVERT if plan.key is not None else SAME
            return
        where = f"operators.{plan.label}.states.{new.name}"
        if not state.is_operator_state and namespace_type(old.meta) != namespace_type(new.meta):
            self._plan.problems.append(
                f"state {new.name} of operator {plan.label} has windows of another type, which "
                f"do not migrate"
            )
            return
        merge = rule.merge if rule.merge is not None else plan.rule.on_collision
        state.merge = None if merge == "error" else merge
        if new.kind == "list" and state.merge is not None:
            state.merge, state.joins_lists = None, True
        before, after = _value_types(old), _value_types(new)
        whole, row = rule.value, rule.columns
        if row is None and new.kind != old.kind and whole is None:
            self._plan.problems.append(
                f"state {new.name} of operator {plan.label} was {old.kind} and is {new.kind}: "
                f"give value, and map_key for a map"
            )
            return
        if old.kind in ("list", "map") and new.kind in _SCALAR_KINDS:
            whole, row = self._folded(state, whole, row)
        untouched = (
            rule.columns is None
            and rule.value is None
            and rule.map_key is None
            and old.kind == new.kind
            and not pojo_classes(*after) & plan.rule.fields.keys()
            and all(same_bytes(a, b, plan.rule.classes) for a, b in zip(before, after, strict=True))
        )
        if untouched and (plan.key is None or state.is_operator_state) and state.rule.merge is None:
            equal = before == after
            state.action = SAME if equal else HEADER
            return
        state.action = CONVERT
        state.value = Conversion(
            where if row is None else f"{where}.columns",
            before[-1],
            after[-1],
            row,
            whole,
            classes=plan.rule.classes,
            fields=plan.rule.fields,
            messages=self._messages,
            misfits=state.misfits,
        )
        self._try_all(plan, state, where)

    def _try_all(self, plan: OperatorMigration, state: StatePlan, where: str) -> None:
        """Checks the conversions of a state, before anything runs."""
        before, after = _value_types(state.old), _value_types(state.new)
        others: dict[str, Values] = {}
        key_type = plan.sources[0].key_type if plan.sources else None
        if key_type is not None:
            others["key"] = Values(_none(key_type.serializer), kind_of(key_type.serializer))
        if len(before) == 2:
            others["map_key"] = Values(_none(before[0]), kind_of(before[0]))
        what = f"state {state.new.name} of operator {plan.label}"
        assert state.value is not None
        with self._noted(what):
            self._try(state.value, before[-1], others, what)
            if len(after) == 2:
                self._map_key(plan, state, others, what)
            if state.merge is not None and not state.is_operator_state:
                check_merge(state.merge, arrow_of(kind_of(after[-1])), f"{where}.merge")

    def _folded(
        self, state: StatePlan, whole: Expression | None, row: tuple[Expression, ...] | None
    ) -> tuple[Expression | None, tuple[Expression, ...] | None]:
        """A list or map becomes one value: elements first, then the merge."""
        if isinstance(whole, ListAggregate):
            merge, of = _aggregated(whole)
            state.merge = merge
            return of, None
        if row is not None and all(isinstance(each, ListAggregate) for each in row):
            parts = [_aggregated(each) for each in row if isinstance(each, ListAggregate)]
            state.merge = tuple(merge for merge, _ in parts)
            return None, tuple(of for _, of in parts)
        return whole, row

    def _map_key(
        self, plan: OperatorMigration, state: StatePlan, others: Mapping[str, Values], what: str
    ) -> None:
        rule = state.rule.map_key
        before, after = _value_types(state.old), _value_types(state.new)
        source = before[0] if len(before) == 2 else before[-1]
        name = "map_key" if len(before) == 2 else "value"
        row, whole = _row_or_whole(rule)
        if rule is None and len(before) != 2:
            self._plan.problems.append(f"{what} is a map now: give map_key")
            return
        state.map_key = Conversion(
            f"operators.{plan.label}.states.{state.new.name}.map_key",
            source,
            after[0],
            row,
            whole,
            name=name,
            classes=plan.rule.classes,
            fields=plan.rule.fields,
            messages=self._messages,
            misfits=state.misfits,
        )
        values = dict(others)
        values["value"] = Values(_none(before[-1]), kind_of(before[-1]))
        self._try(state.map_key, source, values, what)

    # -------------------------------------------------------------------------------- left over

    def _dropped(self, plan: OperatorMigration) -> None:
        known = {info.name for op in plan.sources for info in op.states + op.operator_states}
        for name in plan.rule.drop:
            if name not in known:
                raise ConfigError(
                    f"State {name!r} to drop is not in the old operator of {plan.label!r}; it has: "
                    f"{', '.join(sorted(known)) or 'none'}."
                )
            used = [each for each in plan.states if each.old is not None and each.old.name == name]
            if used:
                raise ConfigError(
                    f"State {name!r} of operator {plan.label!r} is dropped and becomes "
                    f"{used[0].new.name!r}; name it once."
                )

    def _left_over(self) -> None:
        """What the declaration forgets."""
        plan = self._plan
        dropped = [
            self._find(self._source, name, "the old job") for name in self._migration.drop_operators
        ]
        plan.dropped = dropped
        for operator in dropped:
            if operator.operator_id in self._used:
                raise ConfigError(
                    f"Operator {operator.label!r} is dropped and becomes another one; name it once."
                )
        gone = {each.operator_id for each in dropped}
        by_id = {each.operator_id: each for each in self._source.operators}
        for operator_id in self._used:
            self._left_states(by_id[operator_id].with_timer_queues)
        for operator in self._source.operators:
            if operator.operator_id not in self._used | gone and has_state(operator):
                plan.problems.append(
                    f"operator {operator.label} of the old job has state and no place: add "
                    f"drop_operators: [{operator.label}], or from: {operator.label}"
                )

    def _left_states(self, operator: OperatorSnapshot) -> None:
        drops = {name for each in self._users(operator) for name in each.rule.drop}
        label = next((each.label for each in self._users(operator)), operator.label)
        for info in operator.states + operator.operator_states:
            if (operator.operator_id, info.name) in self._taken:
                continue
            if info.name in drops:
                for user in self._users(operator)[:1]:
                    user.dropped.append((operator, info))
            elif not (info.kind.endswith("timer") and _is_empty(operator, info)):
                self._plan.problems.append(
                    f"state {info.name} of operator {operator.label} of the old job has no place: "
                    f"add drop: [{info.name}] to operator {label}, or states: "
                    f"{{NEW: {{from: {info.name}}}}}; with type: TYPE if the new job registers it "
                    f"late"
                )

    def _users(self, operator: OperatorSnapshot) -> list[OperatorMigration]:
        return [
            user
            for user in self._plan.operators
            if any(source.operator_id == operator.operator_id for source in user.sources)
        ]

    def _check_names(self) -> None:
        labels = {each.label for each in self._plan.operators}
        labels |= {
            f"{operator.label}/{s.new.name}"
            for operator in self._plan.operators
            for s in operator.states
        }
        for name in self._migration.start_empty:
            if name not in labels:
                raise ConfigError(
                    f"start_empty names {name!r}, which is no operator with state of the new job "
                    f"and no OPERATOR/STATE of it."
                )


def _row_or_whole(
    rule: Expression | tuple[Expression, ...] | None,
) -> tuple[tuple[Expression, ...] | None, Expression | None]:
    """A rule as the columns of a row, or as one whole value."""
    return (rule, None) if isinstance(rule, tuple) else (None, rule)


def _aggregated(aggregate: ListAggregate) -> tuple[str, Expression]:
    """How the elements of a list merge, and what each of them gives. Each one counts as 1."""
    if aggregate.function in ("size", "count"):
        return "sum", Literal(1)
    return aggregate.function, aggregate.of


def _none(serializer: AnySerializer) -> pa.Array:
    """A column of this type without rows."""
    return pa.array([], arrow_of(kind_of(serializer)))


def _is_empty(operator: OperatorSnapshot, info: StateInfo) -> bool:
    return not any(
        batch.num_rows for batch in operator.flat(info.name, columns=("timestamp",)).read()
    )


def _value_types(info: StateInfo | None) -> tuple[AnySerializer, ...]:
    """The types of values; of a map, of its keys and values; of a list, of its elements."""
    assert info is not None
    value = info.meta.as_key_value().value_serializer if info.kind[:3] != "op-" else None
    if value is None:
        value_type = info.meta.value_serializer
        if info.kind == "op-broadcast":
            return (info.meta.serializer(KEY_SERIALIZER), value_type)
        return (value_type,)
    if info.kind == "map" and isinstance(value, MapSerializer):
        return (value.key, value.value)
    if info.kind == "list" and isinstance(value, ListSerializer):
        return (value.element,)
    return (value,)


def _classes_of(operators: Sequence[OperatorSnapshot]) -> set[str]:
    """The POJO classes in the types of keys and states."""
    types = [each.key_type.serializer for each in operators if each.key_type is not None]
    for operator in operators:
        for info in operator.states + operator.operator_states:
            types += [serializer for _, serializer in info.meta.serializers]
    return pojo_classes(*types)


def _declared_key(rule: Expression | tuple[Expression, ...], label: str) -> AnySerializer:
    """The new type of keys of a DataStream job, from its cast."""
    from dstl_core.codec.declared_type import parse_type
    from dstl_core.savepoint.expressions.expression import Cast

    if isinstance(rule, Cast):
        return parse_type(rule.type.lower())
    raise ConfigError(
        f"operators.{label}.key needs a type: write cast(key, TYPE), or give to_template."
    )
