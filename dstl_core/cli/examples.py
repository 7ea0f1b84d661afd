"""The examples in the help of each command. A test runs every one of them."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "ls": (
        ("dstl ls checkpoints", "the snapshots of a job, by number"),
        (
            "dstl ls checkpoints --states --changelog-base dstl",
            "how each state grew from one to the next",
        ),
        ("dstl ls . --json", "every snapshot below this folder, for programs"),
    ),
    "inspect": (
        ("dstl inspect savepoint", "operators, states and their types"),
        ("dstl inspect checkpoints/chk-2 --json", "the same with exact sizes and every file"),
    ),
    "browse": (("dstl browse savepoint", "states and entries in the terminal"),),
    "dump": (
        ("dstl dump savepoint --op a-keyed --state cnt", "one state"),
        ("dstl dump savepoint --op a-keyed --key key-4", "what is stored under a key"),
        ("dstl dump savepoint --hide-expired 24h", "without values that nobody used for a day"),
    ),
    "verify": (("dstl verify savepoint", "every file and record; exit code 1 for CI"),),
    "diff": (
        ("dstl diff savepoint newer", "counts, and the first keys"),
        ("dstl diff savepoint newer --json", "every difference as one line"),
    ),
    "check": (
        ("dstl check job.jar flink-1 --to 2.2", "will the job in job.jar restore flink-1?"),
        ("dstl check savepoint --expect newer", "will the job that wrote newer restore savepoint?"),
        ("dstl check savepoint --expect newer --drop a-keyed", "the same, a-keyed may be lost"),
    ),
    "report": (
        ("dstl report savepoint -o report.html", "sizes, hot keys, skew, and what to look at"),
        ("dstl report savepoint -o sizes.html --headers-only", "sizes only, without reading state"),
        ("dstl report newer --compare savepoint --json", "what grew, for programs"),
    ),
    "rewrite": (
        (
            "dstl rewrite savepoint out --rename a-keyed=counts --dry-run",
            "shows what a new uid does",
        ),
        ("dstl rewrite savepoint rescaled --max-parallelism 256", "for more subtasks than before"),
    ),
    "upgrade": (
        ("dstl upgrade flink-1 --plan", "what an upgrade to Flink 2.2 would change"),
        ("dstl upgrade flink-1 upgraded --to 2.3", "writes the upgraded savepoint"),
    ),
    "migrate plan": (
        ("dstl migrate plan changed-job.yaml", "what becomes of each state of a changed job"),
        ("dstl migrate plan changed-job.yaml --write", "writes that into the file"),
    ),
    "migrate apply": (
        ("dstl migrate apply declared.yaml migrated", "writes the migrated savepoint"),
    ),
    "changelog": (
        (
            "dstl changelog checkpoints/chk-2 --changelog-base dstl",
            "the changes since the full state",
        ),
    ),
    "offsets": (
        ("dstl offsets savepoint", "where every source stands"),
        ("dstl offsets kafka --set orders/0=5 --out replay", "a copy that reads orders/0 from 5"),
        ("dstl offsets kafka --earliest --out all", "a copy that reads every partition again"),
    ),
    "committables": (
        ("dstl committables kafka", "what a restored job would commit"),
        ("dstl committables kafka --drop 1 --out dropped", "a copy that does not commit it"),
    ),
    "erase": (
        ("dstl erase pipeline --keys keys.txt --dry-run", "where a pipeline has these keys"),
        ("dstl erase pipeline --keys keys.txt", "erases them from all that it keeps"),
    ),
    "gc": (
        ("dstl gc savepoint --older-than 7d", "lists files that no snapshot references"),
        (
            "dstl gc checkpoints --flink-job-stopped --delete",
            "deletes those of a stopped Flink job",
        ),
    ),
    "warm": (("dstl warm", "compiles what a first run would compile"),),
}
"""Command to its examples, each with what it is for."""


def epilog(command: str) -> str:
    """The examples as the help shows them, line by line."""
    width = max(len(example) for example, _ in EXAMPLES[command])
    lines = [f"  {example.ljust(width)}  # {purpose}" for example, purpose in EXAMPLES[command]]
    return "\b\nExamples:\n" + "\n".join(lines)
