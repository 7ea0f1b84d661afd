"""``dstl browse``, driven by keys. What real Flink restored is what its table has to show."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual.pilot import Pilot

from dstl_core import Snapshot
from dstl_core.cli.browse import browsed_entries
from dstl_core.cli.browse.browsed_entries import Pages
from dstl_core.cli.browse.browser import Browser
from dstl_core.errors import FormatError
from tests.command_line import is_one_sentence, run
from tests.golden_files import GOLDEN, Fixture, as_lines, snapshot

__all__ = ["run"]

JOB = Fixture(GOLDEN / "a-hashmap-canonical-files")
JOB_ENTRIES = list(islice(Snapshot.load(JOB.snapshot).operators[0].entries("cnt"), 7))
Steps = Callable[[Browser, Pilot[None]], Awaitable[None]]


def browsed(path: Path, steps: Steps) -> None:
    async def drive() -> None:
        browser = Browser(Snapshot.load(path))
        async with browser.run_test(size=(140, 40)) as pilot:
            await pilot.pause()
            await steps(browser, pilot)

    asyncio.run(drive())


async def press(browser: Browser, pilot: Pilot[None], *keys: str) -> None:
    """Presses keys, and waits for what they make the browser read."""
    await pilot.press(*keys)
    await browser.workers.wait_for_complete()
    await pilot.pause()


def text_at(browser: Browser, place: str) -> str:
    return str(browser.query_one(place).render())


def lines(browser: Browser) -> list[dict[str, Any]]:
    assert browser.pages is not None
    return browser.pages.lines


def of_state(name: str) -> Counter[str]:
    return as_lines(entry for entry in JOB.truth if entry.get("state") == name)


def test_a_state_shows_its_entries() -> None:
    async def steps(browser: Browser, pilot: Pilot[None]) -> None:
        assert "metadata version" in text_at(browser, "#text")
        await press(browser, pilot, "down", "space")  # lists the states of the first operator
        [operator, *_] = browser.places.root.children
        labels = [str(node.label) for node in operator.children]
        assert "cnt  value" in labels and "names  list" in labels
        await press(browser, pilot, *["down"] * (labels.index("cnt  value") + 1), "enter")
        assert as_lines(lines(browser)) == of_state("cnt")
        assert browser.table.row_count == sum(of_state("cnt").values())
        assert text_at(browser, "#status") == f"{browser.table.row_count} entries"
        # The first entry is the selected one.
        assert f'"key": "{lines(browser)[0]["key"]}"' in text_at(browser, "#text")

    browsed(JOB.snapshot, steps)


@pytest.mark.slow
def test_a_key_is_looked_up_in_the_selected_operator() -> None:
    async def steps(browser: Browser, pilot: Pilot[None]) -> None:
        await press(browser, pilot, "down", "enter", "slash", *"key-4", "enter")
        expected = [entry for entry in JOB.truth if entry.get("key") == "key-4"]
        assert as_lines(lines(browser)) == as_lines(expected)
        assert len(expected) > 3

    browsed(JOB.snapshot, steps)


def test_a_text_that_is_no_key_is_said_and_the_browser_goes_on() -> None:
    async def steps(browser: Browser, pilot: Pilot[None]) -> None:
        browser.show(browsed_entries.BrowsedItem(browser.snapshot["b-long"]))
        await press(browser, pilot, "slash", *"abc", "enter")
        assert "abc" in text_at(browser, "#status")
        await press(browser, pilot, "escape", "down")
        assert browser.places.has_focus

    browsed(snapshot("b-types-hashmap"), steps)


@pytest.mark.slow
def test_the_table_reads_on_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsed_entries.Pages.read, "__defaults__", (30,))

    async def steps(browser: Browser, pilot: Pilot[None]) -> None:
        browser.show(browsed_entries.BrowsedItem(browser.snapshot["a-keyed"], "m"))
        await press(browser, pilot)
        assert (len(lines(browser)), text_at(browser, "#status")) == (30, "30 entries, and more")
        browser.table.focus()
        await press(browser, pilot, *["down"] * 12)
        assert len(lines(browser)) == 60 or browser.pages.is_done

    browsed(JOB.snapshot, steps)


@pytest.mark.slow
def test_what_only_java_can_read_is_said() -> None:
    async def steps(browser: Browser, pilot: Pilot[None]) -> None:
        for operator in browser.snapshot.operators:
            for name, _ in browsed_entries.states_of(operator):
                browser.show(browsed_entries.BrowsedItem(operator, name))
                await press(browser, pilot)
                if "not readable" in text_at(browser, "#status"):
                    return
        raise AssertionError("a state of the job needs its classes")

    browsed(GOLDEN_WITHOUT_JAR, steps)


GOLDEN_WITHOUT_JAR = next(
    fixture.snapshot
    for fixture in (
        Fixture(path) for path in sorted(GOLDEN.iterdir()) if (path / "truth.json").is_file()
    )
    if len(fixture.metadata_files) == 1 and fixture.unreadable
)


def test_without_a_terminal_the_other_commands_are_named(run: Any) -> None:
    ran = run("browse", str(JOB.snapshot))
    assert (ran.code, is_one_sentence(ran.err)) == (2, True)
    assert "browse needs a terminal" in ran.err and "dstl dump" in ran.err


@pytest.mark.slow
def test_it_runs_on_a_terminal_and_ends() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "dstl_core.cli", "browse", str(JOB.snapshot)]
    env = {**os.environ, "TERM": "xterm-256color"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as ran:
        os.close(theirs)
        shown = b""
        while b"a-keyed" not in shown:
            shown += os.read(ours, 65536)
        os.write(ours, b"q")
        try:
            while os.read(ours, 65536):
                pass
        except OSError:
            pass  # the other end is closed: the program has ended
    os.close(ours)
    assert ran.returncode == 0


class _EntriesBeforeDamage:
    """Entries of which the last one cannot be read."""

    unreadable: ClassVar[list[Any]] = []

    def __iter__(self) -> Iterator[Any]:
        yield from JOB_ENTRIES
        raise FormatError("The next entry is damaged")


def test_entries_before_a_damaged_one_are_shown_and_the_damage_stays() -> None:
    pages = Pages([_EntriesBeforeDamage()])

    assert len(pages.read(count=3)) == 3
    assert len(pages.read(count=100)) == len(JOB_ENTRIES) - 3
    assert pages.status == f"{len(JOB_ENTRIES)} entries, and more. The next entry is damaged"
    for _ in range(2):
        with pytest.raises(FormatError, match="damaged"):
            pages.read()
    assert not pages.is_done
