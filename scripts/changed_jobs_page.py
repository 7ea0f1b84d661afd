"""Writes the tables of ``docs/reference/changed-jobs.md``: verdicts beside what real Flink did."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from dstl_core import Snapshot, check_restore  # noqa: E402
from dstl_core.savepoint.restores.restore_result import VERDICT_TEXTS, RestoreResult  # noqa: E402
from dstl_core.state.tables.compatibility import Verdict  # noqa: E402
from tests.golden_files import CHANGED_CLASSES, GOLDEN, UPGRADE_JOBS  # noqa: E402
from tests.integration.flink.changed_classes import WHAT  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "changed-jobs.md"
_BLOCK = re.compile(r"(<!-- changed: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MATRIX = GOLDEN / "restore-matrix"
RESTORES, LOSES = "restores", "restores, but the job does not find the values"
LOST = ("fieldrenamed", "staterenamed", "optional")
"""Cases that restore, although the new job cannot use the values."""
JOBS = {
    "agg-add": "SQL: one more aggregate",
    "agg-reorder": "SQL: aggregates in another order",
    "agg-widen": "SQL: an aggregate of another type",
    "dedup-reorder": "SQL: deduplicated columns in another order",
    "join-addcol": "SQL: one more column of a join",
    "key-drop": "SQL: one grouping column less",
    "key-type": "keys of another type, with timers",
    "key-varchar": "SQL: a longer `VARCHAR` as key",
    "key-widen": "SQL: `INT` became `BIGINT` in a key",
    "pojo-class": "POJO: the class has another name",
    "second-insert": "SQL: one more `INSERT` in the statement set",
    "split": "an operator became two",
    "state-rename": "the state has another name",
    "uid-forgotten": "the operator has a uid now",
    "value-to-map": "value state became map state",
    "window-add": "SQL: one more aggregate of a window",
}
LINES = {
    "carts": "lists, maps and sets in value state",
    "fleet": "subclasses, arrays, fields of `Object`",
    "opstate": "Kryo in operator state",
    "orders": "POJO with lists, maps and sets",
    "registered": "classes registered at Kryo",
    "sessions": "classes that are no POJOs",
    "silent": "`ArrayList` and `HashMap`",
    "times": "`java.time`, `UUID`, `Optional`",
}


def _verdicts(check: RestoreResult) -> Mapping[str, Verdict]:
    worst: dict[str, Verdict] = {}
    for line in check.lines:
        worst[line.operator] = max(line.verdict, worst.get(line.operator, line.verdict))
    return worst


def _of_classes() -> list[tuple[str, str, Verdict, Verdict, Verdict]]:
    """Change, what Flink does, and the verdicts: with the jar, with it and ``--run``, and with a
    savepoint and the jar. Those of ``--run`` are golden, and the tests with real Flink make them.
    """
    outcomes = json.loads((CHANGED_CLASSES / "outcomes.json").read_bytes())
    old, new = (Snapshot.load(CHANGED_CLASSES / each) for each in ("old", "new"))
    jars = [CHANGED_CLASSES / "new.jar"]
    by_jar = _verdicts(check_restore(old, jars[0], to="2.2", unchanged=["source"]))
    texts = {text: verdict for verdict, text in VERDICT_TEXTS.items()}
    by_run = json.loads((CHANGED_CLASSES / "run.json").read_bytes())
    by_savepoint = _verdicts(check_restore(old, new, to="2.2", jars=jars))
    return [
        (
            what,
            _done(name, outcomes[name]),
            by_jar[name],
            texts[by_run[name]],
            by_savepoint[name],
        )
        for name, what in WHAT.items()
    ]


def _done(name: str, outcome: Mapping[str, str]) -> str:
    heap, rocksdb = (outcome[each] == "restored" for each in ("hashmap", "rocksdb"))
    if heap and rocksdb:
        return LOSES if name in LOST else RESTORES
    if rocksdb:
        return "fails at the restore; with RocksDB when it reads a value"
    return "refuses it with RocksDB" if heap else "refuses it"


def _of_jobs() -> list[tuple[str, str, Verdict]]:
    outcomes = json.loads((MATRIX / "outcomes.json").read_bytes())
    results = []
    for name, what in JOBS.items():
        with tempfile.TemporaryDirectory() as folder:
            loaded = []
            for version in ("old", "new"):
                (Path(folder) / version).mkdir()
                copy = Path(folder) / version / "_metadata"
                shutil.copyfile(MATRIX / f"{name}.{version}", copy)
                loaded.append(Snapshot.load(copy.parent))
            refused = outcomes[name]["result"] == "fails"
            done = "refuses it" if refused else "restores it, and gives wrong results"
            results.append((what, done, check_restore(*loaded, to="2.2").verdict))
    return results


def _of_lines() -> list[tuple[str, str, Verdict]]:
    results = []
    for name, what in LINES.items():
        job = UPGRADE_JOBS / name
        [path] = job.glob("savepoint-*")
        outcome = json.loads((job / "outcome.json").read_bytes())
        restores = outcome["hashmap"]["restores"]
        done = "restores it with other contents" if restores else "refuses it, or fails"
        check = check_restore(Snapshot.load(path), job / "job.jar", to="2.2")
        results.append((what, done, check.verdict))
    return results


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [tuple(head), *rows]
    texts = [f"| {' | '.join(each)} |" for each in lines]
    return "\n".join([texts[0], "|---" * len(list(lines[0])) + "|", *texts[1:]])


def classes() -> str:
    rows = [(a, b, *(VERDICT_TEXTS[each] for each in found)) for a, b, *found in _of_classes()]
    head = ("change", "Flink 2.2.1", "with the jar", "with `--run`", "with a savepoint and the jar")
    return _table(head, rows)


def jobs() -> str:
    rows = [(a, b, VERDICT_TEXTS[c]) for a, b, c in _of_jobs()]
    return _table(("change", "Flink 2.2.1", "with a savepoint"), rows)


def lines() -> str:
    rows = [(a, b, VERDICT_TEXTS[c]) for a, b, c in _of_lines()]
    return _table(("state of Flink 1.20.5", "Flink 2.2.1", "with the jar"), rows)


def counts() -> str:
    """How many verdicts there are for what Flink restores, and for what it does not."""
    of_classes = _of_classes()
    of_lines = [(done, found) for _, done, found in _of_lines()]
    groups = {
        "with the jar": [(done, jar) for _, done, jar, _, _ in of_classes] + of_lines,
        "with the jar and `--run`": [(done, run) for _, done, _, run, _ in of_classes],
        "with a savepoint": [(done, found) for _, done, _, _, found in of_classes]
        + [(done, found) for _, done, found in _of_jobs()],
    }
    rows = []
    for group, cases in groups.items():
        for good in (True, False):
            count = Counter(found for done, found in cases if (done == RESTORES) is good)
            what = "restores" if good else "refuses, fails, or gives other values"
            numbers = [str(count[verdict]) for verdict in Verdict]
            rows.append((group, what, str(count.total()), *numbers))
    return _table(("check", "Flink 2.2.1", "jobs", *VERDICT_TEXTS.values()), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "counts": counts,
    "classes": classes,
    "jobs": jobs,
    "lines": lines,
}


def written(text: str) -> str:
    """The page with its tables as the code makes them now."""
    return _BLOCK.sub(lambda block: f"{block[1]}{PARTS[block[2]]()}\n{block[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
