"""The entry point of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import main


def test_a_folder_that_is_none_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "changelog", "--folder", str(tmp_path / "no")])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(
        f"--folder is wrong: expected a folder, got {tmp_path / 'no'}; make it first"
    )
