"""The figures and the page of ``dstl report``."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot, edit_savepoint
from dstl_core.checkpoint.store.metadata_file import publish_metadata_file
from dstl_core.model.checkpoint import OperatorState, OperatorSubtaskState
from dstl_core.model.handle import (
    ByteStreamStateHandle,
    KeyGroupRangeOffsets,
    KeyGroupsSavepointStateHandle,
    KeyGroupsStateHandle,
)
from dstl_core.model.ids import OperatorID, OperatorIdentifier
from dstl_core.model.key_group import KeyGroupRange
from dstl_core.savepoint.report.count_options import CountOptions
from dstl_core.savepoint.report.figures import key_group_bytes, report_figures
from dstl_core.savepoint.report.page import report_page
from dstl_core.storage.file_io import open_file_io
from dstl_core.storage.location import Location
from tests.command_line import is_one_sentence, run
from tests.golden_files import CHANGED_JOBS, CONNECTORS, snapshot

__all__ = ["run"]

EVIL = "<script>alert(1)</script><b onclick='x'>\"&\x1b"


def written(folder: Path, *operators: OperatorState) -> Snapshot:
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    metadata = replace(source.metadata, operators=operators)
    place = Location.parse(folder)
    publish_metadata_file(open_file_io(place), place, metadata, {})
    return Snapshot.load(folder)


def keyed(index: int, first: int, offsets: tuple[int, ...], size: int) -> OperatorSubtaskState:
    """A subtask whose canonical state begins at these offsets of a stream of this size."""
    key_groups = KeyGroupRange(first, first + len(offsets) - 1)
    stream = ByteStreamStateHandle(f"subtask-{index}", bytes(size))
    handle = KeyGroupsSavepointStateHandle(KeyGroupRangeOffsets(key_groups, offsets), stream)
    return OperatorSubtaskState(index, managed_keyed_state=handle)


def operator(uid: str, *subtasks: OperatorSubtaskState, parallelism: int = 2) -> OperatorState:
    return OperatorState(OperatorID.for_uid(uid), parallelism, 8, subtasks, name=uid, uid=uid)


def test_planted_skew_and_empty_key_groups(tmp_path: Path) -> None:
    # Key groups of 10, 0, 20 and 900 bytes, then of 10, 10, 0 and 30 behind a header of 50.
    subtasks = (keyed(0, 0, (50, 0, 60, 80), 980), keyed(1, 4, (50, 60, 0, 70), 100))
    loaded = written(tmp_path / "skewed", operator("hot", *subtasks))
    [figures] = report_figures(loaded)["operators"]
    assert figures["key_groups"]["bytes"] == (10, 0, 20, 900, 10, 10, 0, 30)
    assert figures["key_groups"]["empty"] == 2
    assert (figures["key_groups"]["largest"], figures["key_groups"]["median"]) == (900, 15)
    assert figures["key_groups"]["skew"] == 60
    assert figures["subtasks"]["bytes"] == (980, 100)
    assert figures["subtasks"]["skew"] == 1.81
    texts = [each["what"] for each in report_figures(loaded)["attention"]]
    assert "the largest key group has 60 times the bytes of the median" in texts


def test_a_stream_without_records_has_no_bytes_in_any_key_group(tmp_path: Path) -> None:
    subtasks = (keyed(0, 0, (0, 0, 0, 0), 50), keyed(1, 4, (0, 50, 0, 0), 60))
    loaded = written(tmp_path / "empty", operator("new", *subtasks))
    assert key_group_bytes(loaded.operators[0]) == [0, 0, 0, 0, 0, 10, 0, 0]


def test_a_job_that_has_read_nothing_has_a_report() -> None:
    # MAX with retraction, started and stopped: a header and no record.
    started = Snapshot.load(CHANGED_JOBS / "agg-retract" / "new")
    figures = report_figures(started, contents=CountOptions(at_ms=0))
    for operator_figures in figures["operators"]:
        assert operator_figures["contents"]["problem"] is None
        if operator_figures["key_groups"] is not None:
            assert operator_figures["key_groups"]["empty"] == operator_figures["max_parallelism"]


def test_a_command_is_safe_to_paste_whatever_the_uid(tmp_path: Path) -> None:
    uid = "hot; rm -rf 'x'"
    subtasks = (keyed(0, 0, (50, 0, 60, 80), 980), keyed(1, 4, (50, 60, 0, 70), 100))
    figures = report_figures(written(tmp_path / "a b", operator(uid, *subtasks)))
    [command] = [each["command"] for each in figures["attention"] if "dump" in each["command"]]
    assert shlex.split(command) == ["dstl", "dump", figures["path"], "--op", uid]


def test_state_of_the_heap_begins_at_any_offset(tmp_path: Path) -> None:
    offsets = KeyGroupRangeOffsets(KeyGroupRange(0, 7), (0, 3, 6, 9, 12, 15, 18, 21))
    handle = KeyGroupsStateHandle(offsets, ByteStreamStateHandle("s", bytes(30)), None)
    subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
    loaded = written(tmp_path / "heap", operator("heap", subtask, parallelism=1))
    assert key_group_bytes(loaded.operators[0]) == [3, 3, 3, 3, 3, 3, 3, 9]


@pytest.mark.parametrize(
    ("name", "kinds", "has_key_groups"),
    [
        ("a-hashmap-canonical-files", {"keyed state"}, True),
        ("a-hashmap-checkpoint", {"keyed state"}, True),
        ("a-rocksdb-checkpoint-incremental", {"keyed state"}, False),
        ("a-rocksdb-changelog-materialized", {"keyed state", "changelog"}, False),
        ("a-hashmap-changelog-materialized", {"keyed state", "changelog"}, True),
        ("c-opstate-hashmap", {"operator state"}, True),
        ("o-source-coordinator", {"coordinator state", "operator state"}, True),
    ],
)
def test_sizes_of_every_form(name: str, kinds: set[str], has_key_groups: bool) -> None:
    loaded = Snapshot.load(snapshot(name))
    figures = report_figures(loaded)
    assert kinds <= set(figures["bytes_by_kind"])
    assert sum(figures["bytes_by_kind"].values()) == figures["bytes"]
    assert sum(each["bytes"] for each in figures["operators"]) == figures["bytes"]
    for figure in figures["files"]:
        path = Path(figure["path"].removeprefix("file:"))
        # A segment of a log may go on behind the last change that the checkpoint needs.
        assert path.stat().st_size == figure["bytes"] or "/dstl/" in figure["path"]
    spread = [each for each in figures["operators"] if each["key_groups"] is not None]
    assert bool(spread) is has_key_groups


def test_state_that_needs_java_is_named_with_a_command(tmp_path: Path) -> None:
    figures = report_figures(Snapshot.load(snapshot("x-kryo-hashmap")))
    attention = [each for each in figures["attention"] if "h3.Opaque" in each["what"]]
    assert {each["operator"] for each in attention} == {"with-kryo"}
    assert all(each["command"].startswith("dstl dump file:") for each in attention)
    assert all(each["command"].endswith("--jar JOB.jar") for each in attention)


def test_sources_and_pending_commits() -> None:
    figures = report_figures(Snapshot.load(CONNECTORS / "c-kafka" / "savepoint"))
    assert {each["split"] for each in figures["sources"]} >= {"orders/0", "orders/6"}
    assert figures["pending"] == [
        {"sink": "sink", "checkpoint_id": 1, "committables": 2},
        {"sink": "sink", "checkpoint_id": 2, "committables": 2},
    ]
    page = report_page(figures)
    assert "<td>next 7</td>" in page
    assert "4 committables are committed when a job restores this snapshot" in page


def test_planted_growth(tmp_path: Path) -> None:
    old = written(
        tmp_path / "old",
        operator("grows", keyed(0, 0, (50,) + (0,) * 7, 200)),
        operator("goes", keyed(0, 0, (50,) + (0,) * 7, 70)),
    )
    new = written(
        tmp_path / "new",
        operator("grows", keyed(0, 0, (50,) + (0,) * 7, 300)),
        operator("comes", keyed(0, 0, (50,) + (0,) * 7, 90)),
    )
    compared = report_figures(new, old)["compared"]
    assert (compared["bytes_before"], compared["bytes_after"]) == (270, 390)
    sizes = {each["operator"]: (each["before"], each["after"]) for each in compared["operators"]}
    assert sizes == {"grows": (200, 300), "goes": (70, None), "comes": (None, 90)}
    page = report_page(report_figures(new, old))
    for row in ("grows|200 bytes|300 bytes|+50.0 %", "goes|70 bytes||gone", "comes||90 bytes|new"):
        assert row in rows_of(page)


def test_changed_states_and_shared_files(tmp_path: Path) -> None:
    old = Snapshot.load(snapshot("a-hashmap-canonical-files"))
    edit = edit_savepoint(old).remove_operator(OperatorIdentifier.for_uid("sink"))
    new = Snapshot.load(edit.write(tmp_path / "new"))
    compared = report_figures(new, old)["compared"]
    assert "sink: operator removed" in compared["changes"]
    assert compared["shared_files"] == 0
    itself = report_figures(old, old)["compared"]
    assert itself["shared_files"] == len(report_figures(old)["files"]) > 0
    assert (itself["new_bytes"], itself["changes"]) == (0, [])


# ---------------------------------------------------------------------------------- the page


def rows_of(page: str) -> list[str]:
    """The texts of the cells of each row of all tables; a cell with a bar has none."""
    rows = re.findall(r"<tr>(.*?)</tr>", page)
    cells = (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows)
    return ["|".join(cell for cell in row if "<span" not in cell) for row in cells]


class Tags(HTMLParser):
    """Checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "path":
            assert self.open.pop() == tag


def check_page(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    tags.close()
    assert tags.open == []
    assert not tags.seen & {"script", "link", "img", "iframe", "b"}
    assert re.search(r"https?://|@import|url\(", page) is None


def test_the_page_needs_nothing_and_markup_does_nothing(tmp_path: Path) -> None:
    loaded = written(tmp_path / "evil", operator(EVIL, keyed(0, 0, (50,) + (0,) * 7, 70)))
    page = report_page(report_figures(loaded, loaded))
    check_page(page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert page == report_page(report_figures(loaded, loaded))


@pytest.mark.slow
def test_a_page_of_200_operators_is_small(tmp_path: Path) -> None:
    offsets = tuple(range(50, 4146, 4))
    states = []
    for number in range(200):
        handle = KeyGroupsSavepointStateHandle(
            KeyGroupRangeOffsets(KeyGroupRange(0, 1023), offsets),
            ByteStreamStateHandle("s", bytes(5000)),
        )
        subtask = OperatorSubtaskState(0, managed_keyed_state=handle)
        uid = f"operator {number}"
        states.append(
            OperatorState(OperatorID.for_uid(uid), 1, 1024, (subtask,), name=uid, uid=uid)
        )
    page = report_page(report_figures(written(tmp_path / "many", *states)))
    check_page(page)
    assert page.count("<summary><h2>operator ") == 200
    assert len(page.encode()) < 1_000_000


def test_a_page_shows_the_largest_operators_and_counts_the_others(tmp_path: Path) -> None:
    state = OperatorSubtaskState(0)
    many = (operator(f"u{number}", state, parallelism=1) for number in range(1_002))
    figures = report_figures(written(tmp_path, *many))
    page = report_page(figures)
    check_page(page)
    assert page.count("parallelism 1 of 8") == 1_000
    assert "2 more operators: dstl report --json has all." in page
    assert "2 more rows: dstl report --json has all." in page
    assert len(figures["operators"]) == 1_002


@pytest.mark.slow
def test_the_command_writes_the_page_and_the_figures(run: Any, tmp_path: Path) -> None:
    path, out = str(snapshot("a-hashmap-canonical")), tmp_path / "report.html"
    ran = run("report", path, "-o", str(out))
    assert (ran.code, ran.out, ran.err) == (0, f"written: {out}\n", "")
    check_page(out.read_text())
    for tile in ("<strong>21.6 KiB</strong> of state", "<strong>3</strong> operators"):
        assert tile in out.read_text()
    ran = run("report", path, "--compare", path, "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["compared"]["bytes_after"] == 22157
    ran = run("report", path, "--headers-only", "--json")
    assert [each["contents"] for each in json.loads(ran.out)["operators"]] == [None, None, None]
    for options, text in (
        ((), "needs -o FILE"),
        (("--json", "--ttl", "names=soon"), "--ttl is wrong: expected e.g. 90m, 24h, 7d"),
        (
            ("--json", "--ttl", "nmaes=1d"),
            "A time to live (--ttl) is wrong: no state has the name 'nmaes'",
        ),
        (("--json", "--ttl", "1d", "--headers-only"), "(--headers-only) reads none"),
        (("--json", "--at", "noon"), "--at is wrong: expected e.g. 2026-11-22T18:30Z"),
    ):
        ran = run("report", path, *options)
        assert ran.code == 2
        assert is_one_sentence(ran.err)
        assert text in ran.err


def test_ages_count_to_the_time_of_the_snapshot_or_to_a_given_one(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shutil.copytree(snapshot("e-ttl-hashmap"), path)
    os.utime(path / "_metadata", (1_800_000_000, 1_800_000_000))
    ran = run("report", str(path), "--json", "--ttl", "1d", "--ttl", "cnt=4000d")
    assert json.loads(ran.out)["at_ms"] == 1_800_000_000_000
    ages = {
        state["name"]: (state["ttl"]["expired"], state["ttl"]["count"])
        for operator in json.loads(ran.out)["operators"]
        for state in operator["contents"]["states"]
        if state["ttl"] is not None
    }
    assert ages["cnt"] == (0, 26)
    assert ages["m"] == (103, 103)
    ran = run("report", str(path), "--json", "--at", "2026-11-22T18:30+02:00")
    assert json.loads(ran.out)["at_ms"] == 1_795_365_000_000


def test_errors_of_the_output_are_one_sentence(run: Any, tmp_path: Path) -> None:
    path = str(snapshot("a-hashmap-canonical"))
    missing = tmp_path / "missing"
    full = tmp_path / "full.html"
    full.symlink_to("/dev/full")
    declaration = tmp_path / "orders-v2.yaml"
    declaration.write_text("from: orders")
    other = tmp_path / "index.html"
    other.write_text("<!doctype html>\n<html><title>Orders</title></html>")
    for output, text in (
        (other, "index.html', which is no page of a report and would be lost"),
        (declaration, "orders-v2.yaml', which is no page of a report and would be lost"),
        (missing / "report.html", f"there is no folder {str(missing)!r}"),
        (tmp_path, f"which is a folder; give a file, e.g. {str(tmp_path / 'report.html')!r}"),
        (full, "The output cannot be written: No space left on device."),
    ):
        ran = run("report", path, "-o", str(output))
        assert ran.code == 2
        assert is_one_sentence(ran.err)
        assert text in ran.err
    assert declaration.read_text() == "from: orders"
    page = tmp_path / "page.html"
    assert [run("report", path, "-o", str(page)).code for _ in "ab"] == [0, 0]


def test_a_page_in_a_store_takes_the_place_of_a_page_alone(run: Any) -> None:
    path = str(snapshot("a-hashmap-canonical"))
    page = Location.parse("memory://pages/page.html")
    files = open_file_io(page)
    files.write_new(page, b"the only list of all orders")
    ran = run("report", path, "-o", str(page))
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "which is no page of a report and would be lost" in ran.err
    assert files.read_bytes(page) == b"the only list of all orders"
    files.delete(page)
    assert [run("report", path, "-o", str(page)).code for _ in "ab"] == [0, 0]
