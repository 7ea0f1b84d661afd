"""What a plan of a migration says of each operator and state of the new job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dstl_core.cached_property import cached_property
from dstl_core.codec.serializers import AnySerializer
from dstl_core.model.checkpoint import KEY_DECIMALS, DeclaredDecimals
from dstl_core.model.ids import OperatorID
from dstl_core.model.job_vertex import MaxParallelismChange, VertexMember, numbers_for_job
from dstl_core.savepoint.expressions.value_conversion import Conversion, Misfits
from dstl_core.savepoint.migrate.declaration import Migration, OperatorRule, StateRule
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot

SAME, HEADER, CONVERT, EMPTY = "same", "header only", "converted", "starts empty"
OPERATOR_KINDS = ("op-list", "op-union", "op-broadcast")


@dataclass
class StatePlan:
    """Where one state of the new job comes from.

    Attributes:
        new: The state of the new job.
        old: The state of the old job; None if it starts empty.
        operator: The operator that has it.
        rule: Its rule in the declaration.
        action: What is done.
        merge: How values merge: a rule, one for each column, or None if they must not.
        value: The conversion of values, elements or map values.
        map_key: The conversion of user keys.
        misfits: Collects values that do not fit.
    """

    new: StateInfo
    old: StateInfo | None
    operator: OperatorSnapshot | None
    rule: StateRule
    action: str
    merge: str | tuple[str, ...] | None = None
    value: Conversion | None = None
    map_key: Conversion | None = None
    misfits: Misfits = field(default_factory=Misfits)
    joins_lists: bool = False
    """Whether lists of keys that become one are joined, as the declaration says."""

    @property
    def is_operator_state(self) -> bool:
        return self.new.kind in OPERATOR_KINDS


def _renamed(state: StatePlan) -> bool:
    return state.old is not None and state.old.name != state.new.name


@dataclass
class OperatorMigration:
    """Where one operator of the new job comes from.

    Attributes:
        label: Its name in the plan.
        target: The operator of the template, or the first old one without a template.
        sources: The operators of the old job that become it.
        rule: Its rule in the declaration.
        key: The conversion of keys; None if their bytes stay.
        key_type: The new type of keys.
        states: Its states.
        dropped: Old states that go.
    """

    label: str
    target: OperatorSnapshot
    sources: Sequence[OperatorSnapshot]
    rule: OperatorRule
    key: Conversion | None = None
    key_type: AnySerializer | None = None
    states: list[StatePlan] = field(default_factory=list)
    dropped: list[tuple[OperatorSnapshot, StateInfo]] = field(default_factory=list)

    @property
    def is_changed(self) -> bool:
        moved = any(each.operator_id != self.target.operator_id for each in self.sources)
        changed = any(each.action != SAME or _renamed(each) for each in self.states)
        return moved or changed or self.key is not None or len(self.sources) > 1

    @property
    def starts_empty(self) -> bool:
        return not self.sources

    def decimals(self, declared: Mapping[str, DeclaredDecimals]) -> dict[str, DeclaredDecimals]:
        """What is known of Java's decimals in the result, by state.

        Args:
            declared: What the template of the new job declares, which goes before what the old job
                declared of states that keep their type.
        """
        decimals: dict[str, DeclaredDecimals] = {}
        for state in self.states:
            old, known = state.old, {} if state.operator is None else state.operator.decimals
            if old is None or old.name not in known or state.value is not None:
                continue
            if old.meta.value_serializer == state.new.meta.value_serializer:
                decimals[state.new.name] = known[old.name]
        of_key = self.sources[0].decimals.get(KEY_DECIMALS) if self.sources else None
        if of_key is not None and self.key is None:
            decimals[KEY_DECIMALS] = of_key
        return {**decimals, **declared}

    @property
    def stored_max_parallelism(self) -> int:
        """The largest of its sources; sources without keyed state count if no other has any."""
        keyed = [each for each in self.sources if each.keyed_handles]
        return max(each.max_parallelism for each in keyed or self.sources)


@dataclass
class Plan:
    """The steps of a migration, and the problems that block it.

    Attributes:
        operators: The operators of the result.
        dropped: Operators of the old job that go.
        problems: What a person has to decide or mend; ``apply`` refuses a plan with any.
        notes: Facts to know.
    """

    source: Snapshot
    template: Snapshot | None
    migration: Migration
    operators: list[OperatorMigration] = field(default_factory=list)
    dropped: list[OperatorSnapshot] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def max_parallelisms(self) -> Mapping[OperatorID, int]:
        """The max parallelism of each operator of the result, once all operators are planned."""
        written = [each for each in self.operators if each.sources]
        numbers = numbers_for_job([self._member(each) for each in written])
        change = MaxParallelismChange.of(numbers, self.migration.max_parallelism)
        return {
            operator_plan.target.operator_id: change.new(number)
            for operator_plan, number in zip(written, numbers, strict=True)
        }

    def _member(self, operator: OperatorMigration) -> VertexMember:
        job: tuple[int | None, int | None] = (None, None)
        if self.template is not None:
            job = operator.target.max_parallelism, operator.target.parallelism
        is_keyed = any(each.keyed_handles for each in operator.sources)
        return VertexMember(operator.label, operator.stored_max_parallelism, job, is_keyed)
