"""Builds a savepoint from new operators and from operators of another snapshot.

The files of the input never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from dstl_core.codec.serializers import AnySerializer
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.ids import OperatorIdentifier
from dstl_core.model.key_group import check_max_parallelism
from dstl_core.savepoint.edit.changed_elements import PlanLine, SourceEdit
from dstl_core.savepoint.edit.edited_savepoint import (
    DEFAULT_MAX_PARALLELISM,
    EditedSavepoint,
    StateBootstrapTransformation,
    StateMove,
)
from dstl_core.savepoint.edit.kept_state import Files
from dstl_core.savepoint.purge.purge import Purge
from dstl_core.savepoint.read.entries import Expiry
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.write.folder import KeyedForm

_LAST_CHECKPOINT_ID = (1 << 63) - 2

Edit = TypeVar("Edit", bound="SavepointEdit")


@dataclass(frozen=True)
class SavepointEdit(EditedSavepoint):
    """A savepoint to write. Every method returns a changed copy; ``write`` writes the savepoint."""

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
        if not operator.keyed_handles:
            operator = operator.with_timer_queues  # it may have timers on the heap, and no more
        key_type = operator.key_type
        if not operator.keyed_handles or key_type is None:
            raise SavepointError(
                f"Operator {operator.label!r} has no keyed state to purge; name another operator."
            )
        known = self.purges.get(operator.operator_id, Purge(operator.max_parallelism))
        return operator, key_type.serializer, known


def edit_savepoint(source: Snapshot, *edits: SourceEdit) -> SavepointEdit:
    """Starts an edit that keeps all operators of a snapshot.

    New operators get the largest max parallelism of the snapshot.

    Args:
        source: The snapshot.
        edits: Edits of elements and of names of states, in their order.
    """
    lines: list[PlanLine] = []
    for edit in edits:
        source, more = edit.applied_to(source)
        lines += more
    return SavepointEdit(largest_max_parallelism(source), source, source_lines=tuple(lines))


def largest_max_parallelism(source: Snapshot) -> int:
    """The largest max parallelism of a snapshot's operators."""
    return max((each.max_parallelism for each in source.operators), default=DEFAULT_MAX_PARALLELISM)
