"""Each bound on an item, and what bounds the sum of many items just below it.

A new constant whose name says a bound needs a row here. One on an item that another bound holds
together needs a test that feeds many items just below it (``FED_BY``).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_BOUND = re.compile(r"(?:^|_)(?:MAX|MOST|LARGEST|LONGEST|DEEPEST|LIMIT)(?:_|$)")


class Sum(Enum):
    """Why there is no other bound on the sum."""

    TOTAL = "this is the bound on a sum"
    ONE = "one is held at a time"
    BYTES = "all of them take a bounded multiple of bytes that are held or stored anyway"
    DEPTH = "it bounds the depth of a stack, and the parts are counted elsewhere"
    VALUE = "it bounds a number of a type, for which nothing is held"
    SHOWN = "it cuts what a person is shown"
    PACE = "it bounds how much is done at once or how often, for what a user configured"
    NAME = "the name of a setting, or a default"


CODEC = "dstl_core/codec/"
KERNELS = f"{CODEC}columnar/kernels/"
JAR = f"{CODEC}classfile/job_jar.py:"
SST_BLOCKS = f"{CODEC}columnar/keyed/sst_blocks.py:"
SNAPPY = f"{CODEC}snappy_frames.py:"
FREE_VALUES = f"{CODEC}data_io.py:MAX_FREE_VALUES"
METADATA_ITEMS = f"{CODEC}metadata/metadata_format.py:MAX_ITEMS"
VERDICTS = "dstl_core/savepoint/restores/flink_verdicts.py:"
DECLARATION = "dstl_core/savepoint/migrate/declaration_text.py:"

BOUNDS: dict[str, Sum | str] = {
    f"{CODEC}classfile/class_file.py:_MAX_ANNOTATION_NESTING": Sum.DEPTH,
    f"{CODEC}classfile/expressions.py:_MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}classfile/expressions.py:_MAX_PARTS": Sum.BYTES,
    f"{CODEC}classfile/generic_types.py:MAX_TYPE_NESTING": Sum.DEPTH,
    f"{CODEC}classfile/job_code.py:_SETS_MAX_PARALLELISM": Sum.NAME,
    f"{JAR}MAX_CLASS_BYTES": f"{JAR}MAX_PARSED_BYTES",
    f"{JAR}MAX_ENTRIES": Sum.TOTAL,
    f"{JAR}MAX_NESTED_BYTES": Sum.TOTAL,
    f"{JAR}MAX_NESTED_JARS": f"{JAR}MAX_NESTED_BYTES",
    f"{JAR}MAX_NESTED_JAR_BYTES": f"{JAR}MAX_NESTED_BYTES",
    f"{JAR}MAX_PARENTS": f"{JAR}MAX_PARSED_BYTES",
    f"{JAR}MAX_PARSED_BYTES": Sum.TOTAL,
    f"{JAR}MAX_SCANNED_BYTES": Sum.TOTAL,
    f"{CODEC}columnar/changes/batches.py:_MOST": Sum.NAME,
    f"{CODEC}columnar/changes/batches.py:_MOST_BATCH_BYTES": Sum.ONE,
    f"{KERNELS}kryo/codes.py:DEEPEST": Sum.DEPTH,
    f"{KERNELS}kryo/codes.py:MAX_ARGUMENTS": Sum.ONE,
    f"{KERNELS}kryo/codes.py:MAX_CLASSES": Sum.ONE,
    f"{KERNELS}kryo/codes.py:MAX_NAMES": Sum.ONE,
    f"{KERNELS}kryo/codes.py:MAX_OBJECTS": Sum.ONE,
    f"{KERNELS}kryo/codes.py:MAX_PARTS": Sum.ONE,
    f"{KERNELS}kryo/codes.py:MAX_SHARED": Sum.ONE,
    f"{KERNELS}kryo/write_objects.py:LARGEST_OFFSET": Sum.VALUE,
    f"{KERNELS}kryo/write_objects.py:LONGEST_ASCII": Sum.VALUE,
    f"{KERNELS}values.py:MAX_MILLIS": Sum.VALUE,
    f"{KERNELS}values.py:MAX_OFFSET": Sum.VALUE,
    f"{KERNELS}values.py:MAX_SECONDS": Sum.VALUE,
    f"{KERNELS}values.py:MAX_YEAR": Sum.VALUE,
    f"{KERNELS}write.py:MAX_EXACT_SECONDS": Sum.VALUE,
    f"{KERNELS}write_sql.py:MAX_SLOT_TEXT": Sum.VALUE,
    f"{CODEC}columnar/keyed/encoder.py:MOST_BYTES": Sum.ONE,
    f"{CODEC}columnar/keyed/runs.py:MAX_PART_BYTES": Sum.BYTES,
    f"{SST_BLOCKS}MAX_BLOCKS_BYTES": Sum.TOTAL,
    f"{SST_BLOCKS}_MOST_TIMES_TOGETHER": Sum.TOTAL,
    f"{CODEC}columnar/kryo/scala_nodes.py:_MOST_DEPTH": Sum.DEPTH,
    f"{CODEC}columnar/kryo/section_converter.py:_LONGEST_STREAK": Sum.PACE,
    f"{CODEC}columnar/kryo/section_converter.py:_MOST_TAPE_BYTES": Sum.ONE,
    f"{CODEC}columnar/kryo/type_nodes.py:_MOST_DEPTH": Sum.DEPTH,
    f"{CODEC}columnar/types/program.py:LIMIT": Sum.NAME,
    f"{CODEC}data_io.py:MAX_FREE_VALUES": Sum.TOTAL,
    f"{CODEC}data_io.py:MAX_UTF_BYTES": Sum.BYTES,
    f"{CODEC}declared_type.py:_MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}declared_type.py:_MAX_PARTS": Sum.ONE,
    f"{CODEC}java_stream.py:MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}java_stream.py:MAX_HANDLES": Sum.ONE,
    f"{CODEC}java_stream.py:MAX_PARENTS": Sum.DEPTH,
    f"{CODEC}kryo/class_layouts.py:_MAX_TUPLE": Sum.VALUE,
    f"{CODEC}kryo/flink_types.py:MAX_TYPE_PARTS": Sum.ONE,
    f"{CODEC}kryo/kryo_input.py:_LONGEST_ASCII": Sum.VALUE,
    f"{CODEC}kryo/kryo_reader.py:MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}kryo/kryo_reader.py:MAX_OBJECTS": FREE_VALUES,
    f"{CODEC}kryo/object_bodies.py:MAX_NULLS": FREE_VALUES,
    f"{CODEC}logical_type_objects.py:_MAX_LENGTH": Sum.VALUE,
    f"{CODEC}logical_type_objects.py:_MOST_DIGITS": Sum.VALUE,
    f"{CODEC}logical_types.py:_MAX_NESTING": Sum.DEPTH,
    f"{CODEC}metadata/metadata_format.py:MAX_ITEMS": Sum.TOTAL,
    f"{CODEC}metadata/metadata_format.py:MAX_OFFSETS": Sum.TOTAL,
    f"{CODEC}metadata/handles.py:_MAX_NESTING": Sum.DEPTH,
    f"{CODEC}operator_state.py:_LONGEST_KEPT": Sum.ONE,
    f"{CODEC}protobuf/descriptors.py:MAX_NESTING": Sum.DEPTH,
    f"{CODEC}protobuf/message_text.py:MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}protobuf/wire.py:_MAX_VARINT_BYTES": Sum.VALUE,
    f"{CODEC}pyflink/declared.py:MAX_LENGTH": Sum.TOTAL,
    f"{CODEC}pyflink/declared.py:MAX_NESTING": Sum.DEPTH,
    f"{CODEC}pyflink/known_calls.py:_MAX_DIGITS": Sum.VALUE,
    f"{CODEC}pyflink/pickled_values.py:MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}pyflink/pickles.py:MAX_HELD": Sum.TOTAL,
    f"{CODEC}pyflink/pickles.py:MAX_LONG_BYTES": Sum.VALUE,
    f"{CODEC}pyflink/pickles.py:MAX_PROTOCOL": Sum.VALUE,
    f"{CODEC}serializers/avro.py:_MAX_DEPTH": Sum.DEPTH,
    f"{CODEC}serializers/base.py:MAX_NESTING": Sum.DEPTH,
    f"{CODEC}serializers/dates.py:_MAX_YEAR": Sum.VALUE,
    f"{CODEC}serializers/libraries/roaring_bitmap.py:MAX_SHOWN_MEMBERS": Sum.ONE,
    f"{CODEC}serializers/libraries/roaring_bitmap.py:_MAX_ARRAY": Sum.VALUE,
    f"{CODEC}serializers/libraries/roaring_bitmap.py:_MAX_CONTAINERS": Sum.BYTES,
    f"{CODEC}serializers/unknown.py:MAX_STATE_NAME_BYTES": Sum.BYTES,
    f"{CODEC}serializers/unknown.py:MAX_WORK_BYTES": Sum.TOTAL,
    f"{SNAPPY}MAX_CHUNK_DATA": f"{SNAPPY}MAX_UNPACKED_BYTES",
    f"{SNAPPY}MAX_UNPACKED_BYTES": Sum.TOTAL,
    f"{SNAPPY}MOST_TIMES": f"{SNAPPY}MAX_UNPACKED_BYTES",
    f"{CODEC}sst/block.py:MAX_BLOCK_BYTES": f"{SST_BLOCKS}MAX_BLOCKS_BYTES",
    f"{CODEC}sst/block.py:_MOST_TIMES_KEYS": f"{SST_BLOCKS}MAX_BLOCKS_BYTES",
    f"{CODEC}sst/file.py:MAX_INDEX_BYTES": f"{CODEC}sst/file.py:_MOST_TIMES_INDEX",
    f"{CODEC}sst/file.py:MAX_SEQUENCE": Sum.VALUE,
    f"{CODEC}sst/file.py:_MOST_TIMES_INDEX": Sum.BYTES,
    f"{CODEC}state_meta.py:MAX_STATES": Sum.BYTES,
    f"{CODEC}type_text.py:_MAX_DECIMAL": Sum.VALUE,
    f"{CODEC}type_text.py:_MAX_DEPTH": Sum.DEPTH,
    "dstl_core/aggregates/by_order.py:MOST_ORDERS": Sum.VALUE,
    "dstl_core/aggregates/wide_sums.py:_MOST_HALVES": Sum.VALUE,
    "dstl_core/changelog/upload/throttle.py:_MOST_HANGING_ATTEMPTS": Sum.TOTAL,
    "dstl_core/checkpoint/coordination/gateway.py:MAX_SAVEPOINTS_IN_FLIGHT": Sum.TOTAL,
    "dstl_core/checkpoint/coordination/requests.py:MAX_QUEUED_REQUESTS": Sum.TOTAL,
    "dstl_core/checkpoint/store/metadata_file.py:MAX_METADATA_BYTES": METADATA_ITEMS,
    "dstl_core/checkpoint/store/metadata_file.py:MAX_SIDECAR_BYTES": Sum.ONE,
    "dstl_core/checkpoint/store/metadata_file.py:_MAX_DEPTH": Sum.DEPTH,
    "dstl_core/checkpoint/store/metadata_file.py:_MAX_KEPT_BYTES": Sum.BYTES,
    "dstl_core/checkpoint/store/state_files.py:MAX_NAMED": Sum.SHOWN,
    "dstl_core/cli/app.py:_LONGEST_REASON": Sum.SHOWN,
    "dstl_core/cli/browse/browsed_entries.py:_LONGEST_CELL": Sum.SHOWN,
    "dstl_core/cli/browse/browsed_entries.py:_LONGEST_DETAIL": Sum.SHOWN,
    "dstl_core/cli/offsets_command.py:_LONGEST_HEX": Sum.SHOWN,
    "dstl_core/config.py:_MAX_INT": Sum.VALUE,
    "dstl_core/config.py:_MAX_LONG": Sum.VALUE,
    "dstl_core/config.py:_MOST_SHOWN": Sum.SHOWN,
    "dstl_core/errors.py:_LONGEST_MESSAGE": Sum.SHOWN,
    "dstl_core/flink_text.py:_MAX_LONG": Sum.VALUE,
    "dstl_core/model/key_group.py:DEFAULT_LOWER_BOUND_MAX_PARALLELISM": Sum.NAME,
    "dstl_core/model/key_group.py:UPPER_BOUND_MAX_PARALLELISM": METADATA_ITEMS,
    "dstl_core/model/sequence.py:_MAX": Sum.VALUE,
    "dstl_core/operators/aggregated_windows.py:_MAX_TIME": Sum.VALUE,
    f"{VERDICTS}_MOST_BYTES": f"{VERDICTS}_MOST_BYTES_TOGETHER",
    f"{VERDICTS}_MOST_BYTES_TOGETHER": Sum.TOTAL,
    f"{VERDICTS}_MOST_VALUES": f"{VERDICTS}_MOST_BYTES_TOGETHER",
    "dstl_core/savepoint/restores/flink_answers.py:_MOST_ANSWERS": Sum.TOTAL,
    "dstl_core/savepoint/restores/flink_answers.py:_MOST_MESSAGE": Sum.SHOWN,
    "dstl_core/savepoint/folders/job_folder.py:MOST_POINTS": Sum.SHOWN,
    "dstl_core/savepoint/columns/message_columns.py:MAX_FIELDS": Sum.TOTAL,
    "dstl_core/savepoint/verify/range_check.py:MAX_FINDINGS_OF_A_KIND": Sum.SHOWN,
    "dstl_core/savepoint/connectors/kafka_topics.py:_LONGEST_TOPIC": Sum.VALUE,
    "dstl_core/savepoint/connectors/set_positions.py:_LIMIT": Sum.VALUE,
    "dstl_core/savepoint/edit/edited_savepoint.py:DEFAULT_MAX_PARALLELISM": Sum.NAME,
    f"{DECLARATION}MAX_NESTING": Sum.DEPTH,
    f"{DECLARATION}MAX_SIZE": Sum.TOTAL,
    f"{DECLARATION}_MOST_DIGITS": Sum.VALUE,
    "dstl_core/savepoint/expressions/expression.py:_MOST_DEPTH": Sum.DEPTH,
    "dstl_core/savepoint/expressions/expression.py:_MOST_DIGITS": Sum.VALUE,
    "dstl_core/savepoint/migrate/proposal/compiled_plan.py:_MAX_BYTES": Sum.ONE,
    "dstl_core/savepoint/migrate/proposal/plan_columns.py:_DEEPEST": Sum.DEPTH,
    "dstl_core/savepoint/migrate/proposal/plan_columns.py:_LONGEST": Sum.SHOWN,
    "dstl_core/savepoint/expressions/sql_cast.py:LONGEST": Sum.VALUE,
    "dstl_core/savepoint/expressions/value_conversion.py:MOST_KEYS": Sum.SHOWN,
    "dstl_core/savepoint/read/job_classes.py:MAX_JAR_BYTES": Sum.TOTAL,
    "dstl_core/savepoint/read/job_classes.py:MAX_PROTO_BYTES": Sum.PACE,
    "dstl_core/savepoint/report/largest.py:LARGEST": Sum.SHOWN,
    "dstl_core/savepoint/report/page.py:MOST_SHOWN": Sum.SHOWN,
    "dstl_core/savepoint/report/state_counts.py:_MAX_NUMBERS": Sum.SHOWN,
    "dstl_core/savepoint/report/contents.py:_MAX_DISTINCT": Sum.ONE,
    "dstl_core/state/columns/column_store.py:_MOST_BITS": Sum.ONE,
    "dstl_core/savepoint/report/value_counts.py:MAX_WINDOWS": Sum.BYTES,
    "dstl_core/job/coordination/epoch.py:MAX_BROADCAST_BYTES": Sum.PACE,
    "dstl_core/job/task/reduced_pieces.py:MOST_BYTES": Sum.TOTAL,
    "dstl_core/job/task/windowed_rows.py:MOST_ROWS": Sum.PACE,
    "dstl_core/display.py:LONGEST_KEY": Sum.SHOWN,
    "dstl_core/display.py:LONGEST_SHOWN": Sum.SHOWN,
    "dstl_core/spark/engine/workers.py:MAX_BYTES": Sum.NAME,
    "dstl_core/spark/engine/workers.py:MAX_RECORDS": Sum.NAME,
    "dstl_core/savepoint/bootstrap/state_bootstrap.py:MAX_KEYS_SHOWN": Sum.SHOWN,
    "dstl_core/state/columns/column_store.py:MAX_LEVELS": Sum.ONE,
    "dstl_core/state/backends/changelog_backend.py:MAX_DIRTY": Sum.TOTAL,
    "dstl_core/state/backends/rocksdb_store.py:MAX_RUNS": Sum.PACE,
    "dstl_core/state/backends/rocksdb_store.py:MAX_TABLES": Sum.VALUE,
    "dstl_core/state/backends/timers.py:MAX_WATERMARK": Sum.VALUE,
    "dstl_core/state/columns/gathered_states.py:MOST_WAITING_BYTES": Sum.TOTAL,
    "dstl_core/state/columns/stored_hashes.py:_MOST_HELD": Sum.PACE,
    "dstl_core/state/held/held_values.py:MOST_BYTES": Sum.PACE,
    "dstl_core/state/restore/divided_log.py:_MOST_PARTS": Sum.PACE,
    "dstl_core/state/restore/rocksdb.py:_MAX_CURRENT_BYTES": Sum.ONE,
    "dstl_core/state/restore/rocksdb.py:_MOST_DIGITS": Sum.VALUE,
    "dstl_core/state/tables/key_type.py:MAX_CHANGES": Sum.ONE,
    "dstl_core/state/tables/ttl.py:_MAX_TIMESTAMP": Sum.VALUE,
    "dstl_core/state/windows/windowing.py:MAX_TIMESTAMP": Sum.VALUE,
    "dstl_core/storage/read_ahead.py:_MOST_BYTES": Sum.TOTAL,
    "dstl_core/storage/signed_reads.py:_MOST_ADDRESSES": Sum.TOTAL,
    "dstl_core/storage/signed_reads.py:_MOST_FAILURES": Sum.PACE,
    "dstl_core/storage/commit_log.py:MOST_AT_ONCE": Sum.TOTAL,
    "dstl_core/storage/commit_log.py:MOST_TRIES": Sum.PACE,
    "dstl_core/spark/savepoints/spark_units.py:_LONGEST_REASON": Sum.SHOWN,
    "dstl_core/spark/savepoints/spark_units.py:_MOST_RESULT_BYTES": Sum.PACE,
    "dstl_core/spark/savepoints/spark_units.py:_MOST_TIMES": Sum.PACE,
    "dstl_core/storage/file_systems.py:_LONGEST_REASON": Sum.SHOWN,
    "dstl_dagster/charts.py:MAX_POINTS": Sum.SHOWN,
    "dstl_dagster/charts.py:_MAX_LABEL": Sum.SHOWN,
    "dstl_dagster/checks/snapshot_check.py:MAX_SHOWN": Sum.SHOWN,
    "dstl_dagster/metadata.py:MAX_ROWS": Sum.SHOWN,
    "dstl_dagster/pipelines/failures.py:_MAX_TRACEBACK": Sum.SHOWN,
    "dstl_dagster/pipelines/jobs.py:MAX_RUNTIME_TAG": Sum.NAME,
    "dstl_dagster/pipelines/state_profile.py:LARGEST_KEYS": Sum.SHOWN,
    "dstl_dagster/pipelines/state_profile.py:MAX_HISTOGRAMS": Sum.SHOWN,
    "dstl_dagster/pipelines/state_profile.py:_MAX_VALUE": Sum.VALUE,
    "dstl_dagster/resources/flink_client.py:MAX_ANSWER_BYTES": Sum.ONE,
    "dstl_dagster/sensors.py:MAX_ATTEMPTS": Sum.PACE,
    "dstl_dagster/sensors.py:MAX_EVENTS_PER_TICK": Sum.PACE,
}


def constants(path: Path) -> Iterator[str]:
    """Names in upper case that a module or a class assigns."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Assign(targets=targets):
                names = [name for target in targets for name in ast.walk(target)]
            case ast.AnnAssign(target=target):
                names = [target]
            case _:
                continue
        for name in names:
            if isinstance(name, ast.Name) and name.id.isupper() and _BOUND.search(name.id):
                yield f"{path.relative_to(ROOT)}:{name.id}"


@pytest.mark.slow
def test_every_bound_says_what_bounds_the_sum() -> None:
    bounds_in_code = {
        constant
        for package in ("dstl_core", "dstl_dagster")
        for path in sorted((ROOT / package).rglob("*.py"))
        for constant in constants(path)
    }
    assert len(bounds_in_code) > 100
    assert sorted(bounds_in_code) == sorted(BOUNDS)


@pytest.mark.parametrize(
    ("bound", "on_the_sum"), [(name, on) for name, on in BOUNDS.items() if isinstance(on, str)]
)
def test_what_bounds_the_sum_is_a_bound_itself(bound: str, on_the_sum: str) -> None:
    chain = [bound]
    while isinstance(on_the_sum, str):
        assert on_the_sum not in chain
        chain.append(on_the_sum)
        on_the_sum = BOUNDS[on_the_sum]
    assert on_the_sum in (Sum.TOTAL, Sum.ONE, Sum.BYTES)


FED_BY = {
    f"{JAR}MAX_CLASS_BYTES": (
        "test_many_classes_just_below_the_limit_of_one_have_a_limit_together"
    ),
    f"{JAR}MAX_NESTED_JARS": "test_many_jars_just_below_the_limit_of_one_have_a_limit_together",
    f"{JAR}MAX_NESTED_JAR_BYTES": (
        "test_many_jars_just_below_the_limit_of_one_have_a_limit_together"
    ),
    f"{JAR}MAX_PARENTS": "test_a_class_takes_a_bounded_multiple_of_its_bytes_in_memory",
    f"{CODEC}kryo/kryo_reader.py:MAX_OBJECTS": "test_many_values_have_a_limit_together",
    f"{CODEC}kryo/object_bodies.py:MAX_NULLS": "test_many_values_have_a_limit_together",
    f"{SNAPPY}MAX_CHUNK_DATA": "test_chunks_that_claim_their_most_have_a_limit_together",
    f"{SNAPPY}MOST_TIMES": "test_chunks_that_claim_their_most_have_a_limit_together",
    f"{CODEC}sst/block.py:MAX_BLOCK_BYTES": (
        "test_many_blocks_just_below_the_limit_of_one_have_a_limit_together"
    ),
    f"{CODEC}sst/block.py:_MOST_TIMES_KEYS": (
        "test_keys_that_share_a_long_part_have_a_limit_together"
    ),
    f"{CODEC}sst/file.py:MAX_INDEX_BYTES": "test_the_index_of_a_table_file_has_a_limit",
    "dstl_core/checkpoint/store/metadata_file.py:MAX_METADATA_BYTES": (
        "test_metadata_with_too_many_items_is_refused_before_they_are_read"
    ),
    "dstl_core/model/key_group.py:UPPER_BOUND_MAX_PARALLELISM": (
        "test_counts_below_the_limit_have_a_limit_together"
    ),
    f"{VERDICTS}_MOST_BYTES": "test_values_of_many_states_have_a_limit_together",
    f"{VERDICTS}_MOST_VALUES": "test_values_of_many_states_have_a_limit_together",
}
"""The test that feeds many items just below each of these, by a count or by measured memory."""


def test_a_bound_on_an_item_has_a_test_that_feeds_many_items_below_it() -> None:
    assert sorted(FED_BY) == sorted(name for name, on in BOUNDS.items() if isinstance(on, str))
    in_tests = {
        line.removeprefix("def ").partition("(")[0]
        for path in (ROOT / "tests" / "unit").rglob("test_*.py")
        for line in path.read_text().splitlines()
        if line.startswith("def test_")
    }
    assert set(FED_BY.values()) - in_tests == set()
