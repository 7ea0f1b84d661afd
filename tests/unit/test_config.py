from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from dstl_core.config import ChangelogOptions
from dstl_core.errors import ConfigError
from dstl_core.flink_text import duration_ms, parse_duration_ms, parse_memory_size


def test_options_go_by_our_name_or_flinks_key() -> None:
    by_name = ChangelogOptions.of(base_path="/a", preemptive_persist_threshold=5)
    by_key = ChangelogOptions.of(
        **{
            "state.changelog.dstl.dfs.base-path": "/a",
            "state.changelog.dstl.dfs.preemptive-persist-threshold": 5,
        }
    )
    assert by_name == by_key
    assert ChangelogOptions.of(base_path="/a").preemptive_persist_threshold == 5_242_880
    assert ChangelogOptions.of(base_path="/a").compression_enabled is False


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"base_path": "/a", "no_such": 1}, "ChangelogOptions has no option no_such"),
        ({"base_path": "/a", "preemptive_persist_threshold": -1}, "expected at least 0, got -1"),
        (
            {"base_path": "/a", "compression_enabled": "perhaps"},
            "expected true or false, got 'perhaps'",
        ),
    ],
)
def test_a_wrong_option_is_one_sentence(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        ChangelogOptions.of(**values)
    assert str(caught.value).startswith("An option is wrong: ")
    assert "\n" not in str(caught.value)


def test_options_do_not_change() -> None:
    options = ChangelogOptions.of(base_path="/a")
    with pytest.raises(ValueError, match="frozen"):
        options.base_path = "/b"  # type: ignore[misc]


# Printed by Flink 2.2.1: MemorySize.parse(text).getBytes(), and None where it throws.
MEMORY_SIZES: dict[str, int | None] = {
    "10": 10,
    "10b": 10,
    "10 bytes": 10,
    "5MB": 5 << 20,
    "5 mb": 5 << 20,
    "5m": 5 << 20,
    "1 k": 1 << 10,
    "2 kibibytes": 2 << 10,
    "3 mebibytes": 3 << 20,
    "1g": 1 << 30,
    "1 gibibytes": 1 << 30,
    "1tb": 1 << 40,
    "1 tebibytes": 1 << 40,
    " 7  KB ": 7 << 10,
    "9223372036854775807": 2**63 - 1,
    "1.5mb": None,
    "-1": None,
    "": None,
    "mb": None,
    "10 kib": None,
    "9223372036854775808": None,
    "8388608 tb": None,
}
# TimeUtils.parseDuration(text).toNanos(), and None where it throws.
DURATIONS: dict[str, int | None] = {
    "10": 10_000_000,
    "10 ms": 10_000_000,
    "1sec": 1_000_000_000,
    "2 secs": 2_000_000_000,
    "3 seconds": 3_000_000_000,
    " 10  s ": 10_000_000_000,
    "1 m": 60_000_000_000,
    "1min": 60_000_000_000,
    "2minutes": 120_000_000_000,
    "1 H": 3_600_000_000_000,
    "2 hours": 7_200_000_000_000,
    "2 days": 172_800_000_000_000,
    "5 micros": 5_000,
    "5 µs": 5_000,
    "7nanos": 7,
    "1 millis": 1_000_000,
    "PT1M30S": 90_000_000_000,
    "pt0.5s": 500_000_000,
    "P1D": 86_400_000_000_000,
    "P1DT2H": 93_600_000_000_000,
    "1 mins": None,
    "5us": None,
    "1.5 s": None,
    "-1 s": None,
    "": None,
    "abc": None,
    "1 week": None,
    "9223372036854775807 ms": None,
    "-PT1S": None,
    "PT-1S": None,
}


@pytest.mark.parametrize(("text", "size"), MEMORY_SIZES.items())
def test_memory_sizes_as_flink_reads_them(text: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(ConfigError):
            parse_memory_size(text)
    else:
        assert parse_memory_size(text) == size
        assert (
            ChangelogOptions.of(max_in_flight=text, persist_size_threshold=0).max_in_flight == size
        )


@pytest.mark.parametrize(("text", "nanos"), DURATIONS.items())
def test_durations_as_flink_reads_them(text: str, nanos: int | None) -> None:
    if nanos is None:
        with pytest.raises(ConfigError):
            parse_duration_ms(text)
    else:
        assert parse_duration_ms(text) == nanos // 1_000_000
        assert ChangelogOptions.of(upload_timeout_ms=text).upload_timeout_ms == nanos // 1_000_000


def test_a_duration_is_milliseconds_text_or_a_timedelta() -> None:
    hour = datetime.timedelta(hours=1)
    for duration in (3_600_000, "3600000", "1 h", "60min", "PT1H", hour):
        assert duration_ms(duration, "The gap", least=3_600_000) == 3_600_000
    assert duration_ms(-hour, "The offset") == duration_ms(-3_600_000, "The offset") == -3_600_000
    assert duration_ms(datetime.timedelta(microseconds=1999), "The gap") == 1
    assert duration_ms("1999 micros", "The gap") == 1
    wrong: Any
    for wrong in ("1 fortnight", "-1 h", "", 1.5, None, True, 1 << 63):
        with pytest.raises(
            ConfigError, match=r"^The gap is wrong: expected a duration as whole"
        ) as e:
            duration_ms(wrong, "The gap")
        assert e.value.message.endswith(f"got {wrong!r}.")
    with pytest.raises(ConfigError, match=r"expected a duration of at least 0 ms as .* got -1"):
        duration_ms(-1, "The lateness", least=0)


# FsStateChangelogOptions and StateChangelogOptions of Flink 2.2.1: key, deprecated key, default.
OPTIONS: list[tuple[str, str, object]] = [
    ("state.changelog.enabled", "state.backend.changelog.enabled", False),
    ("state.changelog.storage", "state.backend.changelog.storage", "memory"),
    (
        "state.changelog.periodic-materialize.enabled",
        "state.backend.changelog.periodic-materialize.enabled",
        True,
    ),
    (
        "state.changelog.periodic-materialize.interval",
        "state.backend.changelog.periodic-materialize.interval",
        600_000,
    ),
    (
        "state.changelog.max-failures-allowed",
        "state.backend.changelog.max-failures-allowed",
        3,
    ),
    *(
        (f"state.changelog.{key}", key, default)
        for key, default in {
            "dstl.dfs.base-path": None,
            "dstl.dfs.compression.enabled": False,
            "dstl.dfs.preemptive-persist-threshold": 5 << 20,
            "dstl.dfs.batch.persist-delay": 10,
            "dstl.dfs.batch.persist-size-threshold": 10 << 20,
            "dstl.dfs.upload.buffer-size": 1 << 20,
            "dstl.dfs.upload.num-threads": 5,
            "dstl.dfs.discard.num-threads": 1,
            "dstl.dfs.upload.max-in-flight": 100 << 20,
            "dstl.dfs.upload.retry-policy": "fixed",
            "dstl.dfs.upload.timeout": 1_000,
            "dstl.dfs.upload.max-attempts": 3,
            "dstl.dfs.upload.next-attempt-delay": 500,
            "dstl.dfs.download.local-cache.idle-timeout-ms": 600_000,
        }.items()
    ),
]
OTHER_VALUES: dict[type, object] = {bool: None, int: 20 << 20, str: "none", type(None): "/x"}


def other_value(default: object) -> object:
    return not default if isinstance(default, bool) else OTHER_VALUES[type(default)]


@pytest.mark.parametrize(("key", "deprecated", "default"), OPTIONS)
def test_every_option_of_flink_by_its_key_and_its_deprecated_one(
    key: str, deprecated: str, default: object
) -> None:
    [name] = [n for n, field in ChangelogOptions.model_fields.items() if field.alias == key]
    assert getattr(ChangelogOptions.of(), name) == default
    value = other_value(default)
    assert getattr(ChangelogOptions.of(**{key: value}), name) == value
    with pytest.warns(DeprecationWarning, match=f"{deprecated} is deprecated; use {key}"):
        assert getattr(ChangelogOptions.of(**{deprecated: value}), name) == value
    with pytest.warns(DeprecationWarning):
        both = ChangelogOptions.of(**{deprecated: default, key: value})
    assert getattr(both, name) == value


def test_options_beside_flinks_do_not_look_like_flinks() -> None:
    known = {key for key, _, _ in OPTIONS}
    ours = {field.alias for field in ChangelogOptions.model_fields.values()}
    assert ours - known == {
        "dstl.compaction.min-segments",
        "dstl.materialize.log-ratio",
        "dstl.materialize.log-size",
        "storage.fsync",
    }
    assert known <= ours


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            {"persist_size_threshold": 101, "max_in_flight": 100},
            r"persist-size-threshold \(101\) must not exceed upload.max-in-flight \(100\)",
        ),
        ({"upload_buffer_size": "2 gb"}, "upload.buffer-size is over 2 GiB: 2147483648"),
        ({"retry_policy": "Fixed"}, "Unknown retry policy: Fixed"),
        ({"max_in_flight": 0, "persist_size_threshold": 0}, "leaves no room for any change"),
        ({"max_attempts": 0}, "expected at least 1, got 0"),
        ({"num_upload_threads": 0}, "expected at least 1, got 0"),
        ({"upload_timeout_ms": "soon"}, "Not a duration"),
        ({"max_in_flight": "much"}, "Not a memory size"),
    ],
)
def test_options_that_cannot_work(values: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ChangelogOptions.of(**values)


def test_names_of_storages_are_lower_case_and_waiting_is_bounded() -> None:
    assert ChangelogOptions.of(storage="FileSystem").storage == "filesystem"
    assert ChangelogOptions.of().backpressure_timeout_ms == 3_000
    assert ChangelogOptions.of(upload_timeout_ms=0).backpressure_timeout_ms == 60_000


# --------------------------------------------------------------------------- Flink's own form

FLINK = {
    "state.changelog.enabled": "TRUE",
    "state.changelog.storage": "filesystem",
    "state.changelog.dstl.dfs.base-path": "/a",
    "state.changelog.dstl.dfs.preemptive-persist-threshold": "5 mb",
    "state.changelog.dstl.dfs.upload.timeout": "PT2S",
    "state.changelog.dstl.dfs.upload.num-threads": "7",
}


def test_a_mapping_with_flinks_keys_is_taken_as_it_stands() -> None:
    options = ChangelogOptions.of(FLINK)
    assert options == ChangelogOptions.of(
        enabled=True,
        storage="filesystem",
        base_path="/a",
        preemptive_persist_threshold=5 << 20,
        upload_timeout_ms=datetime.timedelta(seconds=2),
        num_upload_threads=7,
    )
    assert ChangelogOptions.of(FLINK, compression_enabled=True).compression_enabled
    assert ChangelogOptions.of({}) == ChangelogOptions.of()


ATTEMPTS = "state.changelog.dstl.dfs.upload.max-attempts"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({ATTEMPTS: "x"}, f"{ATTEMPTS}: expected a whole number, got 'x'"),
        ({ATTEMPTS: 1.5}, f"{ATTEMPTS}: expected a whole number, got 1.5"),
        ({ATTEMPTS: None}, f"{ATTEMPTS}: expected a whole number, got None"),
        ({ATTEMPTS: 3, "max_attempts": 3}, f"max_attempts and {ATTEMPTS} are the same option"),
        ({"base_path": 5}, "base_path: expected text, got 5"),
        ({"dstl.materialize.log-ratio": "x"}, "log-ratio: expected a number, got 'x'"),
        ({"max_in_flight": float("inf")}, "max_in_flight: expected a finite number, got inf"),
        ({"max_atempts": 3}, "has no option max_atempts; did you mean max_attempts"),
        (
            {"state.changelog.dstl.dfs.upload.attempts": 3},
            "has no option state.changelog.dstl.dfs.upload.attempts; did you mean state",
        ),
        ({"execution.mode": "x"}, "ChangelogOptions has no option execution.mode$"),
        ({"": 1}, "ChangelogOptions has no option ''$"),
        ({" enabled": 1}, "has no option ' enabled'; did you mean enabled$"),
        ({"self": 1}, "ChangelogOptions has no option self"),
        (
            {"state.backend.changelog.enabled": True, "enabled": False},
            "enabled and state.backend.changelog.enabled are the same option; give one$",
        ),
        ({ATTEMPTS: 10**5000}, f"{ATTEMPTS}: expected at most 2147483647, got a number of more th"),
        ({ATTEMPTS: "9" * 5000}, f"{ATTEMPTS}: expected a whole number, got '9{{99}}$"),
        ({"max_in_flight": 1 << 63}, "max_in_flight: expected at most 9223372036854775807, got a"),
        ({"upload_timeout_ms": 1 << 70}, "upload_timeout_ms: expected at most 9223372036854775807"),
    ],
    ids=lambda option: str(option)[:60] if isinstance(option, str) else "_".join(option),
)
@pytest.mark.filterwarnings("ignore:The option")
def test_a_wrong_option_is_named_in_words_of_our_own(options: dict[str, Any], said: str) -> None:
    for make in (ChangelogOptions.of, lambda arguments: ChangelogOptions(**arguments)):
        with pytest.raises(ConfigError) as caught:
            make(options)
        text = str(caught.value).rstrip(".")
        assert re.search(said, text), text
        assert "nput should" not in text
        assert "pydantic" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("state.changelog.enabled", "expected a mapping of names to values, got 'state.changelog."),
        (
            [("enabled", True)],
            r"expected a mapping of names to values, got \[\('enabled', True\)\]",
        ),
        ({5: True}, "The name of an option is wrong: expected text, got 5"),
        ({b"enabled": True}, "expected text, got b'enabled'"),
    ],
)
def test_options_that_are_no_mapping_of_names_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ChangelogOptions.of(options)


def test_options_are_taken_as_options_too() -> None:
    options = ChangelogOptions.of({"state.changelog.enabled": "true"}, base_path="/a")
    assert ChangelogOptions.of(options) == options
    assert ChangelogOptions.of(options, base_path="/b") == ChangelogOptions.of(
        enabled=True, base_path="/b"
    )
