"""The browser's screen: a tree of operators and states, a table of entries, the entry as JSON."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import DataTable, Footer, Header, Input, Static, Tree
from textual.widgets.tree import TreeNode
from textual.worker import get_current_worker

from dstl_core.cli.browse.browsed_entries import (
    BrowsedItem,
    Pages,
    cells,
    columns_of,
    detail,
    pages_of,
    pages_of_key,
    states_of,
    text_of,
)
from dstl_core.display import printable
from dstl_core.errors import DstlError
from dstl_core.savepoint.read.snapshot import Snapshot

_ROWS_AHEAD = 20
"""The table reads on when the cursor is this close to its end."""


class Browser(App[None]):
    """Shows a snapshot, and reads what is selected.

    Args:
        snapshot: The snapshot.
    """

    TITLE = "dstl browse"
    CSS = """
    Tree { width: 44; border-right: solid $primary-darken-2; }
    DataTable { height: 2fr; }
    #detail { height: 1fr; border-top: solid $primary-darken-2; padding: 0 1; }
    #status { height: 1; padding: 0 1; color: $text-muted; }
    """
    BINDINGS: ClassVar = [
        Binding("slash", "search", "Key"),
        Binding("escape", "tree", "States"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot
        self._place = BrowsedItem()
        self.pages: Pages | None = None
        """The entries in the table; None if an operator or the snapshot is selected."""
        self._columns: list[str] = []

    def compose(self) -> ComposeResult:
        yield Header(icon="≡")  # fonts of many terminals lack the sign of the library
        with Horizontal():
            tree: Tree[BrowsedItem] = Tree(_label(self.snapshot.folder.name), data=BrowsedItem())
            yield tree
            with Vertical():
                yield Input(placeholder="a key: a text as it is, others as JSON")
                yield DataTable(cursor_type="row", zebra_stripes=True)
                with VerticalScroll(id="detail"):
                    yield Static(id="text", markup=False)
                yield Static(id="status", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.sub_title = printable(str(self.snapshot.folder))
        tree = self.places
        for operator in self.snapshot.operators:
            tree.root.add(_label(operator.label), data=BrowsedItem(operator))
        tree.root.expand()
        tree.focus()
        self.show(BrowsedItem())

    @property
    def places(self) -> Tree[BrowsedItem]:
        return self.query_one(Tree)

    @property
    def table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def action_search(self) -> None:
        self.query_one(Input).focus()

    def action_tree(self) -> None:
        self.places.focus()

    @on(Tree.NodeExpanded)
    def _list_states(self, event: Tree.NodeExpanded[BrowsedItem]) -> None:
        self._fill(event.node)

    def _fill(self, node: TreeNode[BrowsedItem]) -> None:
        """Lists the states of an operator, whose headers are read now."""
        place = node.data
        if place is None or place.operator is None or place.state is not None or node.children:
            return
        try:
            states = states_of(place.operator)
        except DstlError as error:
            self._say(str(error))
            return
        for name, kind in states:
            node.add_leaf(_label(f"{name}  {kind}"), data=BrowsedItem(place.operator, name))

    @on(Tree.NodeSelected)
    def _select(self, event: Tree.NodeSelected[BrowsedItem]) -> None:
        if event.node.data is not None:
            self.show(event.node.data)

    def show(self, place: BrowsedItem) -> None:
        """Shows a place, and begins to read its entries."""
        self._place = place
        self._start(None)
        try:
            self._write(text_of(self.snapshot, place))
        except DstlError as error:
            self._write(printable(str(error)))
            return
        if place.state is not None:
            self._start(pages_of(place))

    @on(Input.Submitted)
    def _search(self, event: Input.Submitted) -> None:
        try:
            pages = pages_of_key(self.snapshot, self._place, event.value)
        except DstlError as error:
            self._say(str(error))
            return
        self._start(pages)
        self.table.focus()

    def _start(self, pages: Pages | None) -> None:
        """Empties the table, and begins to read other entries."""
        self.pages = pages
        self._columns = []
        self.table.clear(columns=True)
        self._say("")
        if pages is not None:
            self._read_on(pages)

    @work(thread=True, exclusive=True)
    def _read_on(self, pages: Pages) -> None:
        """Reads a page in another thread: the screen does not wait for a store."""
        self.call_from_thread(self._say, "reading ..")
        try:
            lines = pages.read()
        except (DstlError, OSError) as error:
            self.call_from_thread(self._say, str(error))
            return
        if not get_current_worker().is_cancelled:
            self.call_from_thread(self._add, pages, lines)

    def _add(self, pages: Pages, lines: list[dict[str, Any]]) -> None:
        if pages is not self.pages:
            return  # something else was selected meanwhile
        table = self.table
        if lines and not self._columns:
            self._columns = columns_of(lines)
            table.add_columns(*self._columns)
        for line in lines:
            table.add_row(*map(Text, cells(line, self._columns)))
        self._say(pages.status)

    @on(DataTable.RowHighlighted)
    def _highlight(self, event: DataTable.RowHighlighted) -> None:
        pages = self.pages
        if pages is None or event.cursor_row >= len(pages.lines):
            return
        self._write(detail(pages.lines[event.cursor_row]))
        is_near_end = event.cursor_row + _ROWS_AHEAD >= len(pages.lines)
        is_reading = any(worker.is_running for worker in self.workers)
        if is_near_end and not pages.is_done and not is_reading:
            self._read_on(pages)

    def _write(self, text: str) -> None:
        self.query_one("#text", Static).update(text)

    def _say(self, sentence: str) -> None:
        self.query_one("#status", Static).update(printable(sentence))


def _label(text: str) -> Text:
    return Text(printable(text))
