"""A job whose POJO gains a field of each Java type, and its migrated state."""

from __future__ import annotations

from pathlib import Path

from dstl_core import Snapshot
from dstl_core.codec.serializers import Types
from dstl_core.codec.serializers.pojo import Pojo, PojoSerializer
from dstl_core.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from dstl_core.model.ids import OperatorID
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.migrate.declaration import Migration
from dstl_core.savepoint.migrate.migrated_savepoint import SavepointMigration
from dstl_core.savepoint.write.folder import SavepointFolder
from dstl_core.state.backends.backend import HashMapKeyedStateBackend
from dstl_core.state.tables.descriptor import ValueStateDescriptor
from dstl_core.state.tables.keyed_state import KeyedState

USER = "d.User"
KEPT = {"kept": 1 << 40}
OLD = Types.POJO(USER, kept=Types.LONG)
DEFAULTS = {
    "int": "0",
    "long": "0",
    "short": "0",
    "byte": "0",
    "char": "\0",
    "float": "0.0",
    "double": "0.0",
    "boolean": "false",
    # As for the primitive type: a savepoint does not tell them apart.
    "Integer": "0",
    "Long": "0",
    "Short": "0",
    "Byte": "0",
    "Character": "\0",
    "Float": "0.0",
    "Double": "0.0",
    "Boolean": "false",
    "String": "null",
    "java.math.BigDecimal": "null",
    "java.math.BigInteger": "null",
    "java.time.Instant": "null",
    "int[]": "null",
    "byte[]": "null",
    "String[]": "null",
    "java.util.List<String>": "null",
    "java.util.Map<String, Long>": "null",
    "Inner": "null",
    "Color": "null",
}
"""The Java type of a new field to its value as Java prints it (JLS 4.12.5)."""


def names() -> dict[str, str]:
    """The new fields: name to Java type."""
    return {f"n{at:02}": java for at, java in enumerate(DEFAULTS)}


def savepoint(folder: Path, serializer: PojoSerializer, value: Pojo | None) -> Snapshot:
    """A savepoint of one operator with one value."""
    state = KeyedState(KeyGroupRange(0, 127), 128)
    backend = HashMapKeyedStateBackend(state, Types.STRING)
    users = backend.get_value_state(ValueStateDescriptor("users", serializer))
    if value is not None:
        backend.set_current_key("k")
        users.update(value)
    written = SavepointFolder(folder)
    subtask = OperatorSubtaskState(0, managed_keyed_state=written.add_keyed_state(state))
    operator = OperatorState(OperatorID.for_uid("op"), 1, 128, (subtask,), uid="op")
    written.publish(CheckpointMetadata(3, 1, (operator,)), {})
    return Snapshot.load(folder)


def migration_to(new: PojoSerializer, work: Path) -> SavepointMigration:
    """The migration of the old job to one whose POJO has another type."""
    old = savepoint(work / "old", OLD, Pojo(USER, KEPT))
    template = savepoint(work / "new", new, None)
    return SavepointMigration(Migration.of({"migration": 1}), old, template)
