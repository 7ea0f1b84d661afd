"""Makes temporary views of a snapshot's tables, with the names of Flink's state catalog."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dstl_core.codec.serializers import VoidNamespaceSerializer
from dstl_core.errors import UNREADABLE
from dstl_core.savepoint.read.entries import OP_BROADCAST, OP_LIST, OP_UNION
from dstl_core.savepoint.read.snapshot import OperatorSnapshot
from dstl_core.spark.savepoints.source_options import spec_of

_LOG = logging.getLogger(__name__)
_OPERATOR_KINDS = {OP_LIST: "list", OP_UNION: "union", OP_BROADCAST: "broadcast"}


def create_views(spark: SparkSession, path: str, options: Mapping[str, str]) -> list[str]:
    """Creates the views of a snapshot. It leaves out tables that cannot be read.

    Returns:
        The names of the views, in the order of operators and states.
    """
    snapshot = spec_of({"path": path, **options}).place.load()
    wanted: dict[str, dict[str, str]] = {"metadata": {"kind": "metadata"}}
    for operator in snapshot.operators:
        of_operator = {"operator.uid.hash": operator.operator_id.hex}
        for name, more in _tables(operator).items():
            wanted[_free(_name(name), wanted)] = of_operator | more
    created = []
    for name, more in wanted.items():
        reader = spark.read.format("savepoint").options(**{**options, **more})
        try:
            reader.load(path).createOrReplaceTempView(name)
        except PySparkException as error:
            if name == "metadata":
                raise
            _LOG.warning("the view %s was not created: %s", name, error)
            continue
        created.append(name)
    return created


def _tables(operator: OperatorSnapshot) -> dict[str, dict[str, str]]:
    base = f"uid_{operator.uid}" if operator.uid else f"id_{operator.operator_id.hex}"
    tables: dict[str, dict[str, str]] = {}
    try:
        states, operator_states = operator.states, operator.operator_states
    except UNREADABLE:
        return tables  # only Java classes of the job could read it
    for info in operator_states:
        kind = _OPERATOR_KINDS[info.kind]
        tables[f"{base}_{info.name}_{kind}"] = {"kind": kind, "state": info.name}
    values = [s for s in states if not s.meta.is_queue]
    void = [s for s in values if isinstance(s.meta.namespace_serializer, VoidNamespaceSerializer)]
    if void:
        tables[f"{base}_keyed"] = {"kind": "keyed"}
    if len(void) < len(values):
        tables[f"{base}_windowed"] = {"kind": "windows"}
    for info in void:
        if info.kind in ("list", "map"):
            table = {"kind": "keyed-flat", "state": info.name}
            tables[f"{base}_{info.name}_keyed_flat"] = table
    return tables


def _name(text: str) -> str:
    """A name that needs no quotes in SQL, if possible."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with a number if it is taken. SQL ignores case."""
    lower = {each.lower() for each in taken}
    free, number = name, 1
    while free.lower() in lower:
        number += 1
        free = f"{name}_{number}"
    return free
