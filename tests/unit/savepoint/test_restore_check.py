"""``dstl check``: verdicts against what real Flink did, rules of versions, and the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dstl_core import Snapshot, check_restore, rewrite_savepoint
from dstl_core.cli import main
from dstl_core.codec.metadata.metadata_format import write_metadata
from dstl_core.codec.serializers import AnySerializer, Types, UnknownSerializer
from dstl_core.codec.serializers.opaque import KryoSerializer, ValueClassSerializer
from dstl_core.codec.serializers.optional_map import OptionalEntry, OptionalSnapshot
from dstl_core.codec.serializers.pojo import PojoSerializer
from dstl_core.codec.serializers.runtime import TtlSerializer
from dstl_core.codec.serializers.structs import NullableSerializer
from dstl_core.codec.serializers.table_types import row_data_of
from dstl_core.errors import ConfigError
from dstl_core.savepoint.restores.restore_result import RestoreResult
from dstl_core.state.tables.compatibility import Rules, Verdict, compatibility_of
from tests.golden_files import GOLDEN, snapshot

SAME, MIGRATES = Verdict.COMPATIBLE_AS_IS, Verdict.AFTER_MIGRATION
UNKNOWN, REFUSED = Verdict.UNKNOWN, Verdict.INCOMPATIBLE
MATRIX = GOLDEN / "restore-matrix"
OUTCOMES = json.loads((MATRIX / "outcomes.json").read_bytes())
SCHEMA = Path(__file__).parents[3] / "docs" / "formats" / "check.schema.json"


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], tuple[Snapshot, Snapshot]]:
    """The savepoint of a job, and one of its next version."""

    def load(name: str) -> tuple[Snapshot, Snapshot]:
        snapshots = []
        for version in ("old", "new"):
            (tmp_path / version).mkdir()
            shutil.copyfile(MATRIX / f"{name}.{version}", tmp_path / version / "_metadata")
            snapshots.append(Snapshot.load(tmp_path / version))
        return snapshots[0], snapshots[1]

    return load


def worst(check: RestoreResult) -> str:
    return str(max(check.lines, key=lambda line: line.verdict))


# ------------------------------------------------------------------------------ real Flink


@pytest.mark.parametrize("name", OUTCOMES)
def test_what_flink_refuses_or_restores_wrong_is_never_compatible(name: str, pair: Any) -> None:
    check = check_restore(*pair(name), to="2.2")
    assert OUTCOMES[name]["result"] in ("fails", "restored, output WRONG")
    assert not check.is_compatible
    # What Flink refuses is not merely unknown.
    if OUTCOMES[name]["result"] == "fails":
        assert check.verdict is REFUSED


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("agg-widen", "4_group-aggregate value accState: column 1 of the row changed from INT"),
        ("agg-add", "accState: the row had 3 columns and has 5"),
        ("agg-reorder", "unknown: 3_group-aggregate value accState: SQL rows have no names of co"),
        ("key-varchar", "4_group-aggregate: key: column 0 of the row changed from VARCHAR(10) to"),
        ("pojo-class", "the type changed from h3.shop.Account{"),
        ("split", "accounts: the new job has no operator of this id, so Flink refuses"),
        (
            "uid-forgotten",
            "operator 'accounts' has the same states: dstl rewrite --rename 2c9c9ba1",
        ),
        ("state-rename", "accounts value total: the savepoint of the new job has no state of thi"),
        ("value-to-map", "accounts value total: the kind changed from value to map"),
    ],
)
def test_the_reason_says_what_flink_does_not(name: str, reason: str, pair: Any) -> None:
    assert reason in worst(check_restore(*pair(name), to="2.2"))


def test_a_swap_of_columns_is_ruled_out_by_the_user(pair: Any) -> None:
    old, new = pair("agg-reorder")
    assert check_restore(old, new).verdict is UNKNOWN
    assert check_restore(old, new, columns_kept=True).verdict is SAME


def test_a_loss_is_accepted_by_name(pair: Any) -> None:
    old, new = pair("state-rename")
    check = check_restore(old, new, drop=["accounts/total"])
    assert check.is_compatible
    assert "state 'sum' of operator 'accounts' is new and starts empty" in check.notes
    with pytest.raises(ConfigError, match="'accounts' cannot be dropped: the new job has it"):
        check_restore(old, new, drop=["accounts", "accounts/total"])


def test_an_operator_is_dropped_by_name(pair: Any) -> None:
    check = check_restore(*pair("split"), drop=["accounts"])
    assert check.is_compatible
    assert "start the job with --allowNonRestoredState" in worst(check)


@pytest.mark.parametrize("name", ["a-rocksdb-canonical", "a-hashmap-changelog-multi"])
def test_the_same_job_is_compatible(name: str) -> None:
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    check = check_restore(source, Snapshot.load(snapshot(name)))
    assert check.verdict is SAME
    assert check.notes == ()


def test_an_operator_without_a_uid_is_noted(tmp_path: Path) -> None:
    source = Snapshot.load(snapshot("o-sql-match"))
    check = check_restore(source, source, columns_kept=True)
    assert check.verdict is SAME
    note = "operator '68c5834515458df702fc117efc6ed40f' has no uid: its id depends on the whole job"
    assert any(each.startswith(note) for each in check.notes)
    # dstl does not know the uids of jobs of Flink 1.
    ours = Snapshot.load(rewrite_savepoint(source, tmp_path / "ours"))
    assert check_restore(ours, source, columns_kept=True).notes == ()


def test_another_max_parallelism_may_be_set_by_the_job_or_not() -> None:
    old, new = (
        Snapshot.load(snapshot(name)) for name in ("a-hashmap-canonical", "a-rocksdb-p2-max4096")
    )
    check = check_restore(old, new)
    assert check.verdict is UNKNOWN
    assert "the max parallelism is 128, and 4096 in the new job" in worst(check)


# -------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("to", "verdict"), [("1.20", REFUSED), ("2.0.1", REFUSED), ("2.1", SAME), ("2.3.0", SAME)]
)
def test_metadata_that_an_older_flink_does_not_read(to: str, verdict: Verdict) -> None:
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    assert source.metadata.version == 6
    check = check_restore(source, source, to=to)
    assert check.verdict is verdict
    if verdict is REFUSED:
        assert str(check.lines[0]).startswith("incompatible: _metadata: Flink ")


@pytest.mark.parametrize("job", [None, [], 5])
def test_something_that_shows_no_job_is_refused(job: Any) -> None:
    with pytest.raises(ConfigError, match=r"The job is wrong: expected a Snapshot, .* got a "):
        check_restore(Snapshot.load(snapshot("a-hashmap-canonical")), job)


def test_a_version_whose_rules_nobody_knows() -> None:
    source = Snapshot.load(snapshot("a-hashmap-canonical"))
    with pytest.raises(ConfigError, match=r"expected one of 1\.20, 2\.0, .*, got '1\.19'"):
        check_restore(source, source, to="1.19")


def of_flink_1(folder: Path) -> Snapshot:
    """A savepoint with Kryo values whose metadata is of Flink 1."""
    metadata = Snapshot.load(snapshot("x-kryo-hashmap")).metadata
    folder.mkdir()
    raw = write_metadata(replace(metadata, version=4))
    (folder / "_metadata").write_bytes(raw)
    return Snapshot.load(folder)


def test_kryo_of_flink_1_is_refused_by_flink_2(tmp_path: Path) -> None:
    old, new = of_flink_1(tmp_path / "old"), Snapshot.load(snapshot("x-kryo-hashmap"))
    check = check_restore(old, new, to="2.2")
    assert check.verdict is REFUSED
    assert "Flink 1 wrote h3.Opaque with another Kryo than Flink 2 reads" in worst(check)
    # Between versions of one line only the classes tell.
    assert check_restore(new, new).verdict is UNKNOWN
    assert check_restore(old, old).verdict is UNKNOWN
    assert check_restore(old, old).flink == (1, 20)


# ------------------------------------------------------------------------------------ types


def kryo(name: str, *registered: str) -> KryoSerializer:
    entries = tuple(OptionalEntry(each, None, None) for each in (name, *registered))
    return KryoSerializer(name, (entries, (), ()))


def pojo(**fields: AnySerializer) -> PojoSerializer:
    return PojoSerializer(
        "a.B", tuple(OptionalSnapshot(name, name, each) for name, each in fields.items())
    )


SCALA = UnknownSerializer("org.apache.flink.api.scala.typeutils.ScalaOptionSerializer", 2, b"")
FROM_1 = Rules((2, 2), 1)
UUID = kryo("java.util.UUID")


@pytest.mark.parametrize(
    ("stored", "wanted", "rules", "verdict", "reason"),
    [
        (UUID, UUID, Rules(), SAME, ""),
        (UUID, UUID, FROM_1, REFUSED, "without an error; convert the savepoint (dstl upgrade)"),
        (UUID, UUID, Rules((1, 20), 2), REFUSED, "Flink 2 wrote java.util.UUID"),
        (UUID, UUID, Rules((2, 2), None), UNKNOWN, "no file tells whether Kryo of Flink 1"),
        (Types.LIST(UUID), Types.LIST(UUID), FROM_1, REFUSED, "in List<Kryo<java.util.UUID>>"),
        (pojo(id=UUID), pojo(id=UUID), FROM_1, REFUSED, "field 'id': Flink 1 wrote"),
        (kryo("a.B"), kryo("a.B"), Rules(), UNKNOWN, "Kryo stores no field names"),
        (kryo("a.B"), kryo("a.C"), Rules(), REFUSED, "from Kryo<a.B> to Kryo<a.C>"),
        (kryo("java.util.List"), Types.LIST(Types.INT), FROM_1, REFUSED, "to List<Integer>"),
        (Types.STRING, kryo("a.B"), Rules(), REFUSED, "from String to Kryo<a.B>"),
        (
            kryo("java.util.UUID", "a.B"),
            UUID,
            Rules(),
            REFUSED,
            "Kryo registrations are missing: a.B",
        ),
        (UUID, kryo("java.util.UUID", "a.B"), Rules(), SAME, ""),
        (ValueClassSerializer("a.V"), ValueClassSerializer("a.V"), Rules(), UNKNOWN, "its code"),
        (SCALA, SCALA, Rules((2, 0)), REFUSED, "Flink 2.0 removed"),
        (SCALA, SCALA, Rules((1, 20), 1), UNKNOWN, "only the job's own classes"),
        (Types.INT, TtlSerializer(Types.INT), Rules((1, 20)), REFUSED, "before 2.0 refuses"),
        (Types.INT, TtlSerializer(Types.INT), Rules((2, 1)), UNKNOWN, "not every backend"),
        (Types.INT, TtlSerializer(Types.INT), Rules((2, 2)), MIGRATES, "is added"),
        (row_data_of("INT"), row_data_of("INT NOT NULL"), Rules(), REFUSED, "column 0 of the row"),
        (row_data_of("INT"), row_data_of("INT", "INT"), Rules(), REFUSED, "had 1 columns and has"),
        (
            NullableSerializer(Types.LONG),
            NullableSerializer(Types.LONG, 8),
            Rules(),
            REFUSED,
            "beside its parts",
        ),
        (pojo(a=Types.INT), pojo(b=Types.INT), Rules(), UNKNOWN, "if it was renamed, Flink loses"),
        (pojo(a=Types.INT), pojo(b=Types.LONG), Rules(), MIGRATES, "new fields get their default"),
        (
            replace(pojo(), registered=(OptionalSnapshot("a.S", "a.S", Types.INT),)),
            replace(pojo(), registered=(OptionalSnapshot("a.S", "a.S", Types.LONG),)),
            Rules(),
            REFUSED,
            "subclass 'a.S': the type changed",
        ),
    ],
)
def test_rules_of_types(
    stored: AnySerializer, wanted: AnySerializer, rules: Rules, verdict: Verdict, reason: str
) -> None:
    compatibility = compatibility_of(stored, wanted, rules)
    assert (compatibility.verdict, reason in compatibility.reason) == (verdict, True), (
        compatibility.reason
    )


# ---------------------------------------------------------------------------- command line


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_the_command_prints_verdicts_and_reasons(
    capsys: pytest.CaptureFixture[str], pair: Any
) -> None:
    paths = [str(each.folder) for each in pair("state-rename")]
    code, out, err = run(capsys, paths[0], "--expect", paths[1], "--to", "2.2")
    assert (code, err) == (1, "")
    first, *_, last = out.splitlines()
    assert first.startswith("incompatible: accounts value total: the savepoint of the new job")
    assert last == "incompatible: 3 states, Flink 2.2"
    code, out, _ = run(capsys, paths[0], "--expect", paths[1], "--drop", "accounts/total")
    assert code == 0
    assert out.splitlines()[-1] == "compatible: 3 states, Flink 2.3"


@pytest.mark.parametrize("name", ["agg-add", "agg-reorder", "split", "key-type"])
def test_json_is_what_the_schema_says(
    capsys: pytest.CaptureFixture[str], pair: Any, name: str
) -> None:
    paths = [str(each.folder) for each in pair(name)]
    code, out, _ = run(capsys, paths[0], "--expect", paths[1], "--json")
    assert code == 1
    Draft202012Validator(json.loads(SCHEMA.read_bytes())).validate(json.loads(out))


def test_the_savepoint_of_the_new_job_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, str(snapshot("a-hashmap-canonical")))[0] == 2
