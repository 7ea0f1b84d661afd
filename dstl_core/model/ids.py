"""Identifiers of jobs and operators.

Source of the facts: ``org.apache.flink.util.AbstractID`` and
``org.apache.flink.streaming.api.graph.StreamGraphHasherV2`` of Flink 2.2.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID, uuid5

import mmh3

from dstl_core.errors import ConfigError

_HEX_32 = re.compile(r"[0-9a-fA-F]{32}")
_JOB_NAMESPACE = UUID("6f1f3b44-6a8f-4f0e-9a63-6d1f0a4f6c55")


@dataclass(frozen=True, slots=True, order=True)
class _Id:
    """Sixteen bytes, printed as 32 hex digits in stored order."""

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 16:
            raise ConfigError(
                f"An id has the wrong length: expected 16 bytes, got {len(self.raw)}."
            )

    @property
    def hex(self) -> str:
        return self.raw.hex()

    def __str__(self) -> str:
        return self.raw.hex()


def is_id_hex(text: str) -> bool:
    """Whether the text is 32 hex digits."""
    return _HEX_32.fullmatch(text) is not None


def _parse_hex(text: str, what: str) -> bytes:
    if not is_id_hex(text):
        article = "an" if what[0] in "aeiou" else "a"
        raise ConfigError(f"Not {article} {what}: expected 32 hex digits, got {text!r}.")
    return bytes.fromhex(text)


class JobID(_Id):
    """Identifies one pipeline; it is the name of the pipeline's folder."""

    __slots__ = ()

    @classmethod
    def from_hex(cls, text: str) -> JobID:
        return cls(_parse_hex(text, "job id"))

    @classmethod
    def for_name(cls, name: str) -> JobID:
        """The id of a pipeline, derived from its name."""
        return cls(uuid5(_JOB_NAMESPACE, name).bytes)


class OperatorID(_Id):
    """Identifies one operator inside a job."""

    __slots__ = ()

    @classmethod
    def from_hex(cls, text: str) -> OperatorID:
        return cls(_parse_hex(text, "operator id"))

    @classmethod
    def for_uid(cls, uid: str) -> OperatorID:
        """The hash of a uid: murmur3_x64_128 with seed 0 over UTF-8, both halves little-endian.

        A lone surrogate counts as ``?``, as Java encodes it.
        """
        return cls(mmh3.hash_bytes(uid.encode("utf-8", "replace"), 0, True))


@dataclass(frozen=True, slots=True)
class OperatorIdentifier:
    """Identifies an operator by uid or by hash. Identifiers with the same 16-byte id are equal."""

    operator_id: OperatorID
    uid: str | None = None

    @classmethod
    def for_uid(cls, uid: str) -> OperatorIdentifier:
        if uid is not None and not isinstance(uid, str):
            raise ConfigError(f"An operator uid has to be text, got {uid!r}; give the uid as text.")
        if not uid:
            raise ConfigError("An operator uid must not be empty; give the uid of the operator.")
        return cls(OperatorID.for_uid(uid), uid)

    @classmethod
    def for_uid_hash(cls, uid_hash: str) -> OperatorIdentifier:
        return cls(OperatorID.from_hex(uid_hash))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OperatorIdentifier) and other.operator_id == self.operator_id

    def __hash__(self) -> int:
        return hash(self.operator_id)

    def __str__(self) -> str:
        return self.uid if self.uid is not None else self.operator_id.hex
