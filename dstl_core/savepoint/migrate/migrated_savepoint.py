r"""Migrates a savepoint by a declaration: a plan first, then a new savepoint that was read back.

    migration = SavepointMigration(Migration.load("orders-v2.yaml"))
    print("\n".join(migration.plan_lines()))
    migration.write("s3://bucket/savepoints/orders-v2")

The source never changes. The new savepoint becomes visible in one step, after its state was read
back and compared with the plan.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from dstl_core.cached_property import cached_property
from dstl_core.codec.data_io import DataOutput
from dstl_core.codec.metadata.metadata_format import WRITABLE_VERSIONS
from dstl_core.codec.serializers import BUILT_IN, SerializerRegistry
from dstl_core.codec.state_meta import StateMetaInfoSnapshot, write_state_meta
from dstl_core.errors import ConfigError, SavepointError
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.savepoint.edit.kept_state import (
    Files,
    checked_files,
    files_by_default,
    folders_of,
    has_heap_timers,
)
from dstl_core.savepoint.edit.operator_copy import check_writable, copy_operator_state
from dstl_core.savepoint.edit.rewriting import (
    OperatorStep,
    Output,
    RewritingPlan,
    SavepointRewriter,
)
from dstl_core.savepoint.edit.tables.joined_tables import with_states
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.kept_tables import converted_apart, keeps_tables
from dstl_core.savepoint.migrate.keyed_migration import KeyedMigration, StateCount, count_entries
from dstl_core.savepoint.migrate.migration_plan import OperatorMigration, Plan
from dstl_core.savepoint.migrate.operator_migration import write_operator_states
from dstl_core.savepoint.migrate.plan_notes import plan_notes, state_without_a_carrier
from dstl_core.savepoint.migrate.plan_text import json_of, lines_of
from dstl_core.savepoint.migrate.planning import plan_of
from dstl_core.savepoint.migrate.proposal.plan_names import PlanNames
from dstl_core.savepoint.read.snapshot import OperatorSnapshot, Snapshot
from dstl_core.savepoint.restores.restore_check import check_restore
from dstl_core.savepoint.restores.restore_result import VERDICT_TEXTS, RestoreResult
from dstl_core.savepoint.verify.verify import Report
from dstl_core.savepoint.write.folder import KeyedForm, SavepointFolder, checked_form
from dstl_core.state.tables.compatibility import Verdict

REPORT_FILE = "_migration.json"


class SavepointMigration(SavepointRewriter):
    """A migration of one savepoint.

    Args:
        migration: The declaration.
        source: The savepoint or checkpoint of the old job; by default the one in the declaration.
        template: A savepoint of the new job that started empty; by default the one in the
            declaration.
        show_keys: Whether messages may show keys of values that do not fit, five at most.
        recompute: The share of key groups, 0 to 1, whose records ``write`` computes again from the
            source and compares. Any share above 0 reads the source twice.
        serializers: The registry of types, for the savepoints that the declaration names.
        format: The form of keyed state that is written: ``canonical``, or ``native`` for RocksDB.
        files: What becomes of RocksDB's files of states whose bytes stay: ``share`` and ``copy`` as
            ``SavepointEdit.with_files`` says; ``canonical`` writes all state anew. None is
            ``canonical``; with native form, files of a checkpoint are shared, and files of a
            savepoint copied.

    Raises:
        ConfigError: The declaration names no source, or what is not there; ``recompute`` is no
            share.
        StateFileNotFoundError: A savepoint is missing.
    """

    def __init__(
        self,
        migration: Migration,
        source: Snapshot | None = None,
        template: Snapshot | None = None,
        *,
        show_keys: bool = False,
        recompute: float = 0.0,
        serializers: SerializerRegistry = BUILT_IN,
        format: KeyedForm = "canonical",
        files: Files | None = None,
    ) -> None:
        self.form = checked_form(format)
        if not 0 <= recompute <= 1:
            raise ConfigError(f"recompute is wrong: expected a share from 0 to 1, got {recompute}.")
        if source is None and migration.from_ is None:
            raise ConfigError("The declaration has no from: name the savepoint of the old job.")
        self.migration = migration
        self.source = source or Snapshot.load(str(migration.from_), serializers=serializers)
        if template is None and migration.to_template is not None:
            template = Snapshot.load(migration.to_template, serializers=serializers)
        self.template = template
        self.files: Files = checked_files(files) or "canonical"
        if files is None and self.form == "native":
            self.files = files_by_default(self.source)
        self._show_keys = show_keys
        self._share = recompute
        self.kept: set[tuple[str, str]] = set()
        """Operator and state of RocksDB's files that stay as they are, after ``write``."""
        self.recomputed: dict[str, int] = {}
        """How many key groups of each operator were computed again, and are equal."""
        self.counts: dict[tuple[str, str], StateCount] = {}
        """What happened to each state, by operator and state, after ``write``."""
        self.check: RestoreResult | None = None
        """What ``dstl check`` says of the result and the template, after ``write``."""

    @cached_property
    def plan(self) -> Plan:
        """The plan. ``plan.problems`` has what a person must decide or mend.

        Raises:
            ConfigError: The declaration names what is not there, or names it twice.
        """
        plan = plan_of(self._names.resolved(), self.source, self.template)
        plan.problems += [*state_without_a_carrier(plan), *self._names.problems]
        plan.notes += [*plan_notes(plan), *self._names.notes]
        return plan

    @cached_property
    def _names(self) -> PlanNames:
        return PlanNames(self.migration, self.source, self.template)

    def plan_lines(self) -> list[str]:
        """The plan as text. It counts entries, and writes nothing."""
        return lines_of(self.plan, self._names)

    def plan_json(self) -> dict[str, Any]:
        return json_of(self.plan)

    @property
    def source_size(self) -> int:
        """Bytes of state that ``write`` reads."""
        sizes: dict[OperatorID, int] = {}
        for plan in self.plan.operators:
            sources = plan.sources
            if self.files == "share" and self._keeps_tables(plan):
                apart = converted_apart(plan)
                sources = apart.sources if apart.states else []
            sizes |= {each.operator_id: each.state.state_size for each in sources}
        return sum(sizes.values())

    @property
    def shares_files_in(self) -> list[str]:
        """The folders whose files the result needs; none unless it shares files."""
        if self.files != "share":
            return []
        kept = [source for plan in self.plan.operators for source in self._kept_in(plan)]
        return folders_of(kept, self.source.resolver)

    @property
    def timers_on_the_heap(self) -> list[str]:
        """As ``EditedSavepoint.timers_on_the_heap`` says."""
        return [plan.label for plan in filter(_has_heap_timers, self.plan.operators)]

    def _kept_in(self, plan: OperatorMigration) -> list[OperatorSnapshot]:
        return [*plan.sources] if self._keeps_tables(plan) else []

    def _keeps_tables(self, plan: OperatorMigration) -> bool:
        is_same = self.plan.max_parallelisms.get(plan.target.operator_id) in {
            source.max_parallelism for source in plan.sources
        }
        return self.files != "canonical" and is_same and keeps_tables(plan)

    def _rewriting(self) -> RewritingPlan:
        plan = self.plan
        if plan.problems:
            raise SavepointError(
                f"The migration is not ready: {plan.problems[0]}; decisions in all: "
                f"{len(plan.problems)} (dstl migrate plan shows them).",
                location=str(self.source.folder),
            )
        for operator in self.source.operators:
            check_writable(operator)  # the plan has the parallelism of the result
        operators = [each for each in plan.operators if each.sources]
        if not operators:
            raise SavepointError("Nothing is left to write: no operator of the new job has state.")
        return RewritingPlan(
            "migrated savepoint",
            self.source,
            self.source_size,
            [
                OperatorStep(own.label, partial(self._operator, own), _has_heap_timers(own))
                for own in operators
            ],
            self._metadata,
            self.files,
            self.shares_files_in,
            check=self._accept,
            form=self.form,
            plan=[
                json.loads(json.dumps(self.migration.document, default=str)),
                None if self.template is None else self.template.file.sha256,
            ],
        )

    def _metadata(self, states: tuple[OperatorState, ...]) -> CheckpointMetadata:
        version = max(self.source.metadata.version, min(WRITABLE_VERSIONS))
        return replace(self.source.metadata, version=version, operators=states)

    def _accept(self, snapshot: Snapshot, target: SavepointFolder, read: Report) -> None:
        """Compares what was read back with the plan, and writes the report."""
        self._compare_with_plan(snapshot, target, read)
        report = json.dumps(self.report, indent=1, sort_keys=True, default=str).encode()
        target.file_io.replace(target.folder.child(REPORT_FILE), report + b"\n")

    def _operator(self, plan: OperatorMigration, output: Output) -> OperatorState:
        target = output.target
        first = plan.sources[0]
        max_parallelism = self.plan.max_parallelisms[plan.target.operator_id]
        parallelism = min(max(each.parallelism for each in plan.sources), max_parallelism)
        work = KeyedMigration(plan, output, max_parallelism, parallelism, self._show_keys)
        keyed = work.written()
        self.counts |= {(plan.label, name): each for name, each in work.counts.items()}
        self.kept |= {(plan.label, name) for name in work.kept}
        listed = write_operator_states(plan, target, parallelism)
        raw = {each.index: each.raw_operator_state for each in first.state.subtasks}
        subtasks = tuple(
            OperatorSubtaskState(
                index,
                listed[index],
                copy_operator_state(first, raw.get(index), target),
                keyed[index],
            )
            for index in range(parallelism)
        )
        new_operator = plan.target
        return replace(
            first.state,
            operator_id=new_operator.operator_id,
            uid=new_operator.uid,
            name=new_operator.name,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            subtasks=subtasks,
            decimals=plan.decimals({} if self.template is None else new_operator.decimals),
        )

    # ------------------------------------------------------------------------------- read back

    def _compare_with_plan(self, snapshot: Snapshot, target: SavepointFolder, read: Report) -> None:
        """Compares what was read back with what the plan says."""
        self._check_restore(snapshot)
        by_id = {each.operator_id: each for each in snapshot.operators}
        for plan in self.plan.operators:
            if plan.sources:
                self._compare(plan, by_id[plan.target.operator_id], read)
                written = by_id[plan.target.operator_id].with_timer_queues
                self._compute_again(plan, written, target)

    def _compute_again(
        self, plan: OperatorMigration, written: OperatorSnapshot, target: SavepointFolder
    ) -> None:
        """Compares a share of the key groups with what the source gives when it is read again."""
        total = written.max_parallelism
        number = ceil(total * self._share)
        key_groups = [total * at // number for at in range(number)]
        if not key_groups or not written.keyed_handles:
            return
        if any((plan.label, state.new.name) in self.kept for state in plan.states):
            plan = converted_apart(plan)
            if not plan.states:
                return
            written = with_states(written, frozenset(state.new.name for state in plan.states))
        work = KeyedMigration(plan, Output(target), total, written.parallelism, self._show_keys)
        different = work.differing(written, key_groups)
        if different:
            raise SavepointError(
                f"The migrated savepoint is wrong and was not published: operator {plan.label!r} "
                f"has other records in key group {different[0]} than the source gives "
                f"({len(different)} of {number} key groups)."
            )
        self.recomputed[plan.label] = number

    def _check_restore(self, snapshot: Snapshot) -> None:
        """Asks whether the new job restores what was written, as ``dstl check`` does."""
        if self.template is None:
            return
        late = [
            f"{plan.label}/{state.new.name}"
            for plan in self.plan.operators
            for state in plan.states
            if state.old is not None and not plan.target.has_state(state.new.name)
        ]
        # The plan has asked about columns of one type already.
        self.check = check_restore(snapshot, self.template, drop=late, columns_kept=True)
        worst = max(self.check.lines, key=lambda line: line.verdict, default=None)
        if worst is not None and worst.verdict is Verdict.INCOMPATIBLE:
            raise SavepointError(
                f"The new job would not restore the migrated savepoint, so it was not published: "
                f"{worst}."
            )

    def _compare(self, plan: OperatorMigration, written: OperatorSnapshot, read: Report) -> None:
        stored = {info.name: info for info in written.with_timer_queues.states}
        for state in plan.states:
            if state.is_operator_state or state.old is None or state.operator is None:
                continue
            is_kept = (plan.label, state.new.name) in self.kept
            count = StateCount()
            if not is_kept:
                count = self.counts.setdefault((plan.label, state.new.name), count)
            if state.new.name in stored:
                if not is_kept:
                    count.after = _entries_read(read, written, state.new.name)
                if _bytes_of(stored[state.new.name].meta) != _bytes_of(state.new.meta):
                    raise SavepointError(
                        f"State {state.new.name!r} of operator {plan.label!r} has another header "
                        f"than the template; nothing was published."
                    )
            if is_kept:
                continue  # nothing of it was written
            before = count.before or count_entries(state.operator, state.old.name)
            count.before = before
            timers = state.new.kind.endswith("timer")
            if before != count.after and state.merge is None and not timers and _counts_rows(state):
                raise SavepointError(
                    f"State {state.new.name!r} of operator {plan.label!r} had {before} entries and "
                    f"has {count.after}: keys became one; say how they merge (on_collision, merge)."
                )

    @property
    def report(self) -> Mapping[str, Any]:
        """What stands in ``_migration.json``: no keys, no values."""
        declared = json.dumps(self.migration.document, sort_keys=True, default=str).encode()
        return {
            "declaration": self.migration.document,
            "declaration_sha256": hashlib.sha256(declared).hexdigest(),
            "source_sha256": self.source.file.sha256,
            "template_sha256": None if self.template is None else self.template.file.sha256,
            "states": [
                {
                    "operator": operator,
                    "state": state,
                    "before": count.before,
                    "after": count.after,
                    "merged": count.merged,
                    "nulled": count.nulled,
                }
                for (operator, state), count in sorted(self.counts.items())
            ],
            "kept_files": [
                {"operator": operator, "state": state} for operator, state in sorted(self.kept)
            ],
            "dropped": [
                {"operator": op.label, "state": info.name}
                for operator in self.plan.operators
                for op, info in operator.dropped
            ],
            "dropped_operators": [each.label for each in self.plan.dropped],
            "notes": list(self.plan.notes),
            "recomputed_key_groups": dict(sorted(self.recomputed.items())),
            "check": None if self.check is None else VERDICT_TEXTS[self.check.verdict],
        }


def _has_heap_timers(plan: OperatorMigration) -> bool:
    return any(map(has_heap_timers, plan.sources))


def _entries_read(read: Report, written: OperatorSnapshot, name: str) -> int:
    """The entries of a state that were read back; those that only Java reads are counted anew."""
    if read.incomplete & {(written.label, name), (written.label, None)}:
        return count_entries(written, name)
    return read.records[written.label, name]


def _counts_rows(state: Any) -> bool:
    """Whether each entry of the old state is one entry of the new state."""
    if state.joins_lists:
        return False
    return bool((state.old.kind == "list") == (state.new.kind == "list"))


def _bytes_of(meta: StateMetaInfoSnapshot) -> bytes:
    out = DataOutput()
    write_state_meta(out, meta)
    return out.to_bytes()
