"""Proposes the declaration of a migration, from two savepoints and, if there are any, two plans.

The types of the new job come from a savepoint of it that was started empty. The meaning of columns
comes from the compiled plans. Whatever could be meant in two ways is ``???``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.migrate.proposal.column_rules import DECIDE
from dstl_core.savepoint.migrate.proposal.compiled_plan import CompiledPlan
from dstl_core.savepoint.migrate.proposal.flink_outcome import flink_outcomes
from dstl_core.savepoint.migrate.proposal.key_rules import KeyRule, key_rule
from dstl_core.savepoint.migrate.proposal.matching import (
    Match,
    Matches,
    PlannedOperator,
    match_operators,
)
from dstl_core.savepoint.migrate.proposal.proposal_text import proposal_lines
from dstl_core.savepoint.migrate.proposal.sql_state import row_in
from dstl_core.savepoint.migrate.proposal.state_rules import ProposedRule, merge_rule, state_rule
from dstl_core.savepoint.read.operator_catalog import StateInfo
from dstl_core.savepoint.read.snapshot import Snapshot

_SAME_TYPES = (
    "several columns are {kind}: types equal, Flink cannot notice a mistake here, and neither can "
    "this file without the compiled plans"
)


@dataclass
class OperatorProposal:
    """The proposed entry of one operator of the new job.

    Attributes:
        label: The operator: its uid, or its hash.
        rules: The entry of the declaration; empty if nothing has to be declared.
        notes: Facts and choices for a person.
        state_notes: The same, for each state.
    """

    label: str
    rules: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    state_notes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Proposal:
    """A proposed declaration.

    Attributes:
        declaration: The declaration as plain values, as its YAML file has them.
        operators: The entries of the operators, with notes.
        notes: Notes about the whole job.
    """

    declaration: Mapping[str, Any]
    operators: Sequence[OperatorProposal]
    notes: Sequence[str]

    @property
    def decisions(self) -> int:
        """The number of ``???``: what a person has to decide."""
        return _decisions(self.declaration)

    def to_json(self) -> dict[str, Any]:
        """The proposal as one object: the declaration, and the notes by operator and state."""
        return {
            "declaration": dict(self.declaration),
            "decisions": self.decisions,
            "notes": list(self.notes),
            "operators": [
                {
                    "operator": operator.label,
                    "notes": operator.notes,
                    "states": operator.state_notes,
                }
                for operator in self.operators
            ],
        }

    @property
    def text(self) -> str:
        """The file: YAML, with the notes as comments."""
        notes = {each.label: (each.notes, each.state_notes) for each in self.operators}
        return "\n".join(proposal_lines(self.declaration, notes, self.notes)) + "\n"


def propose(
    old: Snapshot,
    new: Snapshot,
    *,
    plans: tuple[CompiledPlan, CompiledPlan] | None = None,
    header: Mapping[str, Any] | None = None,
) -> Proposal:
    """Proposes what becomes of each state of an old job in a changed one.

    Args:
        old: The savepoint of the old job.
        new: A savepoint of the new job, started empty.
        plans: The compiled plans of the old and the new job.
        header: The first entries of the declaration, e.g. ``from`` and ``to_template``. By default
            the paths of the savepoints.

    Raises:
        ConfigError: A plan is damaged.
        FormatError: A savepoint is damaged.
    """
    return _Proposing(old, new, plans, header).run()


class _Proposing:
    def __init__(
        self,
        old: Snapshot,
        new: Snapshot,
        plans: tuple[CompiledPlan, CompiledPlan] | None,
        header: Mapping[str, Any] | None,
    ) -> None:
        self._matches: Matches = match_operators(old, new, plans)
        self._outcomes: Mapping[OperatorID, str] = flink_outcomes(old, new)
        self._with_plans = plans is not None and not self._matches.notes
        self._header = dict(header or {"from": str(old.folder), "to_template": str(new.folder)})
        self._operators: list[OperatorProposal] = []
        self._start_empty: list[str] = []
        self._undecided: set[str] = set()
        self._notes = list(self._matches.notes)

    def run(self) -> Proposal:
        for match in self._matches.matches:
            self._operators.append(self._operator(match))
        declared: dict[str, Any] = {"migration": 1, **self._header}
        operators = {each.label: each.rules for each in self._operators if each.rules}
        if operators:
            declared["operators"] = operators
        self._left_over(declared)
        if self._start_empty:
            declared["start_empty"] = self._start_empty
        return Proposal(declared, self._operators, self._notes)

    def _operator(self, match: Match) -> OperatorProposal:
        proposal = OperatorProposal(_reference(match.new))
        if match.old is not None:
            self._continued(proposal, match, match.old)
            return proposal
        if not match.candidates:
            self._start_empty.append(proposal.label)
            proposal.notes.append("new: no operator of the old job does the same; it starts empty")
            return proposal
        names = ", ".join(_described(each) for each in match.candidates)
        proposal.rules["from"] = DECIDE
        proposal.notes.append(
            f"from: may be {names}; if it starts empty, delete this entry and name it in "
            f"start_empty"
        )
        self._undecided |= {each.label for each in match.candidates}
        if len(match.candidates) == 1 and match.candidates[0] in self._matches.left_over:
            # The rest is filled in for the only candidate.
            self._rules(proposal, match.new, match.candidates[0])
            proposal.rules.pop("drop", None)  # other operators may take these states
            self._says(proposal, match.candidates[0])
        if match.new.is_source:
            proposal.notes.append(_SOURCE)
        return proposal

    def _continued(self, proposal: OperatorProposal, match: Match, old: PlannedOperator) -> None:
        new = match.new
        if old.operator.operator_id != new.operator.operator_id:
            proposal.rules["from"] = _reference(old)
            proposal.notes.append(match.reason or f"{old.label} of the old job does the same")
            if new.is_source:
                proposal.notes.append(
                    f"THE ID OF THIS SOURCE CHANGED from {old.label}: without this entry it would "
                    f"read everything again, or from its start option"
                )
        if match.filters_differ:
            proposal.notes.append(
                "the filter, the window or the limit on the way differs: what the old job kept or "
                "left out stays as it is"
            )
        self._rules(proposal, new, old)
        self._says(proposal, old)

    def _says(self, proposal: OperatorProposal, old: PlannedOperator) -> None:
        text = self._outcomes.get(old.operator.operator_id)
        if text is None and proposal.rules.get("from") is None and proposal.rules:
            text = "nothing: it restores, and reads other values than the old job wrote"
        if text is not None:
            proposal.notes.append(f"without the migration Flink would say: {text}")

    def _rules(
        self, proposal: OperatorProposal, new: PlannedOperator, old: PlannedOperator
    ) -> None:
        key = key_rule(old, new)
        if key.expression is not None:
            proposal.rules["key"] = key.expression
        proposal.notes += key.notes
        self._warn(proposal.notes, key.may_swap)
        states = self._states(proposal, new, old, key)
        if states:
            proposal.rules["states"] = states

    def _states(
        self, proposal: OperatorProposal, new: PlannedOperator, old: PlannedOperator, key: KeyRule
    ) -> dict[str, Any]:
        rules: dict[str, Any] = {}
        classes: dict[str, str] = {}
        fields: dict[str, dict[str, Any]] = {}
        pairs, open_new, open_old = _paired(old, new)
        for was, now in pairs:
            rule = state_rule(was, now, old.columns, new.columns)
            self._merged(rule, now, key, new)
            classes |= rule.classes
            fields |= rule.fields
            if rule.rule:
                rules[now.name] = rule.rule
            self._warn(rule.notes, rule.may_swap)
            if rule.notes:
                proposal.state_notes[now.name] = rule.notes
        if open_old and open_new and proposal.rules.get("from") != DECIDE:
            names = ", ".join(each.name for each in open_old)
            proposal.notes.append(f"a state that no rule takes has to be named in drop: {names}")
        for now in open_new:
            similar = [each for each in open_old if (each.kind, each.type) == (now.kind, now.type)]
            similar = similar or open_old
            if similar:
                names = ", ".join(f"{each.name} ({each.kind} {each.type})" for each in similar)
                rules[now.name] = {"from": DECIDE}
                proposal.state_notes[now.name] = [
                    f"{now.kind} {now.type} is new; from: may be {names}; if it starts empty, "
                    f"delete this line and add {proposal.label}/{now.name} to start_empty"
                ]
            else:
                proposal.state_notes[now.name] = [f"{now.kind} {now.type} is new: it starts empty"]
                self._start_empty.append(f"{proposal.label}/{now.name}")
        if open_old and not open_new:
            proposal.rules["drop"] = [DECIDE]
            names = ", ".join(f"{each.name} ({each.kind} {each.type})" for each in open_old)
            proposal.notes.append(
                f"drop: the new job has no state of the name {names}: use it in a rule, or name it "
                f"in drop to lose it; a state that the job registers late is not in the template"
            )
        for name, replacements in (("classes", classes), ("fields", fields)):
            if replacements:
                proposal.rules[name] = replacements
        return rules

    def _merged(
        self, rule: ProposedRule, state: StateInfo, key: KeyRule, new: PlannedOperator
    ) -> None:
        """Adds how the values of keys that become one are put together."""
        if not key.merges:
            return
        columns = {} if new.columns is None else new.columns.rows
        rule.rule["merge"] = merge_rule(state, columns)
        rule.notes.append("merge: keys become one; a rule for each buffer")

    def _warn(self, notes: list[str], kind: str | None) -> None:
        if kind is not None:
            notes.append(_SAME_TYPES.format(kind=kind))

    def _left_over(self, declared: dict[str, Any]) -> None:
        """Old operators without a successor: a person says that they may go."""
        lost = [each for each in self._matches.left_over if each.label not in self._undecided]
        if lost:
            declared["drop_operators"] = [DECIDE]
            names = ", ".join(map(_described, lost))
            self._notes.append(
                f"drop_operators: no operator of the new job continues {names}: name it here to "
                f"lose its state, or in a 'from'"
            )
            self._notes += [f"{each.label}: {_SOURCE}" for each in lost if each.is_source]
        if not self._with_plans and any(_has_rows(each.new) for each in self._matches.matches):
            self._notes.append(
                "without compiled plans operators match by id, and columns by position; give plans "
                "to find reordered columns and crossed ids"
            )


_SOURCE = (
    "THIS IS A SOURCE: without the positions of the old job it reads everything again, or from its "
    "start option"
)


def _paired(
    old: PlannedOperator, new: PlannedOperator
) -> tuple[list[tuple[StateInfo, StateInfo]], list[StateInfo], list[StateInfo]]:
    """States of one meaning, and those left on either side.

    States match by name, but the states of an aggregate's views by what they belong to: their
    names have the position of the call.
    """
    views = [{} if each.columns is None else each.columns.views for each in (old, new)]
    both = bool(views[0] or views[1]) and None not in (old.columns, new.columns)
    left = {_mark(each, views[0] if both else {}): each for each in old.states}
    pairs, open_new = [], []
    for now in new.states:
        was = left.pop(_mark(now, views[1] if both else {}), None)
        if was is None:
            open_new.append(now)
        else:
            pairs.append((was, now))
    return pairs, open_new, list(left.values())


def _mark(info: StateInfo, views: Mapping[str, str]) -> tuple[str, str]:
    meaning = views.get(info.name)
    return ("name", info.name) if meaning is None else ("meaning", meaning)


def _has_rows(operator: PlannedOperator) -> bool:
    """Whether SQL made the state of an operator."""
    key = operator.operator.key_type
    return key is not None and row_in(key.serializer) is not None


def _reference(operator: PlannedOperator) -> str:
    """The operator as a declaration names it."""
    return operator.operator.uid or f"hash:{operator.operator.operator_id.hex}"


def _described(operator: PlannedOperator) -> str:
    states = ", ".join(f"{each.name} {each.kind} {each.type}" for each in operator.states)
    name = f" ({operator.operator.name})" if operator.operator.name else ""
    return f"{_reference(operator)}{name} with {states or 'the positions of a source'}"


def _decisions(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_decisions, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple):
        return sum(map(_decisions, value))
    return int(value == DECIDE)
