"""What becomes of the operators of a savepoint that is edited: their files, their form, the plan.

``SavepointEdit`` says what changes. State that does not change is copied byte for byte, or shared,
or written in canonical form: ``Files`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol

from dstl_core.cached_property import cached_property
from dstl_core.codec.metadata.metadata_format import WRITABLE_VERSIONS
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.model.job_vertex import MaxParallelismChange
from dstl_core.model.key_group import check_max_parallelism, check_parallelism_bounds
from dstl_core.savepoint.edit.changed_elements import PlanLine
from dstl_core.savepoint.edit.kept_state import (
    Files,
    can_be_kept,
    checked_files,
    files_by_default,
    folders_of,
    has_heap_timers,
    is_beside_heap_timers,
    is_native,
)
from dstl_core.savepoint.edit.operator_copy import (
    check_aligned,
    check_writable,
    compose_operator,
    rewrite_operator,
    write_heap_timers,
)
from dstl_core.savepoint.edit.rewriting import (
    OperatorStep,
    Output,
    RewritingPlan,
    SavepointRewriter,
)
from dstl_core.savepoint.edit.tables.joined_tables import can_be_joined
from dstl_core.savepoint.purge.check_purged import check_purged
from dstl_core.savepoint.purge.purge import Purge
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


class StateBootstrapTransformation(Protocol):
    """Builds the state of one operator."""

    def on_engine(self, engine: Any) -> StateBootstrapTransformation:
        """The same by the engine of a writer."""
        ...

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


@dataclass(frozen=True)
class EditedSavepoint(SavepointRewriter):
    """The operators of a savepoint that is edited, and what is written of them.

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
        source_lines: What edits have changed in the source before, for the plan.
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
    source_lines: tuple[PlanLine, ...] = ()
    files: Files | None = None
    checkpoint_id: int | None = None
    form: KeyedForm | None = None
    purges: Mapping[OperatorID, Purge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_max_parallelism(self.max_parallelism)
        if self.parallelism is not None:
            check_parallelism_bounds(self.parallelism)
        checked_form(self.form or "canonical")
        if self.form == "native" and self.files == "canonical":
            raise ConfigError(
                "Keyed state is written in one form: expected files='share' or 'copy' with "
                "format='native', got files='canonical'."
            )
        checked_files(self.files)

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
        is_divided = self.form == "native" or operator.operator_id in self.purges
        if is_divided and not is_beside_heap_timers(operator):
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

    @property
    def reading_threads(self) -> int:
        """Threads that read back table files, where one process does it."""
        return 1

    @property
    def timers_on_the_heap(self) -> list[str]:
        """Operators whose timers were on the heap, and stay there in native state."""
        return [operator.label for operator in filter(has_heap_timers, self._kept())]

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
            catalog = operator if keeps(operator) else operator.with_timer_queues
            purge = self.purges.get(operator_id)
            left = StatesOf(catalog, without=self._split_from(operator_id), select=purge)
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
        moves = [each.states or () for each in self.moved if each.from_ == operator_id]
        return frozenset().union(*moves)

    def plan(self) -> list[PlanLine]:
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
        lines += self.source_lines
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

    def _plan_of(self, operator: OperatorSnapshot) -> PlanLine:
        new = self.renamed.get(OperatorIdentifier(operator.operator_id))
        line: PlanLine = {
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
                if self._keeps(operator) and key not in self.purges:
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
            OperatorStep(parts.label, partial(self._written, parts), parts.has_heap_timers)
            for parts in self._parts()
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
            threads=self.reading_threads,
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
            option.name: stable(getattr(self, option.name))
            for option in fields(EditedSavepoint)  # how rows are read decides no bytes
            if option.name not in apart
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
            [source] = parts.sources
            purge = self._purge_of(source.operator)
            if output.kept is not None and self._keeps(source.operator):
                state = output.kept.of(source.operator, parts.state, purge)
                if purge is not None and parts.has_heap_timers:
                    write_heap_timers(source.operator, output, purge)
                return state
            return rewrite_operator(source.operator, parts.state, output, purge)
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

    @property
    def has_heap_timers(self) -> bool:
        """Whether timers of one of its sources were on the heap."""
        return any(has_heap_timers(source.operator) for source in self.sources)
