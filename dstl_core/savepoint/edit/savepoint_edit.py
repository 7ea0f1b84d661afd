"""Builds a savepoint from new operators and from operators of another snapshot.

The files of the input never change. State that is not edited is copied byte for byte, or shared, or
written in canonical form: ``Files`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar, get_args

from dstl_core.codec.metadata.metadata_format import WRITABLE_VERSIONS
from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.model.job_vertex import MaxParallelismChange
from dstl_core.model.key_group import check_max_parallelism
from dstl_core.savepoint.edit.distinct_elements import DistinctElements
from dstl_core.savepoint.edit.kept_state import (
    Files,
    can_be_kept,
    files_by_default,
    folders_of,
    is_native,
    is_rocksdb,
)
from dstl_core.savepoint.edit.operator_copy import (
    check_aligned,
    check_writable,
    compose_operator,
    rewrite_operator,
)
from dstl_core.savepoint.edit.rewriting import (
    OperatorStep,
    Output,
    RewritingPlan,
    SavepointRewriter,
)
from dstl_core.savepoint.edit.tables.joined_tables import can_be_joined
from dstl_core.savepoint.edit.tables.state_names import StateName
from dstl_core.savepoint.purge.check_purged import check_purged
from dstl_core.savepoint.purge.purge import Purge
from dstl_core.savepoint.read.entries import Expiry
from dstl_core.savepoint.read.handle_forms import ROCKSDB_FILES
from dstl_core.savepoint.read.operator_catalog import OperatorCatalog
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.read.state_parts import StatesOf, merged_header
from dstl_core.savepoint.verify.verify import Report
from dstl_core.savepoint.write.folder import (
    KeyedForm,
    SavepointFolder,
    StateFiles,
    checked_form,
)
from dstl_core.savepoint.write.work_record import stable

DEFAULT_MAX_PARALLELISM = 128
_LAST_CHECKPOINT_ID = (1 << 63) - 2


class StateBootstrapTransformation(Protocol):
    """Builds the state of one operator."""

    def write_operator(
        self,
        identifier: OperatorIdentifier,
        files: StateFiles,
        max_parallelism: int,
        parallelism: int | None,
    ) -> OperatorState:
        """Writes the state files and returns their entry in ``_metadata``. A transformation that
        has a parallelism ignores the given one.
        """
        ...


@dataclass(frozen=True)
class StateMove:
    """States that move from one operator to another; None moves all states."""

    from_: OperatorID
    to: OperatorIdentifier
    states: frozenset[str] | None = None


Edit = TypeVar("Edit", bound="SavepointEdit")


@dataclass(frozen=True)
class SavepointEdit(SavepointRewriter):
    """A savepoint to write. Every method returns a changed copy; ``write`` writes the savepoint.

    Args:
        max_parallelism: Key groups of new operators.
        source: The snapshot whose operators are kept; None starts with no operators.
        new_max_parallelism: Max parallelism of kept operators; None leaves it unchanged. Operators
            at 1 stay there, as ``MaxParallelismChange`` says.
        operators: New operators.
        removed: Operators of the source that are left out.
        renamed: Identifiers that change, after all other edits.
        moved: States that move to another operator.
        parallelism: Subtasks of new operators without a parallelism; None is one per core.
        distinct: Union states of the source that have lost equal elements, for the plan.
        state_names: States of the source that have another name or are gone, for the plan.
        files: What becomes of state that does not change; None decides by the source and the edit:
            see ``with_files``.
        checkpoint_id: The number of the new snapshot; None leaves that of the source.
        form: The form of keyed state that is written; None is canonical: see ``with_format``.
        purges: What goes from the keyed state of operators of the source.
    """

    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    source: Snapshot | None = None
    new_max_parallelism: int | None = None
    operators: Mapping[OperatorIdentifier, StateBootstrapTransformation] = field(
        default_factory=dict
    )
    removed: frozenset[OperatorID] = frozenset()
    renamed: Mapping[OperatorIdentifier, OperatorIdentifier] = field(default_factory=dict)
    parallelism: int | None = None
    moved: tuple[StateMove, ...] = ()
    distinct: tuple[DistinctElements, ...] = ()
    state_names: tuple[StateName, ...] = ()
    files: Files | None = None
    checkpoint_id: int | None = None
    form: KeyedForm | None = None
    purges: Mapping[OperatorID, Purge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_max_parallelism(self.max_parallelism)
        checked_form(self.form or "canonical")
        if self.form == "native" and self.files == "canonical":
            raise ConfigError(
                "Keyed state is written in one form: expected files='share' or 'copy' with "
                "format='native', got files='canonical'."
            )
        if self.files is not None and self.files not in get_args(Files):
            raise ConfigError(
                f"files is wrong: expected {', '.join(get_args(Files))} or None, got "
                f"{self.files!r}."
            )

    def with_operator(
        self: Edit, identifier: OperatorIdentifier, transformation: StateBootstrapTransformation
    ) -> Edit:
        """Adds an operator.

        Raises:
            ConfigError: The identifier or the transformation is of another kind.
            SavepointError: The savepoint has the operator; call ``remove_operator`` first.
        """
        if not isinstance(identifier, OperatorIdentifier):
            raise ConfigError(
                f"The identifier of an operator is wrong: expected one such as "
                f"OperatorIdentifier.for_uid('accounts'), got {identifier!r}."
            )
        if not hasattr(transformation, "write_operator"):
            raise ConfigError(
                f"The state of {identifier} is wrong: expected a transformation, got "
                f"{type(transformation).__name__}; end it with transform(..) or "
                f"transform_columns(..)."
            )
        if identifier in self.operators or identifier.operator_id in self._kept_ids():
            known = [str(each) for each in self.operators if each == identifier]
            raise SavepointError(
                f"The savepoint already contains {(known or [str(identifier)])[0]}; all operators "
                f"must be unique, so "
                f"use remove_operator first to replace it."
            )
        return replace(self, operators={**self.operators, identifier: transformation})

    def remove_operator(self: Edit, identifier: OperatorIdentifier) -> Edit:
        """Leaves an operator out. Its states that move to another operator still move.

        Raises:
            NoSuchOperatorError: The savepoint lacks the operator; the message lists its operators.
            SavepointError: States were moved to the operator, and would not be removed with it.
        """
        if any(each.to.operator_id == identifier.operator_id for each in self.moved):
            raise SavepointError(
                f"Operator {identifier} cannot be removed after states were moved to it; remove it "
                f"first, or do not move them."
            )
        if identifier in self.operators:
            rest = {each: how for each, how in self.operators.items() if each != identifier}
            return replace(self, operators=rest)
        if identifier.operator_id not in self._kept_ids():
            self._require_source(identifier).operator(identifier)
        return replace(self, removed=self.removed | {identifier.operator_id})

    def change_operator_identifier(
        self: Edit, from_: OperatorIdentifier, to: OperatorIdentifier
    ) -> Edit:
        """Changes the uid or hash of an operator, after all other edits. Two operators may swap
        their uids; each operator is renamed once.
        """
        if from_ in self.renamed:
            raise SavepointError(f"Operator {from_} is renamed twice; give one new identifier.")
        return replace(self, renamed={**self.renamed, from_: to})

    def split_operator(
        self: Edit, from_: OperatorIdentifier, to: OperatorIdentifier, states: Sequence[str]
    ) -> Edit:
        """Moves states of an operator to a new operator with the same keys and parallelism.

        Keyed and operator state can move. Timers are states, too:
        ``_timer_state/event_user-timers``.

        Raises:
            NoSuchStateError: The operator lacks a state; the message lists its states.
            SavepointError: The operator ``to`` exists, no state is named, or a state moves to two
                operators.
        """
        operator = self._require_source(from_).operator(from_).with_timer_queues
        for name in states:
            operator.state_info(name)
            if name in self._split_from(from_.operator_id):
                raise SavepointError(
                    f"State {name!r} of operator {operator.label!r} is moved twice; state is moved "
                    f"to one operator, not copied: name one."
                )
        if not states:
            raise SavepointError(f"No state of operator {operator.label!r} is named to be moved.")
        if to in self.operators or to.operator_id in self._kept_ids():
            raise SavepointError(
                f"The savepoint already contains {to}; split into a new operator, then merge."
            )
        move = StateMove(from_.operator_id, to, frozenset(states))
        return replace(self, moved=(*self.moved, move))

    def merge_operators(self: Edit, from_: OperatorIdentifier, into: OperatorIdentifier) -> Edit:
        """Moves all states of an operator to another operator, which keeps its parallelism and its
        number of key groups.

        Timers of the same service are combined. ``write`` refuses other states that have the same
        name in both operators.

        Raises:
            NoSuchOperatorError: The savepoint lacks an operator; the message lists its operators.
            SavepointError: An operator is merged with itself or with two others.
        """
        source = self._require_source(from_)
        source.operator(into), source.operator(from_)
        if from_ == into:
            raise SavepointError(f"Operator {from_} cannot be merged with itself.")
        if from_.operator_id in self._merged_ids():
            raise SavepointError(
                f"Operator {from_} is merged twice; its state is moved to one operator, not "
                f"copied: name one."
            )
        move = StateMove(from_.operator_id, into)
        return replace(self, moved=(*self.moved, move))

    def with_max_parallelism(self: Edit, max_parallelism: int) -> Edit:
        """Changes the max parallelism of all operators, kept and new: Flink checks every operator,
        and operators of one vertex must agree. Operators at 1 are not parallel and stay there.

        Raises:
            ConfigError: The number is not within 1..32768.
        """
        check_max_parallelism(max_parallelism)
        return replace(self, max_parallelism=max_parallelism, new_max_parallelism=max_parallelism)

    def with_files(self: Edit, files: Files | None) -> Edit:
        """Says what becomes of state that does not change.

        Args:
            files: ``share`` names the files of the source, by their path: the new snapshot has only
                a ``_metadata`` of its own, and needs the source. ``copy`` copies them as they are.
                ``canonical`` writes keyed state in canonical form, for both state backends. None
                keeps native state if the edit changes no keyed state, files of a checkpoint shared
                and files of a savepoint copied; otherwise it is ``canonical``.

        Raises:
            ConfigError: It is another word.
        """
        return replace(self, files=files)

    def with_checkpoint_id(self: Edit, checkpoint_id: int) -> Edit:
        """Changes the number of the snapshot. A job that restores it counts on from there.

        Sinks compare this number with what they committed: Iceberg leaves out what is not above the
        highest number that a table has of the job.

        Raises:
            ConfigError: The number is not within 1..2^63-2, so that another one follows.
        """
        if not 1 <= checkpoint_id <= _LAST_CHECKPOINT_ID:
            raise ConfigError(
                f"The checkpoint id is wrong: expected a number within 1..{_LAST_CHECKPOINT_ID}, "
                f"got {checkpoint_id}."
            )
        return replace(self, checkpoint_id=checkpoint_id)

    def with_format(self: Edit, form: KeyedForm | None) -> Edit:
        """Says in which form keyed state is written.

        Args:
            form: ``canonical``, for every state backend; or ``native``, for RocksDB: Flink restores
                its files as they are. State that is in files of RocksDB then stays as it is, as
                ``with_files`` says, and other keyed state is written anew.

        Raises:
            ConfigError: It is another word, or contradicts ``with_files``.
        """
        return replace(self, form=form)

    def erase_keys(self: Edit, identifier: OperatorIdentifier, keys: Iterable[Any]) -> Edit:
        """Leaves out all that an operator holds of some keys: all states, windows, elements of
        lists, entries of maps, and timers.

        Of files of RocksDB only those that hold such a key are written again, other files of state
        only if they have one. ``write`` looks for the keys again in all that is left, before the
        savepoint can be seen. State of operators (lists, union and broadcast) has no key, and is
        not looked at.

        Args:
            identifier: The operator.
            keys: Keys: texts as ``dump`` shows them, or values of columns.

        Raises:
            NoSuchOperatorError: The savepoint lacks the operator; the message lists its operators.
            SavepointError: The operator has no keyed state.
            ConfigError: A key is of another type, or there is none.
        """
        operator, key_type, purge = self._purged_operator(identifier)
        from dstl_core.savepoint.access.key_text import key_of, key_of_operator  # loads Arrow

        values = [
            key_of_operator(operator, key) if isinstance(key, str) else key_of(key_type, key)
            for key in keys
        ]
        if not values:
            raise ConfigError(f"Erase keys of {operator.label!r}: expected a key, got none.")
        purge = purge.with_keys(operator, values)
        return replace(self, purges={**self.purges, operator.operator_id: purge})

    def keep_where(self: Edit, identifier: OperatorIdentifier, state: str, condition: str) -> Edit:
        """Leaves out the entries of a keyed state for which a condition is not true.

        Entries are values, elements of lists, entries of maps, and timers. If one goes from files
        of RocksDB, all those of the state are written again.

        Args:
            identifier: The operator.
            state: The state; timers are states, too: ``_timer_state/event_user-timers``.
            condition: What is true of entries that stay: ``amount > 0 and key <> 'test'``. Names
                are ``key``, ``value`` and its fields, ``map_key``, and ``timestamp`` of timers.

        Raises:
            NoSuchStateError: The operator lacks the state; the message lists its states.
            ConfigError: The condition is wrong.
        """
        from dstl_core.savepoint.expressions.condition import parse_condition  # loads Arrow

        where = f"The condition of state {state!r}"
        return self._with_rule(
            identifier, state, where, condition=parse_condition(condition, where)
        )

    def drop_expired(
        self: Edit, identifier: OperatorIdentifier, state: str, ttl_ms: int, now_ms: int
    ) -> Edit:
        """Leaves out the values of a keyed state that have expired: their last access is ``ttl_ms``
        ago or longer, as Flink counts.

        A snapshot does not have the time to live, only when each value was accessed.

        Raises:
            NoSuchStateError: The operator lacks the state; the message lists its states.
            SavepointError: The state has no time to live.
        """
        where = f"The expiry of state {state!r}"
        return self._with_rule(identifier, state, where, expiry=Expiry(ttl_ms, now_ms))

    def _with_rule(
        self: Edit, identifier: OperatorIdentifier, state: str, where: str, **change: Any
    ) -> Edit:
        from dstl_core.savepoint.purge.rules import Rule, has_ttl  # loads kernels

        operator, key_type, purge = self._purged_operator(identifier)
        info = operator.with_timer_queues.state_info(state)
        if info not in operator.with_timer_queues.states:
            raise SavepointError(
                f"State {state!r} of operator {operator.label!r} is no keyed state, so it is not "
                f"purged."
            )
        meta = info.meta
        if "expiry" in change and not has_ttl(meta):
            raise SavepointError(
                f"State {state!r} of operator {operator.label!r} has no time to live, so none of "
                f"it expires; name another state."
            )
        rule = replace(purge.rules.get(meta.name, Rule(where)), where=where, **change)
        rule.check(meta, key_type)
        purge = replace(purge, rules={**purge.rules, meta.name: rule})
        return replace(self, purges={**self.purges, operator.operator_id: purge})

    def _purged_operator(
        self, identifier: OperatorIdentifier
    ) -> tuple[OperatorSnapshot, AnySerializer, Purge]:
        """An operator with keyed state, the type of its keys, and what goes from it so far."""
        operator = self._require_source(identifier).operator(identifier)
        key_type = operator.key_type
        if not operator.keyed_handles or key_type is None:
            raise SavepointError(
                f"Operator {operator.label!r} has no keyed state to purge; name another operator."
            )
        known = self.purges.get(operator.operator_id, Purge(operator.max_parallelism))
        return operator, key_type.serializer, known

    @cached_property
    def kept_files(self) -> Files:
        """What becomes of state that does not change."""
        if self.source is None:
            return "canonical"
        if self.files is not None:
            return self.files
        if self.form is not None:
            return "canonical" if self.form == "canonical" else files_by_default(self.source)
        kept = self._kept()
        changes = bool(self.renamed or self.removed or self.operators or self.purges)
        changes = changes or bool(self.moved or self.source.edited)
        is_relocated = self.source.resolver.relocates
        is_numbered = self.checkpoint_id is not None
        if not (changes or is_relocated or is_numbered) or not any(map(is_native, kept)):
            return "canonical"
        stays = all(map(self._is_kept, kept)) and len(self._joinable) == len(self._moved_parts)
        return files_by_default(self.source) if stays else "canonical"

    @cached_property
    def _joinable(self) -> frozenset[OperatorID]:
        """Operators of the result that states have left or joined, with no file to be written."""
        return frozenset(
            parts.state.operator_id
            for parts in self._moved_parts
            if can_be_joined(parts.sources, parts.state)
        )

    def _is_kept(self, operator: OperatorCatalog) -> bool:
        """Whether an operator can be kept in the form that it has."""
        is_purged = operator.operator_id in self.purges
        if (self.form == "native" or is_purged) and not is_rocksdb(operator):
            return False
        number = self._max_parallelism_change.new(operator.max_parallelism)
        subtasks = operator.state.subtasks
        has_keys = any(each.managed_keyed_state or each.raw_keyed_state for each in subtasks)
        return can_be_kept(operator) and not (has_keys and number != operator.max_parallelism)

    @property
    def shares_files_in(self) -> list[str]:
        """The folders whose files the new snapshot needs; none unless it shares files."""
        if self.source is None or self.kept_files != "share":
            return []
        kept = [
            source.operator
            for parts in self._parts()
            for source in parts.sources
            if self._stays_in(parts, source.operator)
        ]
        return folders_of(kept, self.source.resolver)

    def _stays_in(self, parts: _Parts, operator: OperatorCatalog) -> bool:
        """Whether an operator of the result has files of an operator of the source."""
        if parts.is_whole or self.kept_files == "canonical":
            return self._keeps(operator)
        return parts.state.operator_id in self._joinable

    def _require_source(self, identifier: OperatorIdentifier) -> Snapshot:
        if self.source is None:
            raise SavepointError(f"Operator {identifier} is not in the new savepoint.")
        return self.source

    # An edit is a value, and both of these are asked for each operator.

    @cached_property
    def _every(self) -> dict[OperatorID, OperatorSnapshot]:
        every = self.source.operators if self.source is not None else []
        return {each.operator_id: each for each in every}

    def _kept(self) -> list[OperatorSnapshot]:
        return [each for key, each in self._every.items() if key not in self.removed]

    def _merged_ids(self) -> set[OperatorID]:
        """Operators that have moved all their states."""
        return {each.from_ for each in self.moved if each.states is None}

    def _kept_ids(self) -> set[OperatorID]:
        kept = {operator.operator_id for operator in self._kept()} - self._merged_ids()
        return kept | {each.to.operator_id for each in self.moved}

    def _parts(self) -> list[_Parts]:
        """The operators of the source that the result has, with the origin of their states."""
        return self._parts_by(self._keeps)

    @cached_property
    def _moved_parts(self) -> list[_Parts]:
        """Those of the operators of the result that states have left or joined."""
        return [parts for parts in self._parts_by(lambda _: True) if not parts.is_whole]

    def _parts_by(self, keeps: Callable[[OperatorCatalog], bool]) -> list[_Parts]:
        kept = {each.operator_id: each for each in self._kept()}
        change = self._max_parallelism_change
        parts: dict[OperatorID, _Parts] = {}
        for operator_id, operator in kept.items():
            away = [each for each in self.moved if each.from_ == operator_id]
            if any(each.states is None for each in away):
                continue
            # Raw timers become queues, unless they stay as they are.
            own = operator if keeps(operator) else operator.with_timer_queues
            purge = self.purges.get(operator_id)
            left = StatesOf(own, without=self._split_from(operator_id), select=purge)
            number = change.new(operator.max_parallelism)
            state = replace(operator.state, uid=operator.uid, max_parallelism=number)
            parts[operator_id] = _Parts(state, [left], is_whole=not away)
        for move in self.moved:
            operator = self._every[move.from_]
            new = replace(
                operator.state,
                operator_id=move.to.operator_id,
                max_parallelism=change.new(operator.max_parallelism),
                uid=move.to.uid or "",
                name="",
                coordinator_state=None,
            )
            target = parts.setdefault(move.to.operator_id, _Parts(new, [], is_whole=False))
            without = self._split_from(move.from_) if move.states is None else frozenset()
            purge = self.purges.get(move.from_)
            states = StatesOf(operator.with_timer_queues, move.states, without, purge)
            target.sources.append(states)
            target.is_whole = False
        return list(parts.values())

    @cached_property
    def _max_parallelism_change(self) -> MaxParallelismChange:
        stored = (operator.max_parallelism for operator in self._every.values())
        return MaxParallelismChange.of(stored, self.new_max_parallelism)

    def _split_from(self, operator_id: OperatorID) -> frozenset[str]:
        """States that are split off an operator."""
        own = [each.states or () for each in self.moved if each.from_ == operator_id]
        return frozenset().union(*own)

    def plan(self) -> list[dict[str, Any]]:
        """Describes what ``write`` would do, per operator, and checks the edit.

        Raises:
            SavepointError: Two operators would get the same id, an identifier change matches no
                operator, or nothing is left.
        """
        gone = self._merged_ids()
        lines = [self._plan_of(each) for each in self._kept() if each.operator_id not in gone]
        lines += [
            {
                "operator": self._every[move.from_].label,
                "action": "merge" if move.states is None else "split",
                "bytes": None,
                "states": sorted(move.states or ()),
                "new_operator": str(move.to),
            }
            for move in self.moved
        ]
        lines += [
            {
                "operator": self._every[key].label,
                "action": "purge",
                "bytes": None,
                "keys": len(purge.keys),
                "states": sorted(purge.rules),
            }
            for key, purge in self.purges.items()
        ]
        lines += [each.plan_line() for each in self.state_names]
        lines += [each.plan_line() for each in self.distinct]
        lines += [
            {"operator": str(identifier), "action": "add", "bytes": None}
            for identifier in self.operators
        ]
        lines += [
            {
                "operator": removed_operator.label,
                "action": "remove",
                "bytes": removed_operator.state.state_size,
            }
            for removed_operator in self._every.values()
            if removed_operator.operator_id in self.removed
        ]
        self._check()
        return lines

    def _plan_of(self, operator: OperatorSnapshot) -> dict[str, Any]:
        new = self.renamed.get(OperatorIdentifier(operator.operator_id))
        line: dict[str, Any] = {
            "operator": operator.label,
            "action": "keep" if new is None else "rename",
            "bytes": operator.state.state_size,
        }
        if new is not None:
            line["new_operator"] = str(new)
        if operator.keyed_handles:
            line["keyed_state"] = f"{operator.form()} -> {self._form_of(operator)}"
        number = self._max_parallelism_change.new(operator.max_parallelism)
        if number != operator.max_parallelism:
            line["max_parallelism"] = [operator.max_parallelism, number]
        return line

    def _form_of(self, operator: OperatorSnapshot) -> str:
        """The form that the keyed state of an operator has in the result."""
        is_whole = all(
            operator.operator_id not in (move.from_, move.to.operator_id) for move in self.moved
        )
        stays = is_whole and self._is_kept(operator)
        stays = stays or operator.operator_id in self._joinable
        if self.kept_files == "canonical" or not stays:
            return ROCKSDB_FILES if self.form == "native" else "canonical"
        return f"{operator.form()}, {'shared' if self.kept_files == 'share' else 'copied'}"

    def _check(self) -> None:
        kept = self._kept()
        if not kept and not self.operators and not self.moved:
            raise SavepointError(
                "Nothing is left to write: a savepoint needs at least one operator; use "
                "with_operator, or remove fewer."
            )
        known = {OperatorIdentifier(each.operator_id, each.uid or None) for each in kept}
        known |= set(self.operators) | {each.to for each in self.moved}
        known -= {OperatorIdentifier(each) for each in self._merged_ids()}
        unapplied = [str(each) for each in self.renamed if each not in known]
        if unapplied:
            raise SavepointError(
                f"Some identifier changes match no operator: {', '.join(unapplied)}; the savepoint "
                f"would have: {', '.join(sorted(self._labels())) or 'none'}."
            )
        seen: dict[OperatorIdentifier, OperatorIdentifier] = {}
        for operator_id in known:
            new = self.renamed.get(operator_id, operator_id)
            if new in seen:
                shown = new if new.uid else seen[new]  # the snapshot may not know its uid
                raise SavepointError(
                    f"Two operators would have the uid {str(shown)!r}; rename or remove one of "
                    f"them."
                )
            seen[new] = new
        moved = {each.from_ for each in self.moved}
        for key, operator in self._every.items():
            if key in moved or key not in self.removed:
                number = self._max_parallelism_change.new(operator.max_parallelism)
                if self._keeps(operator):
                    check_aligned(operator)
                else:
                    check_writable(operator, number)
        for parts in self._parts():
            if not parts.is_whole:
                merged_header(parts.sources)  # says what does not fit together

    def _labels(self) -> list[str]:
        return [each.label for each in self._kept()] + [str(each) for each in self.operators]

    @property
    def source_size(self) -> int:
        """Bytes of state that ``write`` reads from the source."""
        is_shared = self.kept_files == "share"
        return sum(
            source.operator.state.state_size
            for parts in self._parts()
            for source in parts.sources
            if not (is_shared and self._stays_in(parts, source.operator))
        )

    def _keeps(self, operator: OperatorCatalog) -> bool:
        """Whether an operator keeps its state in the form that it has."""
        moved = (key for each in self.moved for key in (each.from_, each.to.operator_id))
        is_whole = operator.operator_id not in moved
        return self.kept_files != "canonical" and is_whole and self._is_kept(operator)

    def _rewriting(self) -> RewritingPlan:
        self._check()
        steps = [
            OperatorStep(parts.label, partial(self._written, parts)) for parts in self._parts()
        ]
        steps += [
            OperatorStep(str(identifier), partial(self._added, identifier, transformation))
            for identifier, transformation in self.operators.items()
        ]
        return RewritingPlan(
            "bootstrapped savepoint" if self.source is None else "rewritten savepoint",
            self.source,
            self.source_size,
            steps,
            lambda states: self._metadata(self._renamed(states)),
            self.kept_files,
            self.shares_files_in,
            form=self.form or "canonical",
            plan=self._decided(),
            check=self._check_purged,
            facts=self._purge_facts,
        )

    def _decided(self) -> Any:
        """What decides the bytes beside the source; None with new operators, whose state is not
        described by it, and for a purge: no record beside the output names a key.
        """
        if self.operators or self.purges:
            return None
        apart = ("source", "operators")
        return {
            own.name: stable(getattr(self, own.name))
            for own in fields(self)
            if own.name not in apart
        }

    def _added(
        self,
        identifier: OperatorIdentifier,
        transformation: StateBootstrapTransformation,
        output: Output,
    ) -> OperatorState:
        return transformation.write_operator(
            identifier, output.target, self.max_parallelism, self.parallelism
        )

    def _written(self, parts: _Parts, output: Output) -> OperatorState:
        if parts.is_whole:
            [own] = parts.sources
            if output.kept is not None and self._keeps(own.operator):
                return output.kept.of(own.operator, parts.state, self._purge_of(own.operator))
            purge = self._purge_of(own.operator)
            return rewrite_operator(own.operator, parts.state, output, purge)
        return compose_operator(parts.sources, parts.state, output)

    def _purge_of(self, operator: OperatorCatalog) -> Purge | None:
        return self.purges.get(operator.operator_id)

    def _check_purged(self, stored: Snapshot, target: SavepointFolder, _: Report) -> None:
        """Looks for what was purged in all that is about to be published."""
        for operator_id, purge in self.purges.items():
            places = {
                operator_id,
                *(e.to.operator_id for e in self.moved if e.from_ == operator_id),
            }
            for place in places:
                new = self.renamed.get(OperatorIdentifier(place), OperatorIdentifier(place))
                operators = [e for e in stored.operators if e.operator_id == new.operator_id]
                for operator in operators:
                    check_purged(operator, purge)

    @property
    def purged(self) -> dict[str, dict[str, int]]:
        """How many entries ``write`` has left out, by operator and state, without their keys. Of
        files of RocksDB, older versions and deletions count, too.
        """
        return {self._every[key].label: dict(own.counts) for key, own in self.purges.items()}

    def _purge_facts(self) -> dict[str, Any]:
        return {"purged": self.purged} if self.purges else {}

    def _renamed(self, states: Sequence[OperatorState]) -> tuple[OperatorState, ...]:
        result = []
        for state in states:
            new = self.renamed.get(OperatorIdentifier(state.operator_id))
            if new is not None:
                state = replace(state, operator_id=new.operator_id, uid=new.uid or "")
            result.append(state)
        return tuple(result)

    def _metadata(self, operators: tuple[OperatorState, ...]) -> CheckpointMetadata:
        oldest = min(WRITABLE_VERSIONS)
        if self.source is None:
            return CheckpointMetadata(oldest, self.checkpoint_id or 0, operators)
        metadata = self.source.metadata
        # dstl does not write version 2; version 3 can hold everything that version 2 can.
        version = max(metadata.version, oldest)
        number = metadata.checkpoint_id if self.checkpoint_id is None else self.checkpoint_id
        return replace(metadata, version=version, checkpoint_id=number, operators=operators)


@dataclass
class _Parts:
    """An operator of the result with its states; ``is_whole`` if no state joined or left it."""

    state: OperatorState
    sources: list[StatesOf]
    is_whole: bool

    @property
    def label(self) -> str:
        return str(OperatorIdentifier(self.state.operator_id, self.state.uid or None))


def edit_savepoint(source: Snapshot) -> SavepointEdit:
    """Starts an edit that keeps all operators of a snapshot.

    New operators get the largest max parallelism of the snapshot.
    """
    return SavepointEdit(largest_max_parallelism(source), source)


def largest_max_parallelism(source: Snapshot) -> int:
    """The largest max parallelism of a snapshot's operators."""
    return max((each.max_parallelism for each in source.operators), default=DEFAULT_MAX_PARALLELISM)
