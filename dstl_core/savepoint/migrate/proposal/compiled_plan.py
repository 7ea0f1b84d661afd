"""Reads the compiled plan of a SQL job: its nodes, their columns by name, and the way of the rows.

Source: ``ExecNodeGraphJsonSerializer``, ``LogicalTypeJsonSerializer`` of Flink 2.2.1; plans that
``COMPILE PLAN`` of Flink 2.2.1 wrote.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dstl_core.errors import ConfigError
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location

_MAX_BYTES = 64 << 20
"""Compiled plans have some kilobytes a node."""
_NODE_TYPE = re.compile(r"(?:stream|batch)-exec-(.+)_(\d+)")
_UID = re.compile(r"(\d+)_(.+)")
_NAME = re.compile(r"(?:Source: |Sink: )?(.*)\[(\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of a plan.

    Attributes:
        type: Its type without prefix and version, e.g. ``group-aggregate``.
        columns: The names of its output columns.
        inputs: The ids of the nodes that it reads, the left one first.
        fields: All that the plan says about it, as JSON.
    """

    id: int
    type: str
    columns: tuple[str, ...]
    inputs: tuple[int, ...]
    fields: Mapping[str, Any]


class CompiledPlan:
    """The nodes of a compiled plan, by id. Every node comes after its inputs in ``ordered``."""

    def __init__(self, flink_version: str, nodes: Mapping[int, PlanNode], where: str) -> None:
        self.flink_version = flink_version
        self.nodes = nodes
        self.where = where
        self.ordered = list(_in_order(nodes, where))
        self._readers: dict[int, list[PlanNode]] = {each: [] for each in nodes}
        for node in self.ordered:
            for number in node.inputs:
                self._readers[number].append(node)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], storage_options: dict[str, Any] | None = None
    ) -> CompiledPlan:
        """Reads the plan in a file.

        Raises:
            ConfigError: The file holds no compiled plan.
            StateFileNotFoundError: There is no such file.
        """
        location = Location.parse(path)
        files = open_file_io(location, storage_options)
        if (files.size(location) or 0) > _MAX_BYTES:
            raise wrong_plan(str(location), f"at most {_MAX_BYTES >> 20} MiB", "more")
        return cls.parse(files.read_bytes(location), str(location))

    @classmethod
    def parse(cls, text: str | bytes, where: str = "the text") -> CompiledPlan:
        """Parses the JSON of a plan; ``where`` names its origin in errors.

        Raises:
            ConfigError: It is no compiled plan.
        """
        try:
            plan = json.loads(text)
        except (ValueError, RecursionError):
            raise wrong_plan(where, "JSON", "something else") from None
        nodes = plan.get("nodes") if isinstance(plan, dict) else None
        if not isinstance(nodes, list) or not nodes:
            raise wrong_plan(where, "an object with 'nodes'", type(plan).__name__)
        inputs = _inputs(plan.get("edges", []), where)
        by_id = {}
        for entry in nodes:
            node = _node(entry, inputs, where)
            if node.id in by_id:
                raise wrong_plan(where, "a node once", f"node {node.id} twice")
            by_id[node.id] = node
        for missing in {*inputs, *(one for many in inputs.values() for one in many)} - by_id.keys():
            raise wrong_plan(where, "edges between nodes of the plan", f"node {missing}")
        return cls(str(plan.get("flinkVersion", "")), by_id, where)

    def inputs_of(self, node: PlanNode) -> list[PlanNode]:
        """The nodes that a node reads, the left one first."""
        return [self.nodes[each] for each in node.inputs]

    def sinks_of(self, node: PlanNode) -> frozenset[str]:
        """The tables into which the rows of a node go."""
        tables, seen, todo = set(), {node.id}, [node]
        while todo:
            one = todo.pop()
            if (table := sink_table(one)) is not None:
                tables.add(table)
            for reader in self._readers[one.id]:
                if reader.id not in seen:
                    seen.add(reader.id)
                    todo.append(reader)
        return frozenset(tables)

    def node_of(self, uid: str, name: str = "") -> tuple[PlanNode, str] | None:
        """The node that made an operator, and the operator's part in it, e.g. ``group-aggregate``.

        Args:
            uid: ``<id of the node>_<part>``, as Flink gives it to operators of a compiled plan.
            name: The operator's name, e.g. ``GroupAggregate[4]``, for operators without a uid.
        """
        if match := _UID.fullmatch(uid):
            node = self.nodes.get(int(match[1]))
            return None if node is None else (node, match[2])
        if not uid and (match := _NAME.fullmatch(name)):
            node = self.nodes.get(int(match[2]))
            if node is not None and node.type.replace("-", "") == match[1].lower():
                return node, node.type
        return None

    def misfit(self, names: Iterable[str]) -> str | None:
        """The first operator, by its name, that another plan made; None if this plan fits.

        Ids of nodes come from a counter of the session. A plan of another session has other ids.

        Args:
            names: The names of all operators of a savepoint, e.g. ``GroupAggregate[4]``. Names
                without a number do not count.
        """
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            node = self.nodes.get(int(match[2]))
            if node is None:
                return name
            # A connector names its own operators, and some nodes have several.
            word, type_word = match[1].lower(), node.type.replace("-", "")
            if word != type_word and word in {each.type.replace("-", "") for each in self.ordered}:
                return name
        return None


def source_table(node: PlanNode) -> str | None:
    """The table that a scan reads, e.g. ```default_catalog`.`default_database`.`orders```."""
    return _table(node.fields.get("scanTableSource"))


def sink_table(node: PlanNode) -> str | None:
    return _table(node.fields.get("dynamicTableSink"))


def _table(described: Any) -> str | None:
    table = described.get("table") if isinstance(described, dict) else None
    identifier = table.get("identifier") if isinstance(table, dict) else None
    return identifier if isinstance(identifier, str) else None


def _inputs(edges: Any, where: str) -> dict[int, list[int]]:
    """The inputs of each node. The edges of a node stand in the order of its inputs."""
    by_target: dict[int, list[int]] = {}
    for edge in edges if isinstance(edges, list) else [None]:
        fields = edge if isinstance(edge, dict) else {}
        source, target = fields.get("source"), fields.get("target")
        if not isinstance(source, int) or not isinstance(target, int):
            raise wrong_plan(where, "edges with source and target", repr(edge)[:80])
        by_target.setdefault(target, []).append(source)
    return by_target


def _node(entry: Any, inputs: Mapping[int, list[int]], where: str) -> PlanNode:
    fields = entry if isinstance(entry, dict) else {}
    number, kind = fields.get("id"), _NODE_TYPE.fullmatch(str(fields.get("type")))
    if type(number) is not int or kind is None:
        raise wrong_plan(where, "nodes with id and type", repr(entry)[:80])
    return PlanNode(
        number,
        kind[1],
        tuple(column_names(fields.get("outputType"), where)),
        tuple(inputs.get(number, ())),
        fields,
    )


def _in_order(nodes: Mapping[int, PlanNode], where: str) -> Iterator[PlanNode]:
    """The nodes, each after its inputs."""
    waits = {each.id: len(each.inputs) for each in nodes.values()}
    readers: dict[int, list[int]] = {each: [] for each in nodes}
    for node in nodes.values():
        for reader in node.inputs:
            readers[reader].append(node.id)
    ready = sorted(each for each, count in waits.items() if not count)
    count = 0
    for number in ready:  # grows while it runs
        yield nodes[number]
        count += 1
        for reader in readers[number]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if count != len(nodes):
        raise wrong_plan(where, "nodes without a circle", "a circle")


# ------------------------------------------------------------------------------ names of columns


def column_names(row: Any, where: str) -> Sequence[str]:
    """The names of the columns of a row type, which the plan has as a text or as an object.

    Raises:
        ConfigError: It is no row type.
    """
    if row is None:
        return ()  # sinks of old plans
    if isinstance(row, dict) and isinstance(row.get("fields"), list):
        written_names = [
            entry.get("name") if isinstance(entry, dict) else None for entry in row["fields"]
        ]
        names = [each for each in written_names if isinstance(each, str)]
        if len(names) == len(written_names):
            return names
    if isinstance(row, str) and row.startswith("ROW<") and row.partition(">")[1]:
        return list(_names_in(row[4 : row.rindex(">")]))
    raise wrong_plan(where, "a row type", repr(row)[:80])


_TOKEN = re.compile(r"`(?P<name>(?:[^`]|``)*)`|'(?:[^']|'')*'|[<(]|[>)]|,|[^`'<>(),]+")


def _names_in(text: str) -> Iterator[str]:
    """The names at the top level of ```a` INT, `b` ROW<`c` INT>``."""
    depth, is_start = 0, True
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "<" | "(":
                depth += 1
            case ">" | ")":
                depth -= 1
            case "," if depth == 0:
                is_start = True
                continue
            case _ if is_start and token["name"] is not None:
                yield token["name"].replace("``", "`")
        is_start = is_start and token[0].isspace()


def wrong_plan(where: str, expected: str, got: object) -> ConfigError:
    """The error for a file that is no compiled plan, or one with something else inside."""
    return ConfigError(
        f"The compiled plan cannot be read: expected {expected}, got {got}; give the file that "
        f"COMPILE PLAN wrote.",
        location=where,
    )
