"""``dstl browse``: looks around in a snapshot, in the terminal."""

from __future__ import annotations

import sys

from dstl_core.cli.options import (
    ChangelogBaseOption,
    JarOption,
    KeyTypeOption,
    PathArgument,
    ProtoOption,
    RelocateOption,
    RootOption,
    StateTypeOption,
    load,
)
from dstl_core.errors import ConfigError
from dstl_core.extras import require


def browse(
    path: PathArgument,
    allow_root: RootOption = None,
    relocate: RelocateOption = None,
    changelog_base: ChangelogBaseOption = None,
    key_type: KeyTypeOption = None,
    jar: JarOption = None,
    state_type: StateTypeOption = None,
    proto: ProtoOption = None,
) -> None:
    """Look around in a snapshot, in the terminal.

    It shows operators and states as a tree, entries as a table, and the entries of a key. It reads
    what it shows, and a page of entries at a time.
    """
    require("textual", "Browsing in the terminal")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "browse needs a terminal; in a pipe, use dstl inspect for the states and dstl dump for "
            "the entries."
        )
    from dstl_core.cli.browse.browser import Browser

    snapshot = load(path, allow_root, relocate, changelog_base, key_type, jar, state_type, proto)
    snapshot.require_typed_states()
    Browser(snapshot).run()
