"""A page with a block that does not run, or does something else than it says, fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.fences import PageError, blocks_of
from tests.docs.running import PageRun


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def page(*blocks: str) -> str:
    return "\n\n".join(f"```{block}\n```" for block in blocks)


def ran(folder: Path, text: str) -> int:
    return PageRun(folder).run(blocks_of("page.md", text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (page("python\n1 / 0"), ZeroDivisionError),
        (page("pycon\n>>> 1 + 1\n3\n"), PageError),
        (page("bash\ntrue\nfalse\ntrue"), PageError),
        (page("bash\nfalse | true"), PageError),
        (page("bash\necho $no_such_variable"), PageError),
        (page("console\n$ echo one\ntwo"), PageError),
        (page("console\n$ echo one\none\n$ echo two\none"), PageError),
        (page("console\n$ echo one"), PageError),
        (page("console\n$ sh -c 'exit 2'\n..."), PageError),
        (page("python\nprint(1)", 'text title="Output"\n2'), PageError),
        (page('text title="Output"\n2'), PageError),
        (page("yaml\ntype: dstl_dagster.SavepointComponent"), PageError),
        (page('yaml title="defs.yaml"\ntype: other.Component\nattributes: {}'), PageError),
        (page("ruby\nputs 1"), PageError),
        (page("\nno language"), PageError),
        (page('bash\npip install "no-such-distribution"'), PageError),
        (page('bash\npip install "dagster-dstl[no-such-extra]"'), PageError),
        (page('bash\npip install "dagster-dstl>=99"'), PageError),
        ("Words.\n\n    indented = code", PageError),
        ("<!-- setup\n1 / 0\n-->", ZeroDivisionError),
    ],
)
def test_a_page_that_is_wrong_fails(tmp_path: Path, text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        ran(tmp_path, text)


def test_a_component_with_an_attribute_that_is_not_there_fails(tmp_path: Path) -> None:
    text = "type: dstl_dagster.SavepointComponent\nattributes:\n  name: a\n  no_such: 1"
    with pytest.raises(Exception, match="no_such"):
        ran(tmp_path, page(f'yaml title="defs.yaml"\n{text}'))


def test_blocks_share_names_variables_and_the_folder(tmp_path: Path) -> None:
    text = page(
        "python\nnumber = 7",
        'python title="part.py"\ndouble = number * 2',
        "python\nprint(double)",
        'text title="Output"\n14',
        "bash\nexport WORD=here\nmkdir below\ncd below",
        'bash\necho "$WORD" "$(pwd)"',
        'text title="Output"\nhere /data/below',
        "console\n$ cat ../part.py\ndouble = number * 2\n$ seq 3\n1\n...",
        "pycon\n>>> double\n14\n",
        'bash\npip install "dagster-dstl[s3]"',
    )
    assert ran(tmp_path, text) == 8


def test_a_command_has_the_folder_files_and_exit_code_of_its_block(
    tmp_path: Path, commands: None
) -> None:
    setup = '<!-- setup\ngolden("a-hashmap-canonical", "savepoints/orders")\n-->\n\n'
    text = page(
        "bash\nmkdir below\ncd below\ndstl inspect ../savepoints/orders --json | head -c 1",
        'text title="Output"\n{',
        "bash\n! dstl inspect nowhere > out 2> error\ntest -s error -a ! -s out",
    )
    assert ran(tmp_path, setup + text) == 2
    with pytest.raises(PageError, match=r"Exit code 2:\ndstl .*\n\ndstl: There is no"):
        ran(tmp_path, page("bash\ndstl inspect nowhere"))


def test_a_block_of_a_list_is_a_block(tmp_path: Path) -> None:
    assert ran(tmp_path, "1. First:\n\n    ```bash\n    true\n    ```\n") == 1


def test_an_error_names_the_page_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md:3: Exit code 1"):
        ran(tmp_path, "Words.\n\n" + page("bash\nfalse"))


def test_the_set_up_is_not_counted_and_brings_snapshots(tmp_path: Path) -> None:
    text = '<!-- setup\ngolden("a-hashmap-canonical", "savepoints/orders")\n-->\n\n'
    assert ran(tmp_path, text + page("bash\ntest -f savepoints/orders/_metadata")) == 1
