"""Values that Flink 1.x stores and Kryo 5 has no form for block a plan, before anything is written.

The locales are those that Flink 1.20.5 stored, with a country in the place of the extensions.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from dstl_core import Snapshot
from dstl_core.codec.kryo.locales import Locale
from dstl_core.errors import SavepointError, UnreadableValueError
from dstl_core.savepoint.edit import converted_state
from dstl_core.savepoint.edit.upgrade import BLOCKED, CONVERT, SavepointUpgrade
from tests.golden_files import GOLDEN

JOB = GOLDEN / "jdk-jobs" / "moments"
[SOURCE] = JOB.glob("savepoint-*")
OF_TYPE = b"SerializerSnapshot\0\0\0\x02\0\x10"
COUNTRY, EXTENSIONS = b"t\0\x02DEt\0\0", b"t\0\0t\0\x02DE"


def loaded(path: Path) -> Snapshot:
    return Snapshot.load(path, jars=[JOB / "job.jar"])


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """The savepoint with extensions in the locales of Germany."""
    path = tmp_path / "in"
    shutil.copytree(SOURCE, path)
    raw = (path / "_metadata").read_bytes()
    assert raw.count(COUNTRY) == 4
    (path / "_metadata").write_bytes(raw.replace(COUNTRY, EXTENSIONS))
    return path


def actions(upgrade: SavepointUpgrade) -> dict[str, str]:
    return {each.state: each.action for each in upgrade.plan()}


def test_a_plan_blocks_the_state_and_says_what_to_do(extended: Path, tmp_path: Path) -> None:
    before, upgrade = actions(SavepointUpgrade(loaded(SOURCE))), SavepointUpgrade(loaded(extended))
    [step] = [each for each in upgrade.plan() if each.action == BLOCKED]
    assert before[step.state] == CONVERT
    assert actions(upgrade) == before | {step.state: BLOCKED}
    assert step.reason == (
        'a Locale with a script or extensions has no form in Kryo 5, and the value of key "k6" has '
        "de__DE_#DE_DE: let the job store language tags as text (toLanguageTag) before the "
        "upgrade, or drop the state"
    )
    with pytest.raises(SavepointError, match=rf"State {step.state!r} of operator .*key \"k6\""):
        upgrade.write(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    upgrade = SavepointUpgrade(loaded(extended), drop=[step.state])
    assert Snapshot.load(upgrade.write(tmp_path / "out"))


def test_a_dump_shows_what_the_upgrade_cannot_write(extended: Path) -> None:
    def locales(path: Path) -> set[Any]:
        lines = [line for each in loaded(path).operators for line in each.dump()]
        return {str(each["value"]) for each in lines if str(each["value"])[:3] in ("de_", "pt_")}

    assert locales(SOURCE) == {"de_DE", "pt_BR"}
    assert locales(extended) == {"de__DE_#DE_DE", "pt_BR"}


@pytest.mark.slow
@pytest.mark.parametrize("kernels_from", [0, converted_state.KERNELS_FROM_BYTES])
def test_a_value_that_no_type_shows_is_refused_when_it_is_converted(
    extended: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels_from: int
) -> None:
    """The type of the state is ``Object``."""
    monkeypatch.setattr(converted_state, "KERNELS_FROM_BYTES", kernels_from)
    raw = (extended / "_metadata").read_bytes()
    before, after = (OF_TYPE + name for name in (b"java.util.Locale", b"java.lang.Object"))
    assert raw.count(before) == 1
    (extended / "_metadata").write_bytes(raw.replace(before, after))
    source = Snapshot.load(extended)
    unknown = [name for name, do in actions(SavepointUpgrade(source)).items() if do == BLOCKED]
    upgrade = SavepointUpgrade(source, drop=unknown)
    assert BLOCKED not in actions(upgrade).values()
    with pytest.raises(UnreadableValueError) as raised:
        upgrade.write(tmp_path / "out")
    assert re.match(
        r"State '\w+' cannot be converted at key \"k6\": a Locale with a script or extensions has "
        r"no form in Kryo 5; change the value in the job before the upgrade, or drop the state ",
        str(raised.value),
    )
    assert not (tmp_path / "out" / "_metadata").exists()


@pytest.mark.parametrize(
    ("locale", "text"),
    [
        (Locale("en", "", ""), "en"),
        (Locale("de", "DE", ""), "de_DE"),
        (Locale("", "GB", ""), "_GB"),
        (Locale("en", "US", "WIN"), "en_US_WIN"),
        (Locale("de", "", "POSIX"), "de__POSIX"),
        (Locale("zh", "CN", "", "Hans"), "zh_CN_#Hans"),
        (Locale("zh", "TW", "", "Hant", "x-java"), "zh_TW_#Hant_x-java"),
        (Locale("th", "TH", "TH", "", "u-nu-thai"), "th_TH_TH_#u-nu-thai"),
        (Locale("zh", "", "", "Hans"), "zh__#Hans"),
    ],
)
def test_a_locale_is_shown_as_java_shows_it(locale: Locale, text: str) -> None:
    """The texts are those in the documentation of ``Locale.toString``."""
    assert locale.text == text
